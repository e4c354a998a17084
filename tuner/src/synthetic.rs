//! Synthetic trials, for tests.

use crate::record::{Fingerprint, Measurement, Origin, Outcome, Record, Role, Spread, Trial};

/// A trial with this many output tokens per second over all requests, and matching request latencies in ms; all other
/// figures are constant.
pub fn record(trial: Trial, role: Role, rate: f64) -> Record {
    let spread = |value| Spread { min: value, median: value, p90: value, p99: value, max: value, count: 1 };
    let figures = Measurement {
        requests: 1,
        output_tokens: 100,
        elapsed_s: 100.0 / rate,
        output_tokens_per_s: rate,
        tokens_per_s_per_user: rate,
        accept_length: 2.0,
        accept_histogram: vec![1, 2],
        rounds: 50,
        round_ms: spread(1.0),
        running_batch: vec![50],
        time_to_first_token_ms: spread(1.0),
        latency_ms: spread(1e5 / rate),
        ..Measurement::default()
    };
    let fingerprint = Fingerprint::default();
    Record {
        id: trial.id(&fingerprint),
        trial,
        role,
        fingerprint,
        origin: Origin::default(),
        finished_at: 0,
        outcome: Outcome::Measured(Box::new(figures)),
    }
}
