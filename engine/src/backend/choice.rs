//! Choice of the target's token on the host.

use kernels::reference::finite_argmax;

use crate::{adjust::Adjuster, request::SamplingParams, sampling};

/// The token at a position. An `adjuster` changes a copy of the logits and chooses from it. `None`
/// if the largest logit is not finite: any token chosen then would pass for valid text.
pub(super) fn choose(
    logits: &[f32],
    parameters: &SamplingParams,
    adjuster: Option<&mut Adjuster>,
    position: usize,
) -> Option<u32> {
    finite_argmax(logits)?;
    let Some(adjuster) = adjuster else { return Some(sampling::choose(logits, parameters, position)) };
    let adjusted = adjuster.adjust(logits);
    finite_argmax(&adjusted)?;
    let id = sampling::choose(&adjusted, parameters, position);
    adjuster.push(id);
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_that_are_no_numbers_are_no_token() {
        let check = |logits: &[f32], expected: Option<u32>| {
            for temperature in [0.0, 1.0] {
                let sampling = SamplingParams { temperature, ..SamplingParams::default() };
                assert_eq!(choose(logits, &sampling, None, 7), expected, "{logits:?}");
            }
        };
        let (nan, infinite) = (f32::NAN, f32::INFINITY);
        check(&[-infinite, nan, 1.0], Some(2));
        check(&[nan, nan, nan], None);
        check(&[1.0, infinite, 2.0], None);
        check(&[-infinite, -infinite, nan], None);
    }
}
