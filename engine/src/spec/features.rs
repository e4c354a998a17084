//! What a draft takes from its target and from its own checkpoint, whatever its kind.

/// The checkpoint that contains a draft's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftSource {
    /// A separate folder.
    Folder,
    /// The target's: its MTP layer.
    Target,
}

/// What a draft reads of the target at a position.
#[derive(Clone, Debug, PartialEq)]
pub enum Features {
    /// The final hidden state, after the target's final norm.
    Final,
    /// The residual stream before some layers.
    Captured(CapturedFeatures),
}

/// The embedding that a draft uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingSource {
    /// Its own.
    Own,
    /// The target's.
    Target,
}

/// The matrix that proposes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VocabularySource {
    /// The draft's own `lm_head`.
    Own,
    /// The same matrix as its embedding.
    Embedding,
    /// The target's head; with a restricted vocabulary, these rows of it (FR-Spec).
    Target,
}

/// Features of several layers, concatenated, and reduced by `fc` to the draft's width.
#[derive(Clone, Debug, PartialEq)]
pub struct CapturedFeatures {
    /// The target's layers before which the stream is captured, ascending; the number of layers
    /// means the stream after the last one.
    pub at: Vec<usize>,
    /// Width of each: the target's hidden size.
    pub width: usize,
    /// EAGLE-3.1: norms before `fc`.
    pub norms: CaptureNorms,
    /// The projection to the draft's width; `None` if there is a single feature that already has
    /// this width.
    pub fc: Option<LinearSpec>,
}

/// Norms of captured features before `fc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureNorms {
    /// `input_norm`: one norm over their concatenation (`norm_before_fc`). Comes first.
    pub joined: bool,
    /// `fc_norm.N`: one norm for each (`fc_norm`).
    pub each: bool,
}

/// Properties of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearSpec {
    /// Whether it has a bias.
    pub bias: bool,
}

impl CapturedFeatures {
    /// Width of all features together.
    pub fn width(&self) -> usize {
        self.at.len() * self.width
    }
}
