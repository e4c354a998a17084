//! Parts common to the responses of the two OpenAI endpoints.

use engine::{Completion, Event, backend::ProducedToken};
use serde_json::{Value, json};

use crate::{
    http::{error::ApiError, fields::Fields},
    state::{State, now},
    worker::RunningRequest,
};

/// A finished choice.
#[derive(Clone, Debug)]
pub struct ReplyChoice {
    /// The whole completion.
    pub completion: Completion,
    /// Its tokens, with log-probabilities if requested.
    pub tokens: Vec<ProducedToken>,
}

/// Where a stream contains its usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamUsage {
    /// In a separate last chunk.
    pub at_the_end: bool,
    /// So far, in every chunk (vLLM's and SGLang's `continuous_usage_stats`).
    pub in_every_chunk: bool,
}

/// Which token ids a response includes: `return_token_ids` (vLLM, SGLang) and
/// `return_prompt_token_ids` (SGLang).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenIds {
    /// Those of the prompt.
    pub prompt: bool,
    /// Those of the output.
    pub output: bool,
}

/// The usage of a stream as it grows.
#[derive(Clone, Debug)]
pub struct UsageSoFar {
    mode: StreamUsage,
    prompts: Vec<usize>,
    produced: Vec<usize>,
}

/// The fields common to all objects of a response.
#[derive(Clone, Debug)]
pub struct ReplyHead {
    id: String,
    kind: &'static str,
    created: u64,
    model: String,
    fingerprint: String,
    /// Whether acceptance is simulated.
    simulated: bool,
}

impl StreamUsage {
    /// Reads `stream` and `stream_options`; `None` if the response is not streamed.
    ///
    /// # Errors
    /// When one has the wrong type, or the options are given without the stream.
    pub fn read(fields: &mut Fields) -> Result<Option<Self>, ApiError> {
        if !fields.flag("stream")? {
            let given = fields.value("stream_options").is_some();
            let complaint = || fields.complain("stream_options", "stream_options needs stream to be true");
            return if given { Err(complaint()) } else { Ok(None) };
        }
        let mut options = fields.object("stream_options")?;
        let usage = Self {
            at_the_end: options.flag("include_usage")?,
            in_every_chunk: options.flag("continuous_usage_stats")?,
        };
        options.finish()?;
        Ok(Some(usage))
    }
}

/// Reads the client's name for its request: SGLang's `rid`, which is the response's id, or vLLM's
/// `request_id`, which is the id after a prefix.
///
/// # Errors
/// When one has the wrong type.
pub fn name(fields: &mut Fields, prefix: &str) -> Result<Option<String>, ApiError> {
    let (name, id) = (fields.text("rid")?, fields.text("request_id")?);
    Ok(name.or(id.filter(|id| !id.is_empty()).map(|id| format!("{prefix}-{id}"))))
}

impl TokenIds {
    /// Reads the fields.
    ///
    /// # Errors
    /// When one has the wrong type.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let output = fields.flag("return_token_ids")?;
        Ok(Self { prompt: fields.flag("return_prompt_token_ids")? || output, output })
    }

    /// Adds the ids of output tokens to a choice.
    pub fn write(self, choice: &mut Value, tokens: &[ProducedToken]) {
        if self.output {
            choice["token_ids"] = tokens.iter().map(|token| token.id).collect();
        }
    }

    /// Adds ids to a complete response to these prompts, whose choices are in order. With one
    /// prompt, its ids are also in the response itself.
    pub fn write_all(self, object: &mut Value, prompts: &[&[u32]], choices: &[ReplyChoice]) {
        let prompt_parameters = choices.len().div_ceil(prompts.len().max(1)).max(1);
        for (at, choice) in choices.iter().enumerate() {
            let written = &mut object["choices"][at];
            if self.output {
                written["token_ids"] = json!(choice.completion.output_ids);
            }
            if self.prompt {
                written["prompt_token_ids"] = json!(prompts.get(at / prompt_parameters));
            }
        }
        if let (true, [prompt]) = (self.prompt, prompts) {
            object["prompt_token_ids"] = json!(prompt);
        }
    }
}

impl UsageSoFar {
    /// For choices whose prompts have this many tokens.
    pub fn new(mode: StreamUsage, prompts: Vec<usize>) -> Self {
        Self { mode, produced: vec![0; prompts.len()], prompts }
    }

    /// Counts further tokens of a choice without a chunk.
    pub fn count(&mut self, index: usize, further: usize) {
        self.produced[index] += further;
    }

    /// Adds the requested usage to a chunk of a choice, after this many further tokens.
    pub fn write(&mut self, chunk: &mut Value, index: usize, further: usize) {
        self.count(index, further);
        if self.mode.in_every_chunk {
            chunk["usage"] = tokens(self.prompts[index], self.produced[index]);
        } else if self.mode.at_the_end {
            // OpenAI's API then has the field in every chunk.
            chunk["usage"] = Value::Null;
        }
    }
}

