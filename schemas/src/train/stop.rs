//! Settings for the end of training and the choice of the head that is written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{sweep::within, toml_file::FieldError};

/// Stopping and evaluation. Accept lengths are replayed on prompts that never train: one half of
/// them chooses among checkpoints, the other half judges the chosen one against the previous head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// Fraction of the prompts of each set that is held out.
    pub held_out: f64,
    /// Maximum number of held-out prompts over all sets.
    pub most_held_out: usize,
    /// Steps between evaluations.
    pub evaluate_every: usize,
    /// Evaluations without a longer accept length after which training stops.
    pub patience: usize,
}

impl Stop {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        within(&["stop", "most_held_out"], self.most_held_out)?;
        within(&["stop", "evaluate_every"], self.evaluate_every)?;
        within(&["stop", "patience"], self.patience)?;
        if !(self.held_out > 0.0 && self.held_out <= 0.5) {
            return Err(FieldError::at(&["stop", "held_out"], "expected a number above 0 and at most 0.5"));
        }
        Ok(())
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self { held_out: 0.2, most_held_out: 256, evaluate_every: 50, patience: 6 }
    }
}
