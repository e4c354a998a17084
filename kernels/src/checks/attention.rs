//! Attention over the paged cache.

use super::{Numbers, compare, text, tolerance, values};
use crate::{
    device::{Device, Element},
    launch::{Attention, HEAD_DIMS, Kernels, Rows},
    reference::{KeyValues, Visible, attention},
};

/// Every head size and several group sizes; rows with prefixes through shuffled pages, with rows of their own, with
/// neither; one split and several; and that a row has the same bits in a batch and alone.
pub fn check_attention(device: &Device, element: Element) -> Result<(), String> {
    let shapes = [(1, 1), (4, 1), (6, 2), (7, 1), (8, 1), (12, 1)];
    for (at, head_dim) in HEAD_DIMS.into_iter().enumerate() {
        for (heads, kv_heads) in shapes.into_iter().skip(at % 2).step_by(2) {
            for page_size in [1, 16] {
                check_one(device, element, head_dim, heads, kv_heads, page_size)?;
            }
        }
    }
    Ok(())
}

fn check_one(
    device: &Device,
    element: Element,
    head_dim: usize,
    heads: usize,
    kv_heads: usize,
    page_size: usize,
) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
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
    let own_stride = 9;
    // (slot, prefix, own rows)
    let rows = [(0, 1, 0), (1, 399, 0), (2, 0, 3), (0, 130, 9), (1, 64, 1), (2, 0, 0), (2, 257, 4)];
    let query_stride = (heads + 2 * kv_heads) * head_dim;
    let query = numbers.floats(rows.len() * query_stride, element);
    let own: Vec<i32> = (0..rows.len() * own_stride).map(|_| numbers.below(cache_rows) as i32).collect();

    let mut cache = KeyValues::new(cache_rows, kv_heads, head_dim);
    cache.write(&(0..cache_rows as u32).collect::<Vec<_>>(), &keys, &cached);
    let cache_row = |slot: usize, position: usize| {
        (page_table[slot * table_width + position / page_size] as usize * page_size + position % page_size) as u32
    };
    let on_device = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
    let ints = |values: Vec<i32>| device.upload(&values).map_err(text);
    let (q, k, v) = (on_device(&query)?, on_device(&keys)?, on_device(&cached)?);
    let table = ints(page_table.clone())?;
    let own_device = ints(own.clone())?;
    for max_splits in [1, 5] {
        let mut alone: Vec<Vec<u32>> = Vec::new();
        // Each row alone, then all together.
        for batch in (0..rows.len()).map(|row| row..row + 1).chain(std::iter::once(0..rows.len())) {
            let count = batch.len();
            let part = |of: fn(&(i32, i32, i32)) -> i32| ints(rows[batch.clone()].iter().map(of).collect());
            let (slot, prefix, own_count) = (part(|row| row.0)?, part(|row| row.1)?, part(|row| row.2)?);
            let out = device.allocate(count * heads * head_dim * element.bytes()).map_err(text)?;
            let bytes = Kernels::attention_workspace(count, heads, head_dim, max_splits);
            let partial = device.allocate(bytes).map_err(text)?;
            let counters = device.zeros(count * heads * 4).map_err(text)?;
            let start = batch.start * query_stride * element.bytes();
            kernels
                .attention_rows(Attention {
                    out: out.slice(),
                    query: Rows { at: q.range(start..q.bytes()), stride: query_stride },
                    keys: k.slice(),
                    values: v.slice(),
                    page_table: table.slice(),
                    table_width,
                    page_size,
                    row_slot: slot.slice(),
                    row_prefix: prefix.slice(),
                    row_own_count: own_count.slice(),
                    row_own: own_device.range(batch.start * own_stride * 4..own_device.bytes()),
                    own_stride,
                    rows: count,
                    heads,
                    kv_heads,
                    head_dim,
                    partial: partial.slice(),
                    counters: counters.slice(),
                    max_splits,
                })
                .map_err(text)?;
            let found = values(device, out.slice(), element)?;
            let counters: Vec<i32> = device.download(counters.slice()).map_err(text)?;
            if counters.iter().any(|counter| *counter != 0) {
                return Err("attention leaves its counters changed".into());
            }
            for (place, row) in batch.enumerate() {
                let (slot, prefix, own_count) = rows[row];
                let found = &found[place * heads * head_dim..][..heads * head_dim];
                let what = format!(
                    "attention of {heads}/{kv_heads} heads of {head_dim}, pages of {page_size}, {max_splits} splits, row {row}"
                );
                let seen: Vec<u32> = (0..prefix as usize).map(|position| cache_row(slot as usize, position)).collect();
                let own: Vec<u32> =
                    own[row * own_stride..][..own_count as usize].iter().map(|row| *row as u32).collect();
                let expected = if prefix + own_count == 0 {
                    vec![0.0; heads * head_dim]
                } else {
                    let visible = [Visible { prefix: &seen, own: &own }];
                    attention(&query[row * query_stride..][..heads * head_dim], heads, &visible, &cache)
                };
                compare(&what, found, &expected, tolerance(element))?;
                let bits: Vec<u32> = found.iter().map(|value| value.to_bits()).collect();
                match alone.get(row) {
                    None => alone.push(bits),
                    Some(alone) if *alone != bits => return Err(format!("{what}: bits depend on the batch")),
                    Some(_) => {}
                }
            }
        }
    }
    Ok(())
}
