//! `POST /tokenize` and `POST /detokenize`, with the fields of both SGLang and vLLM.

use std::sync::Arc;

use axum::{Json, extract::State as Shared};
use serde_json::{Value, json};

use crate::{
    api::{
        access::JsonBody,
        openai::chat,
        parameters::check_model,
        prompts::{self, ApiPrompt},
    },
    http::{error::ApiError, neutral::Endpoint},
    state::State,
};

/// The tokens of a `prompt`, of several prompts, or of `messages`.
pub async fn tokenize(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Json<Value>, ApiError> {
    let JsonBody(fields, _held) = body;
    let mut fields = fields.for_endpoint(Endpoint::Tokenize);
    check_model(&mut fields, &state)?;
    let with_text = fields.flag("return_token_strs")?;
    let (lists, several): (Vec<Vec<u32>>, bool) = match prompts::read(&mut fields, "prompt")? {
        Some((written, several)) => {
            let special = fields.flag_or("add_special_tokens", true)?;
            fields.finish()?;
            let prompts = prompts::encode(&state, "prompt", written, special, false, None).await?;
            (prompts.into_iter().map(|ApiPrompt { tokens, .. }| tokens).collect(), several)
        }
        None => {
            let special = fields.flag("add_special_tokens")?;
            let text = text(&state)?;
            let (messages, options, _) = chat::conversation(&mut fields, &text, &state)?;
            fields.finish()?;
            (
                vec![prompts::encode_chat(&state, text, messages, options, special, None, "messages").await?.tokens],
                false,
            )
        }
    };
    let names = |tokens: &Vec<u32>| {
        let text = state.worker.facts().text.as_ref().filter(|_| with_text)?;
        Some(tokens.iter().map(|token| text.token(*token).text).collect::<Vec<_>>())
    };
    let one =
        |value: Vec<Value>| if several { Value::from(value) } else { value.into_iter().next().unwrap_or_default() };
    Ok(Json(json!({
        "tokens": one(lists.iter().map(|tokens| json!(tokens)).collect()),
        "count": one(lists.iter().map(|tokens| json!(tokens.len())).collect()),
        "max_model_len": state.worker.facts().capacity.context_length,
        "token_strs": one(lists.iter().map(|tokens| json!(names(tokens))).collect()),
    })))
}

/// The text of `tokens`, or of several lists of tokens.
pub async fn detokenize(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Json<Value>, ApiError> {
    let JsonBody(fields, _held) = body;
    let mut fields = fields.for_endpoint(Endpoint::Detokenize);
    check_model(&mut fields, &state)?;
    let special = !fields.flag_or("skip_special_tokens", true)?;
    let lists = prompts::read(&mut fields, "tokens")?;
    let (written, several) = lists.ok_or_else(|| fields.complain("tokens", "tokens is missing"))?;
    fields.finish()?;
    let text = text(&state)?;
    let vocabulary = state.worker.facts().capacity.vocab_size;
    let bytes = 4 * written.iter().map(prompts::WrittenPrompt::bytes).sum::<usize>();
    let decode = move |_: &crate::http::lanes::Cancellation| {
        let one = |written: prompts::WrittenPrompt| match written {
            prompts::WrittenPrompt::Tokens(tokens) => {
                match tokens.iter().find(|token| **token as usize >= vocabulary) {
                    None => Ok(text.decode_with(&tokens, special)),
                    Some(token) => Err(ApiError::parameter(
                        "tokens",
                        format!("token {token} is outside the vocabulary of {vocabulary}"),
                    )),
                }
            }
            prompts::WrittenPrompt::Text(_) => {
                Err(ApiError::parameter("tokens", "tokens: expected token ids, found a string"))
            }
        };
        written.into_iter().map(one).collect::<Result<Vec<String>, _>>()
    };
    let mut texts = state.lanes.run(bytes, decode).await?;
    // SGLang's and vLLM's name.
    let text = if several { json!(texts) } else { json!(texts.pop().unwrap_or_default()) };
    Ok(Json(json!({"text": text, "prompt": text})))
}

fn text(state: &State) -> Result<engine::text::Text, ApiError> {
    state.worker.facts().text.clone().ok_or_else(|| ApiError::invalid("this model has no tokenizer"))
}
