//! Separates stalls from work: steps of a trial that took far longer than others of their kind.
//!
//! A thread that waits for a processor, or a GPU that another process uses, makes single steps several times as long. What
//! a step takes by itself is known from the others of its kind: those with the same number of requests, or for prompts
//! of the same number of tokens. What slows every step alike cannot be seen here; it shows in the repeats of the trial.

use std::collections::BTreeMap;

use crate::{record::Stalls, statistics::median};

/// A step of the engine, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// From the start of the trial to its begin, in seconds.
    pub begin: f64,
    /// To its end: what the caller does between two steps belongs to the second.
    pub took: f64,
    /// Rounds that were read in it.
    pub rounds: u64,
    /// Requests that were being served.
    pub batch: usize,
    /// Prompt tokens that were read in it.
    pub prompt_tokens: u64,
}

/// Steps without their stalls.
#[derive(Clone, Debug, Default)]
pub struct Steadied {
    /// What each step takes by itself, in seconds, in the order of the steps.
    pub took: Vec<f64>,
    /// What was taken away.
    pub stalls: Stalls,
}

/// Minimum number of steps of a kind for estimating their time.
const FEWEST: usize = 8;
/// The same for steps with prompts, of which a trial has few.
const FEWEST_PROMPTS: usize = 4;
/// A step may be longer than the median of its kind by this many times the distance from the lowest tenth to the median…
const SPREADS: f64 = 4.0;
/// …and by this share of the median in any case.
const SHARE: f64 = 0.25;
/// The same for prompts, whose lengths tell less exactly how long they take.
const SHARE_OF_PROMPTS: f64 = 0.5;
/// Steps of a kind with too few of them may take this many times as long as those of the nearest kind.
const TIMES: f64 = 2.0;
/// Most steps with prompts of which every pair is looked at.
const MOST_PAIRS: usize = 400;

/// Takes the stalls out of a trial's steps.
pub fn steadied(steps: &[Step]) -> Steadied {
    let mut kinds: BTreeMap<(u64, usize), Vec<usize>> = BTreeMap::new();
    let mut prompts = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        if step.prompt_tokens > 0 {
            prompts.push(at)
        } else {
            kinds.entry((step.rounds, step.batch)).or_default().push(at)
        }
    }
    let mut expected: Vec<Option<f64>> = vec![None; steps.len()];
    let mut typical: BTreeMap<(u64, usize), f64> = BTreeMap::new();
    let (large, small): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|(_, places)| places.len() >= FEWEST);
    for (kind, places) in large {
        let took: Vec<f64> = places.iter().map(|at| steps[*at].took).collect();
        let Some((longest, mean)) = longest(&took, SHARE) else { continue };
        typical.insert(kind, mean);
        places.iter().filter(|at| steps[**at].took > longest).for_each(|at| expected[*at] = Some(mean));
    }
    for ((rounds, batch), places) in small {
        let of_rounds = typical.iter().filter(|((of, _), _)| *of == rounds);
        let Some((_, like)) = of_rounds.min_by_key(|((_, of), _)| of.abs_diff(batch)) else { continue };
        places.iter().filter(|at| steps[**at].took > TIMES * like).for_each(|at| expected[*at] = Some(*like));
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

/// The longest that counts as work, and the mean of what does. `None` without values.
fn longest(took: &[f64], share: f64) -> Option<(f64, f64)> {
    let mut sorted = took.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (middle, low) = (*sorted.get(sorted.len() / 2)?, *sorted.get(sorted.len() / 10)?);
    let longest = middle + (SPREADS * (middle - low)).max(share * middle);
    let work = &sorted[..sorted.partition_point(|took| *took <= longest)];
    Some((longest, work.iter().sum::<f64>() / work.len().max(1) as f64))
}

/// Steps with prompts are held against a line through all of them, by the number of their tokens.
fn steady_prompts(steps: &[Step], prompts: &[usize], expected: &mut [Option<f64>]) {
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

/// Base and slope of a line that a third of the points can be far above without moving it much (Theil and Sen).
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let few: Vec<(f64, f64)> = points.iter().step_by(points.len().div_ceil(MOST_PAIRS).max(1)).copied().collect();
    let pairs = few.iter().enumerate().flat_map(|(at, a)| few[at + 1..].iter().map(move |b| (a, b)));
    let slopes = pairs.filter(|(a, b)| a.0 != b.0).map(|(a, b)| (b.1 - a.1) / (b.0 - a.0)).collect();
    let least = points.iter().map(|(_, took)| *took).fold(f64::INFINITY, f64::min);
    let slope = median(slopes).unwrap_or(0.0).max(0.0);
    let base = median(points.iter().map(|(tokens, took)| took - slope * tokens).collect()).unwrap_or(least);
    // A step takes some time whatever it reads.
    (base.max(0.0), slope)
}

/// From wall time to time without stalls.
pub struct Clock<'a> {
    steps: &'a [Step],
    /// Where each step begins without the stalls before it.
    begins: Vec<f64>,
    took: &'a [f64],
}

impl<'a> Clock<'a> {
    /// The clock of some steps.
    pub fn new(steps: &'a [Step], steadied: &'a Steadied) -> Self {
        let mut begin = 0.0;
        let begins = steadied.took.iter().map(|took| {
            begin += took;
            begin - took
        });
        Self { steps, begins: begins.collect(), took: &steadied.took }
    }

    /// A time of the trial, in seconds from its start.
    pub fn at(&self, wall: f64) -> f64 {
        let after = self.steps.partition_point(|step| step.begin <= wall);
        let Some(at) = after.checked_sub(1) else { return 0.0 };
        let share = ((wall - self.steps[at].begin) / self.steps[at].took.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        self.begins[at] + share * self.took[at]
    }

    /// The whole trial, in seconds.
    pub fn end(&self) -> f64 {
        self.took.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(took: impl IntoIterator<Item = (f64, u64)>) -> Vec<Step> {
        let mut begin = 0.0;
        let step = |(took, prompt_tokens)| {
            begin += took;
            Step { begin: begin - took, took, rounds: 1, batch: 4, prompt_tokens }
        };
        took.into_iter().map(step).collect()
    }

    fn check(steps: &[Step], total: f64, of_steps: f64) {
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
        // Prompts of other lengths are another kind; a line predicts their time.
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
        // There are too few of all kinds.
        check(&steps([(1.0, 0), (9.0, 0), (1.0, 0)]), 11.0, 0.0);
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
