//! The fastest kernel for a shape, ours or one of the library's: measured once on the device, then
//! stored on disk.
//!
//! The library ranks its algorithms by a model of the device, which is sometimes off by half. It
//! also offers only a few of them: eight for a product of 256 rows with 28,672 outputs, where a
//! tile that is not among them takes 7% less time.

mod kept;
mod screen;

use std::time::Duration;

pub(super) use kept::{load, path, store};

use super::{Fastest, Matmul, MatmulAlgorithm, MatmulPlan, Operands, SearchSetup, Words, choose};
use crate::device::{Device, DeviceError, DeviceEvent, Element, Graph, Slice};

/// Maximum number of the library's algorithms that are timed for each number of parts.
const MOST_ALGORITHMS: usize = 16;
/// Maximum number of runs of a candidate near the best.
const MOST_RUNS: usize = 12;
/// Candidates whose first timed run is within this factor of the best are timed again.
const NEAR: f64 = 1.15;
/// The time by which one of our own kernels may be slower than the best and still be timed again,
/// and compared in a pass: about what it takes to start reading weights, of which no part is left
/// if it overlaps with the kernels before it.
const HIDDEN: Duration = Duration::from_micros(4);
/// Device time for all runs after the first of each candidate.
const BUDGET: Duration = Duration::from_millis(40);
/// Fraction by which a kernel has to be faster than an earlier one (own_kernels first, then in the
/// library's order); less is noise.
const GAIN: f64 = 0.007;
/// Library algorithms within this factor of the best, timed alone, may be faster in a pass. Our own
/// kernels may be if they are [`NEAR`] or slower by no more than [`HIDDEN`], because overlap with
/// their neighbours does not show here.
const EQUAL: f64 = 1.03;
/// Maximum number of library algorithms, in addition to the best, that are compared in a pass.
const MOST_EQUALS: usize = 2;

/// Times own_kernels and the algorithms of the plans for one part, two parts, and so on. Returns
/// the fastest, followed by those that may be faster in a pass; empty if nothing could be timed. If
/// the fastest is one of the library's, it stays chosen in its plan.
///
/// # Safety
/// The operands have the lengths that the shapes of the plans require.
pub(super) unsafe fn fastest(
    device: &Device,
    matmul: Matmul,
    plans: &mut [Box<dyn MatmulPlan>],
    operands: Operands<'_>,
    own_kernels: SearchSetup<'_>,
) -> Result<Vec<Fastest>, DeviceError> {
    let mut candidates: Vec<Fastest> = (0..own_kernels.own_kernels.len()).map(Fastest::Own).collect();
    for (parts, plan) in (1..).zip(plans.iter()) {
        let fits = |one: &MatmulAlgorithm| one.workspace <= operands.workspace.bytes();
        let usable = plan.algorithms(MOST_ALGORITHMS)?.into_iter().filter(fits);
        candidates.extend(usable.map(|MatmulAlgorithm { words, .. }| Fastest::Library { parts, words }));
    }
    // If memory is short, the workspace is used instead: then small weights are timed with a warm
    // cache.
    let other = device.allocate(2 * device.properties().cache_bytes).ok();
    let other = other.as_ref().map_or(operands.workspace, |buffer| buffer.slice());
    let (begin, end) = (device.event()?, device.event()?);
    let mut race = MatmulRace { device, matmul, plans, operands, own_kernels, other, begin, end, graphs: Vec::new() };
    // Kernels are loaded when they first run; only then does the library reject some of them.
    candidates.retain(|candidate| (own_kernels.neighbour)().and_then(|()| race.run(*candidate)).is_ok());
    let mut times = Vec::new();
    let slack = |candidate: Fastest| if is_own(candidate) { HIDDEN } else { Duration::ZERO };
    near_best(&mut times, candidates, slack, |candidate| race.alone(candidate))?;
    for parts in 1..=race.plans.len() {
        let others = race.unoffered(parts, &times)?;
        near_best(&mut times, others, slack, |candidate| race.alone(candidate))?;
    }
    repeat(&mut times, |candidate| race.alone(candidate))?;
    let best = finalists(&times, is_own);
    if let Some(Fastest::Library { parts, words }) = best.first().copied() {
        race.choose(parts, words)?;
    }
    Ok(best)
}

