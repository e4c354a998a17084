//! `POST /generate`: SGLang's own API.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use engine::{
    Completion, FinishReason, OutputText, PromptLogprobs, Request,
    backend::{ProducedToken, TokenLogprobs},
    checkpoint::GenerationConfig,
    text::Text,
};
use serde_json::{Map, Value, json};

use crate::{
    api::{
        parameters::{LengthParameter, MOST_LOGPROBS, Parameters, named},
        prompts::{self, WrittenPrompt},
        replies::{self, ReplyChoice},
    },
    http::{error::ApiError, fields::Fields, neutral::Endpoint},
    output::stream::{self, Chunks},
    state::State,
    worker::Named,
};

/// Default maximum number of output tokens, as in SGLang.
const DEFAULT_TOKENS: usize = 128;

/// A parsed request.
struct GenerateRequest {
    /// One for each prompt.
    parameters: Vec<Parameters>,
    /// The parameter that contains the prompts.
    name: &'static str,
    prompts: Vec<WrittenPrompt>,
    /// Whether the response is a list.
    several: bool,
    stream: bool,
    ids: Ids,
    /// Whether log-probabilities include the tokens' text.
    with_token_text: bool,
    /// `return_cached_tokens_details`.
    cache_details: bool,
}

/// The client's names for its requests.
enum Ids {
    None,
    /// One name for all of them.
    One(String),
    /// One name for each prompt.
    Each(Vec<String>),
}

/// What all parts of a response have in common.
struct GenerateContext {
    state: Arc<State>,
    /// One for each choice.
    ids: Vec<String>,
    several: bool,
    /// Whether acceptance is simulated.
    simulated: bool,
    /// Decodes tokens, if log-probabilities include their text.
    text: Option<Text>,
    /// For each choice whose log-probabilities are requested: the prompt's tokens from the first
    /// position for which they are reported.
    reported: Vec<Option<Vec<u32>>>,
    cache_details: bool,
}

/// Handles a request.
///
/// # Errors
/// When it is invalid, cannot be accepted now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    let arrived = fields.arrived();
    let GenerateRequest { mut parameters, name, prompts, several, stream, ids, with_token_text, cache_details } =
        read(fields, &state)?;
    let prompts = prompts::encode(&state, name, prompts, true, false, None).await?;
    let mut requests = Vec::new();
    for (prompt, parameters) in prompts.iter().zip(&mut parameters) {
        prompts::check_length(&state, name, prompt.tokens.len(), parameters.stop.max_new_tokens)?;
        parameters.stop.max_new_tokens.get_or_insert(DEFAULT_TOKENS);
        parameters.compile(&state).await?;
        requests.push(parameters.requests(&prompt.tokens, &state));
    }
    let requests = ids.name(requests);
    let reported = |Named { request, .. }: &Named| {
        // By default the last token of the prompt, as in SGLang, which has no log-probability.
        let last = request.input_ids.len().saturating_sub(1);
        let from = request.sampling.prompt_logprobs.map(|requested| requested.from);
        let from = from.or(request.sampling.logprobs.map(|_| last))?;
        Some(request.input_ids.get(from..).unwrap_or_default().to_vec())
    };
    let answer = GenerateContext {
        state: state.clone(),
        ids: requests.iter().map(|one| one.name.clone().unwrap_or_else(|| state.new_id("gen-"))).collect(),
        several,
        simulated: state.worker.facts().options.makes_up_acceptance(),
        text: state.worker.facts().text.clone().filter(|_| with_token_text),
        reported: requests.iter().map(reported).collect(),
        cache_details,
    };
    let so_far = requests.iter().map(|one| SoFar::new(one.request.input_ids.len())).collect();
    let running = state.submit(requests, arrived).await?;
    if stream {
        return Ok(stream::respond(running, GenerateChunks { answer, so_far }));
    }
    let choices = replies::wait(running).await?;
    let objects = choices.iter().enumerate().map(|(index, choice)| answer.object(index, choice));
    let mut objects: Vec<Value> = objects.collect();
    Ok(Json(if answer.several { objects.into() } else { objects.pop().unwrap_or_default() }).into_response())
}

