//! Attention over a paged cache, with any set of visible positions per row: prefill, decode, tree
//! verify, draft beams.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::{
    dot::{LANES, dot, dots, fold},
    exp::exp,
    fp8::{from_e4m3, to_e4m3},
};

/// Number of scores below which one thread is faster than two.
const WORTH_A_THREAD: usize = 1 << 12;
/// Dimensions of a head whose sums are kept in registers together.
const WIDE: usize = 32;

/// The scales of a cache in FP8: a key or value is stored as the e4m3 number nearest to its
/// quotient by the scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheScales {
    /// Scale of the keys.
    pub keys: f32,
    /// Scale of the values.
    pub values: f32,
}

impl CacheScales {
    /// Those of a checkpoint that has none.
    pub const ONE: Self = Self { keys: 1.0, values: 1.0 };
}

/// The keys and values of one layer: `[rows, heads, head_dim]` each, one row for each position that
/// the cache can hold.
#[derive(Clone, Debug)]
pub struct KeyValues {
    /// Keys, already rotated.
    pub keys: Vec<f32>,
    /// Values.
    pub values: Vec<f32>,
    /// Key/value heads.
    pub heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
    /// The scales if the cache is in FP8. `keys` and `values` are the values that are read, so a
    /// row has the same bits from the moment that it is written.
    pub fp8: Option<CacheScales>,
}

/// The cache rows that one query row sees: a run shared by many query rows, then its own rows.
///
/// Sums run in this order, so the same rows in the same order give the same bits.
#[derive(Clone, Copy, Debug)]
pub struct Visible<'a> {
    /// Shared rows, in the order of positions.
    pub prefix: &'a [u32],
    /// Own rows after them, in the order of positions: ancestors in the tree and the row itself.
    pub own: &'a [u32],
}

impl Visible<'_> {
    /// Only the last `window` rows: what a sliding window leaves, which includes the row itself.
    #[must_use]
    pub fn last(self, window: usize) -> Self {
        let outside = (self.prefix.len() + self.own.len()).saturating_sub(window);
        let (prefix, own) = (outside.min(self.prefix.len()), outside.saturating_sub(self.prefix.len()));
        Self { prefix: &self.prefix[prefix..], own: &self.own[own..] }
    }
}

impl KeyValues {
    /// An empty cache.
    pub fn new(rows: usize, heads: usize, head_dim: usize) -> Self {
        let size = rows * heads * head_dim;
        Self { keys: vec![0.0; size], values: vec![0.0; size], heads, head_dim, fp8: None }
    }

    /// The same cache in FP8, if scales are given.
    #[must_use]
    pub fn in_fp8(self, fp8: Option<CacheScales>) -> Self {
        Self { fp8, ..self }
    }

    /// Makes room for at least `rows` rows; existing rows stay.
    pub fn grow(&mut self, rows: usize) {
        let size = rows * self.width();
        if size > self.keys.len() {
            self.keys.resize(size, 0.0);
            self.values.resize(size, 0.0);
        }
    }

    /// Writes zeros to all rows, so that the system commits the memory.
    pub fn clear(&mut self) {
        self.keys.fill(0.0);
        self.values.fill(0.0);
    }

    /// Values per row of keys, and of values.
    pub fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Writes rows: `keys` and `values` are `[rows.len(), heads, head_dim]`. In FP8 they are
    /// rounded here.
    pub fn write(&mut self, rows: &[u32], keys: &[f32], values: &[f32]) {
        let width = self.width();
        for (at, row) in rows.iter().map(|row| *row as usize).enumerate() {
            self.keys[row * width..(row + 1) * width].copy_from_slice(&keys[at * width..(at + 1) * width]);
            self.values[row * width..(row + 1) * width].copy_from_slice(&values[at * width..(at + 1) * width]);
            if let Some(CacheScales { keys, values }) = self.fp8 {
                self.keys[row * width..(row + 1) * width].iter_mut().for_each(|key| *key = in_fp8(*key, keys));
                self.values[row * width..(row + 1) * width]
                    .iter_mut()
                    .for_each(|value| *value = in_fp8(*value, values));
            }
        }
    }

    /// Moves rows: `from[i]` to `to[i]`, in ascending order. Correct for compaction, where no
    /// source precedes its destination in the same list.
    pub fn compact(&mut self, from: &[u32], to: &[u32]) {
        let width = self.width();
        for (from, to) in from.iter().zip(to).filter(|(from, to)| from != to) {
            let (from, to) = (*from as usize * width, *to as usize * width);
            self.keys.copy_within(from..from + width, to);
            self.values.copy_within(from..from + width, to);
        }
    }
}

