//! Attention over the paged cache.

use std::ops::Range;

use super::{Numbers, compare, text, tolerance, values};
use crate::{
    device::{Buffer, Device, Element},
    launch::{Attention, HEAD_DIMS, Kernels, Rows, VisibleRows},
    reference::{CacheScales, KeyValues, Visible, attention_with_sinks, from_e4m3, to_e4m3},
};

/// Query heads and key/value heads: several group sizes.
const HEADS: [(usize, usize); 7] = [(1, 1), (4, 1), (6, 2), (7, 1), (8, 1), (12, 1), (4, 2)];
pub(super) const OWN_STRIDE: usize = 9;
/// Query heads and key/value heads, head size and page size, for variants of kernels.
pub(super) const SOME_SHAPES: [((usize, usize), usize, usize); 4] =
    [((8, 1), 64, 1), ((4, 2), 64, 16), ((7, 1), 128, 16), ((6, 2), 96, 1)];
/// The same for caches in FP8: every head size.
pub(super) const FP8_SHAPES: [((usize, usize), usize, usize); 4] =
    [((8, 1), 64, 1), ((4, 2), 128, 16), ((6, 2), 96, 1), ((4, 1), 256, 16)];
/// Scales of caches in FP8: one that leaves small numbers, and one that cuts off the largest.
const SCALES: CacheScales = CacheScales { keys: 0.4, values: 0.002 };
/// Cache rows after the pages, for own rows.
const SCRATCH: usize = 2000;

/// Every head size and several group sizes; rows with prefixes through shuffled pages, with own
/// rows, with neither; one split and several; and that a row has the same bits in a batch and
/// alone.
pub fn check_attention(device: &Device, element: Element) -> Result<(), String> {
    for_all_shapes(|heads, head_dim, page_size| {
        check_rows_apart(&AttentionFixture::new(device, element, heads, head_dim, page_size, &APART)?, [1, 5])
    })
}

/// The same with sinks, and with windows that are longer than what a row sees, shorter, and shorter
/// than its own rows; and that rows that a block takes together have the same bits as separately.
pub fn check_attention_sinks(device: &Device, element: Element) -> Result<(), String> {
    let together = together_rows(device);
    for (at, (heads, head_dim, page_size)) in SOME_SHAPES.into_iter().enumerate() {
        for (number, window) in [None, Some(4), Some(128), Some(300)].into_iter().enumerate() {
            let fixture = AttentionFixture::new(device, element, heads, head_dim, page_size, &APART)?;
            check_rows_apart(&fixture.within(window, number != 3)?, [1, 5])?;
            if (at + number).is_multiple_of(2) {
                let fixture = AttentionFixture::new(device, element, heads, head_dim, page_size, &together)?;
                check_rows_together(&fixture.within(window, true)?, &[1, 5])?;
            }
        }
    }
    Ok(())
}

/// Over a cache in FP8: heads of each size, with a sink and a window for one of them; and the same
/// bits in a batch and alone, and together and separately.
pub fn check_attention_fp8(device: &Device, element: Element) -> Result<(), String> {
    let together = together_rows(device);
    for (at, (heads, head_dim, page_size)) in FP8_SHAPES.into_iter().enumerate() {
        let fixture = AttentionFixture::new(device, element, heads, head_dim, page_size, &APART)?.in_fp8()?;
        let fixture = if at == 0 { fixture.within(Some(128), true)? } else { fixture };
        check_rows_apart(&fixture, [1, 5])?;
        if at < 2 {
            let fixture = AttentionFixture::new(device, element, heads, head_dim, page_size, &together)?.in_fp8()?;
            check_rows_together(&fixture, &[5])?;
        }
    }
    Ok(())
}

/// Rows of several lengths, of several slots.
const APART: [(i32, i32, i32); 7] =
    [(0, 1, 0), (1, 399, 0), (2, 0, 3), (0, 130, 9), (1, 64, 1), (2, 0, 0), (2, 257, 4)];

/// Compares rows with the reference, and their bits in a batch and alone.
fn check_rows_apart(fixture: &AttentionFixture<'_>, splits: [usize; 2]) -> Result<(), String> {
    let (element, rows) = (fixture.kernels.element(), fixture.rows);
    for max_splits in splits {
        let batch = fixture.run(0..rows.len(), max_splits, 1)?;
        fixture.compare(&batch, &format!("{max_splits} splits"), element, &fixture.qkv, &fixture.cache)?;
        for row in 0..rows.len() {
            let width = fixture.heads * fixture.head_dim;
            let alone = fixture.run(row..row + 1, max_splits, 1)?;
            if !same_bits(&alone, &batch[row * width..][..width]) {
                return Err(format!("{}, row {row}: bits depend on the batch", fixture.name));
            }
        }
    }
    Ok(())
}

