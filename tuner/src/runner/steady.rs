//! Separates stalls from work: steps of a trial that took far longer than others of their kind.
//!
//! A thread that waits for a processor, or a GPU that another process uses, makes single steps
//! several times as long. The normal time of a step is known from others of its kind, which share
//! what decides its work: the shape that ran, the rows that were verified (drafts from texts are
//! found in some rounds only), the number of requests, and the number of prompt tokens of the step
//! before (whose last part, the draft's, a GPU may still be working on). Within a kind the time may
//! grow with the tokens of the requests, and that of a prefill with those of its prompts. What
//! slows every step alike cannot be detected here; it shows in the repeats of the trial.

use std::collections::BTreeMap;

use schemas::tree::TreeShape;

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
    /// The tree of its rounds; no speculation without a round.
    pub shape: TreeShape,
    /// Rows that its rounds verified.
    pub rows: usize,
    /// Tokens of the requests in its rounds, all together.
    pub tokens: usize,
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
/// The same for the other steps of a kind, of which a trial may have many kinds.
const MOST_PAIRS_OF_KIND: usize = 128;
/// Steps whose rows differ by less than a factor of 2^(1/4) are of one kind.
const ROWS_PER_OCTAVE: f64 = 4.0;

/// What decides how long a step takes, besides the tokens of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StepKind {
    /// Prompt tokens of the step before.
    before: u64,
    rounds: u64,
    shape: TreeShape,
    batch: usize,
    /// The logarithm of its rows in parts of an octave.
    rows: i32,
}

impl StepKind {
    fn from_step(step: &SteadyStep, before: u64) -> Self {
        let rows = (step.rows.max(1) as f64).log2() * ROWS_PER_OCTAVE;
        Self { before, rounds: step.rounds, shape: step.shape, batch: step.batch, rows: rows.round() as i32 }
    }

    /// How far another kind is whose steps do work of the same form; `None` for other work.
    fn distance(&self, other: &Self) -> Option<(u32, usize)> {
        let work = |kind: &Self| (kind.before, kind.rounds, kind.shape);
        let distance = (self.rows.abs_diff(other.rows), self.batch.abs_diff(other.batch));
        (work(self) == work(other)).then_some(distance)
    }
}

/// The time of the steps of a kind, as a line over the tokens of their requests.
#[derive(Clone, Copy, Debug)]
struct Typical {
    base: f64,
    slope: f64,
    /// Mean of the durations that are no stalls, relative to the line.
    mean: f64,
    /// The fewest tokens of its steps. Below them the line is unknown.
    fewest: f64,
}

