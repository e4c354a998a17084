//! Weights of a draft, whatever its kind.

use kernels::launch::Kernels;
use schemas::tree::NodeSource;

use super::{BlockWeights, LayerWeights, RecurrentWeights, TargetWeights, WeightSource};
use crate::{error::EngineError, spec::DraftSpec};

/// Weights of a draft.
#[derive(Debug)]
pub enum DraftWeights {
    Recurrent(Box<RecurrentWeights>),
    Block(Box<BlockWeights>),
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
        }
    }

    /// Its layers.
    pub fn layers(&self) -> &[LayerWeights] {
        match self {
            Self::Recurrent(recurrent) => std::slice::from_ref(&recurrent.layer),
            Self::Block(block) => &block.layers,
        }
    }

    /// The target's layers before which the stream is captured; empty if the draft reads the final state.
    pub fn captured(&self) -> &[usize] {
        match self {
            Self::Recurrent(recurrent) => recurrent.spec.captured(),
            Self::Block(block) => &block.spec.features.at,
        }
    }

    /// What fills the pool of its trees.
    pub fn nodes(&self) -> NodeSource {
        match self {
            Self::Recurrent(_) => NodeSource::Beams,
            Self::Block(block) => NodeSource::Block(block.spec.block),
        }
    }

    /// Values per row of what it reads of a target of this width.
    pub fn feature_width(&self, target_hidden: usize) -> usize {
        match self {
            Self::Recurrent(recurrent) => recurrent.spec.feature_width(target_hidden),
            Self::Block(block) => block.spec.features.width(),
        }
    }

    /// Values of the state that it keeps of a request between rounds, in addition to its cache.
    pub fn state_width(&self) -> usize {
        match self {
            Self::Recurrent(recurrent) => recurrent.spec.hidden(),
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
        }
    }
}
