//! How many requests run at once if the lengths of their outputs are not known: the rule of
//! admission, a function of counts that the scheduler and simulations share.
//!
//! It follows SGLang 0.5.23 (`NewTokenRatioTracker` and `PrefillAdder`): a new request starts if
//! the cache can hold all of its output and a share of the remaining outputs of running requests.
//! The share, the new-token ratio, decays from step to step. If pages run out nevertheless, running
//! requests are retracted, and the ratio is set to what the remaining ones have generated. Outputs
//! whose length is certain count in full.

/// The share of the remaining output tokens that running requests are expected to generate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewTokenRatio(f64);

/// A request's output, as far as it matters for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Tokens so far.
    pub generated: usize,
    /// Maximum number of tokens.
    pub most: usize,
    /// Whether it will have that many tokens for certain.
    pub is_certain: bool,
}

/// Remaining output tokens count up to this number (`SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION`), since
/// limits are often far above real lengths.
pub const MOST_EXPECTED: usize = 4096;

/// `SGLANG_INIT_NEW_TOKEN_RATIO`.
const FIRST: f64 = 0.7;
/// The smallest ratio: [`FIRST`] times `SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR`.
const LEAST: f64 = FIRST * 0.14;
/// Steps from the first to the smallest ratio: `SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS`.
const DECAY_STEPS: f64 = 600.0;
/// Tokens per request that are added to what was generated, after a retraction:
/// `SGLANG_RETRACT_DECODE_STEPS`.
const RETRACT_STEPS: usize = 20;

impl Default for NewTokenRatio {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl NewTokenRatio {
    /// The ratio now.
    pub fn value(self) -> f64 {
        self.0
    }

    /// After a step for which there were enough pages.
    pub fn decay(&mut self) {
        self.0 = (self.0 - (FIRST - LEAST) / DECAY_STEPS).max(LEAST);
    }

    /// When nothing runs.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// After requests were retracted; `remaining` are the outputs of those that still run.
    pub fn retracted(&mut self, remaining: impl IntoIterator<Item = Output>) {
        let (mut generated, mut most) = (0, 0);
        for output in remaining {
            generated += output.generated + RETRACT_STEPS;
            most += output.most;
        }
        // What the remaining requests have generated so far predicts better than the ratio that
        // failed.
        self.0 = (generated as f64 / (most + 1) as f64).min(1.0);
    }

    /// Number of further tokens that a running request is expected to generate.
    pub fn expected(self, output: Output) -> usize {
        let rest = output.most.saturating_sub(output.generated);
        if output.is_certain { rest } else { (rest.min(MOST_EXPECTED) as f64 * self.0).ceil() as usize }
    }
}

impl Output {
    /// Number of further tokens for which there must be room when it starts or continues.
    pub fn at_start(self) -> usize {
        let rest = self.most.saturating_sub(self.generated);
        // Without the ratio: how long a new request runs is unknown, while those that run have
        // survived.
        if self.is_certain { rest } else { rest.min(MOST_EXPECTED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn output(generated: usize, most: usize) -> Output {
        Output { generated, most, is_certain: false }
    }

    #[test]
    fn the_ratio_decays_to_its_least_and_starts_again_when_nothing_runs() {
        let mut ratio = NewTokenRatio::default();
        ratio.decay();
        assert!((ratio.value() - (0.7 - 0.602 / 600.0)).abs() < 1e-12);
        (0..1000).for_each(|_| ratio.decay());
        assert!((ratio.value() - 0.098).abs() < 1e-12);
        ratio.reset();
        assert!((ratio.value() - 0.7).abs() < 1e-12);
    }

    #[test]
    fn after_a_retraction_it_is_what_the_others_have_generated() {
        // The figures of SGLang's `estimate_new_token_ratio_after_retract`: (10 + 30 + 2 · 20) /
        // (100 + 300 + 1).
        let mut ratio = NewTokenRatio::default();
        ratio.retracted([output(10, 100), output(30, 300)]);
        assert!((ratio.value() - 80.0 / 401.0).abs() < 1e-12);
        ratio.retracted([output(100, 100)]);
        assert!((ratio.value() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn expected_tokens_are_a_share_unless_they_are_certain() {
        let mut ratio = NewTokenRatio::default();
        ratio.retracted([output(0, 39)]);
        assert_eq!(ratio.expected(output(10, 31)), 11);
        assert_eq!(ratio.expected(output(10, 1_000_000)), 2048);
        assert_eq!(ratio.expected(Output { is_certain: true, ..output(10, 100_000) }), 99_990);
        assert_eq!(output(10, 100).at_start(), 90);
        assert_eq!(output(10, 100_000).at_start(), 4096);
        assert_eq!(Output { is_certain: true, ..output(10, 100_000) }.at_start(), 99_990);
    }
}
