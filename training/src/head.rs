//! Draft heads with gradients, built from their [`DraftSpec`] alone, which gives names and shapes
//! of tensors, the features of the target, and the pattern of attention. The computation is the
//! same as in `engine::backend::cpu`; tests compare the two.
//!
//! A head drafts from *anchors*: rows of a text up to which it has the target's features, and whose
//! next token is known. A recurrent head drafts from every row, a block head from some of them.

mod block;
mod grouped;
mod parts;
mod recurrent;

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor, Var};
use engine::spec::{
    AttentionSpec, AttentionTensors, DraftSpec, FfnSpec, FfnTensors, GatedTensors, GroupedQuery, GroupedTensors,
    LayerSpec, LayerTensors, NormWeights, TensorSpec,
};
use schemas::tree::TreeShape;

pub use self::parts::Values;
use self::{block::BlockHead, parts::Builder, recurrent::RecurrentHead};
use crate::error::TrainingError;

/// The rows of a batch of texts, text by text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRows {
    /// Number of rows of each text.
    pub each: usize,
    /// The position of the first row of each text.
    pub starts: Vec<usize>,
    /// Rows that are anchors, the same number for each text, text by text; `None` fills up texts
    /// that have fewer. Recurrent heads draft from every row: theirs are all rows, in order.
    pub anchors: Vec<Option<usize>>,
}

/// The target's tensors that heads share, `[target vocabulary, target hidden]` each. Never trained.
#[derive(Clone, Debug)]
pub struct SharedWeights {
    /// Its embedding.
    pub embedding: Tensor,
    /// Its vocabulary head.
    pub head: Tensor,
}

/// The drafts of one depth.
pub struct HeadStep {
    /// The head's state, `[anchors, hidden]`.
    pub state: Tensor,
    /// Logits over the draft's vocabulary: `[anchors, vocabulary]`.
    pub logits: Tensor,
    /// The logit of each draft's acceptance, `[anchors]`, if the head estimates it.
    pub confidence: Option<Tensor>,
}

/// A pass of a head over a batch.
pub trait HeadPass {
    /// The drafts of the next depth k: of anchor i, the token at i + 2 + k. `tokens` are those of
    /// the text before it, at i + 1 + k: `[anchors]`.
    ///
    /// # Errors
    /// When tensors do not fit together.
    fn step(&mut self, tokens: &Tensor) -> Result<HeadStep>;
}

/// A trainable draft head.
pub enum Head {
    /// It drafts step by step.
    Recurrent(Box<RecurrentHead>),
    /// It drafts a block in one pass.
    Block(Box<BlockHead>),
}

/// Whether a draft estimates the acceptance of its drafts.
pub fn has_confidence(draft: &DraftSpec) -> bool {
    matches!(draft, DraftSpec::Block(spec) if spec.confidence.is_some())
}

/// The draft that a tree runs: the block of a block head has the rows that it has for the tree.
pub fn for_tree(mut draft: DraftSpec, shape: TreeShape) -> DraftSpec {
    if let DraftSpec::Block(spec) = &mut draft {
        spec.block.given = Some(spec.block.rows_of(shape));
    }
    draft
}

/// The tensors of a draft that are trained: all in its checkpoint except its embedding, which
/// published heads copy from the target and keep, and the vector that stands for a mask token.
pub fn trained_tensors(draft: &DraftSpec, target_vocabulary: usize) -> Vec<TensorSpec> {
    let frozen = match draft {
        DraftSpec::Recurrent(spec) => vec![spec.tensors(target_vocabulary).embedding],
        DraftSpec::Block(spec) => {
            let tensors = spec.tensors(target_vocabulary);
            vec![tensors.embedding, tensors.mask]
        }
        DraftSpec::Model(_) | DraftSpec::Text(_) => return Vec::new(),
    };
    let mut tensors = draft.tensors(target_vocabulary);
    tensors.retain(|tensor| frozen.iter().flatten().all(|frozen| frozen.name != tensor.name));
    tensors
}

/// Checks that a draft can be trained.
///
/// # Errors
/// The part that cannot be trained.
pub fn check(draft: &DraftSpec) -> std::result::Result<(), TrainingError> {
    match draft {
        DraftSpec::Recurrent(_) | DraftSpec::Block(_) => {}
        DraftSpec::Model(_) => return Err(unsupported("a whole model (STANDALONE)")),
        DraftSpec::Text(text) => return Err(unsupported(&format!("look-ups in texts ({})", text.algorithm()))),
    }
    draft.layers().into_iter().try_for_each(check_layer)
}