fn read(fields: Fields, state: &State) -> Result<GenerateRequest, ApiError> {
    let mut fields = fields.for_endpoint(Endpoint::Generate);
    let (name, (prompts, listed)) =
        match (prompts::read(&mut fields, "text")?, prompts::read(&mut fields, "input_ids")?) {
            (Some(prompts), None) => ("text", prompts),
            (None, Some(prompts)) => ("input_ids", prompts),
            (None, None) => return Err(fields.complain("text", "give text or input_ids")),
            (Some(_), Some(_)) => return Err(fields.complain("input_ids", "give text or input_ids, not both")),
        };
    let text = fields.flag_or("detokenize", true)?;
    let stream = fields.flag("stream")?;
    let count = prompts.len();
    let parameters = each(&mut fields, count, listed, |mut one| {
        let mut parameters = prompt_parameters(&mut one, state, stream)?;
        if !text {
            parameters.stop.text = OutputText::Off;
        }
        one.finish()?;
        Ok(parameters)
    })?;
    if let Some(other) = parameters.iter().find(|one| one.choices != parameters[0].choices) {
        let message = format!("n is {} for one prompt and {} for another", parameters[0].choices, other.choices);
        return Err(fields.complain("sampling_params", message));
    }
    let requested = GenerateRequest {
        several: listed || parameters[0].choices > 1,
        parameters,
        name,
        prompts,
        stream,
        ids: Ids::read(&mut fields, count)?,
        with_token_text: fields.flag("return_text_in_logprobs")?,
        cache_details: fields.flag("return_cached_tokens_details")?,
    };
    fields.finish()?;
    Ok(requested)
}

/// Fields that a request with several prompts may give once for all of them, or as a list with one
/// entry each.
const OF_EACH: [&str; 4] = ["sampling_params", "return_logprob", "logprob_start_len", "top_logprobs_num"];

/// Reads the parameters of each prompt.
fn each(
    fields: &mut Fields,
    count: usize,
    listed: bool,
    read: impl Fn(Fields) -> Result<Parameters, ApiError>,
) -> Result<Vec<Parameters>, ApiError> {
    let mut of_each: Vec<Map<String, Value>> = vec![Map::new()];
    for name in OF_EACH {
        match fields.value(name) {
            None => {}
            Some(Value::Array(values)) if listed => {
                if values.len() != count {
                    let message = format!("{name} has {} entries for {count} prompts", values.len());
                    return Err(fields.complain(name, message));
                }
                if of_each.len() < count {
                    // Values that apply to all prompts may come before the first list.
                    of_each.resize(count, of_each[0].clone());
                }
                for (one, value) in of_each.iter_mut().zip(values) {
                    one.insert(name.into(), value);
                }
            }
            Some(value) => {
                for one in &mut of_each {
                    one.insert(name.into(), value.clone());
                }
            }
        }
    }
    let mut all: Vec<Parameters> = of_each.into_iter().map(|one| read(fields.like(one))).collect::<Result<_, _>>()?;
    if all.len() < count {
        all.resize(count, all[0].clone());
    }
    Ok(all)
}

fn prompt_parameters(fields: &mut Fields, state: &State, stream: bool) -> Result<Parameters, ApiError> {
    let mut sampling = fields.object("sampling_params")?;
    let lengths = LengthParameter { names: &["max_new_tokens"], least: 0 };
    // SGLang's own API does not read the model's generation_config.json.
    let mut parameters = Parameters::read(&mut sampling, state.worker.facts(), &GenerationConfig::default(), lengths)?;
    sampling.finish()?;
    let top = fields.integer("top_logprobs_num", 0..=MOST_LOGPROBS)?;
    let from = fields.integer("logprob_start_len", -1..=i64::MAX)?.and_then(|from| usize::try_from(from).ok());
    if !fields.flag("return_logprob")? {
        return match top.filter(|top| *top > 0) {
            Some(_) => Err(fields.complain("top_logprobs_num", "top_logprobs_num needs return_logprob to be true")),
            None => Ok(parameters),
        };
    }
    let alternatives = top.unwrap_or_default() as usize;
    parameters.sampling.logprobs = Some(alternatives);
    if let Some(from) = from {
        if stream {
            let message = "log-probabilities of the prompt cannot be streamed; leave out stream or logprob_start_len";
            return Err(fields.complain("logprob_start_len", message));
        }
        // The first reported token has no log-probability, as in SGLang.
        parameters.sampling.prompt_logprobs = Some(PromptLogprobs { from, alternatives });
    }
    Ok(parameters)
}

impl Ids {
    fn read(fields: &mut Fields, count: usize) -> Result<Self, ApiError> {
        match fields.value("rid") {
            None => Ok(Self::None),
            Some(Value::String(id)) => Ok(Self::One(id)),
            Some(value) => {
                let list = value.as_array().filter(|list| list.len() == count);
                let ids = list.and_then(|list| list.iter().map(|id| id.as_str().map(ToOwned::to_owned)).collect());
                let expected = "a string, or one for each prompt";
                ids.map(Self::Each).ok_or_else(|| fields.wrong("rid", expected, &value))
            }
        }
    }

    /// Names the choices of each prompt.
    fn name(&self, of_prompts: Vec<Vec<Request>>) -> Vec<Named> {
        match self {
            Self::None => named(of_prompts.into_iter().flatten().collect(), None),
            Self::One(id) => named(of_prompts.into_iter().flatten().collect(), Some(id)),
            Self::Each(ids) => {
                of_prompts.into_iter().zip(ids).flat_map(|(choices, id)| named(choices, Some(id))).collect()
            }
        }
    }
}

