//! Weights of a draft, whatever its kind.

use kernels::launch::Kernels;
use schemas::tree::NodeSource;

use super::{BlockWeights, LayerWeights, ModelWeights, ProposalHead, RecurrentWeights, TargetWeights, WeightSource};
use crate::{error::EngineError, spec::DraftSpec};

/// Weights of a draft.
#[derive(Debug)]
pub enum DraftWeights {
    Recurrent(Box<RecurrentWeights>),
    Block(Box<BlockWeights>),
    Model(Box<ModelWeights>),
}

/// A draft whose beams run step by step.
#[derive(Clone, Copy)]
pub enum StepwiseWeights<'a> {
    Head(&'a RecurrentWeights),
    Model(&'a ModelWeights),
}

impl<'a> StepwiseWeights<'a> {
    /// Values of its state after a row.
    pub fn width(self) -> usize {
        match self {
            Self::Head(head) => head.spec.hidden(),
            Self::Model(model) => model.spec.hidden,
        }
    }

    /// The matrix with which it proposes tokens.
    pub fn proposal_head(self, target: &'a TargetWeights) -> ProposalHead<'a> {
        match self {
            Self::Head(head) => head.proposal_head(target),
            Self::Model(model) => model.proposal_head(target),
        }
    }

    /// Whether it reads a token at the token's own position instead of the one before.
    pub fn is_ahead(self) -> bool {
        matches!(self, Self::Model(_))
    }
}

impl DraftWeights {
    /// Loads a draft; ranks may split its layers.
    pub fn load(
        kernels: &Kernels,
        source: WeightSource<'_>,
        spec: DraftSpec,
        target: &TargetWeights,
        splits_layers: bool,
    ) -> Result<Self, EngineError> {
        Ok(match spec {
            DraftSpec::Recurrent(spec) => {
                Self::Recurrent(Box::new(RecurrentWeights::load(kernels, source, spec, target, splits_layers)?))
            }
            DraftSpec::Block(spec) => {
                Self::Block(Box::new(BlockWeights::load(kernels, source, spec, target, splits_layers)?))
            }
            DraftSpec::Model(spec) => {
                Self::Model(Box::new(ModelWeights::load(kernels, source, spec, target, splits_layers)?))
            }
            DraftSpec::Text(rule) => {
                let rule = rule.algorithm();
                return Err(EngineError::Device(format!("{rule} looks drafts up: there are no weights to load")));
            }
        })
    }

    /// Its description, of this rank's part.
    pub fn spec(&self) -> DraftSpec {
        match self {
            Self::Recurrent(recurrent) => DraftSpec::Recurrent(recurrent.spec.clone()),
            Self::Block(block) => DraftSpec::Block(block.spec.clone()),
            Self::Model(model) => DraftSpec::Model(model.spec.clone()),
        }
    }

    /// It, if its beams run step by step.
    pub fn stepwise(&self) -> Option<StepwiseWeights<'_>> {
        match self {
            Self::Recurrent(recurrent) => Some(StepwiseWeights::Head(recurrent)),
            Self::Model(model) => Some(StepwiseWeights::Model(model)),
            Self::Block(_) => None,
        }
    }

    /// Its layers.
    pub fn layers(&self) -> &[LayerWeights] {
        match self {
            Self::Recurrent(recurrent) => std::slice::from_ref(&recurrent.layer),
            Self::Block(block) => &block.layers,
            Self::Model(model) => &model.layers,
        }
    }

    /// The target's layers before which the stream is captured; empty if the draft reads the final
    /// state.
    pub fn captured(&self) -> &[usize] {
        match self {
            Self::Recurrent(recurrent) => recurrent.spec.captured(),
            Self::Block(block) => &block.spec.features.at,
            Self::Model(_) => &[],
        }
    }

    /// What fills the pool of its trees.
    pub fn nodes(&self) -> NodeSource {
        match self {
            Self::Recurrent(_) | Self::Model(_) => NodeSource::Beams,
            Self::Block(block) => NodeSource::Block(block.spec.block),
        }
    }

    /// Values per row of what it reads of a target of this width.
    pub fn feature_width(&self, target_hidden: usize) -> usize {
        match self {
            Self::Recurrent(recurrent) => recurrent.spec.feature_width(target_hidden),
            Self::Block(block) => block.spec.features.width(),
            Self::Model(_) => 0,
        }
    }

    /// Values of the state that it keeps of a request between rounds, in addition to its cache.
    pub fn state_width(&self) -> usize {
        match self {
            Self::Recurrent(recurrent) => recurrent.spec.hidden(),
            Self::Model(model) => model.spec.hidden,
            Self::Block(_) => 0,
        }
    }

    /// Whether it reads the target's final state instead of captured layers.
    pub fn sees_final(&self) -> bool {
        matches!(self, Self::Recurrent(recurrent) if recurrent.spec.sees_final())
    }

    /// Whether ranks split its layers, so that these are only a part of them.
    pub fn splits_layers(&self) -> bool {
        match self {
            Self::Recurrent(recurrent) => recurrent.splits_layer,
            Self::Block(block) => block.splits_layers,
            Self::Model(model) => model.splits_layers,
        }
    }
}
