//! Separates stalls from work: steps of a trial that took far longer than others of their kind.
//!
//! A thread that waits for a processor, or a GPU that another process uses, makes single steps
//! several times as long. The normal time of a step is known from others of its kind: steps with
//! the same number of requests after a step with the same number of prompt tokens (whose last part,
//! the draft's, a GPU may still be working on), or for prefills with the same number of prompt
//! tokens. What slows every step alike cannot be detected here; it shows in the repeats of the
//! trial.

use std::collections::BTreeMap;

use crate::{statistics::median, trials::record::Stalls};

/// A step of the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyStep {
    /// Its start in seconds after the start of the trial.
    pub begin: f64,
    /// Duration in seconds. Time that the caller spends between two steps counts to the second one.
    pub took: f64,
    /// Number of rounds whose results were read in it.
    pub rounds: u64,
    /// Number of requests being served.
    pub batch: usize,
    /// Number of prompt tokens prefilled in it.
    pub prompt_tokens: u64,
}

/// Steps without their stalls.
#[derive(Clone, Debug, Default)]
pub struct Steadied {
    /// Duration of each step without its stall, in seconds, in the order of the steps.
    pub took: Vec<f64>,
    /// The removed stalls.
    pub stalls: Stalls,
}

/// Minimum number of steps of a kind for estimating their time.
const FEWEST: usize = 8;
/// The same for prefill steps, of which a trial has few.
const FEWEST_PROMPTS: usize = 4;
/// A step counts as stalled if it exceeds the median of its kind by this many times the distance
/// from the lowest tenth to the median…
const SPREADS: f64 = 4.0;
/// …and by at least this share of the median.
const SHARE: f64 = 0.25;
/// The same for prefill steps, whose time depends less exactly on their number of tokens.
const SHARE_OF_PROMPTS: f64 = 0.5;
/// Steps of a kind with too few of them count as stalled from this many times the duration of the
/// nearest kind.
const TIMES: f64 = 2.0;
/// Maximum number of prefill steps of which all pairs are compared.
const MOST_PAIRS: usize = 400;

/// Prompt tokens of the step before, rounds, and number of requests.
type StepKind = ((u64, u64), usize);

/// Removes the stalls from a trial's steps.
pub fn steadied(steps: &[SteadyStep]) -> Steadied {
    let mut kinds: BTreeMap<StepKind, Vec<usize>> = BTreeMap::new();
    let mut prompts = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        if step.prompt_tokens > 0 {
            prompts.push(at)
        } else {
            // The step after a prefill waits for it, so it is of another kind than other rounds.
            let before = at.checked_sub(1).map_or(0, |before| steps[before].prompt_tokens);
            kinds.entry(((before, step.rounds), step.batch)).or_default().push(at)
        }
    }
    let mut expected: Vec<Option<f64>> = vec![None; steps.len()];
    let mut typical: BTreeMap<StepKind, f64> = BTreeMap::new();
    // Kinds with few steps have no reliable median; they are judged by the nearest kind that has
    // one.
    let (large, small): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|(_, places)| places.len() >= FEWEST);
    for (kind, places) in large {
        let took: Vec<f64> = places.iter().map(|at| steps[*at].took).collect();
        let Some((longest, mean)) = longest(&took, SHARE) else { continue };
        typical.insert(kind, mean);
        places.iter().filter(|at| steps[**at].took > longest).for_each(|at| expected[*at] = Some(mean));
    }
    for (((before, rounds), batch), places) in small {
        let nearest = |before: u64| {
            let same = typical.iter().filter(|((work, _), _)| *work == (before, rounds));
            same.min_by_key(|((_, of), _)| of.abs_diff(batch)).map(|(_, like)| *like)
        };
        for at in places {
            // The rest of a prefill takes less than the prefill.
            let after_any = || Some(nearest(0)? + steps[at.checked_sub(1)?].took);
            let Some(like) = nearest(before).or_else(after_any) else { continue };
            if steps[at].took > TIMES * like {
                expected[at] = Some(like);
            }
        }
    }
    steady_prompts(steps, &prompts, &mut expected);

    let took: Vec<f64> = steps.iter().zip(&expected).map(|(step, expected)| expected.unwrap_or(step.took)).collect();
    let total: f64 = steps.iter().map(|step| step.took).sum();
    let stalled = expected.iter().flatten().count();
    let stalls = Stalls {
        of_time: if total > 0.0 { (1.0 - took.iter().sum::<f64>() / total).clamp(0.0, 1.0) } else { 0.0 },
        of_steps: stalled as f64 / steps.len().max(1) as f64,
    };
    Steadied { took, stalls }
}