/// Rows that a block takes together have the same bits as separately: trees, chains and prompts; of
/// one slot and of several; with and without positions and own rows; with equal and different
/// lengths and numbers of splits.
pub fn check_attention_together(device: &Device, element: Element) -> Result<(), String> {
    let rows = together_rows(device);
    for_all_shapes(|heads, head_dim, page_size| {
        check_rows_together(&AttentionFixture::new(device, element, heads, head_dim, page_size, &rows)?, &[1, 2, 5])
    })
}

/// Rows in runs, enough for the device to take them together.
fn together_rows(device: &Device) -> Vec<(i32, i32, i32)> {
    let tree = [(1, 250, 1), (1, 250, 2), (1, 250, 2), (1, 250, 3)];
    let chain = [(0, 126, 1), (0, 126, 2), (0, 126, 3), (0, 126, 4)];
    // Around the lengths at which splits become more, or longer.
    let prompt = [126, 127, 128, 129, 191, 192, 193, 254, 255, 256, 257, 258].map(|prefix| (2, prefix, 0));
    let of_any_slot =
        [(0, 40, 0), (1, 40, 0), (2, 0, 0), (2, 0, 0), (1, 0, 5), (1, 0, 9), (1, 399, 1), (1, 1, 0), (0, 33, 2)];
    let once = [&tree[..], &chain, &prompt, &of_any_slot].concat();
    // Rows are taken together if that leaves enough blocks for the device.
    let enough = 2 * device.properties().multiprocessors;
    once.iter().copied().cycle().take(once.len().max(enough)).collect()
}

/// Compares rows that a block takes together with separate ones, bit by bit.
fn check_rows_together(fixture: &AttentionFixture<'_>, splits: &[usize]) -> Result<(), String> {
    let (element, rows) = (fixture.kernels.element(), fixture.rows);
    for max_splits in splits.iter().copied() {
        let apart = fixture.run(0..rows.len(), max_splits, 1)?;
        fixture.compare(&apart, &format!("{max_splits} splits"), element, &fixture.qkv, &fixture.cache)?;
        for together in [2, 3, 4, rows.len()] {
            if !same_bits(&fixture.run(0..rows.len(), max_splits, together)?, &apart) {
                return Err(format!("{}: bits depend on whether {together} rows go together", fixture.name));
            }
        }
    }
    Ok(())
}

fn same_bits(some: &[f32], others: &[f32]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Every head size with several group sizes and page sizes.
pub(super) fn for_all_shapes(check: impl Fn((usize, usize), usize, usize) -> Result<(), String>) -> Result<(), String> {
    for (at, head_dim) in HEAD_DIMS.into_iter().enumerate() {
        for (number, heads) in HEADS.into_iter().enumerate().skip(at % 2).step_by(2) {
            check(heads, head_dim, [1, 16][number / 2 % 2])?;
        }
    }
    Ok(())
}

/// A cache with shuffled pages, and rows that attend to it.
pub(super) struct AttentionFixture<'a> {
    pub name: String,
    pub kernels: Kernels,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub page_size: usize,
    pub table_width: usize,
    page_table: Vec<i32>,
    /// (slot, prefix, own rows)
    pub rows: &'a [(i32, i32, i32)],
    /// `[rows, OWN_STRIDE]`
    pub own: Vec<i32>,
    /// `[rows, (heads + 2 · kv_heads) · head_dim]`
    pub qkv: Vec<f32>,
    pub cache: KeyValues,
    /// As above: rows of the qkv layer, keys, values, page table, own rows.
    pub on_device: [Buffer; 5],
    /// A sink for each query head, also on the device.
    sinks: Option<(Vec<f32>, Buffer)>,
    /// How many of its last keys a row sees, if not all.
    window: Option<usize>,
}

/// The buffers of attention over rows: the rows' slots, prefixes and own counts, the result, and
/// the workspace for merging splits.
pub(super) struct Work {
    rows: usize,
    max_splits: usize,
    slot: Buffer,
    prefix: Buffer,
    pub own_count: Buffer,
    out: Buffer,
    partial: Buffer,
    counters: Buffer,
}