/// The setup in which candidates are timed.
struct MatmulRace<'a> {
    device: &'a Device,
    matmul: Matmul,
    plans: &'a mut [Box<dyn MatmulPlan>],
    operands: Operands<'a>,
    own_kernels: SearchSetup<'a>,
    /// Scratch memory, larger than the L2 cache.
    other: Slice<'a>,
    begin: DeviceEvent,
    end: DeviceEvent,
    /// Graphs of the candidates that were timed.
    graphs: Vec<(Fastest, Graph)>,
}

impl MatmulRace<'_> {
    /// Runs a candidate, with the work that completes its result, and the consumer of the result.
    fn run(&mut self, candidate: Fastest) -> Result<(), DeviceError> {
        let SearchSetup { own_kernels, behind_library, user, .. } = self.own_kernels;
        let mut left_in = 1;
        match candidate {
            Fastest::Own(number) => own_kernels[number]()?,
            Fastest::Library { parts, words } => {
                self.choose(parts, words)?;
                self.multiply(parts)?;
                behind_library.filter(|_| parts == 1).map_or(Ok(()), |behind| behind())?;
                left_in = parts;
            }
        }
        let is_added = matches!(candidate, Fastest::Library { parts: 1, .. }) && self.operands.onto.is_some();
        user.filter(|_| !is_added).map_or(Ok(()), |user| user(left_in))
    }

    fn choose(&mut self, parts: usize, words: Words) -> Result<(), DeviceError> {
        if choose(self.plans, Fastest::Library { parts, words }) {
            return Ok(());
        }
        Err(DeviceError::Shape("cuBLASLt rejected an algorithm that it had offered or run".into()))
    }

    /// Runs the plan with this number of parts.
    fn multiply(&self, parts: usize) -> Result<(), DeviceError> {
        // With `onto` the addition goes to y, which is scratch memory here.
        let (y, adds) = (self.result(parts), parts == 1 && self.operands.onto.is_some());
        // SAFETY: the promise of `fastest`; the workspace is as long as the algorithm needs.
        unsafe { self.plans[parts - 1].run(self.operands.addresses(y), adds) }
    }

    /// The memory that a plan with this number of parts writes.
    fn result(&self, parts: usize) -> Slice<'_> {
        let values = self.matmul.rows * self.matmul.outputs;
        match parts {
            1 => self.operands.y.range(0..values * self.matmul.result.bytes()),
            _ => self.operands.parts.range(0..parts * values * Element::F32.bytes()),
        }
    }

    /// Time of a candidate. A run resembles a pass: a graph, with a short kernel before and after,
    /// with which our kernels overlap and the library's do not; and the L2 cache is filled with
    /// other data, as by other layers' weights.
    fn alone(&mut self, candidate: Fastest) -> Result<Duration, DeviceError> {
        let known = self.graphs.iter().position(|(known, _)| *known == candidate);
        let at = known.unwrap_or(self.graphs.len());
        if known.is_none() {
            let (device, neighbour) = (self.device, self.own_kernels.neighbour);
            let graph = device.capture(|| neighbour().and_then(|()| self.run(candidate)).and_then(|()| neighbour()))?;
            self.graphs.push((candidate, graph));
        }
        self.timed(|race| race.device.run(&race.graphs[at].1))
    }

    /// Time of some work after the L2 cache has been overwritten.
    fn timed(&self, work: impl FnOnce(&Self) -> Result<(), DeviceError>) -> Result<Duration, DeviceError> {
        // While the device writes this, the host launches the rest.
        self.device.fill(self.other, 0)?;
        self.device.record(&self.begin)?;
        work(self)?;
        self.device.record(&self.end)?;
        self.end.wait()?;
        self.end.since(&self.begin)
    }
}

fn is_own(candidate: Fastest) -> bool {
    matches!(candidate, Fastest::Own(_))
}

/// Runs all candidates once, adds them to the timed ones, and keeps those near the best, or slower
/// by no more than their slack.
fn near_best<C: Copy, E>(
    times: &mut Vec<(C, Duration)>,
    candidates: Vec<C>,
    slack: impl Fn(C) -> Duration,
    mut time: impl FnMut(C) -> Result<Duration, E>,
) -> Result<(), E> {
    for candidate in candidates {
        times.push((candidate, time(candidate)?));
    }
    let least = times.iter().map(|(_, time)| *time).min().unwrap_or_default();
    times.retain(|(candidate, time)| {
        time.as_secs_f64() <= least.as_secs_f64() * NEAR || *time <= least + slack(*candidate)
    });
    Ok(())
}

