//! Training hyperparameters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{sweep::within, toml_file::FieldError, tree::NodeSource};

/// Training hyperparameters. The defaults are those of published trainers for an adapted head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Training {
    /// Maximum number of optimiser steps; the schedule ends there.
    pub steps: usize,
    /// Texts per step.
    pub batch_size: usize,
    /// Maximum length in tokens of a piece of text in one training step.
    pub window: usize,
    /// Number of unrolled draft steps in training (default: 5); the tree needs its num_steps. Not
    /// for block heads, which draft in one pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unroll: Option<usize>,
    /// Maximum number of blocks that a block head drafts in a training step of a piece of text
    /// (default: 512), each after another token of the answer, drawn at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchors: Option<usize>,
    /// Weight of each draft relative to the one before it (default: 0.8; for a block of B rows
    /// exp(−1/γ) with γ = 1 + 3·B/8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decay: Option<f64>,
    /// The loss.
    pub loss: Loss,
    /// Weight of the distance between the draft's state and the target's final state (smooth L1),
    /// for heads that read that state: EAGLE-1/2 (published: 1 with 0.1 for tokens) and MTP layers.
    pub feature_weight: f64,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Learning-rate schedule after warm-up.
    pub schedule: LearningRateSchedule,
    /// Fraction of the steps used for warm-up.
    pub warm_up: f64,
    /// Maximum global gradient norm (clipping).
    pub clip: f64,
    /// AdamW's weight decay of matrices.
    pub weight_decay: f64,
    /// AdamW's β₁.
    pub beta1: f64,
    /// AdamW's β₂.
    pub beta2: f64,
    /// Dtype of the layers' arithmetic in training. Trained values and their moments have 32 bits;
    /// the written head keeps its own dtype.
    pub precision: Precision,
    /// Seed of the order of texts, of held-out prompts and of a random head.
    pub seed: u64,
    /// Maximum MiB of the target's states in memory; states that do not fit are recomputed when
    /// needed.
    pub states_mib: usize,
    /// Steps between checkpoints, in addition to those at each evaluation.
    pub checkpoint_every: usize,
}

/// The loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Divergence from the target's distribution over the draft's vocabulary.
    #[default]
    Kl,
    /// Cross-entropy with the target's most likely token.
    CrossEntropy,
    /// Negative log-probability that speculative sampling accepts (LK loss).
    Acceptance,
}

/// The dtype of training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// bfloat16 on a GPU, float32 on the CPU.
    #[default]
    Auto,
    /// 32 bits throughout.
    Float32,
    /// 16-bit products, accumulated in 32 bits. GPUs only: CPUs are slower with 16-bit numbers.
    Bfloat16,
}

/// Learning-rate schedule after warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Schedule")]
pub enum LearningRateSchedule {
    /// Cosine decay to 0.
    #[default]
    Cosine,
    /// Linear decay to 0.
    Linear,
    /// Constant.
    Constant,
}

impl Training {
    /// Number of unrolled draft steps.
    pub fn unroll(&self) -> usize {
        self.unroll.unwrap_or(5)
    }

    /// Maximum number of blocks after a piece of text.
    pub fn anchors(&self) -> usize {
        self.anchors.unwrap_or(512)
    }

    /// Weight of each draft relative to the one before it, for a head whose block has this many
    /// rows, if it drafts a block. The γ of published trainers is 4 for blocks of 8 rows
    /// (Model-Optimizer, speculators) and 7 for blocks of 16 (SpecForge).
    pub fn decay(&self, rows: Option<usize>) -> f64 {
        self.decay.unwrap_or_else(|| rows.map_or(0.8, |rows| (-1.0 / (1.0 + 0.375 * rows as f64)).exp()))
    }

    pub(super) fn check(&self, nodes: NodeSource) -> Result<(), FieldError> {
        within(&["training", "steps"], self.steps)?;
        within(&["training", "batch_size"], self.batch_size)?;
        within(&["training", "window"], self.window)?;
        within(&["training", "states_mib"], self.states_mib)?;
        within(&["training", "checkpoint_every"], self.checkpoint_every)?;
        let is_block = matches!(nodes, NodeSource::Block(_));
        if let Some(unroll) = self.unroll {
            let wrong = |reason: String| Err(FieldError::at(&["training", "unroll"], reason));
            if is_block {
                return wrong("unroll has no effect on a head that drafts a block in one pass: remove it".into());
            }
            if !(1..=64).contains(&unroll) {
                return wrong(format!("{unroll} is out of range, expected 1 to 64"));
            }
        }
        if let Some(anchors) = self.anchors {
            if !is_block {
                let reason = "anchors has no effect on a head that drafts step by step, from every token: remove it";
                return Err(FieldError::at(&["training", "anchors"], reason));
            }
            within(&["training", "anchors"], anchors)?;
        }
        let above = |path: &'static [&'static str], value: f64| match value > 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(FieldError::at(path, "expected a number above 0")),
        };
        let share = |path: &'static [&'static str], value: f64| match (0.0..1.0).contains(&value) {
            true => Ok(()),
            false => Err(FieldError::at(path, "expected a number of at least 0 and below 1")),
        };
        above(&["training", "learning_rate"], self.learning_rate)?;
        above(&["training", "clip"], self.clip)?;
        share(&["training", "warm_up"], self.warm_up)?;
        share(&["training", "weight_decay"], self.weight_decay)?;
        share(&["training", "beta1"], self.beta1)?;
        share(&["training", "beta2"], self.beta2)?;
        if self.decay.is_some_and(|decay| !(decay > 0.0 && decay <= 1.0)) {
            return Err(FieldError::at(&["training", "decay"], "expected a number above 0 and at most 1"));
        }
        if !(self.feature_weight >= 0.0 && self.feature_weight.is_finite()) {
            return Err(FieldError::at(&["training", "feature_weight"], "expected a number of at least 0"));
        }
        Ok(())
    }
}

impl Default for Training {
    fn default() -> Self {
        Self {
            steps: 1000,
            batch_size: 8,
            window: 1024,
            unroll: None,
            anchors: None,
            decay: None,
            loss: Loss::Kl,
            feature_weight: 0.0,
            learning_rate: 1e-4,
            schedule: LearningRateSchedule::Cosine,
            warm_up: 0.015,
            clip: 0.5,
            weight_decay: 0.0,
            beta1: 0.9,
            beta2: 0.95,
            precision: Precision::Auto,
            seed: 0,
            states_mib: 4096,
            checkpoint_every: 50,
        }
    }
}
