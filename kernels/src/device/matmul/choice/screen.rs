//! Algorithms that the library has but does not offer. Each is run once; the fastest are timed with
//! the other candidates if their result equals that of an offered one.
//!
//! All tiles are tried first, then other cluster sizes for the best of them.

use std::time::{Duration, Instant};

use super::{Fastest, MatmulRace};
use crate::device::{
    DeviceError, Element,
    matmul::{AlgorithmProperty, MatmulPlan, Words},
};

/// Maximum factor between the wave counts of an algorithm and of one that is known to be fast.
const MOST_UNLIKE: f32 = 3.0;
/// Number of rows up to which the offered algorithms suffice: loading weights dominates, whatever
/// the tile.
const FEW_ROWS: usize = 64;
/// Number of tiles that are tried with other clusters.
const BEST_TILES: usize = 8;
/// Maximum number of algorithms that enter the comparison.
const BEST: usize = 8;
/// Time limit of the trials; algorithms found by then are used.
const LONGEST: Duration = Duration::from_secs(1);
/// Number of samples of a result that are compared, and number of values per sample.
const SAMPLES: usize = 64;
const SAMPLE: usize = 256;
/// Maximum difference between values of two algorithms, relative to the largest value: their order
/// of sums differs.
const APART: f32 = 0.01;

impl MatmulRace<'_> {
    /// The best unoffered algorithms with this number of parts, of the same kinds as those in
    /// `times`; none with few rows, or if no algorithm with this number of parts is in `times`
    /// (near the best of all).
    pub(super) fn unoffered(
        &mut self,
        parts: usize,
        times: &[(Fastest, Duration)],
    ) -> Result<Vec<Fastest>, DeviceError> {
        if self.matmul.rows <= FEW_ROWS {
            return Ok(Vec::new());
        }
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
        let tiles =
            kinds(plan, &offered).into_iter().flat_map(|kind| plan.variants(kind, AlgorithmProperty::Tile)).collect();
        let mut found = self.screened(parts, tiles, like, begin)?;
        found.truncate(BEST_TILES);
        let plan = self.plans[parts - 1].as_ref();
        let is_new = |words: &Words| found.iter().all(|(known, _)| known != words);
        let in_clusters = found
            .iter()
            .flat_map(|(words, _)| plan.variants(*words, AlgorithmProperty::Cluster))
            .filter(is_new)
            .collect();
        found.extend(self.screened(parts, in_clusters, like, begin)?);
        found.sort_by_key(|(_, time)| *time);
        // Algorithms that the library did not offer may be wrong for these sizes, so their results
        // are compared with an offered one's.
        let expected = self.sample(parts, like)?;
        let mut best = Vec::new();
        for (words, _) in found {
            let is_offered = offered.iter().any(|(offered, _)| *offered == words);
            if best.len() < BEST && !is_offered && agree(&expected, &self.sample(parts, words)?) {
                best.push(Fastest::Library { parts, words });
            }
        }
        Ok(best)
    }

    /// The algorithms that the library can run, sorted by the time of one run. Those with a wave
    /// count similar to that of `like`, which is known to be fast, come first; those whose count
    /// differs far more are not tried.
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
            // Algorithms whose waves the library does not count are tried.
            .filter(|(_, unlike)| unlike.is_nan() || *unlike <= MOST_UNLIKE.ln())
            .collect();
        algorithms.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let mut times = Vec::new();
        for (words, _) in algorithms {
            if begin.elapsed() >= LONGEST {
                break;
            }
            // The first run loads the kernel; only then does the library reject some of them.
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

    /// Values that an algorithm computes, sampled across the whole result.
    fn sample(&mut self, parts: usize, words: Words) -> Result<Vec<f32>, DeviceError> {
        self.choose(parts, words)?;
        let result = self.result(parts);
        // Values that are not written are NaN.
        self.device.fill(result, 0xFF)?;
        self.multiply(parts)?;
        let element = if parts > 1 { Element::F32 } else { self.matmul.result };
        let values = result.bytes() / element.bytes();
        let length = SAMPLE.min(values);
        let mut bytes = vec![0; length * element.bytes()];
        let mut sample = Vec::with_capacity(SAMPLES * length);
        for at in 0..SAMPLES {
            let first = (values - length) * at / (SAMPLES - 1) * element.bytes();
            self.device.read(result.range(first..first + bytes.len()), &mut bytes)?;
            sample.extend(element.decode(&bytes));
        }
        Ok(sample)
    }
}

/// Whether two algorithms compute the same result.
fn agree(expected: &[f32], found: &[f32]) -> bool {
    let largest = expected.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
    expected.len() == found.len()
        && expected.iter().zip(found).all(|(expected, found)| (expected - found).abs() <= largest * APART)
}

/// One algorithm of each kind: algorithms of a kind differ only in tile and cluster.
fn kinds(plan: &dyn MatmulPlan, algorithms: &[(Words, Duration)]) -> Vec<Words> {
    let mut kinds: Vec<(Words, Words)> = Vec::new();
    for (words, _) in algorithms {
        let first =
            |words: Words, axis: AlgorithmProperty| plan.variants(words, axis).first().copied().unwrap_or(words);
        let kind = first(first(*words, AlgorithmProperty::Tile), AlgorithmProperty::Cluster);
        if kinds.iter().all(|(known, _)| *known != kind) {
            kinds.push((kind, *words));
        }
    }
    kinds.into_iter().map(|(_, words)| words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_another_order_agree_and_what_is_not_written_does_not() {
        assert!(agree(&[1.0, -4.0, 0.5], &[1.004, -3.98, 0.5]));
        assert!(!agree(&[1.0, -4.0, 0.5], &[1.0, -4.0, f32::NAN]));
        assert!(!agree(&[1.0, -4.0, 0.5], &[1.0, -4.0, 0.4]));
        assert!(!agree(&[1.0, f32::NAN], &[1.0, f32::NAN]));
        assert!(agree(&[0.0; 3], &[0.0; 3]));
    }
}
