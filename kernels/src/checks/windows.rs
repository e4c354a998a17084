//! Rows in the caches of layers with a window, compared with the same look-ups on the host.

use super::{
    Numbers,
    layout::{Situation, ints, poisoned, same},
    text,
};
use crate::{
    device::{Device, Element},
    launch::{Kernels, Moves, OwnRows, PassRows, WindowOf, WindowedRows},
};

/// Window pages of some pages, and rows of sequences on them.
struct WindowCase {
    situation: Situation,
    /// Window page of each page and of that of padding, −1 for none.
    of_page: Vec<i32>,
    absent: i32,
}

/// Changes the window pages of some pages, then translates rows and moves.
pub fn check_windows(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(67);
    for (batch, stride, window) in [(1, 1, 1), (7, 4, 12), (64, 9, 128), (70, 3, 65), (130, 1, 7)] {
        for lists in [false, true] {
            let case = WindowCase::new(&mut numbers, batch);
            let what = format!("{batch} rows with lists of {stride} ({lists}), window {window}");
            check_one(device, &mut numbers, &case, (stride, window, lists)).map_err(|why| format!("{what}: {why}"))?;
        }
    }
    Ok(())
}

impl WindowCase {
    fn new(numbers: &mut Numbers, batch: usize) -> Self {
        let situation = Situation::new(numbers, batch, 3);
        let pages = situation.page_table.len();
        let mut of_page = numbers.shuffled(pages);
        of_page.iter_mut().filter(|_| numbers.below(3) == 0).for_each(|window| *window = -1);
        of_page.push(pages as i32);
        Self { situation, of_page, absent: pages as i32 + 1 }
    }

    fn row(&self, row: i32) -> i32 {
        let page_size = self.situation.page_size as i32;
        let window = if row < 0 { None } else { self.of_page.get((row / page_size) as usize) };
        window.filter(|window| **window >= 0).map_or(-1, |window| window * page_size + row % page_size)
    }

    fn listed(&self, row: i32) -> i32 {
        let found = self.row(row);
        if found < 0 { self.absent * self.situation.page_size as i32 } else { found }
    }
}

fn check_one(
    device: &Device,
    numbers: &mut Numbers,
    case: &WindowCase,
    (stride, window, lists): (usize, usize, bool),
) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let upload = |values: &[i32]| device.upload(values).map_err(text);
    let situation = &case.situation;
    let (rows, pages, page_size) = (situation.batch_slot.len(), situation.page_table.len(), situation.page_size);
    let map = upload(&vec![-1; pages + 1])?;
    let of = WindowOf { page: map.slice(), pages, absent: case.absent as usize, page_size };
    let changes: Vec<i32> = (0..).zip(&case.of_page).flat_map(|(page, window)| [page, *window]).collect();
    kernels.change_windows(of, upload(&changes)?.slice(), pages + 1).map_err(text)?;
    same("window pages", &ints(device, &map)?, &case.of_page)?;

    let uploaded = situation.upload(device)?;
    // Some beyond the pages, as rows of drafts are, and some that are none.
    let mut some = |count: usize| -> Vec<i32> {
        (0..count).map(|_| numbers.below(situation.cache_rows + 3 * page_size) as i32 - 1).collect()
    };
    let (write, own, group_own, from, to) =
        (some(rows), some(rows * stride), some(rows * stride), some(rows), some(rows));
    let prefix: Vec<i32> = situation.batch_slot.iter().map(|slot| situation.length[*slot as usize]).collect();
    let given = [&write, &own, &group_own, &situation.batch_slot, &prefix].map(|values| upload(values));
    let [write_at, own_at, group_at, slot_at, prefix_at] = given;
    let (write_at, own_at, group_at, slot_at, prefix_at) = (write_at?, own_at?, group_at?, slot_at?, prefix_at?);
    let none = poisoned(device, rows)?;
    let pass = PassRows {
        token: none.slice(),
        position: none.slice(),
        write: write_at.slice(),
        slot: slot_at.slice(),
        prefix: prefix_at.slice(),
        own_count: none.slice(),
        own: own_at.slice(),
        own_stride: stride,
    };
    let groups = OwnRows { cache_rows: group_at.slice(), count: none.slice(), mask: none.slice(), own_stride: stride };
    let outputs = [rows, rows * stride, rows * stride].map(|count| poisoned(device, count));
    let [to_write, to_own, to_group] = outputs;
    let (to_write, to_own, to_group) = (to_write?, to_own?, to_group?);
    // What stays −7 was not written.
    let before = vec![-7; situation.slots * situation.table_width];
    let table = upload(&before)?;
    let windowed = WindowedRows {
        write: to_write.slice(),
        own: to_own.slice(),
        group_own: to_group.slice(),
        table: table.slice(),
    };
    let sequences = situation.sequences(&uploaded);
    kernels.window_rows(windowed, (pass, lists.then_some(groups)), sequences, of, (window, rows)).map_err(text)?;
    let all = |values: &[i32], of: &dyn Fn(i32) -> i32| values.iter().map(|row| of(*row)).collect::<Vec<_>>();
    same("written rows", &ints(device, &to_write)?, &all(&write, &|row| case.row(row)))?;
    if lists {
        same("lists of rows", &ints(device, &to_own)?, &all(&own, &|row| case.listed(row)))?;
        same("lists of groups", &ints(device, &to_group)?, &all(&group_own, &|row| case.listed(row)))?;
    }
    check_table(&ints(device, &table)?, case, &prefix, window)?;
    check_moves(device, &kernels, case, of, (&from, &to))
}

