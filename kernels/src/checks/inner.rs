//! Lists of nodes, compared with a sorted list, and passes over picked rows.

use super::{
    Numbers,
    accept::{AcceptFixture, RoundLength},
    layout::{RowBuffers, Situation, ints, poisoned, same},
    text,
};
use crate::{
    device::{Device, Element},
    launch::{ChosenRows, Kernels, ListedNodes, NOT_FINITE, Picked},
};

/// One list of inner nodes, or with `leaves` of all, with a capacity that exceeds their number by
/// `room`, but holds the roots.
fn check_list(
    device: &Device,
    numbers: &mut Numbers,
    shape: (usize, usize, usize),
    room: isize,
    leaves: bool,
) -> Result<(), String> {
    let (batch, nodes, _) = shape;
    let kernels = Kernels::new(device.clone(), Element::F32);
    let fixture = AcceptFixture::new(device, numbers, shape, RoundLength::Off, 0)?;
    let AcceptFixture { situation, uploaded, trees, .. } = &fixture;
    let all = batch * nodes;
    let is_inner = |at: &usize| {
        let request = at / nodes;
        let children = &trees.parent[request * nodes..][..nodes];
        let is_real = at.is_multiple_of(nodes) || trees.parent[*at] >= 0;
        situation.slot(request).is_some() && (leaves && is_real || children.contains(&((at % nodes) as i32)))
    };
    let mut inner: Vec<usize> = (0..all).filter(is_inner).collect();
    let capacity = inner.len().saturating_add_signed(room).max(1);
    let what = format!("{} nodes of {batch} trees of {nodes}, leaves {leaves}, room for {capacity}", inner.len());
    let buffer = |values: usize| poisoned(device, values);
    let (chosen, place, row) = (buffer(all)?, buffer(all)?, buffer(capacity)?);
    let (choice, first) = (buffer(capacity)?, buffer(batch + 1)?);
    let operand =
        ListedNodes { place: place.slice(), row: row.slice(), choice: choice.slice(), first: first.slice(), capacity };
    kernels.list_nodes(fixture.ways(&chosen), operand, leaves, situation.sequences(uploaded)).map_err(text)?;

    // Roots, then the likeliest, ties to the first: the sort is stable.
    let value = |at: &usize| if at.is_multiple_of(nodes) { f32::INFINITY } else { trees.score[*at] };
    inner.sort_by(|one, other| value(other).total_cmp(&value(one)));
    inner.truncate(capacity);
    inner.sort_unstable();
    let (mut places, mut rows) = (vec![-1; all], vec![-1; capacity]);
    for (at, node) in inner.iter().enumerate() {
        (places[*node], rows[at]) = (at as i32, *node as i32);
    }
    let firsts: Vec<i32> =
        (0..=batch).map(|request| inner.iter().filter(|node| **node < request * nodes).count() as i32).collect();
    for (name, found, expected) in [("place", &place, places), ("row", &row, rows), ("first", &first, firsts)] {
        same(&format!("{what}, {name}"), &ints(device, found)?, &expected)?;
    }
    let orphan = inner.iter().find(|node| {
        let parent = trees.parent[**node];
        parent >= 0 && !inner.contains(&(*node / nodes * nodes + parent as usize))
    });
    orphan.map_or(Ok(()), |node| Err(format!("{what}: node {node} is listed without its parent")))
}

/// Trees of all sizes, with padding, more than a block takes at a time; lists that are too short,
/// exactly long enough, and longer.
pub fn check_list_nodes(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(43);
    for shape in [(1, 1, 0), (1, 4, 3), (31, 128, 10), (33, 33, 5), (40, 32, 5), (70, 60, 8), (2, 128, 127)] {
        for room in [-1, 0, 1, -9, -300, 1100] {
            check_list(device, &mut numbers, shape, room, false)?;
            check_list(device, &mut numbers, shape, room, true)?;
        }
    }
    for _ in 0..20 {
        let shape = (1 + numbers.below(70), 1 + numbers.below(128), 1 + numbers.below(10));
        let room = numbers.below(60) as isize - 30;
        let leaves = numbers.below(2) == 0;
        check_list(device, &mut numbers, shape, room, leaves)?;
    }
    Ok(())
}

