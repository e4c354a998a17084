//! The time of prefill: a fixed cost per step, and a time per token.

use engine::timing::PrefillTime;
use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use super::LatencyError;

/// A fitted line: time of a prefill step by its number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrefillModel {
    /// Fixed time of a prefill step of the scheduler, in ms.
    pub step_ms: f64,
    /// Time per token, in ms.
    pub token_ms: f64,
}

/// Prefill models with and without speculation: an engine that never speculates does not prefill
/// the draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefillModels {
    /// For target and draft.
    pub both: PrefillModel,
    /// For the target alone.
    pub target: PrefillModel,
}

impl PrefillModels {
    /// Fits each model to its measurements, or to those of the other if it has none.
    ///
    /// # Errors
    /// As [`PrefillModel::fit`].
    pub fn fit(measured: &[PrefillTime]) -> Result<Self, LatencyError> {
        let fit = |draft: bool| {
            let of: Vec<PrefillTime> = measured.iter().copied().filter(|one| one.draft == draft).collect();
            PrefillModel::fit(if of.is_empty() { measured } else { &of })
        };
        Ok(Self { both: fit(true)?, target: fit(false)? })
    }

    /// The model for an engine whose rounds have this shape.
    pub fn of(&self, shape: TreeShape) -> &PrefillModel {
        if shape.is_off() { &self.target } else { &self.both }
    }
}

impl PrefillModel {
    /// Fits by relative errors; neither parameter becomes negative.
    ///
    /// # Errors
    /// Without a measurement, or with one of no tokens or no time.
    pub fn fit(measured: &[PrefillTime]) -> Result<Self, LatencyError> {
        let wrong = |one: &&PrefillTime| one.tokens == 0 || one.steps == 0 || one.elapsed.is_zero();
        if let Some(one) = measured.iter().find(wrong) {
            return Err(LatencyError::Fit(format!(
                "prefill of {} tokens in {:?}: expected a positive time",
                one.tokens, one.elapsed
            )));
        }
        if measured.is_empty() {
            return Err(LatencyError::Fit("no prefill was timed".into()));
        }
        // Sums of (steps/time)², steps·tokens/time², (tokens/time)², steps/time, tokens/time.
        let mut sums = [0.0; 5];
        for one in measured {
            let milliseconds = one.elapsed.as_secs_f64() * 1e3;
            let (steps, tokens) = (one.steps as f64 / milliseconds, one.tokens as f64 / milliseconds);
            let terms = [steps * steps, steps * tokens, tokens * tokens, steps, tokens];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        }
        let [steps2, mixed, tokens2, steps, tokens] = sums;
        let determinant = steps2 * tokens2 - mixed * mixed;
        if determinant > 1e-9 * steps2 * tokens2 {
            let both = Self {
                step_ms: (steps * tokens2 - tokens * mixed) / determinant,
                token_ms: (tokens * steps2 - steps * mixed) / determinant,
            };
            if both.step_ms >= 0.0 && both.token_ms >= 0.0 {
                return Ok(both);
            }
            if both.token_ms < 0.0 {
                return Ok(Self { step_ms: steps / steps2, token_ms: 0.0 });
            }
        }
        Ok(Self { step_ms: 0.0, token_ms: tokens / tokens2 })
    }

    /// The time of a step that prefills this many tokens, in ms.
    pub fn step(&self, tokens: usize) -> f64 {
        self.step_ms + self.token_ms * tokens as f64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn time(tokens: usize, steps: usize, milliseconds: f64) -> PrefillTime {
        PrefillTime { tokens, draft: true, steps, elapsed: Duration::from_secs_f64(milliseconds / 1e3) }
    }

    #[test]
    fn a_line_is_found_and_never_falls() {
        let line = |tokens, steps| time(tokens, steps, 3.0 * steps as f64 + 0.02 * tokens as f64);
        let model = PrefillModel::fit(&[line(100, 1), line(2000, 1), line(8000, 4)]).expect("it fits");
        assert!((model.step_ms - 3.0).abs() < 1e-6 && (model.token_ms - 0.02).abs() < 1e-8, "{model:?}");
        assert!((model.step(50) - 4.0).abs() < 1e-5);
        let one = PrefillModel::fit(&[time(100, 1, 5.0)]).expect("it fits");
        assert_eq!((one.step_ms, one.token_ms), (0.0, 0.05));
        let constant = PrefillModel::fit(&[time(10, 1, 5.0), time(1000, 1, 4.9)]).expect("it fits");
        assert_eq!(constant.token_ms, 0.0);
        let steep = PrefillModel::fit(&[time(10, 1, 0.01), time(1000, 1, 10.0)]).expect("it fits");
        assert_eq!(steep.step_ms, 0.0);
        assert!(steep.token_ms > 0.0);
        for wrong in [&[][..], &[time(0, 1, 1.0)], &[time(1, 0, 1.0)], &[time(1, 1, 0.0)]] {
            assert!(PrefillModel::fit(wrong).is_err());
        }
    }

    #[test]
    fn prompts_that_the_draft_reads_are_another_line() {
        let alone = |one: PrefillTime| PrefillTime { draft: false, ..one };
        let measured = [time(100, 1, 5.0), time(300, 1, 7.0), alone(time(100, 1, 3.0)), alone(time(300, 1, 4.0))];
        let models = PrefillModels::fit(&measured).expect("it fits");
        let (both, target) = (models.of(TreeShape::chain(2)).step(200), models.of(TreeShape::OFF).step(200));
        assert!((both - 6.0).abs() < 1e-6 && (target - 3.5).abs() < 1e-6, "{models:?}");
        for one in [&measured[..2], &measured[2..]] {
            let models = PrefillModels::fit(one).expect("it fits");
            assert_eq!(models.both, models.target);
        }
        assert!(PrefillModels::fit(&[]).is_err());
    }
}
