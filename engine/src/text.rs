//! Tokenizer, chat template, and streaming detokenisation.

mod bounded;
mod chat_template;
mod difference;
mod jinja2;
mod operators;
mod percent;
mod python;
mod python_values;
mod special_tokens;
mod stream;
mod token;

use std::sync::Arc;

use serde::Serialize;
use tokenizers::Tokenizer;

pub use self::{
    bounded::Encoded,
    chat_template::{ChatMessage, ChatOptions, TemplateVariables},
    difference::first_difference,
    stream::TextStream,
    token::TokenText,
};
use self::{chat_template::ChatTemplate, special_tokens::TokenizerConfig};
use crate::{checkpoint::Folder, error::EngineError};

/// A tokenizer with its chat template. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Text {
    tokenizer: Arc<Tokenizer>,
    template: Option<Result<Arc<ChatTemplate>, String>>,
    end_token: Option<u32>,
    /// Length of the longest token in bytes.
    longest_token: usize,
}

impl Text {
    /// Reads tokenizer.json, tokenizer_config.json with special_tokens_map.json, and
    /// chat_template.jinja; `None` without a tokenizer.json.
    ///
    /// # Errors
    /// When an existing file is invalid.
    pub fn open(folder: &Folder) -> Result<Option<Self>, EngineError> {
        let Some(json) = folder.optional("tokenizer.json")? else { return Ok(None) };
        let tokenizer = json.parse::<Tokenizer>().map_err(|error| EngineError::Malformed {
            path: folder.path().join("tokenizer.json"),
            reason: error.to_string(),
        })?;
        let config = TokenizerConfig::open(folder)?;
        let end_token = config.special_tokens.get("eos_token").and_then(|token| tokenizer.token_to_id(token));
        let template = ChatTemplate::open(folder, config)?.map(|template| template.map(Arc::new));
        let longest_token = bounded::longest_token(&tokenizer);
        Ok(Some(Self { tokenizer: Arc::new(tokenizer), template, end_token, longest_token }))
    }

    /// Tokens of a prompt, with the special tokens that the tokenizer adds.
    ///
    /// # Errors
    /// When the tokenizer cannot encode it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        self.encoded(text, true)
    }

    /// The tokenizer's own end-of-text token. Fine-tunes often end with it while their config.json
    /// still names the base model's.
    pub fn end_token(&self) -> Option<u32> {
        self.end_token
    }

    /// Whether the model has a chat template, valid or not.
    pub fn has_chat_template(&self) -> bool {
        self.template.is_some()
    }

    /// Tokens of a conversation in the model's chat template, up to the start of the assistant's
    /// reply. Messages are [`ChatMessage`]s, or objects with further fields that the template may
    /// know; `variables` are the template's own.
    ///
    /// # Errors
    /// When the model has no chat template, or the template refuses the conversation.
    pub fn encode_chat(
        &self,
        messages: &[impl Serialize],
        variables: &TemplateVariables,
    ) -> Result<Vec<u32>, EngineError> {
        let options = ChatOptions { variables: variables.clone(), ..ChatOptions::default() };
        // The template itself contains the special tokens.
        self.encoded(&self.render_chat(messages, &options)?, false)
    }

    /// The text of a conversation rendered by the model's chat template. Encode it without adding
    /// special tokens, since the template contains them.
    ///
    /// # Errors
    /// As [`encode_chat`](Self::encode_chat).
    pub fn render_chat(&self, messages: &[impl Serialize], options: &ChatOptions) -> Result<String, EngineError> {
        let template = match &self.template {
            Some(Ok(template)) => template,
            Some(Err(reason)) => {
                return Err(EngineError::InvalidRequest(format!(
                    "this model's chat template does not compile: {reason}"
                )));
            }
            None => {
                return Err(EngineError::InvalidRequest(
                    "this model has no chat template: use /v1/completions, or a checkpoint with one".into(),
                ));
            }
        };
        template.render(messages, options)
    }

    /// The text of tokens, without special tokens.
    pub fn decode(&self, tokens: &[u32]) -> String {
        self.decode_with(tokens, false)
    }

    /// The text of tokens, with or without special tokens.
    pub fn decode_with(&self, tokens: &[u32], special: bool) -> String {
        self.tokenizer.decode(tokens, !special).unwrap_or_default()
    }

    /// Whether a token is special, so that no ordinary text contains it.
    pub fn is_special(&self, token: u32) -> bool {
        self.tokenizer.get_added_vocabulary().get_added_tokens_decoder().get(&token).is_some_and(|one| one.special)
    }

    /// Whether decoding skips a token whatever is around it: it is special, and special tokens are
    /// not shown, or the tokenizer does not have it.
    fn skips(&self, token: u32, special: bool) -> bool {
        (!special && self.is_special(token)) || self.tokenizer.id_to_token(token).is_none()
    }

    /// The special token with this text.
    pub fn special_token(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text).filter(|token| self.is_special(*token))
    }

    /// The checkpoint's chat template; `None` if it has none or an invalid one.
    pub fn template_source(&self) -> Option<&str> {
        self.template.as_ref()?.as_ref().ok().map(|template| template.source())
    }

    /// The vocabulary entry of a token, for log-probabilities.
    pub fn token(&self, token: u32) -> TokenText {
        TokenText::from_tokenizer(&self.tokenizer, token)
    }

    /// Size of the tokenizer's vocabulary, special tokens included.
    pub fn vocab_size(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    fn encoded(&self, text: &str, special: bool) -> Result<Vec<u32>, EngineError> {
        let encoding = self.tokenizer.encode_fast(text, special);
        encoding
            .map(|encoding| encoding.get_ids().to_vec())
            .map_err(|error| EngineError::InvalidRequest(format!("the tokenizer cannot encode this prompt: {error}")))
    }
}