fn check_layer(layer: &LayerSpec) -> std::result::Result<(), TrainingError> {
    match (&layer.attention, &layer.ffn) {
        (AttentionSpec::Latent(_), _) => Err(unsupported("latent attention (MLA)")),
        (AttentionSpec::Delta(_), _) => Err(unsupported("linear attention")),
        (AttentionSpec::Grouped(grouped), _) if grouped.output_gate => Err(unsupported("gated attention")),
        (AttentionSpec::Grouped(grouped), _) if grouped.sinks => Err(unsupported("attention sinks")),
        // Block heads have the windows of their layers elsewhere, and are trained with them.
        (AttentionSpec::Grouped(grouped), _) if grouped.window.is_some() => Err(unsupported("a window")),
        _ if layer.norms == NormWeights::LessOne => Err(unsupported("norms whose weights are stored less one")),
        (_, FfnSpec::Experts(_)) => Err(unsupported("experts")),
        (AttentionSpec::Grouped(_), FfnSpec::Dense(_)) => Ok(()),
    }
}

/// The parts of a layer: its attention, and the tensors of it and of its gated block.
fn trainable<'a>(
    spec: &LayerSpec,
    tensors: &'a LayerTensors,
) -> std::result::Result<(GroupedQuery, &'a GroupedTensors, &'a GatedTensors), TrainingError> {
    check_layer(spec)?;
    match (&spec.attention, &tensors.attention, &tensors.ffn) {
        (AttentionSpec::Grouped(spec), AttentionTensors::Grouped(attention), FfnTensors::Dense(dense)) => {
            Ok((*spec, attention, dense))
        }
        _ => Err(unsupported("layers of this kind")),
    }
}

fn unsupported(what: &str) -> TrainingError {
    TrainingError::Configuration(format!(
        "drafts with {what} cannot be trained yet: EAGLE-1/2, EAGLE-3, MTP, DFLASH and DSPARK heads with grouped attention and \
         dense feed-forward blocks can"
    ))
}

impl Head {
    /// A head with these values, which computes in this type.
    ///
    /// # Errors
    /// When the spec contains what cannot be trained yet, or values are missing or have the wrong
    /// shape.
    pub fn new(
        draft: &DraftSpec,
        values: &Values<'_>,
        shared: &SharedWeights,
        (dtype, device): (DType, &Device),
    ) -> std::result::Result<Self, TrainingError> {
        check(draft)?;
        let builder = Builder::new(values, dtype, device);
        match draft {
            DraftSpec::Recurrent(spec) => Ok(Self::Recurrent(Box::new(RecurrentHead::new(spec, builder, shared)?))),
            DraftSpec::Block(spec) => Ok(Self::Block(Box::new(BlockHead::new(spec, builder, shared)?))),
            DraftSpec::Model(_) | DraftSpec::Text(_) => Err(unsupported("no head")),
        }
    }

    /// The trained variables by their published names.
    pub fn trained(&self) -> &BTreeMap<String, Var> {
        match self {
            Self::Recurrent(head) => head.trained(),
            Self::Block(head) => head.trained(),
        }
    }

    /// Starts a pass over rows with the target's outputs: captured layers, concatenated, or its
    /// final state; `[texts · rows, width]`.
    ///
    /// # Errors
    /// When tensors do not fit together.
    pub fn pass<'a>(&'a self, of_target: &Tensor, rows: &'a HeadRows) -> Result<Box<dyn HeadPass + 'a>> {
        match self {
            Self::Recurrent(head) => head.pass(of_target, rows),
            Self::Block(head) => head.pass(of_target, rows),
        }
    }
}

impl HeadRows {
    /// Rows of which every one is an anchor.
    pub fn every(each: usize, starts: Vec<usize>) -> Self {
        let anchors = starts.iter().flat_map(|_| (0..each).map(Some)).collect();
        Self { each, starts, anchors }
    }

    /// Number of texts.
    pub fn texts(&self) -> usize {
        self.starts.len()
    }

    /// Number of rows of all texts.
    pub fn count(&self) -> usize {
        self.starts.len() * self.each
    }

    /// Number of anchors of each text, those that fill up included.
    pub fn anchors_each(&self) -> usize {
        self.anchors.len() / self.starts.len().max(1)
    }
}

/// A tensor of token ids.
pub fn indices(tokens: &[u32], device: &Device) -> Result<Tensor> {
    Tensor::from_slice(tokens, tokens.len(), device)
}

#[cfg(test)]
mod tests {
    use engine::spec::{TextSpec, published};

    use super::*;

    #[test]
    fn what_has_no_trainable_head_is_refused_by_name() {
        let shape = published("llama-3.1-8b").expect("a published shape");
        let model = shape.target(Some(1)).expect("a target");
        let head = DraftSpec::Recurrent(shape.draft(&model));
        assert!(check(&head).is_ok());
        assert!(
            check(&head.with_window(64).expect("it can have one"))
                .is_err_and(|error| error.to_string().contains("a window"))
        );
        for (draft, name) in [
            (DraftSpec::Model(model), "a whole model (STANDALONE)"),
            (DraftSpec::Text(TextSpec::named("SUFFIX").expect("a rule")), "look-ups in texts (SUFFIX)"),
        ] {
            assert!(check(&draft).is_err_and(|error| error.to_string().contains(name)), "{name}");
            assert!(trained_tensors(&draft, 64).is_empty());
        }
    }
}
