//! The time of prefill, by what a step reads.

use engine::timing::PrefillTime;
use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use super::{LatencyError, cholesky::Cholesky};

/// What a step prefills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefillStep {
    /// Tokens.
    pub tokens: usize,
    /// Prompts, or pieces of them.
    pub prompts: usize,
    /// Sum over the tokens of the number of tokens that each attends to, itself included.
    pub pairs: u64,
}

/// Fitted costs of a prefill step; a step takes their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrefillModel {
    /// Of a step, in ms.
    pub step_ms: f64,
    /// Of a token, in ms.
    pub token_ms: f64,
    /// Steps of fewer tokens take as long as this many: their layers are bound by reading weights.
    #[serde(default)]
    pub least_tokens: usize,
    /// Of a prompt, in ms.
    #[serde(default)]
    pub prompt_ms: f64,
    /// Of a million pairs of tokens in attention, in ms.
    #[serde(default)]
    pub pairs_ms: f64,
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

/// Values of [`PrefillModel::least_tokens`] that a fit tries.
const LEAST_TOKENS: [usize; 14] = [0, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384];
/// Costs of a step: itself, tokens, prompts, pairs.
const COSTS: usize = 4;
/// A further cost must lower the squared errors to less than this share of them.
const WORTH: f64 = 0.99;
/// Squared relative errors below this are rounding.
const EXACT: f64 = 1e-12;

impl PrefillStep {
    /// A prompt of this many tokens from its start.
    pub fn whole(tokens: usize) -> Self {
        let mut step = Self::default();
        step.add(0, tokens);
        step
    }

    /// Adds a piece of a prompt: `count` tokens after `start`.
    pub fn add(&mut self, start: usize, count: usize) {
        let (from, tokens) = (start as u64, count as u64);
        self.tokens += count;
        self.prompts += usize::from(count > 0);
        self.pairs += tokens * from + tokens * (tokens + 1) / 2;
    }
}

impl PrefillModels {
    /// Fits each model to its measurements, or to those of the other if it has none.
    ///
    /// # Errors
    /// As [`PrefillModel::fit`].
    pub fn fit(measured: &[PrefillTime]) -> Result<Self, LatencyError> {
        let fit = |draft: bool| {
            let of: Vec<PrefillTime> = measured.iter().copied().filter(|one| one.draft == draft).collect();
            // A sweep without speculation has no prefills with a draft, and does not predict any.
            PrefillModel::fit(if of.is_empty() { measured } else { &of })
        };
        Ok(Self { both: fit(true)?, target: fit(false)? })
    }

    /// The model for an engine whose rounds have this shape.
    pub fn for_shape(&self, shape: TreeShape) -> &PrefillModel {
        if shape.is_off() { &self.target } else { &self.both }
    }
}

