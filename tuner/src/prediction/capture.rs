//! Chooses the batch sizes for which CUDA graphs are worth capturing.
//!
//! A running batch is padded to the next captured size. With few sizes rounds are wasted on
//! padding; many cost memory and startup time. From the number of rounds at each batch size and the
//! time of a round at each captured size, [`optimize`] finds the best list for every number of
//! graphs by dynamic programming, and [`assess`] computes the cost of a given list.

mod dynamic;
#[cfg(test)]
mod tests;

use schemas::defaults::default_capture_sizes;
use serde::{Deserialize, Serialize};

use crate::TunerError;

/// Number of rounds at each batch size, and the time of a round at each captured size.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Entry b is the number of rounds with b requests, as in
    /// [`Forecast::batches`](crate::forecast::Forecast::batches); entry 0 is ignored.
    rounds: Vec<u64>,
    /// Entry g is the time of a round captured for g requests, in ms, up to the largest batch.
    round_ms: Vec<f64>,
}

/// Bounds of a list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaptureLimits {
    /// Maximum number of graphs.
    pub graphs: usize,
    /// Memory of the graphs; `None` for no limit.
    pub memory: Option<GraphMemory>,
}

/// Memory of graphs in MiB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GraphMemory {
    /// Limit for all graphs together.
    pub total_mib: f64,
    /// Memory of one graph.
    pub each_mib: f64,
}

/// A list of capture sizes and its expected cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaptureList {
    /// Ascending.
    pub sizes: Vec<usize>,
    /// Time of all rounds together, in ms.
    pub expected_ms: f64,
    /// Share of the rows that are only padding, in percent.
    pub padding_percent: f64,
    /// Rounds of batches larger than every size; they count with the time of their own size.
    pub uncovered_rounds: u64,
}

impl Demand {
    /// `rounds[b]` is the number of rounds with b requests. Lists must cover `largest` requests,
    /// which may exceed every batch that ran. `round_ms(g)` need not grow with g.
    ///
    /// # Errors
    /// When there are no rounds, a batch exceeds `largest`, or a time is not positive.
    pub fn new(
        rounds: &[u64],
        largest: usize,
        round_ms: impl Fn(usize) -> Result<f64, TunerError>,
    ) -> Result<Self, TunerError> {
        let wrong = |reason: String| Err(TunerError::Configuration(format!("capture sizes: {reason}")));
        match rounds.iter().skip(1).rposition(|count| *count > 0).map(|at| at + 1) {
            None => return wrong("no round was timed at any batch size".into()),
            Some(seen) if seen > largest => {
                return wrong(format!("rounds of {seen} requests are timed, but at most {largest} may run"));
            }
            Some(_) => {}
        }
        let mut times = vec![0.0];
        for size in 1..=largest {
            let time = round_ms(size)?;
            if !(time.is_finite() && time > 0.0) {
                return wrong(format!("a round of {size} takes {time} ms: expected a number above 0"));
            }
            times.push(time);
        }
        let mut counts = rounds.to_vec();
        counts.resize(largest + 1, 0);
        counts[0] = 0;
        Ok(Self { rounds: counts, round_ms: times })
    }

    /// The largest batch that lists must cover.
    pub fn largest(&self) -> usize {
        self.rounds.len() - 1
    }
}

impl CaptureLimits {
    /// Maximum number of graphs within the limits.
    fn most_graphs(&self) -> usize {
        let fit = |memory: GraphMemory| {
            if memory.each_mib > 0.0 { (memory.total_mib / memory.each_mib).max(0.0) as usize } else { usize::MAX }
        };
        self.graphs.min(self.memory.map_or(usize::MAX, fit))
    }
}

/// The best list for every number of graphs: entry k has at most k + 1 sizes, and fewer if more do
/// not help. All end with the largest batch.
///
/// # Errors
/// When the limits allow no graph.
pub fn optimize(demand: &Demand, limits: &CaptureLimits) -> Result<Vec<CaptureList>, TunerError> {
    let most = limits.most_graphs().min(demand.largest());
    if most == 0 {
        return Err(TunerError::Configuration(format!("capture sizes: {limits:?} allow no graph: raise them")));
    }
    let mut lists: Vec<CaptureList> = Vec::with_capacity(most);
    for sizes in dynamic::best_lists(&demand.rounds, &demand.round_ms, most) {
        let list = assess(demand, &sizes);
        match lists.last().filter(|before| before.expected_ms <= list.expected_ms) {
            // A further size may cost more if times are not monotonic; then the shorter list stays.
            Some(before) => lists.push(before.clone()),
            None => lists.push(list),
        }
    }
    Ok(lists)
}

/// Computes the cost of a given list. Sizes beyond the largest batch count as the largest batch, as
/// in engines.
pub fn assess(demand: &Demand, sizes: &[usize]) -> CaptureList {
    let mut sizes: Vec<usize> =
        sizes.iter().filter(|size| **size > 0).map(|size| (*size).min(demand.largest())).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (mut expected_ms, mut padded, mut used, mut uncovered_rounds) = (0.0, 0.0, 0.0, 0);
    for (batch, rounds) in demand.rounds.iter().enumerate() {
        let next = sizes.get(sizes.partition_point(|size| *size < batch)).copied();
        let count = *rounds as f64;
        let size = next.unwrap_or(batch);
        expected_ms += count * demand.round_ms[size];
        padded += count * size as f64;
        used += count * batch as f64;
        uncovered_rounds += if next.is_none() { *rounds } else { 0 };
    }
    CaptureList { sizes, expected_ms, padding_percent: 100.0 * (1.0 - used / padded), uncovered_rounds }
}

/// Lists to compare with, by name: SGLang's default under speculation; the wide one of slime's
/// example launches (1 2 4 8, then every eighth up to 256); the dense one of slime's notes on
/// speculation (every size up to 32, every eighth up to 64, every sixteenth up to 160). Sizes
/// beyond `largest` are reduced to it.
pub fn known_lists(largest: usize) -> [(&'static str, Vec<usize>); 3] {
    let wide = [1, 2, 4, 8].into_iter().chain((16..=256).step_by(8));
    let dense = (1..=32).chain((40..=64).step_by(8)).chain((80..=160).step_by(16));
    let capped = |sizes: &mut dyn Iterator<Item = usize>| {
        let mut sizes: Vec<usize> = sizes.map(|size| size.min(largest)).filter(|size| *size > 0).collect();
        sizes.dedup();
        sizes
    };
    [
        ("SGLang default", default_capture_sizes(largest)),
        ("slime wide", capped(&mut wide.into_iter())),
        ("slime dense", capped(&mut dense.into_iter())),
    ]
}
