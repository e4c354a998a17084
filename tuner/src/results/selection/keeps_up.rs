//! Whether an open loop distinguishes configurations: if all of them keep up with the arrivals, all
//! have the same throughput.

use schemas::sweep::Metric;

use crate::trials::record::{ArrivalFigures, Measurement};

/// A configuration keeps up if it finishes after the last arrival within this share of the whole
/// span, plus twice the time of its quickest request.
const TAIL: f64 = 0.05;
/// Share of requests within the limits from which on nearly all count as in time.
const IN_TIME: f64 = 0.99;

/// Whether all these trials of an open loop keep up with it. Never in a closed loop.
pub fn all(trials: &[&Measurement], objective: Metric) -> bool {
    !trials.is_empty() && trials.iter().all(|figures| one(figures, objective))
}

fn one(figures: &Measurement, objective: Metric) -> bool {
    let Some(ArrivalFigures { offered_per_s, .. }) = figures.arrivals else { return false };
    if !(offered_per_s > 0.0 && offered_per_s.is_finite()) {
        return false;
    }
    // The last request ends after the last arrival in any case; only a longer tail shows a queue.
    let span = figures.requests.saturating_sub(1) as f64 / offered_per_s;
    let tail = figures.elapsed_s - span;
    let in_time = objective != Metric::Goodput || figures.in_time.is_none_or(|share| share >= IN_TIME);
    tail <= TAIL * span + 2.0 * figures.latency_ms.min / 1e3 && in_time
}