impl PrefillModel {
    /// Fits by relative errors. No cost becomes negative, and one that explains next to nothing is
    /// left out.
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
        // Prompts of one length say nothing about costs of a prompt and its pairs, those of two
        // lengths tell one of them.
        let mut lengths: Vec<usize> = measured.iter().map(|one| one.tokens / one.prompts.max(1)).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let most = lengths.len() - 1;
        let mut best: Option<(f64, Self)> = None;
        // Fewer costs first.
        let mut subsets: Vec<u32> = (1..1 << COSTS).collect();
        // Whatever else costs time, tokens do.
        let with_tokens = |subset: u32| subset >> 2 == 0 || subset & 2 != 0;
        subsets.retain(|subset| (subset >> 2).count_ones() as usize <= most && with_tokens(*subset));
        subsets.sort_by_key(|subset: &u32| (subset.count_ones(), *subset));
        for subset in subsets {
            for least_tokens in LEAST_TOKENS {
                let Some((error, model)) = Self::fit_costs(measured, subset, least_tokens) else { continue };
                if best.is_none_or(|(least, _)| error < WORTH * least - EXACT) {
                    best = Some((error, model));
                }
            }
        }
        best.map(|(_, model)| model).ok_or_else(|| LatencyError::Fit("no prefill cost could be told".into()))
    }

    /// The least squares of some of the costs; `None` if they cannot be told apart, or one is
    /// negative.
    fn fit_costs(measured: &[PrefillTime], subset: u32, least_tokens: usize) -> Option<(f64, Self)> {
        let costs: Vec<usize> = (0..COSTS).filter(|cost| subset & (1 << cost) != 0).collect();
        // Divided by the measured time: errors are relative.
        let terms = |one: &PrefillTime| -> Vec<f64> {
            let all = terms(one, least_tokens);
            costs.iter().map(|cost| all[*cost] / milliseconds(one)).collect()
        };
        let rows: Vec<Vec<f64>> = measured.iter().map(terms).collect();
        // Scaled to a unit diagonal: costs differ by many orders of magnitude.
        let scale = |at: usize| rows.iter().map(|row| row[at] * row[at]).sum::<f64>().sqrt();
        let scales: Vec<f64> = (0..costs.len()).map(scale).collect();
        if scales.iter().any(|scale| *scale <= 0.0) {
            return None;
        }
        let product = |a: usize, b: usize| {
            rows.iter().map(|row| row[a] * row[b]).sum::<f64>() / (scales[a] * scales[b])
                + f64::from(u8::from(a == b)) * EXACT
        };
        let right: Vec<f64> =
            (0..costs.len()).map(|at| rows.iter().map(|row| row[at]).sum::<f64>() / scales[at]).collect();
        let solved = Cholesky::new(costs.len(), product)?.solve(&right);
        let found: Vec<f64> = solved.iter().zip(&scales).map(|(value, scale)| value / scale).collect();
        if found.iter().any(|value| !value.is_finite() || *value < 0.0) {
            return None;
        }
        let mut of = [0.0; COSTS];
        costs.iter().zip(&found).for_each(|(cost, value)| of[*cost] = *value);
        let [step_ms, token_ms, prompt_ms, pairs_ms] = of;
        let error =
            rows.iter().map(|row| (row.iter().zip(&found).map(|(a, b)| a * b).sum::<f64>() - 1.0).powi(2)).sum();
        Some((error, Self { step_ms, token_ms, least_tokens, prompt_ms, pairs_ms }))
    }

    /// The time of a step in ms.
    pub fn step(&self, step: &PrefillStep) -> f64 {
        self.step_ms
            + self.token_ms * step.tokens.max(self.least_tokens) as f64
            + self.prompt_ms * step.prompts as f64
            + self.pairs_ms * step.pairs as f64 / 1e6
    }

    /// Whether all costs are finite and not negative; needed for values read from a file.
    pub fn is_sound(&self) -> bool {
        [self.step_ms, self.token_ms, self.prompt_ms, self.pairs_ms].iter().all(|ms| ms.is_finite() && *ms >= 0.0)
    }
}

/// How often a measurement has each cost.
fn terms(one: &PrefillTime, least_tokens: usize) -> [f64; COSTS] {
    let tokens = one.tokens.max(least_tokens * one.steps);
    [one.steps as f64, tokens as f64, one.prompts as f64, one.pairs as f64 / 1e6]
}