impl GenerateContext {
    fn object(&self, index: usize, ReplyChoice { completion, tokens }: &ReplyChoice) -> Value {
        let mut meta = self.meta(index, completion);
        self.add_prompt_logprobs(&mut meta, index, completion);
        self.add_logprobs(&mut meta, tokens);
        json!({"text": completion.text, "output_ids": completion.output_ids, "meta_info": meta})
    }

    /// Metadata of a choice under SGLang's names, both newer and older ones.
    fn meta(&self, index: usize, completion: &Completion) -> Value {
        let accepted = completion.accepted_drafts();
        let proposed = completion.proposed_drafts;
        let mut meta = json!({
            "id": self.ids[index],
            "finish_reason": finish_reason(completion),
            "prompt_tokens": completion.prompt_tokens,
            "weight_version": self.state.worker.published().weights.version,
            "completion_tokens": completion.output_ids.len(),
            "cached_tokens": completion.cached_tokens,
            "num_retractions": completion.retractions,
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
        if self.cache_details {
            meta["cached_tokens_details"] = json!({"device": completion.cached_tokens, "host": 0});
        }
        meta
    }

    /// Adds log-probabilities of the prompt from the requested position; as in SGLang, the first
    /// token there has none.
    fn add_prompt_logprobs(&self, meta: &mut Value, index: usize, completion: &Completion) {
        let Some(reported) = &self.reported[index] else { return };
        // The engine has none for position 0.
        let missing = reported.len() - completion.prompt_logprobs.len().min(reported.len());
        let known = completion.prompt_logprobs.iter().skip(1 - missing.min(1)).map(Some);
        let of_tokens: Vec<_> = reported.iter().zip(std::iter::once(None).chain(known)).collect();
        let value = |(id, one): &(&u32, Option<&TokenLogprobs>)| match one {
            Some(one) => self.triple(**id, Some(one.logprob)),
            None => self.triple(**id, None),
        };
        meta["input_token_logprobs"] = of_tokens.iter().map(value).collect();
        meta["input_top_logprobs"] = of_tokens.iter().map(|(_, one)| one.map(|one| self.top(one))).collect();
        meta["output_token_logprobs"] = json!([]);
        meta["output_top_logprobs"] = json!([]);
    }

    /// SGLang's `[logprob, token id, text or null]`.
    fn triple(&self, id: u32, logprob: Option<f32>) -> Value {
        let text = self.text.as_ref().map(|text| text.token(id).text);
        json!([logprob, id, text])
    }

    fn top(&self, one: &TokenLogprobs) -> Value {
        one.top.iter().map(|(id, logprob)| self.triple(*id, Some(*logprob))).collect()
    }

    /// Adds log-probabilities of the output.
    fn add_logprobs(&self, meta: &mut Value, tokens: &[ProducedToken]) {
        let requested: Vec<_> = tokens.iter().filter_map(|token| Some((token.id, token.logprobs.as_ref()?))).collect();
        if requested.is_empty() {
            return;
        }
        meta["output_token_logprobs"] = requested.iter().map(|(id, one)| self.triple(*id, Some(one.logprob))).collect();
        meta["output_top_logprobs"] = requested.iter().map(|(_, one)| self.top(one)).collect();
    }
}

fn finish_reason(completion: &Completion) -> Value {
    match &completion.finish_reason {
        FinishReason::Length => json!({"type": "length", "length": completion.output_ids.len()}),
        FinishReason::StopToken(token) => json!({"type": "stop", "matched": token}),
        FinishReason::StopString(text) => json!({"type": "stop", "matched": text}),
        FinishReason::Cancelled | FinishReason::NotFinite(_) | FinishReason::Grammar(_) => {
            json!({"type": "abort", "message": "aborted"})
        }
    }
}

/// The output of a choice so far: SGLang sends all of it with each event.
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
    answer: GenerateContext,
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

    fn tokens(&mut self, index: usize, tokens: &[ProducedToken], text: &str) -> Vec<Value> {
        let so_far = &mut self.so_far[index];
        so_far.text.push_str(text);
        so_far.tokens.extend_from_slice(tokens);
        let meta = json!({
            "id": self.answer.ids[index],
            "finish_reason": null,
            "prompt_tokens": self.so_far[index].prompt_tokens,
            "completion_tokens": self.so_far[index].tokens.len(),
        });
        vec![self.chunk(index, meta)]
    }

    fn end(&mut self, index: usize, completion: &Completion) -> Vec<Value> {
        let mut meta = self.answer.meta(index, completion);
        self.answer.add_prompt_logprobs(&mut meta, index, completion);
        vec![self.chunk(index, meta)]
    }

    fn last(&mut self, _completions: &[Completion]) -> Option<Value> {
        None
    }
}