impl ReplyHead {
    /// With the client's name for the request as id, or a new one.
    pub fn new(state: &State, prefix: &str, kind: &'static str, name: Option<String>) -> Self {
        Self {
            id: name.unwrap_or_else(|| state.new_id(&format!("{prefix}-"))),
            kind,
            created: now(),
            model: state.model().to_owned(),
            fingerprint: state.fingerprint(),
            simulated: state.worker.facts().options.makes_up_acceptance(),
        }
    }

    /// An object of the response.
    pub fn object(&self, choices: Value) -> Value {
        let mut object = json!({
            "id": self.id, "object": self.kind, "created": self.created, "model": self.model,
            "system_fingerprint": self.fingerprint, "choices": choices,
        });
        // Marks that the text is meaningless.
        if self.simulated {
            object["simulated"] = true.into();
        }
        object
    }
}

/// The last chunk of a stream: total usage and figures of speculation, if requested.
pub fn last_chunk(
    head: &ReplyHead,
    mode: StreamUsage,
    completions: &[Completion],
    choices: usize,
    extension: Option<Value>,
    state: &State,
) -> Option<Value> {
    // Not every client expects a chunk without choices that it did not request.
    let metrics = (mode.at_the_end || state.options.request_metrics).then(|| speculation(completions.iter(), state));
    if !mode.at_the_end && metrics.is_none() && extension.is_none() {
        return None;
    }
    let mut last = head.object(json!([]));
    if let Some(extension) = extension {
        last["sglext"] = extension;
    }
    if mode.at_the_end {
        last["usage"] = usage(completions.iter(), choices);
    }
    if let Some(metrics) = metrics {
        last["metrics"] = metrics;
    }
    Some(last)
}

/// Waits for all choices, in order.
///
/// # Errors
/// When the engine fails, or the server ends before they are finished.
pub async fn wait(running: Vec<RunningRequest>) -> Result<Vec<ReplyChoice>, ApiError> {
    let mut choices = Vec::new();
    // One after the other: all run at the same time, and events wait in their channels.
    for mut one in running {
        let mut all = Vec::new();
        let completion = loop {
            match one.events.recv().await {
                Some(Ok(Event::Tokens { tokens, .. })) => all.extend(tokens),
                Some(Ok(Event::Finished { completion, .. })) => break completion,
                Some(Err(error)) => return Err(error),
                None => return Err(ApiError::cut_off()),
            }
        };
        choices.push(ReplyChoice { completion: *completion, tokens: all });
    }
    Ok(choices)
}

/// OpenAI's usage over all choices, with `choices` per prompt.
pub fn usage<'a>(completions: impl Iterator<Item = &'a Completion> + Clone, choices: usize) -> Value {
    // The choices of one prompt count it once.
    let firsts = completions.clone().step_by(choices.max(1));
    let cached: usize = firsts.clone().map(|one| one.cached_tokens).sum();
    let prompts = firsts.map(|one| one.prompt_tokens).sum();
    let mut usage = tokens(prompts, completions.map(|one| one.output_ids.len()).sum());
    usage["prompt_tokens_details"] = json!({"cached_tokens": cached});
    usage
}

/// OpenAI's usage.
pub fn tokens(prompt: usize, output: usize) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output})
}

/// SGLang's `cached_tokens_details` of a prompt: the device's cache is the only one.
pub fn cache_details<'a>(mut completions: impl Iterator<Item = &'a Completion>) -> Value {
    let cached = completions.next().map_or(0, |one| one.cached_tokens);
    json!({"cached_tokens_details": {"device": cached, "host": 0}})
}

/// vLLM's figures of speculation for one choice; null for several, as in vLLM.
pub fn speculation<'a>(mut completions: impl Iterator<Item = &'a Completion>, state: &State) -> Value {
    let (Some(one), None) = (completions.next(), completions.next()) else { return Value::Null };
    let accepted = one.accepted_drafts();
    let largest = state.worker.facts().options.policy.shapes().map(|shape| shape.drafts()).max();
    // Clients expect a bucket for every possible number of accepted drafts.
    let mut histogram = one.accept_histogram.clone();
    histogram.resize(histogram.len().max(largest.unwrap_or_default() + 1), 0);
    json!({"speculative_decoding": {
        // Includes the bonus token of a round; the token of the prefill belongs to no round.
        "mean_acceptance_length": (one.rounds > 0).then(|| 1.0 + accepted as f64 / one.rounds as f64),
        "draft_acceptance_rate": (one.proposed_drafts > 0).then(|| accepted as f64 / one.proposed_drafts as f64),
        "acceptance_histogram": histogram,
        "num_spec_steps": one.rounds,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": one.proposed_drafts,
        "num_spec_tokens": largest,
    }})
}
