//! A load: its requests, when they are sent, and what counts.

use std::fmt;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};

use super::{Arrivals, rollout::Rollout};

/// The requests, and when they are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// How many requests, and how long they are.
    pub requests: Rollout,
    /// When they are sent.
    pub sent: Sent,
}

/// When requests are sent, and what counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sent {
    /// All at once; what counts is the time until this share of them is done. Stragglers run on, or are aborted.
    AtOnce {
        /// 1 for all.
        share: f64,
        /// Whether the rest is aborted then, so that the tokens of the draw differ.
        abort: bool,
    },
    /// This many are kept unfinished; what counts is the time until all are done.
    Closed(usize),
    /// At random times with a mean rate; what counts is the mean latency.
    Open {
        /// Requests per second.
        rate: f64,
        /// Requests that arrive together.
        burst: usize,
    },
    /// At recorded times in ms, ascending, one per request; what counts is the mean latency.
    Recorded(Vec<f64>),
}

impl Sent {
    /// The arrivals of some requests.
    pub fn arrivals(&self, requests: usize) -> Arrivals {
        match self {
            Self::AtOnce { .. } => Arrivals::Open { at_ms: vec![0.0; requests] },
            Self::Closed(batch_size) => Arrivals::Closed { batch_size: *batch_size },
            Self::Recorded(at_ms) => Arrivals::Open { at_ms: at_ms.clone() },
            Self::Open { rate, burst } => {
                let mut random = StdRng::seed_from_u64(0xA11);
                let mut now = 0.0;
                let mut at_ms = Vec::with_capacity(requests);
                while at_ms.len() < requests {
                    let chance: f64 = random.random();
                    now -= (1.0 - chance).ln() * 1e3 * *burst as f64 / rate;
                    at_ms.extend(std::iter::repeat_n(now, (*burst).min(requests - at_ms.len())));
                }
                Arrivals::Open { at_ms }
            }
        }
    }

    /// The share of the requests whose end counts.
    pub fn share(&self) -> f64 {
        if let Self::AtOnce { share, .. } = self { *share } else { 1.0 }
    }

    /// Whether the others are aborted.
    pub fn aborts(&self) -> bool {
        matches!(self, Self::AtOnce { abort: true, .. })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.requests.prompts * self.requests.samples;
        let prompt = self.requests.prompt_tokens;
        match &self.sent {
            Sent::AtOnce { .. } => write!(formatter, "{requests} at once"),
            Sent::Closed(batch) => write!(formatter, "batch {batch}, {requests} requests"),
            Sent::Open { rate, .. } => write!(formatter, "{requests} at {rate} per s"),
            Sent::Recorded(_) => write!(formatter, "{requests} recorded arrivals"),
        }?;
        write!(formatter, ", prompts of {prompt}")?;
        self.requests.limited.iter().try_for_each(|limited| {
            let (percentage, most) = (limited.share * 100.0, limited.most_drafts);
            write!(formatter, ", {percentage:.0}% with {most} drafts at most")
        })
    }
}

/// Number of requests in a share of them, at least one.
pub fn done(share: f64, requests: usize) -> usize {
    ((share * requests as f64).ceil() as usize).clamp(1, requests.max(1))
}
