//! A block head: one pass drafts all tokens of a block (DFLASH, DSPARK).
//!
//! A block is the token after an anchor, followed by copies of a mask token. Its rows attend to
//! keys and values that follow from the target's features up to the anchor, and to each other, but
//! not to blocks of other anchors.

mod attention;
mod markov;

use std::collections::BTreeMap;

use candle_core::{Result, Tensor, Var};
use engine::spec::{BlockLayer, BlockSpec, BlockTensors, LayerTensors};

use self::{
    attention::BlockRows,
    markov::{ConfidenceLayer, MarkovHead},
};
use super::{
    HeadPass, HeadRows, HeadStep, SharedWeights,
    grouped::GroupedHeads,
    indices,
    parts::{Builder, HeadGated, HeadLinear, Norm, Vocabulary},
    trainable,
};
use crate::error::TrainingError;

/// A block head.
pub struct BlockHead {
    trained: BTreeMap<String, Var>,
    vocabulary: Vocabulary,
    /// What stands for a position to be drafted: `[1, hidden]`.
    mask: Tensor,
    reduce: HeadLinear,
    context_norm: Norm,
    layers: Vec<DecoderLayer>,
    norm: Norm,
    markov: Option<MarkovHead>,
    confidence: Option<ConfidenceLayer>,
    /// Rows of a block.
    rows: usize,
    /// The first row that drafts.
    first: usize,
}

/// A layer, and which rows see which.
struct DecoderLayer {
    input_norm: Option<Norm>,
    heads: GroupedHeads,
    post_attention_norm: Norm,
    ffn: HeadGated,
    view: BlockLayer,
    value_scale: f64,
}

/// The pass over all blocks, and the next row that drafts.
struct BlockPass<'a> {
    head: &'a BlockHead,
    /// The reduced features that layers attend to, `[texts · rows, hidden]`.
    context: Tensor,
    rows: BlockRows,
    /// The hidden rows of all blocks, `[anchors, rows of a block, hidden]`, once they are known.
    hidden: Option<Tensor>,
    next: usize,
    /// The state of a recurrent Markov head.
    state: Option<Tensor>,
}

impl BlockHead {
    /// A head from a builder with its values.
    pub fn new(
        spec: &BlockSpec,
        mut builder: Builder<'_>,
        shared: &SharedWeights,
    ) -> std::result::Result<Self, TrainingError> {
        let BlockTensors { embedding, head, mask, reduce, context_norm, layers, norm, markov, confidence } =
            spec.tensors(shared.embedding.dim(0)?);
        let own = (embedding.as_ref(), head.as_ref());
        let vocabulary = Vocabulary::new(&mut builder, own, (spec.head, spec.tokens.as_deref()), shared)?;
        let mask = match &mask {
            Some(vector) => builder.frozen(vector)?.unsqueeze(0)?,
            None => vocabulary.embed(&indices(&[spec.mask], builder.device)?)?,
        };
        let markov = markov.as_ref().zip(spec.markov);
        let markov = markov.map(|(tensors, spec)| MarkovHead::new(&mut builder, tensors, spec)).transpose()?;
        let confidence = confidence.as_ref().zip(spec.confidence);
        let confidence =
            confidence.map(|(tensors, spec)| ConfidenceLayer::new(&mut builder, tensors, spec.with_markov));
        let confidence = confidence.transpose()?;
        let layers = spec.layers.iter().zip(&layers);
        let layers = layers.map(|(view, tensors)| DecoderLayer::new(&mut builder, view, tensors, spec.value_scale));
        Ok(Self {
            vocabulary,
            mask,
            layers: layers.collect::<std::result::Result<_, _>>()?,
            reduce: builder.linear(&reduce)?,
            context_norm: builder.norm(&context_norm, spec.epsilon())?,
            norm: builder.norm(&norm, spec.epsilon())?,
            markov,
            confidence,
            rows: spec.block.given.unwrap_or(spec.block.rows),
            // The row of the last token drafts too in DSPARK's blocks, and in DFLASH's it does not.
            first: usize::from(!spec.block.anchored),
            trained: builder.trained,
        })
    }

