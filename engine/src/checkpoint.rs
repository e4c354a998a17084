//! Model folders in Hugging Face format. File contents are validated before use.

#[cfg(test)]
mod changed;
mod dtype;
mod folder;
mod fp8;
mod fp8_inputs;
mod hash;
mod mask_embedding;
mod mxfp4;
mod packed;
mod pickle;
mod read;
mod safetensors;
mod tensors;
mod token_map;
mod weights;

#[cfg(test)]
pub(crate) use changed::{Changed, tensors::change_tensors};
pub use folder::Folder;
pub(crate) use folder::warn_skipped;
pub(crate) use fp8::{is_unused_scale, scaled_matrix};
pub(crate) use fp8_inputs::{InputScales, is_input_scale};
#[cfg(test)]
pub(crate) use mask_embedding::tests::write as write_mask_embedding;
pub(crate) use mask_embedding::token as mask_embedding_token;
pub use schemas::model::GenerationConfig;
pub(crate) use tensors::{LinearWeights, Tensors};
pub use token_map::read_token_map;
pub use weights::{TensorPlace, Weights};
