//! Prompts in the forms that clients send, and as tokens.

use engine::text::{ChatOptions, Encoded, Text};
use serde_json::Value;

use crate::{
    http::{
        error::ApiError,
        fields::{Fields, token, tokens},
        lanes::Cancellation,
        memory::footprint,
    },
    output::reasoning,
    state::State,
};

/// Maximum number of prompts in a request.
pub const MOST_PROMPTS: usize = 256;

/// A prompt of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrittenPrompt {
    /// As text.
    Text(String),
    /// As token ids.
    Tokens(Vec<u32>),
}

/// A prompt as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiPrompt {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Its text, if requested.
    pub text: String,
}

/// vLLM's `truncate_prompt_tokens`: how much of a long prompt is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Number of tokens.
    kept: usize,
    /// Whether the first ones are kept instead of the last ones.
    first: bool,
}

impl Truncation {
    /// A prompt of this many contexts is tokenised in order to be truncated; a longer one is
    /// refused.
    const LONGEST: usize = 8;

    /// Reads `truncate_prompt_tokens` and `truncation_side`. -1 keeps as many tokens as leave room
    /// for the requested output.
    ///
    /// # Errors
    /// When one is invalid.
    pub fn read(fields: &mut Fields, state: &State, output: Option<usize>) -> Result<Option<Self>, ApiError> {
        const NAME: &str = "truncate_prompt_tokens";
        let kept = fields.integer(NAME, -1..=i64::MAX)?;
        let first = match fields.text("truncation_side")?.as_deref() {
            None | Some("left") => false,
            Some("right") => true,
            Some(other) => {
                let message = format!("truncation_side is '{other}', expected left or right");
                return Err(fields.complain("truncation_side", message));
            }
        };
        let most = state.worker.facts().capacity.context_length;
        Ok(match kept {
            None => None,
            Some(0) => return Err(fields.complain(NAME, format!("{NAME} is 0, expected -1 or at least 1"))),
            Some(kept) => {
                let kept = usize::try_from(kept).unwrap_or_else(|_| most.saturating_sub(output.unwrap_or(1).max(1)));
                Some(Self { kept, first })
            }
        })
    }

    fn apply(self, tokens: &mut Vec<u32>) {
        if self.first {
            tokens.truncate(self.kept);
        } else {
            tokens.drain(..tokens.len().saturating_sub(self.kept));
        }
    }
}

/// Maximum number of tokens of a prompt before it is truncated.
fn most_tokens(state: &State, truncation: Option<Truncation>) -> usize {
    let most = state.worker.facts().capacity.context_length;
    most.saturating_mul(truncation.map_or(1, |_| Truncation::LONGEST))
}

impl WrittenPrompt {
    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Tokens(tokens) => 4 * tokens.len(),
        }
    }
}

/// Reads a string, a list of strings, a list of token ids, or a list of such lists. The boolean is
/// false for a single prompt that is not in a list. `None` if the field is absent.
///
/// # Errors
/// When it is anything else, or there are too many.
pub fn read(fields: &mut Fields, name: &str) -> Result<Option<(Vec<WrittenPrompt>, bool)>, ApiError> {
    const EXPECTED: &str = "a string, a list of strings, or token ids";
    let Some(value) = fields.value(name) else { return Ok(None) };
    let list = match &value {
        Value::String(prompt) => return Ok(Some((vec![WrittenPrompt::Text(prompt.clone())], false))),
        Value::Array(list) if !list.is_empty() => list,
        other => return Err(fields.wrong(name, EXPECTED, other)),
    };
    // A list of numbers is one prompt; a list of lists is several.
    if list[0].is_number() {
        return match list.iter().find(|item| token(item).is_none()) {
            Some(item) => Err(fields.wrong(name, "token ids from 0 to 4294967295", item)),
            None => Ok(Some((tokens(&value).into_iter().map(WrittenPrompt::Tokens).collect(), false))),
        };
    }
    if list.len() > MOST_PROMPTS {
        return Err(fields.complain(name, format!("{name} has {} prompts; the maximum is {MOST_PROMPTS}", list.len())));
    }
    let read = |item: &Value| match item {
        Value::String(prompt) => Ok(WrittenPrompt::Text(prompt.clone())),
        _ => tokens(item).map(WrittenPrompt::Tokens).ok_or_else(|| fields.wrong(name, EXPECTED, item)),
    };
    Ok(Some((list.iter().map(read).collect::<Result<_, _>>()?, true)))
}

