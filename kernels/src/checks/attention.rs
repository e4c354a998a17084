//! Attention over the paged cache.

use std::ops::Range;

use super::{Numbers, compare, text, tolerance, values};
use crate::{
    device::{Buffer, Device, Element},
    launch::{Attention, Groups, HEAD_DIMS, Kernels, OwnRows, Rows, Sees},
    reference::{KeyValues, Visible, attention},
};

/// Query heads over key/value heads: several group sizes.
const HEADS: [(usize, usize); 6] = [(1, 1), (4, 1), (6, 2), (7, 1), (8, 1), (12, 1)];
const OWN_STRIDE: usize = 9;

/// Every head size and several group sizes; rows with prefixes through shuffled pages, with rows of their own, with
/// neither; one split and several; and that a row has the same bits in a batch and alone.
pub fn check_attention(device: &Device, element: Element) -> Result<(), String> {
    let rows = [(0, 1, 0), (1, 399, 0), (2, 0, 3), (0, 130, 9), (1, 64, 1), (2, 0, 0), (2, 257, 4)];
    for_all_shapes(|heads, head_dim, page_size| {
        let scene = Scene::new(device, element, heads, head_dim, page_size, &rows)?;
        for max_splits in [1, 5] {
            let together = scene.run(0..rows.len(), max_splits, None)?;
            scene.compare(&together, max_splits, element)?;
            for row in 0..rows.len() {
                let width = heads.0 * head_dim;
                let alone = scene.run(row..row + 1, max_splits, None)?;
                let same = alone.iter().zip(&together[row * width..]).all(|(a, b)| a.to_bits() == b.to_bits());
                if !same {
                    return Err(format!("{}, row {row}: bits depend on the batch", scene.name));
                }
            }
        }
        Ok(())
    })
}

/// Groups of rows on tensor cores: trees of several sizes whose rows share their ways or do not, padding, single rows;
/// given one by one, and even ones; more rows of their own than a tile, none, and no prefix. And rows that see positions
/// alone: pieces of prompts, and single rows.
pub fn check_attention_tiles(device: &Device, element: Element) -> Result<(), String> {
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
    // A group alone is split, also where there are few multiprocessors.
    let alone: Vec<(i32, i32, i32)> = tree(1, 399, 7);
    let even = [tree(0, 77, 6), tree(1, 399, 6), vec![(2, 0, 0); 6]].concat();
    // So many groups that nothing is split.
    let single: Vec<(i32, i32, i32)> = (0..14).map(|at| (at % 3, [400, 1, 0, 129][at as usize % 4], 0)).collect();
    let couples: Vec<(i32, i32, i32)> = (0..9).flat_map(|at| [(at % 3, 40 * at, 1), (at % 3, 40 * at, 2)]).collect();
    for_all_shapes(|heads, head_dim, page_size| {
        for (rows, size, own) in [(&alone, 7, true), (&even, 6, true), (&couples, 2, true), (&single, 1, false)] {
            let scene = Scene::new(device, element, heads, head_dim, page_size, rows)?;
            for max_splits in [1, 5] {
                scene.check_groups(Groups::Even(size), size, own, max_splits)?;
            }
        }
        for ((rows, first), own) in [(&trees, true), (&pieces, false)] {
            let ranges = device.upload(first).map_err(text)?;
            let largest = first.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or_default();
            let groups = Groups::Ranges { first: ranges.slice(), count: first.len() - 1, largest };
            let scene = Scene::new(device, element, heads, head_dim, page_size, rows)?;
            for max_splits in [1, 5] {
                scene.check_groups(groups, largest, own, max_splits)?;
            }
        }
        Ok(())
    })
}

fn for_all_shapes(check: impl Fn((usize, usize), usize, usize) -> Result<(), String>) -> Result<(), String> {
    for (at, head_dim) in HEAD_DIMS.into_iter().enumerate() {
        for (number, heads) in HEADS.into_iter().enumerate().skip(at % 2).step_by(2) {
            check(heads, head_dim, [1, 16][number / 2 % 2])?;
        }
    }
    Ok(())
}