impl Typical {
    fn at(&self, tokens: usize) -> f64 {
        self.mean * (self.base + self.slope * (tokens as f64).max(self.fewest))
    }
}

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
            kinds.entry(StepKind::from_step(step, before)).or_default().push(at)
        }
    }
    let mut expected: Vec<Option<f64>> = vec![None; steps.len()];
    let mut typical: BTreeMap<StepKind, Typical> = BTreeMap::new();
    // Kinds with few steps have no reliable median; they are judged by the nearest kind that has
    // one.
    let (large, small): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|(_, places)| places.len() >= FEWEST);
    for (kind, places) in large {
        typical.extend(steady_kind(steps, &places, &mut expected).map(|found| (kind, found)));
    }
    for (kind, places) in small {
        let nearest = |kind: StepKind| {
            let alike = typical.iter().filter_map(|(other, found)| Some((kind.distance(other)?, other.rows, found)));
            let (_, rows, found) = alike.min_by_key(|(distance, ..)| *distance)?;
            // At most proportional to the rows: what a round takes besides them does not grow.
            let more_rows = (f64::from(kind.rows - rows) / ROWS_PER_OCTAVE).exp2().max(1.0);
            Some((found, more_rows))
        };
        let (same, plain) = (nearest(kind), nearest(StepKind { before: 0, ..kind }));
        for at in places {
            let like = |(found, more_rows): (&Typical, f64)| found.at(steps[at].tokens) * more_rows;
            // The rest of a prefill takes less than the prefill.
            let after_any = || Some(like(plain?) + steps[at.checked_sub(1)?].took);
            let Some(like) = same.map(like).or_else(after_any) else { continue };
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

/// Compares the steps of a kind with a line through them, by the tokens of their requests.
fn steady_kind(steps: &[SteadyStep], places: &[usize], expected: &mut [Option<f64>]) -> Option<Typical> {
    let points: Vec<(f64, f64)> = places.iter().map(|at| (steps[*at].tokens as f64, steps[*at].took)).collect();
    let (base, slope) = line(&points, MOST_PAIRS_OF_KIND);
    let fewest = points.iter().map(|(tokens, _)| *tokens).fold(f64::INFINITY, f64::min);
    let mean = remove_above_line(places, &points, (base, slope), SHARE, expected)?;
    Some(Typical { base, slope, mean, fewest })
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
    remove_above_line(prompts, &points, line(&points, MOST_PAIRS), SHARE_OF_PROMPTS, expected);
}

/// Sets what steps far above a line should have taken; returns the mean of the others relative to
/// it. `None` without steps.
fn remove_above_line(
    places: &[usize],
    points: &[(f64, f64)],
    (base, slope): (f64, f64),
    share: f64,
    expected: &mut [Option<f64>],
) -> Option<f64> {
    let like = |tokens: f64| (base + slope * tokens).max(f64::MIN_POSITIVE);
    let ratios: Vec<f64> = points.iter().map(|(tokens, took)| took / like(*tokens)).collect();
    let (longest, mean) = longest(&ratios, share)?;
    for ((at, (tokens, _)), ratio) in places.iter().zip(points).zip(&ratios) {
        if *ratio > longest {
            expected[*at] = Some(mean * like(*tokens));
        }
    }
    Some(mean)
}

/// Intercept and slope of a robust line (Theil and Sen) through durations by their tokens: a third
/// of the points can be far above it without moving it much. Pairs of at most `most` points are
/// compared, since their number grows with the square of the points.
fn line(points: &[(f64, f64)], most: usize) -> (f64, f64) {
    // By tokens: steps at equal distances in time may all be the same step of each request.
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let few: Vec<(f64, f64)> = sorted.iter().step_by(sorted.len().div_ceil(most).max(1)).copied().collect();
    let pairs = few.iter().enumerate().flat_map(|(at, a)| few[at + 1..].iter().map(move |b| (a, b)));
    let slopes = pairs.filter(|(a, b)| a.0 != b.0).map(|(a, b)| ((b.1 - a.1) / (b.0 - a.0), b.0 - a.0)).collect();
    let least = points.iter().map(|(_, took)| *took).fold(f64::INFINITY, f64::min);
    let slope = weighted_median(slopes).unwrap_or(0.0).max(0.0);
    let base = median(points.iter().map(|(tokens, took)| took - slope * tokens).collect()).unwrap_or(least);
    // A step takes some time regardless of its number of tokens.
    (base.max(0.0), slope)
}

/// The median of slopes by their distance: where most contexts are short and alike, pairs of them
/// are many but say little.
fn weighted_median(mut slopes: Vec<(f64, f64)>) -> Option<f64> {
    slopes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let half = slopes.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let is_half = |(_, weight): &&(f64, f64)| {
        sum += weight;
        sum >= half
    };
    slopes.iter().find(is_half).map(|(slope, _)| *slope)
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

    const CHAIN: TreeShape = TreeShape { num_steps: 15, topk: 1, num_draft_tokens: 16, row_budget: None };

    fn steps(took: impl IntoIterator<Item = (f64, u64)>) -> Vec<SteadyStep> {
        let step =
            |(took, prompt_tokens)| SteadyStep { took, prompt_tokens, batch: 4, rows: 4, tokens: 400, ..plain(took) };
        in_order(took.into_iter().map(step))
    }

    /// A round of one request without speculation.
    fn plain(took: f64) -> SteadyStep {
        SteadyStep {
            begin: 0.0,
            took,
            rounds: 1,
            batch: 1,
            shape: TreeShape::OFF,
            rows: 1,
            tokens: 100,
            prompt_tokens: 0,
        }
    }

    fn in_order(steps: impl IntoIterator<Item = SteadyStep>) -> Vec<SteadyStep> {
        let mut begin = 0.0;
        let step = |step: SteadyStep| {
            begin += step.took;
            SteadyStep { begin: begin - step.took, ..step }
        };
        steps.into_iter().map(step).collect()
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

    /// Checks that steps do not stall, and that a step of each group does if it takes four times as
    /// long.
    fn check_work(groups: &[SteadyStep]) {
        let all = in_order(groups.iter().copied());
        let total: f64 = all.iter().map(|step| step.took).sum();
        check(&all, total, 0.0);
        let longest = groups.iter().map(|step| step.took).fold(0.0, f64::max);
        for is_long in [false, true] {
            let mut stalled = groups.to_vec();
            let at = stalled.iter().rposition(|step| (step.took > 0.9 * longest) == is_long).expect("a step");
            stalled[at].took *= 4.0;
            check(&in_order(stalled), total, 1.0 / groups.len() as f64);
        }
    }

    /// Of every ten steps, seven are the first and three the second.
    fn mixed(first: SteadyStep, second: SteadyStep) -> Vec<SteadyStep> {
        (0..100).map(|at| if at % 10 < 7 { first } else { second }).collect()
    }

    #[test]
    fn rounds_of_another_shape_or_with_more_rows_are_other_work() {
        let found = SteadyStep { shape: CHAIN, rows: 16, ..plain(1.6) };
        check_work(&mixed(plain(1.0), found));
        check_work(&mixed(SteadyStep { shape: CHAIN, rows: 3, ..plain(1.0) }, found));
        check_work(&mixed(SteadyStep { shape: CHAIN, rows: 3, ..plain(1.0) }, SteadyStep { rows: 8, ..found }));
    }

    #[test]
    fn rounds_with_long_contexts_are_no_stalls_among_short_ones() {
        let of = |at: usize, context: usize| {
            let tokens = context + at % 96;
            SteadyStep { tokens, ..plain(1.0 + tokens as f64 / 900.0) }
        };
        // Three of twelve requests have long prompts.
        let each = |request: usize| (0..96).map(move |at| of(at, if request % 4 == 3 { 900 } else { 24 }));
        check_work(&(0..12).flat_map(each).collect::<Vec<_>>());
        // As many requests as there are rounds between two that are compared.
        check_work(&(0..96 * 40).map(|at| of(at, if at % 5 == 4 { 900 } else { 24 })).collect::<Vec<_>>());
    }

    #[test]
    fn few_rounds_are_held_against_those_of_their_shape_with_the_nearest_rows() {
        let rows = |rows: usize, took: f64| SteadyStep { shape: CHAIN, rows, ..plain(took) };
        let usual = || (0..40).flat_map(|_| [plain(1.0), rows(4, 1.5)]);
        let work = 40.0 * 2.5;
        // Rounds of twice the rows may take twice as long, and more than that of a plain one.
        check(&in_order(usual().chain([rows(8, 3.0), rows(16, 6.0)])), work + 9.0, 0.0);
        check(&in_order(usual().chain([rows(8, 30.0)])), work + 3.0, 1.0 / 81.0);
        // No round of this shape says what it takes.
        let other = SteadyStep { shape: TreeShape { num_steps: 3, ..CHAIN }, ..rows(4, 9.0) };
        check(&in_order(usual().chain([other])), work + 9.0, 0.0);
        // A long context, beyond those of the others.
        let grows = |tokens: usize| SteadyStep { tokens, ..plain(1.0 + tokens as f64 / 100.0) };
        let long = SteadyStep { batch: 2, rows: 2, ..grows(1000) };
        let short = (0..40).map(|at| grows(24 + at));
        let sum: f64 = short.clone().map(|step| step.took).sum();
        check(&in_order(short.chain([long])), sum + 11.0, 0.0);
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