/// A value as it is read from a cache in FP8 with this scale.
fn in_fp8(value: f32, scale: f32) -> f32 {
    from_e4m3(to_e4m3(value / scale)) * scale
}

/// Softmax attention. `queries` is `[visible.len(), query_heads, head_dim]`; query head h reads
/// key/value head `h / (query_heads / heads)`. The result has the shape of `queries`.
pub fn attention(queries: &[f32], query_heads: usize, visible: &[Visible<'_>], cache: &KeyValues) -> Vec<f32> {
    attention_with_sinks(queries, query_heads, visible, cache, None)
}

/// The same with a sink for each query head, if given: one more score in its softmax, without a
/// value. Sinks are not scaled.
///
/// # Panics
/// When the number of sinks is not that of query heads.
pub fn attention_with_sinks(
    queries: &[f32],
    query_heads: usize,
    visible: &[Visible<'_>],
    cache: &KeyValues,
    sinks: Option<&[f32]>,
) -> Vec<f32> {
    let KeyValues { keys, values, heads, head_dim, .. } = cache;
    assert!(query_heads.is_multiple_of(*heads), "query heads come in groups a key/value head");
    assert!(sinks.is_none_or(|sinks| sinks.len() == query_heads), "a sink for each query head");
    let planes = Planes {
        keys,
        values,
        width: cache.width(),
        key_dim: *head_dim,
        value_dim: *head_dim,
        group: query_heads / heads,
        scale: 1.0 / (*head_dim as f32).sqrt(),
        sinks,
    };
    attend(queries, query_heads, visible, planes)
}

/// The keys and values of each cache row, which may be parts of one plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planes<'a> {
    /// Contiguous rows of keys.
    pub keys: &'a [f32],
    /// Contiguous rows of values.
    pub values: &'a [f32],
    /// Elements between rows, for both.
    pub width: usize,
    /// Dimensions of queries and keys.
    pub key_dim: usize,
    /// Dimensions of values: the first of each head.
    pub value_dim: usize,
    /// Query heads that share a key/value head.
    pub group: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// A further score of each query head, without a value.
    pub sinks: Option<&'a [f32]>,
}

/// Attention over planes: `queries` is `[visible.len(), query_heads, key_dim]`, the result
/// `[visible.len(), query_heads, value_dim]`.
pub(super) fn attend(queries: &[f32], query_heads: usize, visible: &[Visible<'_>], planes: Planes<'_>) -> Vec<f32> {
    let (width, out) = (query_heads * planes.key_dim, query_heads * planes.value_dim);
    assert_eq!(queries.len(), visible.len() * width, "one row of queries for each set of visible rows");
    let mut output = vec![0.0; visible.len() * out];
    // Chunks of no width would panic.
    if output.is_empty() {
        return output;
    }
    let arch = Arch::new();
    let row = |at: usize, output: &mut [f32]| {
        let queries = &queries[at * width..(at + 1) * width];
        arch.dispatch(AttentionRow { queries, visible: visible[at], planes, output });
    };
    let scores: usize = visible.iter().map(|visible| (visible.prefix.len() + visible.own.len()) * query_heads).sum();
    // Threads take whole rows, so one row is never divided.
    if scores < WORTH_A_THREAD || visible.len() == 1 {
        output.chunks_exact_mut(out).enumerate().for_each(|(at, output)| row(at, output));
    } else {
        output.par_chunks_exact_mut(out).enumerate().for_each(|(at, output)| row(at, output));
    }
    output
}

/// The work on all heads of one row.
struct AttentionRow<'a> {
    queries: &'a [f32],
    visible: Visible<'a>,
    planes: Planes<'a>,
    output: &'a mut [f32],
}

impl WithSimd for AttentionRow<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { queries, visible, planes, output } = self;
        let Planes { keys, values, width, key_dim, value_dim, group, scale, sinks } = planes;
        let starts: Vec<usize> = visible.prefix.iter().chain(visible.own).map(|row| *row as usize * width).collect();
        let mut weights = vec![0.0; starts.len()];
        let heads = queries.chunks_exact(key_dim).zip(output.chunks_exact_mut(value_dim));
        for (head, (query, output)) in heads.enumerate() {
            score(simd, query, &keys[head / group * key_dim..], &starts, scale, &mut weights);
            let sum = softmax_weights(&mut weights, sinks.map(|sinks| sinks[head]));
            let values = &values[head / group * value_dim..];
            let mut at = 0;
            while at + WIDE <= output.len() {
                mix::<WIDE>(&weights, &values[at..], &starts, sum, &mut output[at..at + WIDE]);
                at += WIDE;
            }
            // A dimension's sum does not depend on those next to it, so the rest has the same bits
            // one by one.
            while at < output.len() {
                mix::<1>(&weights, &values[at..], &starts, sum, &mut output[at..=at]);
                at += 1;
            }
        }
    }
}

