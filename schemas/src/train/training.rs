//! Training hyperparameters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{sweep::within, toml_file::FieldError};

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
    /// Number of unrolled draft steps in training; the tree needs its num_steps.
    pub unroll: usize,
    /// Weight of each unrolled draft step relative to the previous one.
    pub decay: f64,
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
    pub(super) fn check(&self) -> Result<(), FieldError> {
        within(&["training", "steps"], self.steps)?;
        within(&["training", "batch_size"], self.batch_size)?;
        within(&["training", "window"], self.window)?;
        within(&["training", "states_mib"], self.states_mib)?;
        within(&["training", "checkpoint_every"], self.checkpoint_every)?;
        if !(1..=64).contains(&self.unroll) {
            return Err(FieldError::at(
                &["training", "unroll"],
                format!("{} is out of range, expected 1 to 64", self.unroll),
            ));
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
        if !(self.decay > 0.0 && self.decay <= 1.0) {
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
            unroll: 5,
            decay: 0.8,
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
