//! From logits to a token: temperature, then top-k, top-p and min-p, each applied to the result of
//! the previous one.
//!
//! This is the order of SGLang's sampler. Top-p uses probabilities renormalised after top-k, as in
//! SGLang's verification of drafts. Min-p compares with the most probable token's probability, and
//! no filter removes that token, so the place of min-p in the order matters only to top-p (vLLM
//! applies min-p first).

use kernels::reference::{argmax, log_softmax, softmax, top_k};

use crate::{random::uniform, request::SamplingParams, token::TokenLogprobs};

/// The token at a position. Greedy takes the largest logit (ties go to the lower id); otherwise the
/// position's random number picks from the filtered distribution, in the order of ids.
pub fn choose(logits: &[f32], sampling: &SamplingParams, position: usize) -> u32 {
    if sampling.is_greedy() {
        return argmax(logits) as u32;
    }
    pick(&distribution(logits, sampling), uniform(sampling.seed, position))
}

/// The probabilities with which these tokens are [chosen](choose), at any position.
pub fn probabilities(logits: &[f32], sampling: &SamplingParams, tokens: &[u32]) -> Vec<f64> {
    if sampling.is_greedy() {
        let best = argmax(logits) as u32;
        return tokens.iter().map(|token| if *token == best { 1.0 } else { 0.0 }).collect();
    }
    let kept = distribution(logits, sampling);
    let total: f64 = kept.iter().map(|(_, weight)| weight).sum();
    let weight = |token: &u32| kept.binary_search_by_key(token, |(id, _)| *id).map_or(0.0, |at| kept[at].1);
    tokens.iter().map(|token| weight(token) / total).collect()
}

/// Log-probabilities of a token and of the best alternatives, before temperature and filters.
pub fn logprobs(logits: &[f32], token: u32, alternatives: usize) -> TokenLogprobs {
    let logarithms = log_softmax(logits);
    let top = top_k(&logarithms, alternatives).into_iter().map(|(id, value)| (id as u32, value)).collect();
    TokenLogprobs { logprob: logarithms.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY), top }
}

/// Possible tokens with their probabilities, by ascending id; never empty for a non-empty
/// vocabulary.
fn distribution(logits: &[f32], sampling: &SamplingParams) -> Vec<(u32, f64)> {
    let scaled: Vec<f32> = logits
        .iter()
        .map(|logit| if logit.is_nan() { f32::NEG_INFINITY } else { logit / sampling.temperature })
        .collect();
    let probabilities = softmax(&scaled);
    if !probabilities.iter().all(|probability| probability.is_finite()) {
        // A temperature near zero or infinite logits overflow the exponent: the limit is greedy.
        return vec![(argmax(logits) as u32, 1.0)];
    }
    let unfiltered = sampling.top_k == 0 && sampling.top_p >= 1.0 && sampling.min_p <= 0.0;
    let mut kept: Vec<(u32, f64)> = probabilities.into_iter().enumerate().map(|(id, p)| (id as u32, p)).collect();
    if unfiltered {
        return kept;
    }
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if sampling.top_k > 0 {
        kept.truncate(sampling.top_k);
    }
    if sampling.top_p < 1.0 {
        let total: f64 = kept.iter().map(|(_, probability)| probability).sum();
        let mut before = 0.0;
        // A token is kept while the probabilities before it have not reached the share, so the one
        // that crosses it is kept.
        let enough = kept.iter().position(|(_, probability)| {
            let reached = before >= f64::from(sampling.top_p) * total;
            before += probability;
            reached
        });
        kept.truncate(enough.unwrap_or(kept.len()).max(1));
    }
    if let (Some((_, best)), true) = (kept.first().copied(), sampling.min_p > 0.0) {
        kept.retain(|(_, probability)| *probability >= f64::from(sampling.min_p) * best);
    }
    kept.sort_unstable_by_key(|(id, _)| *id);
    kept
}

/// Inverse of the cumulative distribution; the weights need not sum to one.
fn pick(weights: &[(u32, f64)], uniform: f64) -> u32 {
    let mut left = uniform * weights.iter().map(|(_, weight)| weight).sum::<f64>();
    for (id, weight) in weights {
        left -= weight;
        if left < 0.0 {
            return *id;
        }
    }
    // If rounding leaves a remainder, the last possible token is picked.
    weights.iter().rev().find(|(_, weight)| *weight > 0.0).map_or(0, |(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(logits: &[f32], sampling: SamplingParams, expected: &[u32]) {
        let sampling =
            SamplingParams { temperature: if sampling.is_greedy() { 1.0 } else { sampling.temperature }, ..sampling };
        let found: Vec<u32> =
            distribution(logits, &sampling).into_iter().filter(|(_, p)| *p > 0.0).map(|(id, _)| id).collect();
        assert_eq!(found, expected, "{sampling:?}");
    }

    #[test]
    fn filters_keep_what_they_say() {
        // Probabilities 0.5, 0.25, 0.15, 0.1.
        let logits = [0.5_f32.ln(), 0.25_f32.ln(), 0.15_f32.ln(), 0.1_f32.ln()];
        let plain = SamplingParams::default();
        check(&logits, plain.clone(), &[0, 1, 2, 3]);
        check(&logits, SamplingParams { top_k: 2, ..plain.clone() }, &[0, 1]);
        check(&logits, SamplingParams { top_p: 0.7, ..plain.clone() }, &[0, 1]);
        check(&logits, SamplingParams { top_p: 0.0, ..plain.clone() }, &[0]);
        check(&logits, SamplingParams { min_p: 0.25, ..plain.clone() }, &[0, 1, 2]);
        // After top-k 3 the shares are 0.556, 0.278, 0.167: 0.8 needs two of them.
        check(&logits, SamplingParams { top_k: 3, top_p: 0.8, ..plain }, &[0, 1]);
    }

    #[test]
    fn probabilities_are_those_of_what_is_left_by_the_filters() {
        let logits = [0.5_f32.ln(), 0.25_f32.ln(), 0.15_f32.ln(), 0.1_f32.ln()];
        let sampling = SamplingParams { temperature: 1.0, top_k: 2, ..SamplingParams::default() };
        let found = probabilities(&logits, &sampling, &[1, 3, 0]);
        assert!(found.iter().zip([1.0 / 3.0, 0.0, 2.0 / 3.0]).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
        assert_eq!(probabilities(&logits, &SamplingParams::default(), &[1, 0]), [0.0, 1.0]);
    }

    #[test]
    fn impossible_and_broken_logits_are_never_chosen() {
        let logits = [f32::NEG_INFINITY, f32::NAN, 1.0, f32::NEG_INFINITY];
        for seed in 0..50 {
            let sampling = SamplingParams { temperature: 1.5, seed, ..SamplingParams::default() };
            assert_eq!(choose(&logits, &sampling, 3), 2);
        }
        assert_eq!(choose(&logits, &SamplingParams::default(), 0), 2);
    }

    #[test]
    fn a_vanishing_temperature_is_greedy() {
        let sampling = SamplingParams { temperature: 1e-40, ..SamplingParams::default() };
        assert_eq!(choose(&[1.0, 3.0, 2.0], &sampling, 0), 1);
    }

    #[test]
    fn alternatives_are_of_the_unfiltered_distribution() {
        let logprobs = logprobs(&[0.0, 1.0, 0.0], 2, 2);
        assert_eq!(logprobs.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 0]);
        let sum = 2.0 + 1_f32.exp();
        assert!((logprobs.logprob - (1.0 / sum).ln()).abs() < 1e-6);
    }
}
