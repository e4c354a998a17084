//! The Markov head of DSPARK, which corrects the logits of a draft by the token before it, and the
//! confidence head, which estimates whether the draft is accepted.

use candle_core::{D, Result, Tensor};
use engine::spec::{LinearTensors, MarkovKind, MarkovSpec, MarkovTensors};

use crate::{
    error::TrainingError,
    head::parts::{Builder, HeadLinear},
    math,
};

/// A Markov head. In training the token before a draft is that of the text.
pub struct MarkovHead {
    /// W1, `[target vocabulary, rank]`.
    embedding: Tensor,
    /// W2, `[vocabulary, rank]`.
    head: Tensor,
    cell: Option<HeadLinear>,
    spec: MarkovSpec,
}

/// What follows from the tokens before some drafts.
pub struct Correction {
    /// W1's rows of the tokens, `[anchors, rank]`.
    pub embedded: Tensor,
    /// What is added to logits, `[anchors, vocabulary]`.
    pub bias: Tensor,
    /// The state after the tokens, `[anchors, rank]`, if the head is recurrent.
    pub state: Option<Tensor>,
}

/// A confidence head.
pub struct ConfidenceLayer {
    linear: HeadLinear,
    with_markov: bool,
}

impl MarkovHead {
    /// Builds the head from its tensors.
    pub fn new(
        builder: &mut Builder<'_>,
        tensors: &MarkovTensors,
        spec: MarkovSpec,
    ) -> std::result::Result<Self, TrainingError> {
        Ok(Self {
            embedding: builder.trained(&tensors.embedding)?,
            head: builder.trained(&tensors.head)?,
            cell: tensors.cell.as_ref().map(|cell| builder.linear(cell)).transpose()?,
            spec,
        })
    }

    /// The correction of drafts with these hidden rows, `[anchors, hidden]`, after these tokens and
    /// the state before them, which is missing at the first draft.
    pub fn correct(&self, hidden: &Tensor, tokens: &Tensor, state: Option<&Tensor>) -> Result<Correction> {
        let embedded = self.embedding.index_select(tokens, 0)?.to_dtype(hidden.dtype())?;
        let (latent, state) = match (&self.cell, self.spec.kind) {
            (Some(cell), MarkovKind::Gated) => {
                let gate = sigmoid(&cell.forward(&Tensor::cat(&[hidden, &embedded], 1)?)?)?;
                ((gate * &embedded)?, None)
            }
            (Some(cell), MarkovKind::Recurrent) => {
                let state = state.map_or_else(|| embedded.zeros_like(), |state| Ok(state.clone()))?;
                let joint = cell.forward(&Tensor::cat(&[&state, &embedded, hidden], 1)?)?;
                let part = |at: usize| joint.narrow(1, at * self.spec.rank, self.spec.rank)?.contiguous();
                let (gate, content) = (sigmoid(&part(0)?)?, part(1)?.tanh()?);
                // gate · state + (1 − gate) · content
                let next = (&content + (gate * (state - &content)?)?)?;
                (part(2)?.tanh()?, Some(next))
            }
            _ => (embedded.clone(), None),
        };
        let bias = math::product(&latent, &self.head.to_dtype(hidden.dtype())?, true)?;
        Ok(Correction { embedded, bias, state })
    }
}

impl ConfidenceLayer {
    /// Builds the head from its tensors.
    pub fn new(
        builder: &mut Builder<'_>,
        tensors: &LinearTensors,
        with_markov: bool,
    ) -> std::result::Result<Self, TrainingError> {
        Ok(Self { linear: builder.linear(tensors)?, with_markov })
    }

    /// The logit of each draft's acceptance, `[anchors]`. What it reads gets no gradient, so that
    /// it changes no draft.
    pub fn logits(&self, hidden: &Tensor, correction: Option<&Correction>) -> Result<Tensor> {
        let input = match correction.filter(|_| self.with_markov) {
            Some(correction) => Tensor::cat(&[hidden.detach(), correction.embedded.detach()], 1)?,
            None => hidden.detach(),
        };
        self.linear.forward(&input)?.squeeze(D::Minus1)
    }
}

/// `1 / (1 + exp(−x))`, by operations that have gradients.
fn sigmoid(x: &Tensor) -> Result<Tensor> {
    ((x * 0.5)?.tanh()? * 0.5)? + 0.5
}
