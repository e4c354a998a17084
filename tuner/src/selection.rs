//! Which configuration is best, and how sure that is.

use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

/// A median with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median over repeats.
    pub median: f64,
    /// Lower end of the 95% bootstrap interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What a configuration is in the race for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// From the space of the sweep.
    Candidate,
    /// No speculation: always in the race.
    NoSpeculation,
    /// What the engine would choose by itself: always in the race.
    EngineDefault,
}

/// One configuration at one batch size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// The tree.
    pub shape: TreeShape,
    /// Why it is here.
    pub role: Role,
    /// Repeats that were measured.
    pub repeats: usize,
    /// Why it failed, if no repeat was measured.
    pub failure: Option<String>,
    /// Output tokens a second, all requests together.
    pub output_tokens_per_s: Option<Interval>,
    /// Output tokens a second as one user sees it.
    pub tokens_per_s_per_user: Option<Interval>,
    /// Median request latency in ms.
    pub latency_ms: Option<Interval>,
    /// Median time to first token in ms.
    pub time_to_first_token_ms: Option<Interval>,
    /// Median wall time of a round in ms.
    pub round_ms: Option<Interval>,
    /// Output tokens / rounds, first and bonus tokens included.
    pub accept_length: Option<f64>,
    /// Entry k counts the request-rounds in which k drafts were accepted, over all repeats.
    pub accept_histogram: Vec<u64>,
    /// Objective relative to no speculation, paired by repeat: 1.5 is half as fast again.
    pub speedup: Option<Interval>,
    /// Whether it cannot be told apart from the best.
    pub tied_with_best: bool,
}

/// All configurations at one batch size, best first, failed ones last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchRanking {
    /// Requests kept running together.
    pub batch_size: usize,
    /// Best first.
    pub entries: Vec<Ranked>,
    /// The chosen shape: the simplest of those that tie with the best.
    pub chosen: Option<TreeShape>,
}