/// The longest duration that counts as work, and the mean of the durations up to it. `None` without
/// values.
fn longest(took: &[f64], share: f64) -> Option<(f64, f64)> {
    let mut sorted = took.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    // The lower half measures the spread: stalls only lengthen steps, and lie in the upper one.
    let (middle, low) = (*sorted.get(sorted.len() / 2)?, *sorted.get(sorted.len() / 10)?);
    let longest = middle + (SPREADS * (middle - low)).max(share * middle);
    let work = &sorted[..sorted.partition_point(|took| *took <= longest)];
    Some((longest, work.iter().sum::<f64>() / work.len().max(1) as f64))
}

/// Compares prefill steps with a line through all of them, by their number of tokens.
fn steady_prompts(steps: &[SteadyStep], prompts: &[usize], expected: &mut [Option<f64>]) {
    if prompts.len() < FEWEST_PROMPTS {
        return;
    }
    let points: Vec<(f64, f64)> = prompts.iter().map(|at| (steps[*at].prompt_tokens as f64, steps[*at].took)).collect();
    let (base, slope) = line(&points);
    let like = |tokens: f64| base + slope * tokens;
    let ratios: Vec<f64> = points.iter().map(|(tokens, took)| took / like(*tokens).max(f64::MIN_POSITIVE)).collect();
    let Some((longest, mean)) = longest(&ratios, SHARE_OF_PROMPTS) else { return };
    for ((at, (tokens, _)), ratio) in prompts.iter().zip(&points).zip(&ratios) {
        if *ratio > longest {
            expected[*at] = Some(mean * like(*tokens));
        }
    }
}

/// Intercept and slope of a robust line (Theil and Sen): a third of the points can be far above it
/// without moving it much.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    // The median of the slopes of all pairs (Theil–Sen) ignores single stalls; it grows with the
    // square of the points.
    let few: Vec<(f64, f64)> = points.iter().step_by(points.len().div_ceil(MOST_PAIRS).max(1)).copied().collect();
    let pairs = few.iter().enumerate().flat_map(|(at, a)| few[at + 1..].iter().map(move |b| (a, b)));
    let slopes = pairs.filter(|(a, b)| a.0 != b.0).map(|(a, b)| (b.1 - a.1) / (b.0 - a.0)).collect();
    let least = points.iter().map(|(_, took)| *took).fold(f64::INFINITY, f64::min);
    let slope = median(slopes).unwrap_or(0.0).max(0.0);
    let base = median(points.iter().map(|(tokens, took)| took - slope * tokens).collect()).unwrap_or(least);
    // A step takes some time regardless of its number of tokens.
    (base.max(0.0), slope)
}

/// Converts wall time to time without stalls.
pub struct Clock<'a> {
    steps: &'a [SteadyStep],
    /// Start of each step without the stalls before it.
    begins: Vec<f64>,
    took: &'a [f64],
}

impl<'a> Clock<'a> {
    /// The clock for some steps.
    pub fn new(steps: &'a [SteadyStep], steadied: &'a Steadied) -> Self {
        let mut begin = 0.0;
        let begins = steadied.took.iter().map(|took| {
            begin += took;
            begin - took
        });
        Self { steps, begins: begins.collect(), took: &steadied.took }
    }