/// Tokenises prompts, with the tokenizer's special tokens around each if `special`. `name` is the
/// parameter that contained them; `with_text` also decodes token ids. Long prompts are truncated as
/// requested.
///
/// # Errors
/// When the model has no tokenizer, the tokenizer rejects a prompt, or one is longer than the
/// context.
pub async fn encode(
    state: &State,
    name: &'static str,
    written: Vec<WrittenPrompt>,
    special: bool,
    with_text: bool,
    truncation: Option<Truncation>,
) -> Result<Vec<ApiPrompt>, ApiError> {
    let text = state.worker.facts().text.clone();
    let most = most_tokens(state, truncation);
    let bytes = written.iter().map(WrittenPrompt::bytes).sum();
    let one = move |written, wanted: &Cancellation| {
        let (mut tokens, mut prompt) = match written {
            WrittenPrompt::Tokens(tokens) => (tokens, None),
            WrittenPrompt::Text(prompt) => match &text {
                Some(text) => (within(text, &prompt, special, most, name, wanted)?, Some(prompt)),
                None => return Err(ApiError::parameter(name, "this model has no tokenizer: give token ids")),
            },
        };
        let length = tokens.len();
        if let Some(truncation) = truncation {
            truncation.apply(&mut tokens);
        }
        // The text of a prompt in tokens, or of the part that was kept.
        if with_text && (prompt.is_none() || tokens.len() < length) {
            prompt = text.as_ref().filter(|_| tokens.len() <= most).map(|text| text.decode(&tokens));
        }
        Ok(ApiPrompt { tokens, text: prompt.filter(|_| with_text).unwrap_or_default() })
    };
    let all = move |wanted: &Cancellation| written.into_iter().map(|written| one(written, wanted)).collect();
    state.lanes.run(bytes, all).await
}

/// A conversation as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatPrompt {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Whether the prompt ends inside the model's reasoning.
    pub thinks: bool,
}

/// Renders and tokenises a conversation. `name` is the parameter that contained it.
///
/// # Errors
/// When the model has no chat template, the template rejects the conversation, or it is longer than
/// the context.
pub async fn encode_chat(
    state: &State,
    text: Text,
    messages: Vec<Value>,
    options: ChatOptions,
    special: bool,
    truncation: Option<Truncation>,
    name: &'static str,
) -> Result<ChatPrompt, ApiError> {
    let most = most_tokens(state, truncation);
    // Every template needs at least one token per message.
    if messages.len() > most {
        return Err(ApiError::far_too_long(name, most, messages.len()));
    }
    let bytes = messages.iter().chain(&options.tools).map(footprint).sum();
    let all = move |wanted: &Cancellation| {
        let rendered = text.render_chat(&messages, &options)?;
        // Conversations may be large, and tokenising takes long.
        drop(messages);
        let thinks = reasoning::begins_inside(&rendered);
        let mut tokens = within(&text, &rendered, special, most, name, wanted)?;
        if let Some(truncation) = truncation {
            truncation.apply(&mut tokens);
        }
        Ok(ChatPrompt { tokens, thinks })
    };
    state.lanes.run(bytes, all).await
}

fn within(
    text: &Text,
    prompt: &str,
    special: bool,
    most: usize,
    name: &str,
    wanted: &Cancellation,
) -> Result<Vec<u32>, ApiError> {
    match text.encode_within(prompt, special, most, &|| wanted.is())? {
        Encoded::Tokens(tokens) => Ok(tokens),
        Encoded::TooMany { least } => Err(ApiError::far_too_long(name, most, least)),
        Encoded::Stopped => Err(ApiError::failed("the client has left")),
    }
}

/// Refuses a prompt that leaves no room for the requested tokens, or for at least one.
///
/// # Errors
/// When it is too long.
pub fn check_length(state: &State, name: &str, prompt: usize, requested: Option<usize>) -> Result<(), ApiError> {
    let most = state.worker.facts().capacity.context_length;
    if prompt.saturating_add(requested.unwrap_or(1)) > most {
        return Err(ApiError::context_length(name, most, prompt, requested));
    }
    Ok(())
}
