//! Facts about a checkpoint: its config.json, the headers of its tensors, and its other files.

mod config;
mod derived;
mod generation;
mod lenient;
mod mtp;
mod parameters;
pub mod published;
mod size;
mod tensors;
mod tokenizer;

pub use config::{ConfigError, DflashConfig, EagleConfig, ModelConfig, RopeScaling};
pub use derived::{DraftKind, normal_dtype};
pub use generation::GenerationConfig;
pub use size::element_bytes;
pub use tensors::{HeaderError, TensorHeader, TensorHeaders, TensorIndex, header_length, is_own_file, is_plain_name};
pub use tokenizer::{TokenizerError, TokenizerFacts};

/// All that rules and engines may know of one checkpoint.
#[derive(Clone, Debug, Default)]
pub struct ModelFacts {
    /// The path or model id, as the user wrote it.
    pub name: String,
    /// Where the facts come from, for messages: a path, or the bundled table with its source.
    pub origin: String,
    /// The config.json.
    pub config: ModelConfig,
    /// Whether only some fields are known, so that an absent one may still be in the file. False where the
    /// file itself was read.
    pub partial: bool,
    /// Names, shapes and dtypes of all tensors, where every header could be read.
    pub tensors: Option<TensorHeaders>,
    /// Names of all tensors and their size, where the checkpoint has an index.
    pub index: Option<TensorIndex>,
    /// Whether there is an `mtp.safetensors` that the index does not name: engines load what the index names, with few
    /// exceptions.
    pub loose_mtp: bool,
    /// The generation_config.json, where there is one.
    pub generation: Option<GenerationConfig>,
    /// The vocabulary of tokenizer.json, where it was read.
    pub tokenizer: Option<TokenizerFacts>,
}

impl ModelFacts {
    /// The names of all tensors, from their headers or the index; none where neither could be read.
    pub fn tensor_names(&self) -> Option<Box<dyn Iterator<Item = &str> + '_>> {
        match (&self.tensors, &self.index) {
            (Some(tensors), _) => Some(Box::new(tensors.0.keys().map(String::as_str))),
            (None, Some(index)) => Some(Box::new(index.shards.keys().map(String::as_str))),
            (None, None) => None,
        }
    }
}
