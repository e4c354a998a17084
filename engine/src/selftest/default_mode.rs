//! Compares the default mode, whose sums depend on the batch and the tree, with batch-invariant
//! mode in the same type: different kernels (attention on tensor cores that prefetches, linear
//! layers by the library) over the same texts.

use super::{EngineConfiguration, SelftestExtent, logprobs::tokens, request, shapes};
use crate::{Engine, EngineError, Request, SamplingParams, ShapePolicy, backend::ProducedToken, options::Fp8Compute};

/// Number of alternatives that are compared where two texts diverge.
const ALTERNATIVES: usize = 8;

/// The default mode gives each token the log-probabilities of batch-invariant mode, up to rounding;
/// texts diverge only where two tokens are about equally likely.
pub fn near_batch_invariant(
    default: &mut Engine,
    invariant: &mut Engine,
    plan: SelftestExtent,
    setting: EngineConfiguration,
) -> Result<Option<String>, EngineError> {
    let tolerance = tolerance(setting);
    let sampling = SamplingParams { logprobs: Some(ALTERNATIVES), ..SamplingParams::default() };
    for batch in plan.batches {
        let requests: Vec<Request> = (0..*batch).map(|at| request(at, &sampling, plan.tokens)).collect();
        for shape in shapes(plan) {
            let policy = ShapePolicy::fixed(shape);
            default.set_policy(policy.clone())?;
            invariant.set_policy(policy)?;
            let (found, expected) = (tokens(default, &requests)?, tokens(invariant, &requests)?);
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                if let Some((place, reason)) = departure(found, expected, tolerance) {
                    return Ok(Some(format!("shape {shape}, batch {batch}, request {at}, token {place}: {reason}")));
                }
            }
        }
    }
    Ok(None)
}

/// By how much log-probabilities of the two modes may differ.
fn tolerance(setting: EngineConfiguration) -> f32 {
    // Logits are a few units large, computed with 8 or 11 bits of mantissa over some layers.
    let rounding = if setting.dtype == "bfloat16" { 0.15 } else { 0.03 };
    // A state carries what was rounded in all rows before, and prompts are read in chunks, whose
    // sums have another order (0.17 was seen in bfloat16).
    let carried = if setting.pair.has_states() { 2.0 * rounding } else { rounding };
    match setting.fp8_compute {
        // The last bit of an activation can move its number in FP8, which has 3 bits of mantissa.
        Some(Fp8Compute::Products) => 3.0 * carried,
        _ => carried,
    }
}

/// The first place at which a text differs from another by more than rounding, and how.
fn departure(found: &[ProducedToken], expected: &[ProducedToken], tolerance: f32) -> Option<(usize, String)> {
    if found.len() != expected.len() {
        return Some((found.len().min(expected.len()), format!("{} tokens, {}", found.len(), expected.len())));
    }
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let wrong = |reason: &str| Some((place, format!("{reason}: {found:?}, batch-invariant {expected:?}")));
        let (Some(own), Some(other)) = (&found.logprobs, &expected.logprobs) else {
            return wrong("log-probabilities are missing");
        };
        if found.id == expected.id {
            if (own.logprob - other.logprob).abs() > tolerance {
                return wrong("different log-probabilities");
            }
            continue;
        }
        // After a different token the texts are no longer comparable.
        let tie = other.top.iter().find(|(id, _)| *id == found.id);
        return match tie {
            Some((_, logprob)) if other.logprob - logprob <= 2.0 * tolerance => None,
            _ => wrong("a different token, without a tie"),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::TokenLogprobs;

    fn token(id: u32, logprob: f32, top: &[(u32, f32)]) -> ProducedToken {
        ProducedToken { id, logprobs: Some(TokenLogprobs { logprob, top: top.to_vec() }) }
    }

    #[test]
    fn rounding_and_ties_are_forgiven_and_nothing_else() {
        let expected = [token(1, -0.5, &[(1, -0.5), (2, -0.6)]), token(3, -0.1, &[(3, -0.1), (4, -3.0)])];
        let place = |found: &[ProducedToken]| departure(found, &expected, 0.1).map(|(place, _)| place);
        assert_eq!(place(&expected), None);
        assert_eq!(place(&[token(1, -0.55, &[]), token(3, -0.15, &[])]), None);
        assert_eq!(place(&[token(1, -0.7, &[]), token(3, -0.1, &[])]), Some(0));
        assert_eq!(place(&[token(2, -0.5, &[]), token(9, -9.0, &[])]), None, "a tie ends the comparison");
        assert_eq!(place(&[token(1, -0.5, &[]), token(4, -0.1, &[])]), Some(1));
        assert_eq!(place(&[token(1, -0.5, &[])]), Some(1));
    }
}
