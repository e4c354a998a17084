//! Hugging Face folders, as published: nothing in a file is trusted before it is checked.

mod folder;
mod generation;
mod hash;
mod safetensors;
mod weights;

pub use folder::{Folder, facts};
pub use generation::GenerationConfig;
pub use weights::Weights;
