//! `POST /generate`: SGLang's own API.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use engine::{Completion, FinishReason, OutputText, backend::ProducedToken, checkpoint::GenerationConfig, text::Text};
use serde_json::{Value, json};

use super::{
    error::ApiError,
    fields::Fields,
    parameters::{MOST_LOGPROBS, Parameters},
    prompts::{self, Written},
    replies::{self, Choice},
    state::State,
    stream::{self, Chunks},
};

/// Tokens of an answer where the client names no number, as in SGLang.
const DEFAULT_TOKENS: usize = 128;

/// What a client asks for.
struct Asked {
    parameters: Parameters,
    /// The parameter that holds the prompts.
    name: &'static str,
    prompts: Vec<Written>,
    /// Whether the answer is a list.
    several: bool,
    stream: bool,
    id: Option<String>,
    /// Whether tokens stand beside their log-probabilities.
    with_token_text: bool,
}

/// What all parts of an answer share.
struct Answer {
    id: String,
    several: bool,
    choices: usize,
    /// Whether acceptance is made up.
    simulated: bool,
    /// The text side, where tokens stand beside their log-probabilities.
    text: Option<Text>,
}

/// Answers a request.
///
/// # Errors
/// When it is wrong, cannot be taken now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    let asked = read(fields)?;
    let mut parameters = asked.parameters;
    let prompts = prompts::encode(&state, asked.name, asked.prompts, true, false).await?;
    for prompt in &prompts {
        prompts::check_length(&state, asked.name, prompt.tokens.len(), parameters.stop.max_new_tokens)?;
    }
    parameters.stop.max_new_tokens.get_or_insert(DEFAULT_TOKENS);
    let answer = Answer {
        id: asked.id.unwrap_or_else(|| state.response_id("gen")),
        several: asked.several,
        choices: prompts.len() * parameters.choices,
        simulated: state.worker.facts().options.makes_up_acceptance(),
        text: state.worker.facts().text.clone().filter(|_| asked.with_token_text),
    };
    let lengths: Vec<usize> = prompts.iter().map(|prompt| prompt.tokens.len()).collect();
    let tokens = prompts.into_iter().map(|prompt| prompt.tokens).collect();
    let running = state.submit(parameters.requests(tokens, &state)).await?;
    if asked.stream {
        let lengths = lengths.into_iter().flat_map(|length| std::iter::repeat_n(length, parameters.choices));
        let so_far = lengths.map(SoFar::new).collect();
        return Ok(stream::respond(running, GenerateChunks { answer, so_far }));
    }
    let choices = replies::wait(running).await?;
    let objects = choices.iter().enumerate().map(|(index, choice)| answer.object(index, choice));
    let mut objects: Vec<Value> = objects.collect();
    Ok(Json(if answer.several { objects.into() } else { objects.pop().unwrap_or_default() }).into_response())
}

fn read(mut fields: Fields) -> Result<Asked, ApiError> {
    let mut sampling = fields.object("sampling_params")?;
    // SGLang's own API does not read the model's generation_config.json.
    let mut parameters = Parameters::read(&mut sampling, &GenerationConfig::default(), &["max_new_tokens"])?;
    sampling.finish()?;
    if !fields.flag_or("detokenize", true)? {
        parameters.stop.text = OutputText::Off;
    }
    let top = fields.integer("top_logprobs_num", 0..=MOST_LOGPROBS)?;
    if fields.flag("return_logprob")? {
        parameters.sampling.logprobs = Some(top.unwrap_or_default() as usize);
    } else if top.is_some_and(|top| top > 0) {
        return Err(fields.complain("top_logprobs_num", "top_logprobs_num needs return_logprob to be true"));
    }
    let (name, prompts) = match (prompts::read(&mut fields, "text")?, prompts::read(&mut fields, "input_ids")?) {
        (Some(prompts), None) => ("text", prompts),
        (None, Some(prompts)) => ("input_ids", prompts),
        (None, None) => return Err(fields.complain("text", "give text or input_ids")),
        (Some(_), Some(_)) => return Err(fields.complain("input_ids", "give text or input_ids, not both")),
    };
    let (prompts, several) = prompts;
    let asked = Asked {
        several: several || parameters.choices > 1,
        parameters,
        name,
        prompts,
        stream: fields.flag("stream")?,
        id: fields.text("rid")?,
        with_token_text: fields.flag("return_text_in_logprobs")?,
    };
    fields.finish()?;
    Ok(asked)
}

