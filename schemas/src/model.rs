//! What is known of a checkpoint: its config.json and the headers of its tensors.

mod config;
mod tensors;

pub use config::{ConfigError, EagleConfig, ModelConfig, RopeScaling};
pub use tensors::{TensorHeader, TensorHeaders};

/// All that rules and engines may know of one checkpoint.
#[derive(Clone, Debug, Default)]
pub struct ModelFacts {
    /// The path or model id, as the user wrote it.
    pub name: String,
    /// Where the facts come from, for messages: a path, or the bundled table with its source.
    pub origin: String,
    /// The config.json.
    pub config: ModelConfig,
    /// Names, shapes and dtypes of the tensors, where the files could be read.
    pub tensors: Option<TensorHeaders>,
    /// The vocabulary size of tokenizer.json, where it could be read.
    pub tokenizer_vocab_size: Option<u64>,
}
