//! Log-probabilities of prompts, in vLLM's format, and the parts common to all APIs.

use engine::{PromptLogprobs, backend::TokenLogprobs, text::Text};
use serde_json::{Map, Value, json};

use super::parameters::MOST_LOGPROBS;
use crate::http::{error::ApiError, fields::Fields};

/// Reads vLLM's `prompt_logprobs`: the number of alternatives for each token of the prompt.
///
/// # Errors
/// When it has the wrong type or is out of range, or the response is streamed.
pub fn read(fields: &mut Fields, streams: bool) -> Result<Option<usize>, ApiError> {
    const NAME: &str = "prompt_logprobs";
    let count = fields.integer(NAME, 0..=MOST_LOGPROBS)?;
    if count.is_some() && streams {
        return Err(fields.complain(NAME, "prompt_logprobs cannot be streamed; leave out stream"));
    }
    Ok(count.map(|count| count as usize))
}

/// The request to the engine that covers all of these numbers of alternatives.
pub fn requested(counts: [Option<usize>; 2]) -> Option<PromptLogprobs> {
    let alternatives = counts.into_iter().flatten().max()?;
    Some(PromptLogprobs { from: 0, alternatives })
}

/// vLLM's list: null for the first token, then for each token itself and the `count` best, by token
/// id.
pub fn list(prompt: &[u32], logprobs: &[TokenLogprobs], count: usize, text: Option<&Text>) -> Value {
    let entry = |id: u32, logprob: f32, rank: Option<usize>| {
        let decoded = text.map(|text| text.token(id).text);
        (id.to_string(), json!({"logprob": logprob, "rank": rank, "decoded_token": decoded}))
    };
    let one = |(id, one): (&u32, &TokenLogprobs)| {
        let best = one.top.iter().take(count).enumerate();
        let mut entries: Map<String, Value> =
            best.map(|(at, (id, logprob))| entry(*id, *logprob, Some(at + 1))).collect();
        let (name, value) = entry(*id, one.logprob, one.top.iter().position(|(best, _)| best == id).map(|at| at + 1));
        entries.entry(name).or_insert(value);
        Value::Object(entries)
    };
    let after = prompt.iter().skip(1).zip(logprobs).map(one);
    std::iter::once(Value::Null).take(prompt.len().min(1)).chain(after).collect()
}