/// Runs the candidates near the best again, and keeps the minimum of each: disturbances only make a
/// run longer.
fn repeat<C: Copy, E>(times: &mut [(C, Duration)], mut time: impl FnMut(C) -> Result<Duration, E>) -> Result<(), E> {
    let mut spent = Duration::ZERO;
    for _ in 1..MOST_RUNS {
        if times.len() < 2 || spent >= BUDGET {
            break;
        }
        for (candidate, least) in &mut *times {
            let again = time(*candidate)?;
            *least = again.min(*least);
            spent += again;
        }
    }
    Ok(())
}

/// The candidate with the shortest time; ties go to the first.
fn best_of<C: Copy>(times: &[(C, Duration)]) -> Option<C> {
    let mut best: Option<(C, Duration)> = None;
    for (candidate, time) in times {
        if best.is_none_or(|(_, least)| time.as_secs_f64() < least.as_secs_f64() * (1.0 - GAIN)) {
            best = Some((*candidate, *time));
        }
    }
    best.map(|(candidate, _)| candidate)
}

/// The best, followed by candidates that may be faster in a pass: own_kernels, and some that are
/// equally fast, in order of time.
fn finalists<C: Copy + PartialEq>(times: &[(C, Duration)], is_rival: impl Fn(C) -> bool) -> Vec<C> {
    let Some(best) = best_of(times) else { return Vec::new() };
    let mut others: Vec<(C, Duration)> = times.iter().copied().filter(|(candidate, _)| *candidate != best).collect();
    others.sort_by_key(|(_, time)| *time);
    let least = times.iter().map(|(_, time)| *time).min().unwrap_or_default().as_secs_f64();
    let mut equals = 0;
    let mut stays = |candidate: C, time: Duration| {
        if is_rival(candidate) {
            return true;
        }
        equals += 1;
        equals <= MOST_EQUALS && time.as_secs_f64() <= least * EQUAL
    };
    let others =
        others.into_iter().filter(|(candidate, time)| stays(*candidate, *time)).map(|(candidate, _)| candidate);
    std::iter::once(best).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index of the best, and the number of runs; a candidate's last time is that of all
    /// further runs.
    fn picked(times: &[&[u64]]) -> (Option<usize>, usize) {
        let mut runs = vec![0; times.len()];
        let mut time = |at: usize| {
            let time = times[at][runs[at].min(times[at].len() - 1)];
            runs[at] += 1;
            Ok::<_, ()>(Duration::from_micros(time))
        };
        let mut near = Vec::new();
        near_best(&mut near, (0..times.len()).collect(), |_| Duration::ZERO, &mut time).expect("times do not fail");
        repeat(&mut near, &mut time).expect("nor do they now");
        (best_of(&near), runs.iter().sum())
    }

    #[test]
    fn the_fastest_is_picked_and_those_far_behind_run_once() {
        assert_eq!(picked(&[&[60], &[37], &[90], &[40]]), (Some(1), 4 + 2 * 11));
    }

    #[test]
    fn the_order_of_the_library_stays_where_the_gain_is_noise() {
        assert_eq!(picked(&[&[1000], &[997], &[994]]).0, Some(0));
        assert_eq!(picked(&[&[1000], &[980], &[975]]).0, Some(1));
    }

    #[test]
    fn a_run_that_was_disturbed_does_not_decide() {
        assert_eq!(picked(&[&[40], &[44, 30, 41]]).0, Some(1));
        assert_eq!(picked(&[&[44, 40], &[42, 42]]).0, Some(0));
    }

    #[test]
    fn those_that_are_equal_and_rivals_may_be_faster_in_a_pass() {
        let times = [100, 112, 101, 99, 103, 102].map(Duration::from_micros);
        let times: Vec<(usize, Duration)> = times.into_iter().enumerate().collect();
        assert_eq!(finalists(&times, |at| at == 1), [3, 0, 2, 1]);
        assert_eq!(finalists(&times[..2], |_| false), [0]);
        assert_eq!(finalists::<usize>(&[], |_| false), []);
    }

    #[test]
    fn long_products_are_not_repeated_past_the_budget() {
        assert_eq!(picked(&[&[30_000], &[31_000]]), (Some(0), 4));
        assert_eq!(picked(&[]), (None, 0));
    }
}