impl Answer {
    fn object(&self, index: usize, Choice { completion, tokens }: &Choice) -> Value {
        let mut meta = self.meta(index, completion);
        self.add_logprobs(&mut meta, tokens);
        json!({"text": completion.text, "output_ids": completion.output_ids, "meta_info": meta})
    }

    /// SGLang's names, the newer ones beside the older ones.
    fn meta(&self, index: usize, completion: &Completion) -> Value {
        let accepted = completion.accepted_drafts();
        let proposed = completion.proposed_drafts;
        let mut meta = json!({
            "id": self.id(index),
            "finish_reason": finish_reason(completion),
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": completion.output_ids.len(),
            "cached_tokens": completion.cached_tokens,
            "queue_time": completion.queued.as_secs_f64(),
            "e2e_latency": completion.elapsed.as_secs_f64(),
            "spec_verify_ct": completion.rounds,
            "spec_accept_length": completion.accept_length(),
            "spec_accept_rate": (proposed > 0).then(|| accepted as f64 / proposed as f64),
            "spec_accept_token_num": accepted,
            "spec_draft_token_num": proposed,
            "spec_accept_histogram": completion.accept_histogram,
            "spec_num_correct_drafts": accepted,
            "spec_num_proposed_drafts": proposed,
            "spec_correct_drafts_histogram": completion.accept_histogram,
        });
        if self.simulated {
            meta["simulated"] = true.into();
        }
        meta
    }

    /// Each choice has an id of its own, as in SGLang.
    fn id(&self, index: usize) -> String {
        if self.choices > 1 { format!("{}_{index}", self.id) } else { self.id.clone() }
    }

    /// SGLang's triples `[logprob, token id, text or null]`.
    fn add_logprobs(&self, meta: &mut Value, tokens: &[ProducedToken]) {
        let triple = |id: u32, logprob: f32| {
            let text = self.text.as_ref().map(|text| text.token(id).text);
            json!([logprob, id, text])
        };
        let asked: Vec<_> = tokens.iter().filter_map(|token| Some((token.id, token.logprobs.as_ref()?))).collect();
        if asked.is_empty() {
            return;
        }
        meta["output_token_logprobs"] = asked.iter().map(|(id, one)| triple(*id, one.logprob)).collect();
        let top = |list: &[(u32, f32)]| list.iter().map(|(id, logprob)| triple(*id, *logprob)).collect::<Value>();
        meta["output_top_logprobs"] = asked.iter().map(|(_, one)| top(&one.top)).collect();
    }
}

fn finish_reason(completion: &Completion) -> Value {
    match &completion.finish_reason {
        FinishReason::Length => json!({"type": "length", "length": completion.output_ids.len()}),
        FinishReason::StopToken(token) => json!({"type": "stop", "matched": token}),
        FinishReason::StopString(text) => json!({"type": "stop", "matched": text}),
        FinishReason::Cancelled | FinishReason::NotFinite(_) => json!({"type": "abort"}),
    }
}

/// What a choice has produced so far: SGLang sends all of it with each event.
struct SoFar {
    prompt_tokens: usize,
    text: String,
    tokens: Vec<ProducedToken>,
}

impl SoFar {
    fn new(prompt_tokens: usize) -> Self {
        Self { prompt_tokens, text: String::new(), tokens: Vec::new() }
    }
}

struct GenerateChunks {
    answer: Answer,
    so_far: Vec<SoFar>,
}

impl GenerateChunks {
    fn chunk(&self, index: usize, mut meta: Value) -> Value {
        let SoFar { text, tokens, .. } = &self.so_far[index];
        self.answer.add_logprobs(&mut meta, tokens);
        let output_ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let mut chunk = json!({"text": text, "output_ids": output_ids, "meta_info": meta});
        if self.answer.several {
            chunk["index"] = index.into();
        }
        chunk
    }
}

impl Chunks for GenerateChunks {
    fn begin(&mut self, _index: usize) -> Option<Value> {
        None
    }

    fn tokens(&mut self, index: usize, tokens: &[ProducedToken], text: &str) -> Option<Value> {
        let so_far = &mut self.so_far[index];
        so_far.text.push_str(text);
        so_far.tokens.extend_from_slice(tokens);
        let meta = json!({
            "id": self.answer.id(index),
            "finish_reason": null,
            "prompt_tokens": self.so_far[index].prompt_tokens,
            "completion_tokens": self.so_far[index].tokens.len(),
        });
        Some(self.chunk(index, meta))
    }

    fn end(&mut self, index: usize, completion: &Completion) -> Value {
        self.chunk(index, self.answer.meta(index, completion))
    }

    fn last(&mut self, _completions: &[Completion]) -> Option<Value> {
        None
    }
}