    /// The trained variables by their published names.
    pub fn trained(&self) -> &BTreeMap<String, Var> {
        &self.trained
    }

    /// Starts a pass over rows with the target's outputs, `[texts · rows, width]`.
    pub fn pass<'a>(&'a self, of_target: &Tensor, rows: &HeadRows) -> Result<Box<dyn HeadPass + 'a>> {
        Ok(Box::new(BlockPass {
            head: self,
            context: self.context_norm.forward(&self.reduce.forward(of_target)?)?,
            rows: BlockRows::new(rows, self.rows, of_target.device())?,
            hidden: None,
            next: self.first,
            state: None,
        }))
    }

    /// The hidden rows of blocks after these tokens.
    fn run(&self, tokens: &Tensor, context: &Tensor, rows: &BlockRows) -> Result<Tensor> {
        let first = self.vocabulary.embed(tokens)?.unsqueeze(1)?;
        let (anchors, _, hidden) = first.dims3()?;
        let masks = self.mask.unsqueeze(0)?.broadcast_as((anchors, self.rows - 1, hidden))?;
        let mut x = Tensor::cat(&[first, masks.contiguous()?], 1)?.reshape((anchors * self.rows, hidden))?;
        for layer in &self.layers {
            x = layer.forward(&x, context, rows)?;
        }
        self.norm.forward(&x)?.reshape((anchors, self.rows, hidden))
    }
}

impl DecoderLayer {
    fn new(
        builder: &mut Builder<'_>,
        view: &BlockLayer,
        tensors: &LayerTensors,
        value_scale: f32,
    ) -> std::result::Result<Self, TrainingError> {
        let (grouped, attention, dense) = trainable(&view.layer, tensors)?;
        let epsilon = view.layer.epsilon;
        Ok(Self {
            input_norm: builder.optional_norm(tensors.input_norm.as_ref(), epsilon)?,
            heads: GroupedHeads::new(builder, attention, grouped, epsilon)?,
            post_attention_norm: builder.norm(&tensors.post_attention_norm, epsilon)?,
            ffn: builder.gated(dense)?,
            view: view.clone(),
            value_scale: f64::from(value_scale),
        })
    }

    fn forward(&self, x: &Tensor, context: &Tensor, rows: &BlockRows) -> Result<Tensor> {
        let input = self.input_norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(x))?;
        let attended = rows.attend(&self.heads, (&input, context), &self.view, self.value_scale)?;
        let x = (x + attended)?;
        &x + self.ffn.forward(&self.post_attention_norm.forward(&x)?)?
    }
}

impl HeadPass for BlockPass<'_> {
    fn step(&mut self, tokens: &Tensor) -> Result<HeadStep> {
        // One pass yields all rows of the block; later steps only read the next one.
        let hidden = match self.hidden.take() {
            Some(hidden) => hidden,
            None => self.head.run(tokens, &self.context, &self.rows)?,
        };
        if self.next >= hidden.dim(1)? {
            candle_core::bail!("a block of {} rows has no row {}", hidden.dim(1)?, self.next);
        }
        let state = hidden.narrow(1, self.next, 1)?.squeeze(1)?.contiguous()?;
        self.next += 1;
        self.hidden = Some(hidden);
        let mut logits = self.head.vocabulary.logits(&state)?;
        let markov = self.head.markov.as_ref();
        let correction = markov.map(|markov| markov.correct(&state, tokens, self.state.as_ref())).transpose()?;
        if let Some(correction) = &correction {
            logits = (logits + &correction.bias)?;
            self.state = correction.state.clone();
        }
        let confidence = self.head.confidence.as_ref();
        let confidence = confidence.map(|head| head.logits(&state, correction.as_ref())).transpose()?;
        Ok(HeadStep { logits, state, confidence })
    }
}
