//! What is known of a checkpoint: its config.json and the headers of its tensors.

mod config;
mod derived;
mod lenient;
pub mod published;
mod tensors;

pub use config::{ConfigError, EagleConfig, ModelConfig, RopeScaling};
pub use derived::{DraftKind, normal_dtype};
pub use tensors::{HeaderError, TensorHeader, TensorHeaders, header_length, shards};

/// All that rules and engines may know of one checkpoint.
#[derive(Clone, Debug, Default)]
pub struct ModelFacts {
    /// The path or model id, as the user wrote it.
    pub name: String,
    /// Where the facts come from, for messages: a path, or the bundled table with its source.
    pub origin: String,
    /// The config.json.
    pub config: ModelConfig,
    /// Whether only some fields are known, so that an absent one may stand in the file all the same. False where the
    /// file itself was read.
    pub partial: bool,
    /// Names, shapes and dtypes of the tensors, where the files could be read.
    pub tensors: Option<TensorHeaders>,
    /// The vocabulary size of tokenizer.json, where it could be read.
    pub tokenizer_vocab_size: Option<u64>,
}