/// Rows picked in any order, with padding, with and without known tokens after them.
pub fn check_pick_rows(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(44);
    let kernels = Kernels::new(device.clone(), Element::F32);
    for (rows, count, own_stride) in [(1, 1, 1), (33, 70, 3), (256, 128, 6), (90, 91, 40)] {
        for leaves_known in [false, true] {
            let what = format!("{count} of {rows} rows, own lists of {own_stride}, known left out: {leaves_known}");
            let situation = Situation::new(&mut numbers, 3, 0);
            let uploaded = situation.upload(device)?;
            let mut any =
                |count: usize, below: usize| -> Vec<i32> { (0..count).map(|_| numbers.below(below) as i32).collect() };
            let columns: Vec<Vec<i32>> = (0..5).map(|_| any(rows, 1000)).collect();
            let (own_count, own) = (any(rows, own_stride + 1), any(rows * own_stride, 1000));
            let sample = any(rows, 1000);
            let picked: Vec<i32> = any(count, rows + 1).into_iter().map(|at| at - 1).collect();
            // It may also be known that there is no token.
            let known: Vec<i32> = any(rows, 4).into_iter().map(|token| token + NOT_FINITE).collect();
            let from = RowBuffers::new(device, rows, own_stride)?;
            let operand = from.operand();
            let targets = [operand.token, operand.position, operand.write, operand.slot, operand.prefix];
            for (to, values) in targets.into_iter().zip(&columns) {
                device.write(to, values).map_err(text)?;
            }
            device.write(operand.own_count, &own_count).map_err(text)?;
            device.write(operand.own, &own).map_err(text)?;
            let to = RowBuffers::new(device, count, own_stride)?;
            let upload = |values: &[i32]| device.upload(values).map_err(text);
            let (from_sample, to_sample) = (upload(&sample)?, poisoned(device, count)?);
            let (row, known_at) = (upload(&picked)?, upload(&known)?);
            kernels
                .pick_rows(
                    ChosenRows { rows: to.operand(), sample_position: to_sample.slice() },
                    ChosenRows { rows: operand, sample_position: from_sample.slice() },
                    rows,
                    Picked { row: row.slice(), count, known: leaves_known.then(|| known_at.slice()) },
                    situation.sequences(&uploaded),
                )
                .map_err(text)?;

            let wanted = |row: &i32| usize::try_from(*row).ok().filter(|row| !leaves_known || known[*row] == -1);
            let column = |values: &[i32], padding: i32| -> Vec<i32> {
                picked.iter().map(|row| wanted(row).map_or(padding, |row| values[row])).collect()
            };
            let found = to.download(device)?;
            let lists: Vec<Vec<i32>> = picked
                .iter()
                .map(|row| {
                    wanted(row).map_or(Vec::new(), |row| own[row * own_stride..][..own_count[row] as usize].to_vec())
                })
                .collect();
            same(&format!("{what}, token"), &found.token, &column(&columns[0], 0))?;
            same(&format!("{what}, position"), &found.position, &column(&columns[1], 0))?;
            same(&format!("{what}, write"), &found.write, &column(&columns[2], -1))?;
            same(&format!("{what}, slot"), &found.slot, &column(&columns[3], situation.dummy()))?;
            same(&format!("{what}, prefix"), &found.prefix, &column(&columns[4], 0))?;
            same(&format!("{what}, own rows"), &found.own, &lists)?;
            same(&format!("{what}, sample position"), &ints(device, &to_sample)?, &column(&sample, 0))?;
        }
    }
    Ok(())
}