    /// The time without stalls of a wall time, both in seconds from the start of the trial.
    pub fn at(&self, wall: f64) -> f64 {
        let after = self.steps.partition_point(|step| step.begin <= wall);
        let Some(at) = after.checked_sub(1) else { return 0.0 };
        let share = ((wall - self.steps[at].begin) / self.steps[at].took.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        self.begins[at] + share * self.took[at]
    }

    /// Duration of the whole trial without stalls, in seconds.
    pub fn end(&self) -> f64 {
        self.took.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(took: impl IntoIterator<Item = (f64, u64)>) -> Vec<SteadyStep> {
        let mut begin = 0.0;
        let step = |(took, prompt_tokens)| {
            begin += took;
            SteadyStep { begin: begin - took, took, rounds: 1, batch: 4, prompt_tokens }
        };
        took.into_iter().map(step).collect()
    }

    fn check(steps: &[SteadyStep], total: f64, of_steps: f64) {
        let found = steadied(steps);
        let sum: f64 = found.took.iter().sum();
        assert!((sum / total - 1.0).abs() < 0.01, "{sum}, not {total}");
        assert!((found.stalls.of_steps - of_steps).abs() < 1e-9, "{:?}", found.stalls);
    }

    #[test]
    fn steps_that_grow_with_their_context_do_not_stall() {
        check(&steps((0..100).map(|at| (1.0 + 0.004 * f64::from(at), 0))), 119.8, 0.0);
    }

    #[test]
    fn what_stalls_counts_like_the_others_of_its_kind() {
        // Every third step is nine times as long.
        check(&steps((0..90).map(|at| (if at % 3 == 0 { 9.0 } else { 1.0 }, 0))), 90.0, 1.0 / 3.0);
        // Prefills of other lengths are another kind; a line predicts their time.
        let prompts = (0..20).map(|at| (if at == 7 { 50.0 } else { 2.0 + 0.01 * f64::from(at) }, 1 + at as u64));
        let work = (0..80).map(|_| (0.1, 0));
        check(&steps(prompts.chain(work)), 2.0 * 20.0 + 0.01 * 190.0 + 8.0, 0.01);
    }

    #[test]
    fn a_few_steps_of_a_kind_are_held_against_the_nearest_kind() {
        let mut few = steps((0..40).map(|_| (1.0, 0)).chain([(1.1, 0), (7.0, 0)]));
        few[40].batch = 2;
        few[41].batch = 1;
        check(&few, 42.1, 1.0 / 42.0);
        // Too few of every kind.
        check(&steps([(1.0, 0), (9.0, 0), (1.0, 0)]), 11.0, 0.0);
    }

    #[test]
    fn the_rest_of_a_prefill_in_the_next_step_is_no_stall() {
        // Prompts of one length, then prompts of different ones: the step after each takes as long
        // again as a plain one.
        for length in [|_| 100, |at: u64| 100 + at] {
            let cycle = |at| [(4.0, length(at)), (2.0, 0), (1.0, 0), (1.0, 0)];
            check(&steps((0..10).flat_map(cycle)), 80.0, 0.0);
        }
        // One that stalls: nine others are known of the first kind, none of the second.
        let stalled = |at: u64, length: u64| [(4.0, length), (if at == 5 { 50.0 } else { 2.0 }, 0), (1.0, 0), (1.0, 0)];
        check(&steps((0..10).flat_map(|at| stalled(at, 100))), 80.0, 1.0 / 40.0);
        check(&steps((0..10).flat_map(|at| stalled(at, 100 + at))), 83.0, 1.0 / 40.0);
    }

    #[test]
    fn the_clock_stands_still_while_a_step_stalls() {
        let steps = steps((0..20).map(|at| (if at == 10 { 11.0 } else { 1.0 }, 0)));
        let steadied = steadied(&steps);
        let clock = Clock::new(&steps, &steadied);
        for (wall, expected) in [(0.0, 0.0), (9.5, 9.5), (15.5, 10.5), (21.0, 11.0), (30.0, 20.0), (99.0, 20.0)] {
            assert!((clock.at(wall) - expected).abs() < 1e-9, "{wall}: {}", clock.at(wall));
        }
        assert!((clock.end() - 20.0).abs() < 1e-9);
    }
}
