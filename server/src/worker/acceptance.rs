//! How many tokens rounds yield: since the start, recently, and since the last flush of the prefix
//! cache.

use std::collections::VecDeque;

use engine::scheduler::Statistics;

/// Number of the batch's rounds that count as recent: SGLang's default of `--decode-log-interval`,
/// after which it updates its gauges.
const WINDOW: u64 = 40;

/// Follows the engine's counters of rounds.
#[derive(Clone, Debug)]
pub struct LiveAcceptance {
    now: Counts,
    /// At the last flush.
    flushed: Counts,
    /// Earlier counts, oldest first: one of at least [`WINDOW`] rounds ago, if there is one, and
    /// all since.
    earlier: VecDeque<Counts>,
}

/// Tokens per round and request, bonus token included (SGLang's accept length); `None` without a
/// round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AcceptLengths {
    /// Since the start.
    pub lifetime: Option<f64>,
    /// Over the last rounds.
    pub recent: Option<f64>,
    /// Since the last flush of the prefix cache, or the start: SGLang's `avg_spec_accept_length`.
    pub since_flush: Option<f64>,
    /// Accepted / verified drafts over the last rounds.
    pub recent_rate: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    rounds: u64,
    request_rounds: u64,
    proposed: u64,
    accepted: u64,
}

impl Default for LiveAcceptance {
    fn default() -> Self {
        Self { now: Counts::default(), flushed: Counts::default(), earlier: VecDeque::from([Counts::default()]) }
    }
}

impl LiveAcceptance {
    /// Updates with the engine's counters.
    pub fn update(&mut self, statistics: &Statistics) -> AcceptLengths {
        self.now = Counts {
            rounds: statistics.rounds,
            request_rounds: statistics.request_rounds,
            proposed: statistics.proposed_drafts,
            accepted: statistics.accepted_drafts(),
        };
        // Steps without a round would only repeat the last counts.
        if self.earlier.back().is_none_or(|last| last.rounds < self.now.rounds) {
            self.earlier.push_back(self.now);
        }
        while self.earlier.get(1).is_some_and(|next| next.rounds + WINDOW <= self.now.rounds) {
            self.earlier.pop_front();
        }
        let recent = self.now.since(self.earlier.front().copied().unwrap_or_default());
        AcceptLengths {
            lifetime: self.now.accept_length(),
            recent: recent.accept_length(),
            since_flush: self.now.since(self.flushed).accept_length(),
            recent_rate: (recent.proposed > 0).then(|| recent.accepted as f64 / recent.proposed as f64),
        }
    }

    /// Starts over, except for the lifetime, as SGLang does when its cache is flushed.
    pub fn flush(&mut self) {
        self.flushed = self.now;
        self.earlier = VecDeque::from([self.now]);
    }
}

impl Counts {
    fn since(self, earlier: Self) -> Self {
        Self {
            rounds: self.rounds - earlier.rounds,
            request_rounds: self.request_rounds - earlier.request_rounds,
            proposed: self.proposed - earlier.proposed,
            accepted: self.accepted - earlier.accepted,
        }
    }

    fn accept_length(self) -> Option<f64> {
        // Each round of a request yields its bonus token too.
        let tokens = self.accepted + self.request_rounds;
        (self.request_rounds > 0).then(|| tokens as f64 / self.request_rounds as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After this many further rounds of one request, in each of which this many of 3 drafts were
    /// accepted.
    fn run(statistics: &mut Statistics, rounds: u64, accepted: usize) {
        statistics.rounds += rounds;
        statistics.request_rounds += rounds;
        statistics.proposed_drafts += 3 * rounds;
        statistics.accept_histogram.resize(4, 0);
        statistics.accept_histogram[accepted] += rounds;
    }

    #[test]
    fn the_recent_length_follows_the_last_rounds_and_a_flush_spares_the_lifetime() {
        let (mut acceptance, mut statistics) = (LiveAcceptance::default(), Statistics::default());
        assert_eq!(acceptance.update(&statistics), AcceptLengths::default());
        for _ in 0..60 {
            run(&mut statistics, 1, 3);
            acceptance.update(&statistics);
        }
        for _ in 0..40 {
            run(&mut statistics, 1, 0);
            acceptance.update(&statistics);
        }
        let found = acceptance.update(&statistics);
        assert_eq!((found.recent, found.recent_rate), (Some(1.0), Some(0.0)));
        assert_eq!((found.lifetime, found.since_flush), (Some(2.8), Some(2.8)));
        acceptance.flush();
        let found = acceptance.update(&statistics);
        assert_eq!((found.recent, found.since_flush, found.lifetime), (None, None, Some(2.8)));
        run(&mut statistics, 10, 1);
        let found = acceptance.update(&statistics);
        assert_eq!((found.recent, found.since_flush), (Some(2.0), Some(2.0)));
        assert!(found.lifetime.is_some_and(|length| length < 2.8), "{found:?}");
    }
}
