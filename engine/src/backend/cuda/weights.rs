//! Weights on the device, laid out once for the kernels that read them: query, key and value projections as one matrix,
//! gate and up as another.

mod draft;
mod exchange;
mod experts;
mod fp8;
mod latent;
mod layer;
mod loader;
mod projection;
mod rotation;
mod target;

pub use self::{
    draft::{DraftWeights, JoinNorms, JoinWeights},
    experts::experts_shape,
    latent::{LatentWeights, latent_dims},
    layer::{AttentionWeights, DenseWeights, ExpertBuffers, FfnWeights, GroupedWeights, LayerWeights},
    loader::{Loader, WeightSource},
    projection::{Projection, ScaleBuffer, weights_in},
    rotation::rotation_table,
    target::TargetWeights,
};
