//! Algorithms that the library has and does not offer: each is run once, and the best take part in the race.
//!
//! First all tiles, then other clusters for the best of these.

use std::time::{Duration, Instant};

use super::{Fastest, Race};
use crate::device::{
    DeviceError,
    matmul::{Axis, MatmulPlan},
};

/// What the library calls an algorithm.
type Words = [u64; 8];

/// Factor by which an algorithm may fill the device more or less often than one that is known to be fast.
const MOST_UNLIKE: f32 = 3.0;
/// Tiles that are tried with other clusters.
const BEST_TILES: usize = 16;
/// Algorithms that take part in the race.
const BEST: usize = 8;
/// What trying them may take; what has been found by then counts.
const LONGEST: Duration = Duration::from_secs(2);

impl Race<'_> {
    /// The best of so many parts beyond those with times, of the kinds of these; none where none of as many parts has come near
    /// the best of all.
    pub(super) fn unoffered(
        &mut self,
        parts: usize,
        times: &[(Fastest, Duration)],
    ) -> Result<Vec<Fastest>, DeviceError> {
        let mut offered: Vec<(Words, Duration)> = Vec::new();
        for (candidate, time) in times {
            match *candidate {
                Fastest::Library { parts: of, words } if of == parts => offered.push((words, *time)),
                _ => {}
            }
        }
        offered.sort_by_key(|(_, time)| *time);
        let Some((like, _)) = offered.first().copied() else { return Ok(Vec::new()) };
        let begin = Instant::now();
        let plan = self.plans[parts - 1].as_ref();
        let tiles = kinds(plan, &offered).into_iter().flat_map(|kind| plan.variants(kind, Axis::Tile)).collect();
        let mut found = self.screened(parts, tiles, like, begin)?;
        found.truncate(BEST_TILES);
        let plan = self.plans[parts - 1].as_ref();
        let in_clusters = found.iter().flat_map(|(words, _)| plan.variants(*words, Axis::Cluster)).collect();
        found.extend(self.screened(parts, in_clusters, like, begin)?);
        found.sort_by_key(|(_, time)| *time);
        let mut best = Vec::new();
        for (words, _) in found {
            let candidate = Fastest::Library { parts, words };
            if best.len() < BEST && !offered.iter().any(|(known, _)| *known == words) && !best.contains(&candidate) {
                best.push(candidate);
            }
        }
        Ok(best)
    }

    /// Those that the library can run, by what one run took. First come those that fill the device about as often as one that is
    /// known to be fast; those that do so far more often are not tried, since their tiles are small.
    fn screened(
        &mut self,
        parts: usize,
        algorithms: Vec<Words>,
        like: Words,
        begin: Instant,
    ) -> Result<Vec<(Words, Duration)>, DeviceError> {
        let plan = &self.plans[parts - 1];
        let usual = plan.waves(like).unwrap_or_default();
        let unlike = |words: Words| plan.waves(words).map(|waves| (waves / usual).ln().abs());
        let mut algorithms: Vec<(Words, f32)> = algorithms
            .into_iter()
            .filter_map(|words| Some((words, unlike(words)?)))
            // What the library does not count is tried.
            .filter(|(_, unlike)| unlike.is_nan() || *unlike <= MOST_UNLIKE.ln())
            .collect();
        algorithms.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let mut times = Vec::new();
        for (words, _) in algorithms {
            if begin.elapsed() >= LONGEST {
                break;
            }
            // Its first run loads the kernel, and the library says only then of some that it cannot.
            let usable = self.plans[parts - 1].choose(words)
                && self.plans[parts - 1].workspace() <= self.operands.workspace.bytes()
                && self.multiply(parts).is_ok();
            if usable {
                times.push((words, self.timed(|race| race.multiply(parts))?));
            }
        }
        times.sort_by_key(|(_, time)| *time);
        Ok(times)
    }
}

/// One algorithm for each kind among these: those of a kind differ in tile and cluster only.
fn kinds(plan: &dyn MatmulPlan, algorithms: &[(Words, Duration)]) -> Vec<Words> {
    let mut kinds: Vec<(Words, Words)> = Vec::new();
    for (words, _) in algorithms {
        let first = |words: Words, axis: Axis| plan.variants(words, axis).first().copied().unwrap_or(words);
        let kind = first(first(*words, Axis::Tile), Axis::Cluster);
        if kinds.iter().all(|(known, _)| *known != kind) {
            kinds.push((kind, *words));
        }
    }
    kinds.into_iter().map(|(_, words)| words).collect()
}
