//! A block head: it drafts all positions of a block in one pass (DFLASH, DSPARK).
//!
//! Of every token of the sequence, keys and values of each of its layers are kept, projected from
//! features of the target alone. A block is the last token, which has no features yet, followed by
//! copies of a mask token; its rows attend to the kept tokens and to each other. Row j of a DFLASH
//! block proposes the token at its own position, j after the last token's; of a DSPARK block the
//! one after.

use schemas::tree::Block;

use super::{CapturedFeatures, EmbeddingSource, LayerSpec, VocabularySource};

/// A head that drafts a block in one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockSpec {
    /// Names of its tensors.
    pub tensors: BlockTensorLayout,
    /// What it reads of the target, and how it is reduced to the head's width.
    pub features: CapturedFeatures,
    /// Its decoder layers.
    pub layers: Vec<BlockLayer>,
    /// Rows of its block, and which of them propose.
    pub block: Block,
    /// The token that stands for a position to be drafted.
    pub mask: u32,
    /// Whether the head has an embedding of its own for that token, in place of the table's row.
    pub mask_embedding: bool,
    /// Factor of the values of attention.
    pub value_scale: f32,
    /// DSPARK: what corrects a row by the token before it, if the head has it.
    pub markov: Option<MarkovSpec>,
    /// DSPARK: whether it estimates the acceptance of each draft, and if so, whether from the token
    /// before it too. The estimates do not enter drafts.
    pub confidence: Option<ConfidenceSpec>,
    /// The embedding in which it looks up the tokens of a block.
    pub embedding: EmbeddingSource,
    /// The matrix that proposes tokens.
    pub head: VocabularySource,
    /// Number of tokens that it proposes.
    pub vocabulary: usize,
    /// Number of its rows; fewer than tokens on a rank that holds only some of them.
    pub head_rows: usize,
    /// Target tokens of these rows; `None` if the two vocabularies are the same.
    pub tokens: Option<Vec<u32>>,
}

/// A decoder layer of a block head.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockLayer {
    /// The layer.
    pub layer: LayerSpec,
    /// Whether a row of the block attends only to rows before it.
    pub causal: bool,
    /// A row attends only to positions less than this far from its own; `None` for all.
    pub window: Option<usize>,
}

/// The published layouts of tensor names of block heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockTensorLayout {
    /// Prefix of the layers' names before their number; for a single layer, of all its names
    /// (`midlayer`).
    pub single: Option<String>,
    /// The projection of the features: `fc` or `encoder.fc`.
    pub reduce: &'static str,
    /// The norm of the projected features: `hidden_norm` or `encoder.output_norm_enc`.
    pub context_norm: &'static str,
    /// Prefix of the names of a Markov head: `markov_head.`, or none.
    pub markov: &'static str,
    /// The confidence head: `confidence_head.proj` or `confidence_proj`.
    pub confidence: &'static str,
}

/// Corrects the logits of a row by the token before its position:
/// `logits + W2 · latent(W1[token])`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkovSpec {
    /// Width of the latent vector.
    pub rank: usize,
    /// How the latent vector is made.
    pub kind: MarkovKind,
}

/// The published kinds of Markov heads, by the value of `markov_head_type`. `e` is W1's row of the
/// token, `h` the hidden row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkovKind {
    /// `e` itself.
    Vanilla,
    /// `sigmoid(gate · [h, e]) ⊙ e`.
    Gated,
    /// A recurrent cell over the path from the root: `[g, c, o] = joint · [s, e, h]`, the next `s`
    /// is `sigmoid(g) ⊙ s + (1 − sigmoid(g)) ⊙ tanh(c)`, and the latent vector is `tanh(o)`.
    Recurrent,
}

/// The confidence head of DSPARK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfidenceSpec {
    /// Whether it reads W1's row of the token before the position too.
    pub with_markov: bool,
}

impl BlockTensorLayout {
    /// Most heads.
    pub const PLAIN: Self = Self {
        single: None,
        reduce: "fc",
        context_norm: "hidden_norm",
        markov: "markov_head.",
        confidence: "confidence_head.proj",
    };
}

impl BlockSpec {
    /// Width of its stream.
    pub fn hidden(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.layer.hidden)
    }

    /// Added to mean squares in its norms.
    pub fn epsilon(&self) -> f32 {
        self.layers.first().map_or(0.0, |layer| layer.layer.epsilon)
    }

    /// The first layer that differs from the others in its width, its cache or its rotation.
    pub fn odd_layer(&self) -> Option<usize> {
        let same = |layer: &LayerSpec| (layer.hidden, layer.attention.kv(), layer.attention.rotation());
        let first = self.layers.first().map(|layer| same(&layer.layer));
        self.layers.iter().position(|layer| Some(same(&layer.layer)) != first)
    }

    /// SGLang's name of the algorithm.
    pub fn algorithm(&self) -> &'static str {
        if self.block.sized_by_drafts { "DSPARK" } else { "DFLASH" }
    }

    /// The same with all matrices in the type that the engine computes in.
    #[must_use]
    pub fn in_plain(&self) -> Self {
        let layers = self.layers.iter().map(|layer| BlockLayer { layer: layer.layer.in_plain(), ..layer.clone() });
        Self { layers: layers.collect(), ..self.clone() }
    }
}

/// The layers of a target whose output a head of some layers reads by default, counted from 0:
/// evenly spaced from 1 to the fourth last, halves rounded to even as Python does.
pub fn default_layers(layers: usize, target: usize) -> Option<Vec<usize>> {
    if layers == 1 {
        return Some(vec![target / 2]);
    }
    let span = target.checked_sub(4)? as f64;
    Some((0..layers).map(|at| (1.0 + at as f64 * span / (layers - 1) as f64).round_ties_even() as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_layers_are_rounded_as_python_rounds() {
        assert_eq!(default_layers(5, 36), Some(vec![1, 9, 17, 25, 33]));
        assert_eq!(default_layers(3, 7), Some(vec![1, 2, 4]), "2.5 becomes 2");
        assert_eq!((default_layers(1, 7), default_layers(2, 3)), (Some(vec![3]), None));
    }
}
