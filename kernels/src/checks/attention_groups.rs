//! Rotation and attention of rows in groups.

use std::collections::HashSet;

use super::{
    Numbers,
    attention::{AttentionFixture, FP8_SHAPES, OWN_STRIDE, SOME_SHAPES, for_all_shapes},
    compare,
    elementwise::InParts,
    text, tolerance,
};
use crate::{
    device::{Device, Element},
    launch::{Ahead, Groups, Kernels, OwnRows, RotaryRows, Rotation, Sees},
    reference::{KeyValues, Rope, RopeScaling, rms_norm},
};

/// Positions that rows may have.
const POSITIONS: usize = 500;

/// How rows of a fixture are run.
#[derive(Clone, Copy, Debug)]
struct AttentionRun {
    /// Whether rows have own rows, or see positions only.
    own: bool,
    max_splits: usize,
    /// Whether heads are normed before they are rotated.
    normed: bool,
    /// Whether the qkv layer has left its result in parts.
    in_parts: bool,
}

/// The expected state before and after a run.
struct ExpectedState {
    /// Cache row of each row, −1 for none.
    write: Vec<i32>,
    /// The qkv layer's rows, with rotated queries.
    qkv: Vec<f32>,
    cache: KeyValues,
}

/// Groups of rows on tensor cores: trees of several sizes whose rows share their paths or do not,
/// padding, single rows; given as ranges and as even groups; more own rows than a tile, none, and
/// no prefix. And rows that see positions alone: chunks of prompts, and single rows. Rows write to
/// the cache what they and their group see.
pub fn check_rotate_and_attend(device: &Device, element: Element) -> Result<(), String> {
    for_all_shapes(|heads, head_dim, page_size| {
        check_cases(device, element, (heads, head_dim, page_size), |fixture| Ok(fixture))
    })
}

/// The same with sinks, and with windows that are longer than what rows see, shorter, and hardly
/// longer than a path.
pub fn check_rotate_and_attend_sinks(device: &Device, element: Element) -> Result<(), String> {
    for (at, shape) in SOME_SHAPES.into_iter().enumerate() {
        for window in [[None, Some(OWN_STRIDE)], [Some(100), Some(1000)]][at % 2] {
            check_cases(device, element, shape, |fixture| fixture.within(window, window != Some(100)))?;
        }
    }
    Ok(())
}

/// The same over a cache in FP8, once with sinks and a window.
pub fn check_rotate_and_attend_fp8(device: &Device, element: Element) -> Result<(), String> {
    for (at, shape) in FP8_SHAPES.into_iter().enumerate() {
        check_cases(device, element, shape, |fixture| match at {
            0 => fixture.in_fp8()?.within(Some(100), true),
            _ => fixture.in_fp8(),
        })?;
    }
    Ok(())
}

/// Heads, query and key/value ones, head size and page size.
type Shape = ((usize, usize), usize, usize);