/// `scale · query · key` for the keys at each of `starts`. Several at a time, so that their sums
/// overlap.
#[inline(always)]
fn score<S: Simd>(simd: S, query: &[f32], keys: &[f32], starts: &[usize], scale: f32, scores: &mut [f32]) {
    const TOGETHER: usize = 4;
    let (blocks, rest) = starts.as_chunks::<TOGETHER>();
    let (score_blocks, score_rest) = scores.as_chunks_mut::<TOGETHER>();
    let key = |start: usize| &keys[start..start + query.len()];
    // Products together have the same bits as one by one, wherever a key falls in a block.
    for (starts, scores) in blocks.iter().zip(score_blocks) {
        [*scores] = dots(simd, [query], starts.map(key));
    }
    for (start, score) in rest.iter().zip(score_rest) {
        *score = dot(simd, query, key(*start));
    }
    scores.iter_mut().for_each(|score| *score *= scale);
}

/// Turns scores into weights relative to the largest; returns their sum, taken in the order of the
/// `dot` module, with the weight of a sink added last.
#[inline(always)]
fn softmax_weights(weights: &mut [f32], sink: Option<f32>) -> f32 {
    // With the sink, whose weight could overflow if it were larger than all scores.
    let largest = weights.iter().copied().fold(sink.unwrap_or(f32::NEG_INFINITY), f32::max);
    weights.iter_mut().for_each(|weight| *weight = exp(*weight - largest));
    let mut sums = [0.0; LANES];
    for weights in weights.chunks(LANES) {
        sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += weight);
    }
    fold(&sums) + sink.map_or(0.0, |sink| exp(sink - largest))
}