/// A cache with shuffled pages, and rows that look at it.
struct Scene<'a> {
    name: String,
    kernels: Kernels,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    page_size: usize,
    table_width: usize,
    page_table: Vec<i32>,
    /// (slot, prefix, own rows)
    rows: &'a [(i32, i32, i32)],
    own: Vec<i32>,
    query: Vec<f32>,
    cache: KeyValues,
    on_device: [Buffer; 5],
}

impl<'a> Scene<'a> {
    fn new(
        device: &Device,
        element: Element,
        (heads, kv_heads): (usize, usize),
        head_dim: usize,
        page_size: usize,
        rows: &'a [(i32, i32, i32)],
    ) -> Result<Self, String> {
        let mut numbers = Numbers::new((head_dim * heads + page_size) as u64);
        let (slots, longest) = (3, 400);
        let table_width = longest / page_size;
        let pages = slots * table_width + 2;
        // Pages in any order, each owned once.
        let mut order: Vec<i32> = (0..pages as i32).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, numbers.below(at + 1));
        }
        let page_table = order[..slots * table_width].to_vec();
        let cache_rows = pages * page_size;
        let width = kv_heads * head_dim;
        let (keys, cached) = (numbers.floats(cache_rows * width, element), numbers.floats(cache_rows * width, element));
        let query = numbers.floats(rows.len() * (heads + 2 * kv_heads) * head_dim, element);
        // Rows of a slot share what they see, as on the ways of a tree, but for those of slot 0, of which each has its own.
        let shared: Vec<i32> =
            (0..slots * OWN_STRIDE * OWN_STRIDE * 3).map(|_| numbers.below(cache_rows) as i32).collect();
        let own = rows.iter().enumerate().flat_map(|(row, (slot, ..))| {
            (0..OWN_STRIDE).map(move |depth| (row, *slot as usize * OWN_STRIDE + depth, 1 + depth * 3, *slot == 0))
        });
        let own: Vec<i32> = own
            .map(|(row, place, ways, alone)| match alone {
                true => numbers.below(cache_rows) as i32,
                false => shared[place * OWN_STRIDE * 3 + row % ways],
            })
            .collect();
        let mut cache = KeyValues::new(cache_rows, kv_heads, head_dim);
        cache.write(&(0..cache_rows as u32).collect::<Vec<_>>(), &keys, &cached);
        let floats = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        let ints = |values: &[i32]| device.upload(values).map_err(text);
        let on_device = [floats(&query)?, floats(&keys)?, floats(&cached)?, ints(&page_table)?, ints(&own)?];
        let name = format!("attention of {heads}/{kv_heads} heads of {head_dim}, pages of {page_size}");
        let kernels = Kernels::new(device.clone(), element);
        Ok(Self {
            name,
            kernels,
            heads,
            kv_heads,
            head_dim,
            page_size,
            table_width,
            page_table,
            rows,
            own,
            query,
            cache,
            on_device,
        })
    }

    /// What the kernel makes of some of the rows.
    fn run(
        &self,
        batch: Range<usize>,
        max_splits: usize,
        groups: Option<(Groups<'_>, Sees<'_>)>,
    ) -> Result<Vec<f32>, String> {
        let Self { heads, kv_heads, head_dim, page_size, table_width, .. } = *self;
        let (device, element) = (self.kernels.device(), self.kernels.element());
        let count = batch.len();
        let part = |of: fn(&(i32, i32, i32)) -> i32| {
            device.upload(&self.rows[batch.clone()].iter().map(of).collect::<Vec<i32>>()).map_err(text)
        };
        let (slot, prefix, own_count) = (part(|row| row.0)?, part(|row| row.1)?, part(|row| row.2)?);
        let out = device.allocate(count * heads * head_dim * element.bytes()).map_err(text)?;
        let bytes = Kernels::attention_workspace(count, heads, head_dim, max_splits);
        let partial = device.allocate(bytes).map_err(text)?;
        let counters = device.zeros(count * heads * 4).map_err(text)?;
        let query_stride = (heads + 2 * kv_heads) * head_dim;
        let [query, keys, cached, table, own] = &self.on_device;
        let start = batch.start * query_stride * element.bytes();
        let attention = Attention {
            out: out.slice(),
            query: Rows { at: query.range(start..query.bytes()), stride: query_stride },
            keys: keys.slice(),
            values: cached.slice(),
            page_table: table.slice(),
            table_width,
            page_size,
            row_slot: slot.slice(),
            row_prefix: prefix.slice(),
            row_own_count: own_count.slice(),
            row_own: own.range(batch.start * OWN_STRIDE * 4..own.bytes()),
            own_stride: OWN_STRIDE,
            rows: count,
            heads,
            kv_heads,
            head_dim,
            partial: partial.slice(),
            counters: counters.slice(),
            max_splits,
        };
        match groups {
            None => self.kernels.attention_rows(attention),
            Some((groups, sees)) => self.kernels.attention_tiles(attention, groups, sees),
        }
        .map_err(text)?;
        let counters: Vec<i32> = device.download(counters.slice()).map_err(text)?;
        if counters.iter().any(|counter| *counter != 0) {
            return Err(format!("{}: the counters are left changed", self.name));
        }
        values(device, out.slice(), element)
    }

    /// Checks all rows in groups, the largest of so many rows; with rows of their own, or positions alone.
    fn check_groups(&self, groups: Groups<'_>, largest: usize, own: bool, max_splits: usize) -> Result<(), String> {
        let (device, rows) = (self.kernels.device(), self.rows.len());
        let ints = |count: usize| device.allocate(count * 4).map_err(text);
        let words = Kernels::own_mask_words(largest, OWN_STRIDE);
        let (cache_rows, count, mask) = (ints(rows * OWN_STRIDE)?, ints(rows)?, ints(rows * words)?);
        let sees = match own {
            false => Sees::Positions,
            true => {
                let lists = OwnRows {
                    cache_rows: cache_rows.slice(),
                    count: count.slice(),
                    mask: mask.slice(),
                    own_stride: OWN_STRIDE,
                };
                let own_count: Vec<i32> = self.rows.iter().map(|row| row.2).collect();
                let own_count = device.upload(&own_count).map_err(text)?;
                let list = self.on_device[4].slice();
                self.kernels.gather_own(lists, own_count.slice(), list, groups, rows).map_err(text)?;
                Sees::Own(lists)
            }
        };
        let found = self.run(0..rows, max_splits, Some((groups, sees)))?;
        self.compare(&found, max_splits, self.kernels.element())
    }

    /// Compares what was found for all rows with the reference.
    fn compare(&self, found: &[f32], max_splits: usize, element: Element) -> Result<(), String> {
        let width = self.heads * self.head_dim;
        let query_stride = (self.heads + 2 * self.kv_heads) * self.head_dim;
        for (row, (slot, prefix, own_count)) in self.rows.iter().enumerate() {
            let cache_row = |position: usize| {
                let page = self.page_table[*slot as usize * self.table_width + position / self.page_size];
                (page as usize * self.page_size + position % self.page_size) as u32
            };
            let seen: Vec<u32> = (0..*prefix as usize).map(cache_row).collect();
            let own = &self.own[row * OWN_STRIDE..][..*own_count as usize];
            let own: Vec<u32> = own.iter().map(|row| *row as u32).collect();
            let expected = if prefix + own_count == 0 {
                vec![0.0; width]
            } else {
                let visible = [Visible { prefix: &seen, own: &own }];
                attention(&self.query[row * query_stride..][..width], self.heads, &visible, &self.cache)
            };
            let what = format!("{}, {max_splits} splits, row {row}", self.name);
            compare(&what, &found[row * width..][..width], &expected, tolerance(element))?;
        }
        Ok(())
    }
}