/// All groups, as a fixture of one shape has them.
fn check_cases(
    device: &Device,
    element: Element,
    (heads, head_dim, page_size): Shape,
    with: impl Fn(AttentionFixture<'_>) -> Result<AttentionFixture<'_>, String>,
) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let tree = |slot: i32, prefix: i32, nodes: i32| (0..nodes).map(move |node| (slot, prefix, 1 + node % 5)).collect();
    let piece = |slot: i32, start: i32, rows: i32| (1..=rows).map(move |row| (slot, start + row, 0)).collect();
    let wide = (0..80).map(|node| (1, 33, 1 + node * 7 % OWN_STRIDE as i32)).collect();
    let groups_of = |groups: Vec<Vec<(i32, i32, i32)>>| {
        let first = groups.iter().scan(0, |end, group| {
            *end += group.len() as i32;
            Some(*end)
        });
        let first: Vec<i32> = [0].into_iter().chain(first).collect();
        (groups.concat(), first)
    };
    let trees = groups_of(vec![
        tree(0, 130, 4),
        vec![(2, 0, 0)],
        vec![(1, 399, 0)],
        tree(2, 64, 13),
        tree(0, 0, 3),
        wide,
        tree(1, 16, 1),
    ]);
    let pieces =
        groups_of(vec![piece(1, 100, 41), vec![(2, 0, 0)], piece(0, 0, 20), piece(2, 399, 1), piece(0, 63, 2)]);
    let short = groups_of(vec![piece(1, 127, 2), vec![(2, 0, 0)], piece(0, 0, 2), piece(2, 398, 2)]);
    // A single group is split, also with few multiprocessors.
    let alone: Vec<(i32, i32, i32)> = tree(1, 399, 7);
    let piece_alone: Vec<(i32, i32, i32)> = piece(2, 396, 4);
    let even = [tree(0, 77, 6), tree(1, 399, 6), vec![(2, 0, 0); 6]].concat();
    // Enough groups that none is split.
    let single: Vec<(i32, i32, i32)> = (0..14).map(|at| (at % 3, [400, 1, 0, 129][at as usize % 4], 0)).collect();
    let couples: Vec<(i32, i32, i32)> = (0..9).flat_map(|at| [(at % 3, 40 * at, 1), (at % 3, 40 * at, 2)]).collect();
    let runs =
        |own: bool| {
            [(1, heads.0 % 2 == 0, true), (5, heads.0 % 2 == 1, false)]
                .map(|(max_splits, normed, in_parts)| AttentionRun { own, max_splits, normed, in_parts })
        };
    for (rows, size, own) in
        [(&alone, 7, true), (&piece_alone, 4, false), (&even, 6, true), (&couples, 2, true), (&single, 1, false)]
    {
        let fixture = with(AttentionFixture::new(device, element, heads, head_dim, page_size, rows)?)?;
        let first: Vec<i32> = (0..=rows.len() / size).map(|group| (group * size) as i32).collect();
        runs(own).into_iter().try_for_each(|run| fixture.check_groups(Groups::Even(size), &first, run))?;
    }
    for ((rows, first), own) in [(&trees, true), (&pieces, false), (&short, false)] {
        let ranges = device.upload(first).map_err(text)?;
        let largest = largest(first);
        let groups = Groups::Ranges { first: ranges.slice(), count: first.len() - 1, largest };
        let fixture = with(AttentionFixture::new(device, element, heads, head_dim, page_size, rows)?)?;
        runs(own).into_iter().try_for_each(|run| fixture.check_groups(groups, first, run))?;
    }
    Ok(())
}

/// Rows of the largest group.
fn largest(first: &[i32]) -> usize {
    first.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or_default()
}

