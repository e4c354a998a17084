//! Choosing among logits. Ties go to the lower index; NaN loses against everything.

use std::cmp::Ordering;

/// The index of the largest value; 0 for an empty slice.
pub fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (at, value) in values.iter().enumerate().skip(1) {
        if *value > values[best] || (values[best].is_nan() && !value.is_nan()) {
            best = at;
        }
    }
    best
}

/// The `count` largest values with their indices, largest first; fewer where there are fewer.
pub fn top_k(values: &[f32], count: usize) -> Vec<(usize, f32)> {
    let count = count.min(values.len());
    if count == 0 {
        return Vec::new();
    }
    let mut indices: Vec<usize> = (0..values.len()).collect();
    let order = |a: &usize, b: &usize| descending(values[*a], values[*b]).then(a.cmp(b));
    if count < indices.len() {
        indices.select_nth_unstable_by(count - 1, order);
        indices.truncate(count);
    }
    indices.sort_unstable_by(order);
    indices.into_iter().map(|at| (at, values[at])).collect()
}

/// The logarithm of the softmax of one row.
pub fn log_softmax(values: &[f32]) -> Vec<f32> {
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = values.iter().map(|value| f64::from(value - largest).exp()).sum();
    let shift = sum.ln();
    values.iter().map(|value| (f64::from(value - largest) - shift) as f32).collect()
}

/// The softmax of one row, in f64: acceptance sums up many small probabilities.
pub fn softmax(values: &[f32]) -> Vec<f64> {
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut weights: Vec<f64> = values.iter().map(|value| f64::from(value - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    weights
}

fn descending(a: f32, b: f32) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        // Not total_cmp: −0 and +0 are one value, as they are for a GPU.
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
