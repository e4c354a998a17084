//! Why a measured trial takes no part in comparisons.

use serde::{Deserialize, Serialize};

/// Why a measured trial is excluded from every comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// Most of its steps stalled, so too few others are left to compute its figures without the
    /// stalls.
    Stalled,
    /// Far slower than the other repeats of its configuration under this load, which agree:
    /// something slowed all of its steps alike.
    Slow,
}

/// Whether too many repeats of a configuration stalled for the others to stand for it: of half or
/// more it is not known whether the others are the exceptions.
pub fn leaves_too_few(stalled: usize, repeats: usize) -> bool {
    stalled > 0 && 2 * stalled >= repeats
}

impl Exclusion {
    /// Its name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stalled => "stalled",
            Self::Slow => "slow",
        }
    }

    /// As a phrase, after the name of a trial.
    pub fn words(self) -> &'static str {
        match self {
            Self::Stalled => "too many of its steps stalled",
            Self::Slow => "it is far slower than the other repeats of its configuration",
        }
    }
}
