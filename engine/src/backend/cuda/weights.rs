//! Weights on the device, laid out once for the kernels that read them: query, key and value
//! projections as one matrix, gate and up as another.

mod block;
mod delta;
mod draft;
mod exchange;
mod experts;
mod fp8;
mod head;
mod latent;
mod layer;
mod loader;
mod model;
mod mxfp4;
mod projection;
mod recurrent;
mod rotation;
mod target;

pub use self::{
    block::{BlockWeights, ConfidenceWeights, MarkovWeights, views},
    delta::{DeltaTables, DeltaWeights, delta_outputs},
    draft::{DraftWeights, StepwiseWeights},
    experts::experts_shape,
    head::ProposalHead,
    latent::{LatentWeights, latent_dims},
    layer::{AttentionWeights, DenseWeights, ExpertBuffers, FfnWeights, GroupedWeights, LayerWeights},
    loader::{Loader, WeightSource},
    model::ModelWeights,
    projection::{Projection, Readers, RowQuantiser, ScaleBuffer, weights_in},
    recurrent::{JoinNorms, JoinWeights, RecurrentWeights},
    rotation::rotation_table,
    target::TargetWeights,
};