fn milliseconds(one: &PrefillTime) -> f64 {
    one.elapsed.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn time(tokens: usize, steps: usize, milliseconds: f64) -> PrefillTime {
        let elapsed = Duration::from_secs_f64(milliseconds / 1e3);
        PrefillTime { tokens, prompts: 1, pairs: 0, draft: true, steps, elapsed }
    }

    fn step_with(tokens: usize) -> PrefillStep {
        PrefillStep { tokens, prompts: 1, pairs: 0 }
    }

    #[test]
    fn a_line_is_found_and_never_falls() {
        let line = |tokens, steps| time(tokens, steps, 3.0 * steps as f64 + 0.02 * tokens as f64);
        let model = PrefillModel::fit(&[line(100, 1), line(2000, 1), line(8000, 4)]).expect("it fits");
        assert!((model.step_ms - 3.0).abs() < 1e-6 && (model.token_ms - 0.02).abs() < 1e-8, "{model:?}");
        assert!((model.step(&step_with(500)) - 13.0).abs() < 1e-5);
        for (measured, tokens, expected) in [
            (vec![time(100, 1, 5.0)], 100, 5.0),
            (vec![time(10, 1, 5.0), time(1000, 1, 4.9)], 500, 4.95),
            (vec![time(10, 1, 0.1), time(1000, 1, 10.0)], 1000, 10.0),
        ] {
            let model = PrefillModel::fit(&measured).expect("it fits");
            let found = model.step(&step_with(tokens));
            assert!(
                model.is_sound() && (found / expected - 1.0).abs() < 0.1,
                "{found}, expected {expected}: {model:?}"
            );
        }
        for wrong in [&[][..], &[time(0, 1, 1.0)], &[time(1, 0, 1.0)], &[time(1, 1, 0.0)]] {
            assert!(PrefillModel::fit(wrong).is_err());
        }
    }

    /// A model whose layers read 16 GB of weights at 4 TB/s or compute 16 GFLOP a token at 600
    /// TFLOP/s, with attention over all earlier tokens at 150 TFLOP/s (0.5 MFLOP a pair in 32
    /// layers), and 0.3 ms of a step and 0.1 ms of a prompt for all else. Steps have at most 2,048
    /// tokens.
    fn truth(step: &PrefillStep) -> f64 {
        let layers = f64::max(4.0, step.tokens as f64 * 16.0 / 600.0);
        0.3 + layers + 0.1 * step.prompts as f64 + step.pairs as f64 * 0.524e6 / 150e12 * 1e3
    }

    fn measured(prompts: usize, length: usize, rest: f64) -> PrefillTime {
        let mut steps = vec![PrefillStep::default()];
        for _ in 0..prompts {
            let mut start = 0;
            while start < length {
                let last = steps.len() - 1;
                let count = (length - start).min(2048 - steps[last].tokens);
                steps[last].add(start, count);
                start += count;
                if steps[last].tokens == 2048 {
                    steps.push(PrefillStep::default());
                }
            }
        }
        steps.retain(|step| step.tokens > 0);
        let elapsed = steps.iter().map(truth).sum::<f64>() * rest;
        PrefillTime {
            tokens: prompts * length,
            prompts,
            pairs: prompts as u64 * PrefillStep::whole(length).pairs,
            draft: false,
            steps: steps.len(),
            elapsed: Duration::from_secs_f64(elapsed / 1e3),
        }
    }

    /// Long prompts cost more by token than short ones of as many tokens, and a few tokens as much
    /// as some hundred: a line through steps of many short prompts misses both.
    #[test]
    fn single_prompts_of_any_length_are_predicted_from_designed_ones() {
        let lengths = [16, 64, 256, 1024, 2048];
        let all = lengths.into_iter().flat_map(|length| [(1, length), (usize::max(2, 2048 / length), length)]);
        let noise = |at: usize| 1.0 + 0.004 * (at % 3) as f64 - 0.004;
        let times: Vec<PrefillTime> =
            all.enumerate().map(|(at, (prompts, length))| measured(prompts, length, noise(at))).collect();
        let model = PrefillModel::fit(&times).expect("it fits");
        for length in [1, 30, 100, 200, 500, 1500, 2000] {
            let step = PrefillStep::whole(length);
            let error = model.step(&step) / truth(&step) - 1.0;
            assert!(error.abs() < 0.05, "{length}: {error} {model:?}");
        }
        // Of batches of short prompts, as timed rounds have them, only a line can be told.
        let short = [1, 2, 4, 8, 32, 128].map(|prompts| measured(prompts, 300, 1.0));
        let line = PrefillModel::fit(&short).expect("it fits");
        let long = PrefillStep::whole(2048);
        assert!(line.step(&long) / truth(&long) < 0.95, "{line:?}");
        assert!((model.step(&long) / truth(&long) - 1.0).abs() < 0.01, "{model:?}");
    }

    #[test]
    fn pieces_attend_to_what_was_read_before() {
        let mut pieces = PrefillStep::default();
        pieces.add(0, 3);
        pieces.add(3, 2);
        assert_eq!(pieces, PrefillStep { tokens: 5, prompts: 2, pairs: 15 });
        assert_eq!(PrefillStep::whole(5).pairs, 15);
    }

    #[test]
    fn prompts_that_the_draft_reads_are_another_line() {
        let alone = |one: PrefillTime| PrefillTime { draft: false, ..one };
        let measured = [time(100, 1, 5.0), time(300, 1, 7.0), alone(time(100, 1, 3.0)), alone(time(300, 1, 4.0))];
        let models = PrefillModels::fit(&measured).expect("it fits");
        let step = step_with(200);
        let (both, target) =
            (models.for_shape(TreeShape::chain(2)).step(&step), models.for_shape(TreeShape::OFF).step(&step));
        assert!((both - 6.0).abs() < 1e-6 && (target - 3.5).abs() < 1e-6, "{models:?}");
        for one in [&measured[..2], &measured[2..]] {
            let models = PrefillModels::fit(one).expect("it fits");
            assert_eq!(models.both, models.target);
        }
        assert!(PrefillModels::fit(&[]).is_err());
    }
}
