//! Selection among logits. Ties go to the lower index; NaN loses against everything.

use std::cmp::Ordering;

use pulp::{Arch, Simd, WithSimd};

use super::{
    dot::{LANES, fold},
    exp::exp,
};

/// Values that are compared with the current best together.
const TOGETHER: usize = 4 * LANES;
/// Terms of a sum in f32; the sums of these runs are added in f64.
const RUN: usize = 1024;

/// The index of the largest value; 0 for an empty slice.
pub fn argmax(values: &[f32]) -> usize {
    let largest = largest(values);
    values.iter().position(|value| *value == largest).unwrap_or(0)
}

/// The same, or `None` if that value is not finite: only a broken model has logits whose largest is
/// infinite, or NaN alone. Some may be −∞ or NaN, and are then never the largest.
pub fn finite_argmax(values: &[f32]) -> Option<usize> {
    let at = argmax(values);
    values.get(at).is_some_and(|largest| largest.is_finite()).then_some(at)
}

/// The `count` largest values with their indices, largest first; all if there are fewer.
pub fn top_k(values: &[f32], count: usize) -> Vec<(usize, f32)> {
    let count = count.min(values.len());
    if count == 0 {
        return Vec::new();
    }
    let (first, rest) = values.split_at(count);
    let mut best: Vec<(usize, f32)> = first.iter().copied().enumerate().collect();
    // Stable sorts and strict comparisons keep the lower index first.
    best.sort_by(|a, b| descending(a.1, b.1));
    Arch::new().dispatch(Better { values: rest, first: count, best: &mut best });
    best
}

/// Merges `values`, whose indices start at `first`, into the current best.
struct Better<'a> {
    values: &'a [f32],
    first: usize,
    best: &'a mut Vec<(usize, f32)>,
}

impl WithSimd for Better<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for (run, first) in self.values.chunks(TOGETHER).zip((self.first..).step_by(TOGETHER)) {
            let Some((_, worst)) = self.best.last().copied() else { return };
            // Most runs contain nothing better, which a comparison of whole registers shows.
            if run.iter().fold(worst.is_nan(), |found, value| found | (*value > worst)) {
                run.iter().zip(first..).for_each(|(value, at)| insert(self.best, at, *value));
            }
        }
    }
}

/// Inserts a value among the best and removes the last of them, if it is better than that one.
fn insert(best: &mut Vec<(usize, f32)>, at: usize, value: f32) {
    let better = |other: f32| descending(other, value) == Ordering::Greater;
    if best.last().is_some_and(|(_, worst)| better(*worst)) {
        best.pop();
        let rank = best.partition_point(|(_, other)| !better(*other));
        best.insert(rank, (at, value));
    }
}

/// The logarithm of the sum of exponentials: a logit minus this is its log-probability.
pub fn log_sum_exp(values: &[f32]) -> f32 {
    let largest = largest(values);
    if largest.is_infinite() {
        return largest;
    }
    let sum: f64 = values.chunks(RUN).map(|values| Arch::new().dispatch(SumOfExponentials { values, largest })).sum();
    (f64::from(largest) + sum.ln()) as f32
}

/// The logarithm of the softmax of one row.
pub fn log_softmax(values: &[f32]) -> Vec<f32> {
    let shift = log_sum_exp(values);
    values.iter().map(|value| value - shift).collect()
}

/// The softmax of one row, in f64: acceptance sums many small probabilities.
pub fn softmax(values: &[f32]) -> Vec<f64> {
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut weights: Vec<f64> = values.iter().map(|value| f64::from(value - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    weights
}

/// The largest value that is not NaN; −∞ if there is none.
fn largest(values: &[f32]) -> f32 {
    Arch::new().dispatch(Largest(values))
}

struct Largest<'a>(&'a [f32]);

impl WithSimd for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> f32 {
        largest_of(self.0)
    }
}

#[inline(always)]
fn largest_of(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; TOGETHER];
    let (blocks, rest) = values.as_chunks::<TOGETHER>();
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane = larger(*lane, *value);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger)
}

struct SumOfExponentials<'a> {
    values: &'a [f32],
    largest: f32,
}

impl WithSimd for SumOfExponentials<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> f64 {
        let mut sums = [0.0; LANES];
        let (blocks, rest) = self.values.as_chunks::<LANES>();
        for block in blocks {
            for (sum, value) in sums.iter_mut().zip(block) {
                *sum += exp(value - self.largest);
            }
        }
        for (sum, value) in sums.iter_mut().zip(rest) {
            *sum += exp(value - self.largest);
        }
        f64::from(fold(&sums))
    }
}

fn descending(a: f32, b: f32) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        // Not total_cmp: −0 and +0 are equal, as on a GPU.
        (false, false) => b.partial_cmp(&a).unwrap_or(Ordering::Equal),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ties_go_to_the_lower_index_and_nan_loses() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(argmax(&[f32::NAN, -1.0]), 1);
        assert_eq!(top_k(&[2.0, f32::NAN, 2.0, 5.0], 3), [(3, 5.0), (0, 2.0), (2, 2.0)]);
        assert_eq!(top_k(&[1.0], 9), [(0, 1.0)]);
    }

    #[test]
    fn only_a_finite_largest_value_is_one() {
        let (nan, infinite) = (f32::NAN, f32::INFINITY);
        assert_eq!(finite_argmax(&[-infinite, nan, 1.0]), Some(2));
        assert_eq!(finite_argmax(&[f32::MIN, -infinite, f32::MIN]), Some(0));
        assert_eq!(finite_argmax(&[1.0, infinite, 2.0]), None);
        assert_eq!(finite_argmax(&[-infinite, -infinite, nan]), None);
        assert_eq!(finite_argmax(&[nan, nan]), None);
        assert_eq!(finite_argmax(&[]), None);
    }

    proptest! {
        #[test]
        fn top_k_is_the_head_of_a_sort(values in prop::collection::vec(-4_i8..4, 1..40), count in 1_usize..12) {
            let values: Vec<f32> = values.into_iter().map(f32::from).collect();
            let mut sorted: Vec<(usize, f32)> = values.iter().copied().enumerate().collect();
            sorted.sort_by(|a, b| b.1.partial_cmp(&a.1).expect("no NaN").then(a.0.cmp(&b.0)));
            sorted.truncate(count);
            prop_assert_eq!(top_k(&values, count), sorted);
        }

        #[test]
        fn softmax_sums_to_one_and_agrees_with_its_logarithm(values in prop::collection::vec(-80.0_f32..80.0, 1..50)) {
            let (probabilities, logarithms) = (softmax(&values), log_softmax(&values));
            prop_assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            for (probability, logarithm) in probabilities.iter().zip(&logarithms) {
                prop_assert!((probability.ln() - f64::from(*logarithm)).abs() < 1e-4 || *probability < 1e-30);
            }
        }
    }
}
