//! A recurrent draft: one decoder layer that reads features of the target and its own state, step
//! by step.
//!
//! Row i consumes token i + 1 and the feature of position i, is rotated at position i, and predicts
//! token i + 2.

use super::{DraftSource, EmbeddingSource, Features, LayerSpec, VocabularySource};

/// A draft head or an MTP layer.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentSpec {
    /// The checkpoint that contains its tensors.
    pub source: DraftSource,
    /// Names of its tensors.
    pub tensors: RecurrentTensorLayout,
    /// What it reads of the target.
    pub features: Features,
    /// How embedding and feature become the layer's input.
    pub join: Join,
    /// Its decoder layer.
    pub layer: LayerSpec,
    /// What proposes tokens, and what enters the next step.
    pub feedback: Feedback,
    /// The embedding in which it looks up tokens.
    pub embedding: EmbeddingSource,
    /// The matrix that proposes tokens.
    pub head: VocabularySource,
    /// Number of rows of that matrix.
    pub vocabulary: usize,
    /// Number of its rows on this rank: all, or one rank's part ([`Share`](super::Share)).
    pub head_rows: usize,
    /// Target tokens of these rows; `None` if the two vocabularies are the same.
    pub tokens: Option<Vec<u32>>,
}

/// The published layouts of tensor names of drafts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecurrentTensorLayout {
    /// EAGLE-1/2: `fc`, then one layer under this prefix (`layers.0`).
    Eagle {
        /// Without a trailing dot.
        layer: String,
    },
    /// EAGLE-3: `fc`, one layer under this prefix (`midlayer` or `layers.0`), `norm`, `lm_head`,
    /// `d2t`.
    Eagle3 {
        /// Without a trailing dot.
        layer: String,
    },
    /// MiMo: `input_proj`, `hidden_layernorm`, `token_layernorm`, `final_layernorm` next to the
    /// layer's own tensors under one prefix (`model.mtp_layers.0`).
    Mimo {
        /// Without a trailing dot.
        prefix: String,
    },
    /// DeepSeek-V3 and GLM-4.5: `eh_proj`, `enorm`, `hnorm`, `shared_head.norm` next to the layer's
    /// own tensors under one prefix (`model.layers.61`).
    NextN {
        /// Without a trailing dot.
        prefix: String,
    },
    /// Qwen3-MoE and Qwen3-Next: `mtp.fc`, `mtp.pre_fc_norm_embedding`, `mtp.pre_fc_norm_hidden`,
    /// `mtp.layers.0`, `mtp.norm`.
    QwenMtp,
}

/// How embedding and feature, both of the draft's width, become the layer's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// EAGLE-1/2: `fc([embedding, feature])` is the stream.
    Linear {
        /// Whether `fc` has a bias.
        bias: bool,
    },
    /// EAGLE-3: attention reads `[norm(embedding), norm(feature)]`; the feature is the stream.
    NormedIntoAttention {
        /// The normed feature is the stream (vLLM's `norm_before_residual`).
        residual_is_normed: bool,
    },
    /// MTP: the stream is a projection of both, each normed.
    NormedLinear {
        /// Whether the order is `[feature, embedding]` instead of `[embedding, feature]`.
        hidden_first: bool,
        /// Whether the embedding of the row at position 0 is zeroed, before its norm.
        zero_first_embedding: bool,
    },
}

/// What proposes tokens, and what becomes the next step's feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// The layer's output is used for both, without a norm (EAGLE-1/2).
    Output,
    /// The normed output proposes tokens; the output before the norm enters the next step
    /// (EAGLE-3).
    NormedForTokens,
    /// The normed output is used for both (MTP, EAGLE-3.1's `norm_output`).
    Normed,
}

impl RecurrentSpec {
    /// Width of the draft's stream and of its recurrent state.
    pub fn hidden(&self) -> usize {
        self.layer.hidden
    }

    /// The target's layers before which the stream is captured; empty if the draft reads the final
    /// state.
    pub fn captured(&self) -> &[usize] {
        match &self.features {
            Features::Final => &[],
            Features::Captured(captured) => &captured.at,
        }
    }

    /// Values kept per row of a target of this width, for the draft to read.
    pub fn feature_width(&self, target_hidden: usize) -> usize {
        match &self.features {
            Features::Final => target_hidden,
            Features::Captured(captured) => captured.width(),
        }
    }

    /// Whether it reads the target's final state instead of captured layers.
    pub fn sees_final(&self) -> bool {
        matches!(self.features, Features::Final)
    }

    /// Whether a norm follows its layer.
    pub fn output_norm(&self) -> bool {
        self.feedback != Feedback::Output
    }

    /// SGLang's name of the algorithm.
    pub fn algorithm(&self) -> &'static str {
        match self.join {
            Join::Linear { .. } => "EAGLE",
            Join::NormedIntoAttention { .. } => "EAGLE3",
            Join::NormedLinear { .. } => "NEXTN",
        }
    }
}
