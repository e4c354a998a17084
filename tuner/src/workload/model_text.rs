//! The parts of a model that a workload needs: tokenizer and limits, without weights.

use std::path::Path;

use engine::{Engine, EngineError, checkpoint::Folder, text::Text};

/// The text side of a target.
#[derive(Clone, Debug)]
pub struct ModelText {
    /// Tokenizer and chat template, if the target has a tokenizer.
    pub text: Option<Text>,
    /// Tokens that end a text.
    pub end_tokens: Vec<u32>,
    /// Maximum number of tokens in a sequence, prompt and output together.
    pub context_length: usize,
    /// Size of the vocabulary.
    pub vocab_size: usize,
}

impl ModelText {
    /// The text side of an engine's target.
    pub fn from_engine(engine: &Engine) -> Self {
        let capacity = engine.capacity();
        Self {
            text: engine.text().cloned(),
            end_tokens: engine.generation_config().eos_token_id.clone(),
            context_length: capacity.context_length,
            vocab_size: capacity.vocab_size,
        }
    }

    /// The text side of a checkpoint whose weights are not loaded, for sequences of at most
    /// `context_length` tokens.
    ///
    /// # Errors
    /// When the folder is not a checkpoint, or its tokenizer is broken.
    pub fn open(path: &Path, context_length: Option<usize>) -> Result<Self, EngineError> {
        let folder = Folder::open(path)?;
        let made_for = folder.config.plain_context_length();
        let vocab_size = folder.config.vocab_size.ok_or_else(|| EngineError::Malformed {
            path: path.join("config.json"),
            reason: "vocab_size is missing".into(),
        })?;
        Ok(Self {
            text: Text::open(&folder)?,
            end_tokens: folder.generation_config()?.eos_token_id,
            context_length: context_length.unwrap_or(made_for).min(made_for),
            vocab_size,
        })
    }
}
