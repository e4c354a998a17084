//! The engine's recent throughput, in tokens per second.

use std::time::{Duration, Instant};

/// Length of the window.
const WINDOW: Duration = Duration::from_secs(1);

/// Rate of a token counter.
#[derive(Clone, Debug, Default)]
pub struct Throughput {
    /// Start of the window, and the count at that time; `None` while idle.
    began: Option<(Instant, u64)>,
    rate: f64,
}

impl Throughput {
    /// Updates with the current count and returns tokens per second: of the last full window, of
    /// the current one as long as there is no full one, and 0 while idle.
    pub fn update(&mut self, tokens: u64, idle: bool) -> f64 {
        if idle {
            *self = Self::default();
            return 0.0;
        }
        let now = Instant::now();
        let (began, before) = *self.began.get_or_insert((now, tokens));
        let elapsed = now - began;
        let rate = (tokens - before) as f64 / elapsed.as_secs_f64().max(1e-3);
        if elapsed >= WINDOW {
            self.began = Some((now, tokens));
            self.rate = rate;
        }
        if self.rate > 0.0 { self.rate } else { rate }
    }
}
