//! Facts about a checkpoint: its config.json, the headers of its tensors, and its other files.

mod block_head;
mod captured;
mod config;
mod derived;
mod draft_head;
mod generation;
mod lenient;
mod mtp;
mod parameters;
pub mod published;
mod size;
mod states;
mod tensors;
mod tokenizer;
mod windows;

pub use block_head::{ANCHORS, MARKOV};
pub use captured::{CapturedList, DEFAULT_STATES, LayerCount};
pub use config::{ConfigError, DflashConfig, EagleConfig, ModelConfig, RopeParameters};
pub use derived::normal_dtype;
pub use draft_head::{CONTEXT_NORMS, DEEPSPEC_EAGLE3, DraftHead, DraftKind, MtpLayout, TensorList};
pub use generation::GenerationConfig;
pub use lenient::{JsonFileError, UnreadField, json_object};
pub use size::element_bytes;
pub use states::LinearState;
pub use tensors::{HeaderError, TensorHeader, TensorHeaders, TensorIndex, header_length, is_own_file, is_plain_name};
pub use tokenizer::{TokenizerError, TokenizerFacts};
pub use windows::TokenBytes;

/// What is known about one checkpoint.
#[derive(Clone, Debug, Default)]
pub struct ModelFacts {
    /// The path or model id, as the user wrote it.
    pub name: String,
    /// Where the facts come from, for messages: a path, or the bundled table with its source.
    pub origin: String,
    /// The config.json.
    pub config: ModelConfig,
    /// Whether only some fields of the config are known, so that an absent field may still be in
    /// the file. False if the file itself was read.
    pub partial: bool,
    /// Whether only the class is known, because the name is that of a variant of a published model.
    pub by_name: bool,
    /// Names, shapes and dtypes of all tensors, if every header could be read.
    pub tensors: Option<TensorHeaders>,
    /// Names and total size of all tensors, if the checkpoint has an index.
    pub index: Option<TensorIndex>,
    /// Whether there is an `mtp.safetensors` that the index does not name. With few exceptions,
    /// engines load only the files that the index names.
    pub loose_mtp: bool,
    /// The generation_config.json, if there is one.
    pub generation: Option<GenerationConfig>,
    /// The vocabulary of tokenizer.json, if it was read.
    pub tokenizer: Option<TokenizerFacts>,
}

impl ModelFacts {
    /// The names of all tensors, from their headers or the index; `None` if neither could be read.
    pub fn tensor_names(&self) -> Option<Box<dyn Iterator<Item = &str> + '_>> {
        match (&self.tensors, &self.index) {
            (Some(tensors), _) => Some(Box::new(tensors.0.keys().map(String::as_str))),
            (None, Some(index)) => Some(Box::new(index.shards.keys().map(String::as_str))),
            (None, None) => None,
        }
    }
}