impl<'a> AttentionFixture<'a> {
    pub fn new(
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
        // Pages in random order, each owned once.
        let order = numbers.shuffled(pages);
        let page_table = order[..slots * table_width].to_vec();
        let cache_rows = pages * page_size + SCRATCH;
        let width = kv_heads * head_dim;
        let (keys, cached) = (numbers.floats(cache_rows * width, element), numbers.floats(cache_rows * width, element));
        let qkv = numbers.floats(rows.len() * (heads + 2 * kv_heads) * head_dim, element);
        let scratch_row = |numbers: &mut Numbers| (pages * page_size + numbers.below(SCRATCH)) as i32;
        // Rows of a slot share what they see, as on the paths of a tree, except those of slot 0,
        // which have separate rows.
        let shared: Vec<i32> = (0..slots * OWN_STRIDE * OWN_STRIDE * 3).map(|_| scratch_row(&mut numbers)).collect();
        let own = rows.iter().enumerate().flat_map(|(row, (slot, ..))| {
            (0..OWN_STRIDE).map(move |depth| (row, *slot as usize * OWN_STRIDE + depth, 1 + depth * 3, *slot == 0))
        });
        let own: Vec<i32> = own
            .map(|(row, place, ways, alone)| match alone {
                true => scratch_row(&mut numbers),
                false => shared[place * OWN_STRIDE * 3 + row % ways],
            })
            .collect();
        let mut cache = KeyValues::new(cache_rows, kv_heads, head_dim);
        cache.write(&(0..cache_rows as u32).collect::<Vec<_>>(), &keys, &cached);
        let floats = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        let ints = |values: &[i32]| device.upload(values).map_err(text);
        let on_device = [floats(&qkv)?, floats(&keys)?, floats(&cached)?, ints(&page_table)?, ints(&own)?];
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
            qkv,
            cache,
            on_device,
            sinks: None,
            window: None,
        })
    }

    /// The same within a window, with sinks of very different weights if asked for.
    pub fn within(mut self, window: Option<usize>, with_sinks: bool) -> Result<Self, String> {
        let element = self.kernels.element();
        let sinks: Vec<f32> = (0..self.heads).map(|head| [0.5, -30.0, 2.0, 40.0, -1.25][head % 5]).collect();
        let on_device = self.kernels.device().upload(&element.encode(&sinks)).map_err(text)?;
        self.name = format!("{}, window {window:?}", self.name);
        self.sinks = with_sinks.then_some((sinks, on_device));
        self.window = window;
        Ok(self)
    }

    /// The same over a cache in FP8.
    pub fn in_fp8(mut self) -> Result<Self, String> {
        self.name = format!("{}, in FP8", self.name);
        let rows: Vec<u32> = (0..(self.cache.keys.len() / self.cache.width()) as u32).collect();
        let (keys, values) = (self.cache.keys.clone(), self.cache.values.clone());
        self.cache = self.cache.in_fp8(Some(SCALES));
        self.cache.write(&rows, &keys, &values);
        let on_device = [self.stored(&self.cache.keys, SCALES.keys)?, self.stored(&self.cache.values, SCALES.values)?];
        [self.on_device[1], self.on_device[2]] = on_device;
        Ok(self)
    }

    /// Keys or values on the device as the cache stores them, with their scale in FP8.
    pub fn stored(&self, values: &[f32], scale: f32) -> Result<Buffer, String> {
        let bytes: Vec<u8> = match self.cache.fp8 {
            Some(_) => values.iter().map(|value| to_e4m3(value / scale)).collect(),
            None => self.kernels.element().encode(values),
        };
        self.kernels.device().upload(&bytes).map_err(text)
    }

    /// Keys or values as they are read from the cache.
    pub fn read(&self, stored: &Buffer, scale: f32) -> Result<Vec<f32>, String> {
        match self.cache.fp8 {
            Some(_) => {
                let bytes: Vec<u8> = self.kernels.device().download(stored.slice()).map_err(text)?;
                Ok(bytes.into_iter().map(|byte| from_e4m3(byte) * scale).collect())
            }
            None => values(self.kernels.device(), stored.slice(), self.kernels.element()),
        }
    }

    /// The kernel's result for some of the rows, in runs of `together`.
    fn run(&self, batch: Range<usize>, max_splits: usize, together: usize) -> Result<Vec<f32>, String> {
        let work = self.work(batch.clone(), max_splits)?;
        let [qkv, keys, cached, _, own] = &self.on_device;
        let stride = (self.heads + 2 * self.kv_heads) * self.head_dim;
        let start = batch.start * stride * self.kernels.element().bytes();
        let all = self.attention(&work, qkv, keys, cached);
        let attention = Attention {
            query: Rows { at: qkv.range(start..qkv.bytes()), stride },
            visible: VisibleRows { own: own.range(batch.start * OWN_STRIDE * 4..own.bytes()), ..all.visible },
            together,
            ..all
        };
        self.kernels.attention_rows(attention).map_err(text)?;
        self.attended(&work, "one by one")
    }

    /// The buffers of attention over some of the rows.
    pub fn work(&self, batch: Range<usize>, max_splits: usize) -> Result<Work, String> {
        let Self { heads, head_dim, .. } = *self;
        let (device, rows) = (self.kernels.device(), batch.len());
        let part = |of: fn(&(i32, i32, i32)) -> i32| {
            device.upload(&self.rows[batch.clone()].iter().map(of).collect::<Vec<i32>>()).map_err(text)
        };
        Ok(Work {
            rows,
            max_splits,
            slot: part(|row| row.0)?,
            prefix: part(|row| row.1)?,
            own_count: part(|row| row.2)?,
            out: device.allocate(rows * heads * head_dim * self.kernels.element().bytes()).map_err(text)?,
            partial: device.allocate(Kernels::attention_workspace(rows, heads, head_dim, max_splits)).map_err(text)?,
            counters: device.zeros(rows * heads * 4).map_err(text)?,
        })
    }

    /// Attention of the first rows over a qkv layer's rows, keys and values.
    pub fn attention<'b>(
        &'b self,
        work: &'b Work,
        qkv: &'b Buffer,
        keys: &'b Buffer,
        values: &'b Buffer,
    ) -> Attention<'b> {
        let Self { heads, kv_heads, head_dim, page_size, table_width, .. } = *self;
        let [_, _, _, table, own] = &self.on_device;
        Attention {
            out: work.out.slice(),
            query: Rows { at: qkv.slice(), stride: (heads + 2 * kv_heads) * head_dim },
            keys: keys.slice(),
            values: values.slice(),
            fp8: self.cache.fp8,
            visible: VisibleRows {
                page_table: table.slice(),
                table_width,
                page_size,
                slot: work.slot.slice(),
                prefix: work.prefix.slice(),
                own_count: work.own_count.slice(),
                own: own.slice(),
                own_stride: OWN_STRIDE,
            },
            rows: work.rows,
            together: 1,
            heads,
            kv_heads,
            head_dim,
            partial: work.partial.slice(),
            counters: work.counters.slice(),
            max_splits: work.max_splits,
            sinks: self.sinks.as_ref().map(|(_, sinks)| sinks.slice()),
            window: self.window,
        }
    }

    /// The result of attention; its counters must be zero again.
    pub fn attended(&self, work: &Work, what: &str) -> Result<Vec<f32>, String> {
        let (device, element) = (self.kernels.device(), self.kernels.element());
        let counters: Vec<i32> = device.download(work.counters.slice()).map_err(text)?;
        if counters.iter().any(|counter| *counter != 0) {
            return Err(format!("{}, {what}: the counters are left changed", self.name));
        }
        values(device, work.out.slice(), element)
    }

    /// The cache row of a position of a slot.
    pub fn cache_row(&self, slot: i32, position: usize) -> u32 {
        let page = self.page_table[slot as usize * self.table_width + position / self.page_size];
        (page as usize * self.page_size + position % self.page_size) as u32
    }

    /// The cache rows that a row sees: those of positions, and its own.
    pub fn seen(&self, row: usize) -> (Vec<u32>, Vec<u32>) {
        let (slot, prefix, own_count) = self.rows[row];
        let own = &self.own[row * OWN_STRIDE..][..own_count as usize];
        ((0..prefix as usize).map(|at| self.cache_row(slot, at)).collect(), own.iter().map(|row| *row as u32).collect())
    }

    /// Compares the results of all rows with the reference over these rows of the qkv layer and
    /// this cache.
    pub fn compare(
        &self,
        found: &[f32],
        what: &str,
        element: Element,
        qkv: &[f32],
        cache: &KeyValues,
    ) -> Result<(), String> {
        let width = self.heads * self.head_dim;
        let query_stride = (self.heads + 2 * self.kv_heads) * self.head_dim;
        for row in 0..self.rows.len() {
            let (prefix, own) = self.seen(row);
            let expected = if prefix.is_empty() && own.is_empty() {
                vec![0.0; width]
            } else {
                let all = Visible { prefix: &prefix, own: &own };
                let visible = [self.window.map_or(all, |window| all.last(window))];
                let sinks = self.sinks.as_ref().map(|(sinks, _)| &sinks[..]);
                attention_with_sinks(&qkv[row * query_stride..][..width], self.heads, &visible, cache, sinks)
            };
            let what = format!("{}, {what}, row {row}", self.name);
            compare(&what, &found[row * width..][..width], &expected, tolerance(element))?;
        }
        Ok(())
    }
}