/// Every page that a row sees has an entry, and no other entry is wrong.
fn check_table(found: &[i32], case: &WindowCase, prefix: &[i32], window: usize) -> Result<(), String> {
    let situation = &case.situation;
    let window_page = |page: i32| match case.of_page[page as usize] {
        -1 => case.absent,
        window => window,
    };
    for (at, (found, page)) in found.iter().zip(&situation.page_table).enumerate() {
        if *found != -7 && *found != window_page(*page) {
            return Err(format!("entry {at} of the pages is {found} for page {page}"));
        }
    }
    for (slot, prefix) in situation.batch_slot.iter().zip(prefix) {
        let (slot, prefix) = (*slot as usize, *prefix as usize);
        // Attention reads 64 positions together, which may begin before the window.
        for position in prefix.saturating_sub(window) / 64 * 64..prefix {
            let at = slot * situation.table_width + position / situation.page_size;
            if found[at] == -7 {
                return Err(format!("position {position} of slot {slot} has no page"));
            }
        }
    }
    Ok(())
}

fn check_moves(
    device: &Device,
    kernels: &Kernels,
    case: &WindowCase,
    of: WindowOf<'_>,
    (from, to): (&[i32], &[i32]),
) -> Result<(), String> {
    let upload = |values: &[i32]| device.upload(values).map_err(text);
    let (from_at, to_at) = (upload(from)?, upload(to)?);
    let (found_from, found_to) = (poisoned(device, from.len())?, poisoned(device, to.len())?);
    let given = Moves { from: from_at.slice(), to: to_at.slice() };
    let found = Moves { from: found_from.slice(), to: found_to.slice() };
    kernels.window_moves(found, given, of, from.len()).map_err(text)?;
    let expected: Vec<(i32, i32)> = (from.iter().zip(to))
        .map(|(from, to)| (case.row(*from), case.row(*to)))
        .map(|(from, to)| if from >= 0 && to >= 0 { (from, to) } else { (-1, -1) })
        .collect();
    let (expected_from, expected_to): (Vec<i32>, Vec<i32>) = expected.into_iter().unzip();
    same("sources of moves", &ints(device, &found_from)?, &expected_from)?;
    same("destinations of moves", &ints(device, &found_to)?, &expected_to)
}