/// The weighted mean of `WIDTH` dimensions of the values at `starts`, in order.
#[inline(always)]
fn mix<const WIDTH: usize>(weights: &[f32], values: &[f32], starts: &[usize], sum: f32, output: &mut [f32]) {
    let mut sums = [0.0; WIDTH];
    for (weight, start) in weights.iter().zip(starts) {
        let values: &[f32; WIDTH] = values[*start..*start + WIDTH].first_chunk().expect("a slice of this length");
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = weight.mul_add(*value, *sum);
        }
    }
    output.iter_mut().zip(sums).for_each(|(output, mixed)| *output = mixed / sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    impl KeyValues {
        fn key(&self, row: u32, head: usize) -> &[f32] {
            let start = (row as usize * self.heads + head) * self.head_dim;
            &self.keys[start..start + self.head_dim]
        }

        fn value(&self, row: u32, head: usize) -> &[f32] {
            let start = (row as usize * self.heads + head) * self.head_dim;
            &self.values[start..start + self.head_dim]
        }
    }

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32).map(|at| ((at.wrapping_mul(2_654_435_761) ^ seed) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
    }

    fn cache(rows: usize, heads: usize, head_dim: usize) -> KeyValues {
        let size = rows * heads * head_dim;
        KeyValues { keys: numbers(size, 1), values: numbers(size, 2), heads, head_dim, fp8: None }
    }

    /// In f64, head by head, position by position.
    fn naive(query: &[f32], rows: &[u32], head: usize, cache: &KeyValues) -> Vec<f64> {
        let scale = 1.0 / (cache.head_dim as f64).sqrt();
        let product = |row: &u32| -> f64 {
            query.iter().zip(cache.key(*row, head)).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>() * scale
        };
        let weights: Vec<f64> = rows.iter().map(|row| product(row).exp()).collect();
        let sum: f64 = weights.iter().sum();
        (0..cache.head_dim)
            .map(|at| rows.iter().zip(&weights).map(|(row, w)| w / sum * f64::from(cache.value(*row, head)[at])).sum())
            .collect()
    }

    #[test]
    fn grouped_heads_see_exactly_their_rows() {
        let cache = cache(12, 2, 8);
        let queries = numbers(2 * 4 * 8, 3);
        let visible = [Visible { prefix: &[5, 3, 9], own: &[11] }, Visible { prefix: &[5, 3, 9], own: &[0, 7] }];
        let output = attention(&queries, 4, &visible, &cache);
        for (at, visible) in visible.iter().enumerate() {
            let rows: Vec<u32> = visible.prefix.iter().chain(visible.own).copied().collect();
            for head in 0..4 {
                let start = (at * 4 + head) * 8;
                let expected = naive(&queries[start..start + 8], &rows, head / 2, &cache);
                for (found, expected) in output[start..start + 8].iter().zip(expected) {
                    assert!((f64::from(*found) - expected).abs() < 1e-5, "{found} {expected}");
                }
            }
        }
    }

    #[test]
    fn a_sink_takes_its_share_and_adds_no_value() {
        let cache = cache(12, 2, 8);
        let queries = numbers(4 * 8, 3);
        let visible = [Visible { prefix: &[5, 3, 9], own: &[11] }];
        let sinks = [-30.0, 0.4, 1.5, 40.0];
        let plain = attention(&queries, 4, &visible, &cache);
        let output = attention_with_sinks(&queries, 4, &visible, &cache, Some(&sinks));
        for (head, sink) in sinks.into_iter().enumerate() {
            let range = head * 8..(head + 1) * 8;
            let scale = 1.0 / 8_f64.sqrt();
            let score = |row: &u32| -> f64 {
                let key = cache.key(*row, head / 2);
                queries[range.clone()].iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>() * scale
            };
            let sum: f64 = [5, 3, 9, 11].iter().map(|row| score(row).exp()).sum();
            let share = sum / (sum + f64::from(sink).exp());
            for (found, plain) in output[range.clone()].iter().zip(&plain[range]) {
                assert!((f64::from(*found) - f64::from(*plain) * share).abs() < 1e-6, "head {head}");
            }
        }
    }

    #[test]
    fn a_window_keeps_the_last_rows() {
        let visible = Visible { prefix: &[5, 3, 9], own: &[11, 12] };
        let of = |window| {
            let Visible { prefix, own } = visible.last(window);
            [prefix, own].concat()
        };
        assert_eq!([1, 2, 3, 5, 9].map(of), [vec![12], vec![11, 12], vec![9, 11, 12], of(7), vec![5, 3, 9, 11, 12]]);
    }

    #[test]
    fn a_tree_row_has_the_bits_of_the_same_position_decoded_alone() {
        let cache = cache(600, 2, 16);
        let queries = numbers(40 * 4 * 16, 3);
        let prefix: Vec<u32> = (0..500).collect();
        let long: Vec<u32> = (0..503).collect();
        let many: Vec<Visible<'_>> = (0..40).map(|_| Visible { prefix: &prefix, own: &[500, 501, 502] }).collect();
        let together = attention(&queries, 4, &many, &cache);
        let alone = attention(&queries[..64], 4, &[Visible { prefix: &long, own: &[] }], &cache);
        assert_eq!(together[..64], alone);
    }

    #[test]
    fn a_cache_in_fp8_keeps_the_nearest_numbers_of_each_scale() {
        let mut cache = KeyValues::new(2, 1, 4).in_fp8(Some(CacheScales { keys: 0.5, values: 2.0 }));
        cache.write(&[1], &[0.53, -0.53, 1000.0, 0.0], &[0.53, -0.53, 1000.0, 0.001]);
        assert_eq!(cache.keys[4..], [0.5, -0.5, 224.0, 0.0]);
        assert_eq!(cache.values[4..], [0.5, -0.5, 896.0, 0.0]);
        let kept = cache.values[4..].to_vec();
        cache.compact(&[1], &[0]);
        assert_eq!(cache.values[..4], kept);
    }

    #[test]
    fn compaction_moves_accepted_rows_down() {
        let mut cache = cache(8, 1, 2);
        let kept: Vec<f32> = [2, 5, 7].iter().flat_map(|row| cache.key(*row, 0).to_vec()).collect();
        cache.compact(&[2, 5, 7], &[2, 3, 4]);
        assert_eq!(cache.keys[4..10], kept);
    }
}
