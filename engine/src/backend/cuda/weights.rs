//! Weights on the device, laid out once for the kernels that read them: query, key and value projections as one matrix,
//! gate and up as another.

mod draft;
mod layer;
mod loader;
mod projection;
mod target;

pub use self::{
    draft::{DraftWeights, JoinNorms, JoinWeights},
    layer::{AttentionWeights, DenseWeights, FfnWeights, GroupedWeights, LayerWeights},
    loader::{Loader, WeightSource},
    projection::Projection,
    target::TargetWeights,
};