impl AttentionFixture<'_> {
    /// Checks all rows in groups that start at these rows: the result of attention, and the cache.
    fn check_groups(&self, groups: Groups<'_>, first: &[i32], run: AttentionRun) -> Result<(), String> {
        let Self { heads, kv_heads, head_dim, .. } = *self;
        let (device, element, rows) = (self.kernels.device(), self.kernels.element(), self.rows.len());
        let AttentionRun { own, max_splits, normed, in_parts } = run;
        let mut numbers = Numbers::new((head_dim + rows) as u64);
        let rope = Rope::new(head_dim, 10_000.0, RopeScaling::None);
        let at: Vec<usize> = (0..rows).map(|_| numbers.below(POSITIONS)).collect();
        let norms = [numbers.floats(head_dim, element), numbers.floats(head_dim, element)];
        let expected = self.expect(first, own, &rope, &at, normed.then_some(&norms));

        let upload = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        let ints = |values: Vec<i32>| device.upload(&values).map_err(text);
        let space = |count: usize| device.allocate(count * 4).map_err(text);
        let scales = self.cache.fp8.map_or([1.0, 1.0], |scales| [scales.keys, scales.values]);
        let stored = |values: &[f32], plane: usize| self.stored(values, scales[plane]);
        let (qkv, keys, cached) = (upload(&self.qkv)?, stored(&self.cache.keys, 0)?, stored(&self.cache.values, 1)?);
        let parts = in_parts.then(|| InParts::upload(device, &self.qkv)).transpose()?;
        let norms = (upload(&norms[0])?, upload(&norms[1])?);
        let table = device.upload(&rope.table(POSITIONS)).map_err(text)?;
        let (position, write) = (ints(at.iter().map(|at| *at as i32).collect())?, ints(expected.write)?);
        let work = self.work(0..rows, max_splits)?;
        let words = Kernels::own_mask_words(largest(first), OWN_STRIDE);
        let (own_rows, count, mask) = (space(rows * OWN_STRIDE)?, space(rows)?, space(rows * words)?);
        let lists = self.on_device[4].slice();
        let sees = match own {
            false => Sees::Positions,
            true => {
                let (cache_rows, count, mask) = (own_rows.slice(), count.slice(), mask.slice());
                let own = OwnRows { cache_rows, count, mask, own_stride: OWN_STRIDE };
                self.kernels.gather_own(own, work.own_count.slice(), lists, groups, rows).map_err(text)?;
                Sees::Own(own)
            }
        };
        let rotation = Rotation {
            qkv: qkv.slice(),
            parts: parts.as_ref().map(InParts::parts),
            rotary: RotaryRows { table: table.slice(), positions: POSITIONS, position: position.slice() },
            write: write.slice(),
            keys: keys.slice(),
            values: cached.slice(),
            fp8: self.cache.fp8,
            norms: normed.then_some((norms.0.slice(), norms.1.slice(), 1e-6)),
            rows,
            heads,
            kv_heads,
            head_dim,
        };
        let attention = self.attention(&work, &qkv, &keys, &cached);
        let ahead = if in_parts { Ahead::Layer } else { Ahead::Layout };
        if ahead == Ahead::Layer {
            // In a pass another layer comes between; here the description of what rows see might
            // still be being written.
            device.synchronize().map_err(text)?;
        }
        self.kernels.rotate_and_attend(rotation, attention, groups, sees, ahead).map_err(text)?;

        let what = format!("{run:?}");
        let found = self.attended(&work, &what)?;
        let mut cache = expected.cache.clone();
        (cache.keys, cache.values) = (self.read(&keys, scales[0])?, self.read(&cached, scales[1])?);
        for (found, expected) in [(&cache.keys, &expected.cache.keys), (&cache.values, &expected.cache.values)] {
            let name = format!("{}, {what}: the cache", self.name);
            if self.cache.fp8.is_none() {
                compare(&name, found, expected, tolerance(element))?;
                continue;
            }
            // Where the reference rounds to the element type first, a number may be the next one:
            // an eighth of it.
            compare(&name, found, expected, 0.13)?;
            let others = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
            if others * 50 > expected.len() {
                return Err(format!("{name}: {others} of {} numbers differ", expected.len()));
            }
        }
        self.compare(&found, &what, element, &expected.qkv, &cache)
    }

    /// The expected state after a run over rows at these positions. Rows write where they see
    /// themselves: at their last position, or their last own row; but not where another group reads
    /// too (no two requests do that), nor where an earlier row has written.
    fn expect(
        &self,
        first: &[i32],
        own: bool,
        rope: &Rope,
        at: &[usize],
        norms: Option<&[Vec<f32>; 2]>,
    ) -> ExpectedState {
        let (element, kv_width) = (self.kernels.element(), self.kv_heads * self.head_dim);
        let groups = first.windows(2).map(|pair| pair[0] as usize..pair[1] as usize);
        let seen: Vec<HashSet<u32>> = groups
            .clone()
            .map(|rows| rows.flat_map(|row| [self.seen(row).0, self.seen(row).1].concat()).collect())
            .collect();
        let mut written = HashSet::new();
        let write: Vec<i32> = groups
            .enumerate()
            .flat_map(|(group, rows)| rows.map(move |row| (group, row)))
            .map(|(group, row)| {
                let (positions, own_rows) = self.seen(row);
                let place = if own { own_rows.last() } else { positions.last() }.copied();
                let others =
                    |place: u32| seen.iter().enumerate().any(|(other, seen)| other != group && seen.contains(&place));
                place.filter(|place| !others(*place) && written.insert(*place)).map_or(-1, |place| place as i32)
            })
            .collect();
        let rounded = |values: &[f32]| element.decode(&element.encode(values));
        let turned = |x: &[f32], norm: usize, position: usize| {
            let mut x = norms.map_or(x.to_vec(), |norms| rounded(&rms_norm(x, &norms[norm], 1e-6)));
            rope.apply(&mut x, &[position]);
            rounded(&x)
        };
        let (mut qkv, mut cache) = (self.qkv.clone(), self.cache.clone());
        let width = self.heads * self.head_dim + 2 * kv_width;
        for (row, own) in qkv.chunks_exact_mut(width).enumerate() {
            let (queries, rest) = own.split_at_mut(self.heads * self.head_dim);
            let (keys, values) = rest.split_at(kv_width);
            queries.copy_from_slice(&turned(queries, 0, at[row]));
            if let Ok(to) = u32::try_from(write[row]) {
                cache.write(&[to], &turned(keys, 1, at[row]), values);
            }
        }
        ExpectedState { write, qkv, cache }
    }
}
