//! A load: its requests, when they are sent, and what counts.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Arrivals, rollout::Rollout};
use crate::workload::arrivals;

/// Latest arrival in s: a clock in ms that is an f64 still resolves a tenth of a microsecond there.
pub const LATEST_S: f64 = 1e9;

/// The requests, and when they are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// How many requests, and how long they are.
    pub requests: Rollout,
    /// When they are sent.
    pub sent: SendPattern,
}

/// When requests are sent, and what counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendPattern {
    /// All at once; what counts is the time until this share of them is done. Stragglers run on, or
    /// are aborted.
    AtOnce {
        /// 1 for all.
        share: f64,
        /// Whether the rest is aborted then, so that the tokens of the draw differ.
        abort: bool,
    },
    /// This many are kept unfinished; what counts is the time until all are done.
    Closed(usize),
    /// At random times; what counts is the mean latency.
    Open {
        /// Requests per second, from the first one to the last one.
        rate: f64,
        /// Requests that arrive together.
        burst: usize,
    },
    /// At recorded times in ms, ascending, one per request; what counts is the mean latency.
    Recorded(Vec<f64>),
}

impl SendPattern {
    /// The arrivals of some requests in a draw: the same for all policies, and at random times
    /// different in each draw, so that no policy is chosen and judged on the same bursts.
    pub fn arrivals(&self, requests: usize, draw: u64) -> Arrivals {
        match self {
            Self::AtOnce { .. } => Arrivals::Open { at_ms: vec![0.0; requests] },
            Self::Closed(batch_size) => Arrivals::Closed { batch_size: *batch_size },
            Self::Recorded(at_ms) => Arrivals::Open { at_ms: at_ms.clone() },
            Self::Open { rate, burst } => {
                // Bursts are as much rarer as they are large.
                let (bursts, rate) = (requests.div_ceil(*burst), rate / *burst as f64);
                let times = arrivals::poisson(0, draw as usize, rate, bursts);
                let requests_of = |at: std::time::Duration| std::iter::repeat_n(at.as_secs_f64() * 1e3, *burst);
                Arrivals::Open { at_ms: times.into_iter().flat_map(requests_of).take(requests).collect() }
            }
        }
    }

    /// Whether the clock of a simulation still tells the last of some arrivals from its end.
    fn check_clock(&self, requests: usize) -> Result<(), String> {
        // At random times, the last burst has the same time in every draw.
        let Arrivals::Open { at_ms } = self.arrivals(requests, 0) else { return Ok(()) };
        let last_s = at_ms.last().copied().unwrap_or_default() / 1e3;
        if last_s <= LATEST_S {
            return Ok(());
        }
        Err(format!(
            "the last request arrives after {last_s:.1e} s, and arrivals so far apart are beyond the clock of a simulation: \
             expected at most {LATEST_S} s; raise the rate, or shorten the times"
        ))
    }

    /// The share of the requests whose end counts.
    fn share(&self) -> f64 {
        if let Self::AtOnce { share, .. } = self { *share } else { 1.0 }
    }
}

impl Load {
    /// Whether the load can be simulated and sent.
    ///
    /// # Errors
    /// In words, when a number is impossible or too large.
    pub fn check(&self) -> Result<(), String> {
        self.requests.check()?;
        let (count, above_0) = (self.requests.count(), |number: f64| number > 0.0 && number.is_finite());
        match &self.sent {
            SendPattern::AtOnce { share, .. } if !(*share > 0.0 && *share <= 1.0) => {
                Err(format!("a share of {share} of the requests: expected more than 0 and at most 1"))
            }
            SendPattern::Closed(0) => Err("0 requests are kept running: expected at least 1".into()),
            SendPattern::Open { rate, burst } if !above_0(*rate) || *burst == 0 => {
                Err(format!("{rate} requests per second in bursts of {burst}: expected more than 0, and at least 1"))
            }
            SendPattern::Recorded(at_ms) if at_ms.len() != count => {
                Err(format!("{} arrival times for {count} requests", at_ms.len()))
            }
            SendPattern::Open { .. } | SendPattern::Recorded(_) => self.sent.check_clock(count),
            SendPattern::AtOnce { .. } | SendPattern::Closed(_) => Ok(()),
        }
    }

    /// Number of requests whose end counts, at least one.
    fn counted(&self) -> usize {
        let requests = self.requests.count();
        ((self.sent.share() * requests as f64).ceil() as usize).clamp(1, requests.max(1))
    }

    /// The number of ends after which the other requests are aborted; `None` if all run to their
    /// end.
    pub fn until(&self) -> Option<usize> {
        matches!(self.sent, SendPattern::AtOnce { abort: true, .. }).then(|| self.counted())
    }

    /// Seconds until the requests that count are done; `ends_s` is when requests ended, ascending.
    /// `None` if fewer have ended.
    pub fn done_s(&self, ends_s: &[f64]) -> Option<f64> {
        ends_s.get(self.counted() - 1).copied()
    }
}

impl fmt::Display for Load {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.requests.count();
        let prompt = self.requests.prompt_tokens;
        match &self.sent {
            SendPattern::AtOnce { .. } => write!(formatter, "{requests} at once"),
            SendPattern::Closed(batch) => write!(formatter, "batch {batch}, {requests} requests"),
            SendPattern::Open { rate, .. } => write!(formatter, "{requests} at {rate} per s"),
            SendPattern::Recorded(_) => write!(formatter, "{requests} recorded arrivals"),
        }?;
        write!(formatter, ", prompts of {prompt}")?;
        self.requests.limited.iter().try_for_each(|limited| {
            let (percentage, most) = (limited.share * 100.0, limited.most_drafts);
            write!(formatter, ", {percentage:.0}% with {most} drafts at most")
        })?;
        if self.requests.keeps_contexts { formatter.write_str(", contexts kept") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::rollout::OutputLengths;

    #[test]
    fn random_arrivals_have_their_rate_in_every_draw_and_differ_between_draws() {
        let times = |rate, burst, requests, draw| {
            let Arrivals::Open { at_ms } = (SendPattern::Open { rate, burst }).arrivals(requests, draw) else {
                panic!("an open loop")
            };
            at_ms
        };
        for (requests, draw) in [(8, 0), (16, 1), (64, 2), (256, 39)] {
            let at_ms = times(2.0, 1, requests, draw);
            assert_eq!((at_ms.len(), at_ms[0]), (requests, 0.0));
            let rate = (requests - 1) as f64 / at_ms[requests - 1] * 1e3;
            assert!((rate - 2.0).abs() < 1e-6, "{rate}");
        }
        assert_eq!(times(2.0, 1, 9, 3), times(2.0, 1, 9, 3));
        assert_ne!(times(2.0, 1, 9, 3), times(2.0, 1, 9, 4));
        // Eight bursts of eight, the last one incomplete, at ten requests per second.
        let bursts = times(10.0, 8, 60, 0);
        let mut starts = bursts.clone();
        starts.dedup();
        assert_eq!((bursts.len(), starts.len()), (60, 8));
        assert!((starts[7] - 7.0 * 800.0).abs() < 1e-6, "{starts:?}");
        assert_eq!(times(10.0, 100, 3, 0), [0.0; 3]);
    }

    #[test]
    fn a_rollout_that_aborts_is_done_when_its_share_of_all_requests_is() {
        let lengths = OutputLengths::Recorded(vec![5]);
        let requests = Rollout { prompts: 5, samples: 2, prompt_tokens: 4, lengths, ..Rollout::default() };
        let load = |abort| Load { requests: requests.clone(), sent: SendPattern::AtOnce { share: 0.9, abort } };
        assert_eq!((load(true).until(), load(false).until()), (Some(9), None));
        let ends: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!((load(true).done_s(&ends), load(true).done_s(&ends[..8])), (Some(9.0), None));
    }

    #[test]
    fn impossible_loads_are_refused() {
        let lengths = OutputLengths::Recorded(vec![5]);
        let requests = Rollout { prompts: 2, samples: 1, prompt_tokens: 4, lengths, ..Rollout::default() };
        let check = |sent: SendPattern| Load { requests: requests.clone(), sent }.check();
        for possible in [
            SendPattern::AtOnce { share: 1.0, abort: false },
            SendPattern::Closed(1),
            SendPattern::Open { rate: 0.5, burst: 1 },
            SendPattern::Recorded(vec![0.0, 1.0]),
        ] {
            assert_eq!(check(possible), Ok(()));
        }
        for impossible in [
            SendPattern::AtOnce { share: 0.0, abort: false },
            SendPattern::AtOnce { share: f64::NAN, abort: false },
            SendPattern::Closed(0),
            SendPattern::Open { rate: f64::INFINITY, burst: 1 },
            SendPattern::Open { rate: 1.0, burst: 0 },
            SendPattern::Recorded(vec![0.0]),
            SendPattern::Open { rate: 1e-300, burst: 1 },
            SendPattern::Recorded(vec![0.0, 1e23]),
        ] {
            assert!(check(impossible.clone()).is_err(), "{impossible:?}");
        }
        let many = Rollout { prompts: usize::MAX, ..requests.clone() };
        assert!(Load { requests: many, sent: SendPattern::Closed(1) }.check().is_err());
    }
}
