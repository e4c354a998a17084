//! What comes back from the engine, for one client: whole or as a stream.

use std::convert::Infallible;

use axum::response::{
    IntoResponse, Response, Sse,
    sse::{Event as SseEvent, KeepAlive},
};
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::{error::ApiError, state::State, worker::Running};
use crate::{Completion, Event, backend::ProducedToken};

/// A finished choice.
#[derive(Clone, Debug)]
pub struct Choice {
    /// All of it.
    pub completion: Completion,
    /// Its tokens, with log-probabilities where they were asked for.
    pub tokens: Vec<ProducedToken>,
}

/// What happened to one of several choices.
pub struct Happened {
    /// Which choice.
    pub index: usize,
    /// What; `None` when the engine failed.
    pub event: Option<Event>,
}

/// Waits for all choices, in their order.
///
/// # Errors
/// When the engine fails.
pub async fn wait(running: Vec<Running>, state: &State) -> Result<Vec<Choice>, ApiError> {
    let mut choices = Vec::new();
    for mut one in running {
        let mut all = Vec::new();
        let completion = loop {
            match one.events.recv().await {
                Some(Event::Tokens { tokens, .. }) => all.extend(tokens),
                Some(Event::Finished { completion, .. }) => break completion,
                None => return Err(ApiError::failed("the engine stopped before the request was finished")),
            }
        };
        state.metrics.finished(&completion);
        choices.push(Choice { completion: *completion, tokens: all });
    }
    Ok(choices)
}

/// The events of all choices as they come, each choice ending with its completion or with a failure.
pub fn merge(running: Vec<Running>) -> impl Stream<Item = Happened> + Send + Unpin {
    let one = |(index, running): (usize, Running)| {
        let events = UnboundedReceiverStream::new(running.events).map(Some).chain(stream::iter([None]));
        // After the completion nothing follows; a stream that ends without one has failed.
        events
            .scan(false, |done, event| {
                let last = std::mem::replace(done, *done || matches!(event, Some(Event::Finished { .. }) | None));
                std::future::ready((!last).then_some(event))
            })
            .map(move |event| Happened { index, event })
            .boxed()
    };
    stream::select_all(running.into_iter().enumerate().map(one))
}

/// A response of server-sent events: one for each value, then `[DONE]`.
pub fn events(values: impl Stream<Item = Value> + Send + 'static) -> Response {
    let done = stream::iter([SseEvent::default().data("[DONE]")]);
    let events = values.map(|value| SseEvent::default().data(value.to_string())).chain(done);
    Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::default()).into_response()
}

/// OpenAI's usage.
pub fn usage(completions: &[Completion], choices: usize) -> Value {
    // The choices of one prompt share it.
    let prompts: usize = completions.iter().step_by(choices.max(1)).map(|one| one.prompt_tokens).sum();
    let output: usize = completions.iter().map(|one| one.output_ids.len()).sum();
    json!({"prompt_tokens": prompts, "completion_tokens": output, "total_tokens": prompts + output})
}

/// vLLM's figures of speculation for one choice; null for several, as there.
pub fn speculation(completions: &[Completion], state: &State) -> Option<Value> {
    if !state.options.request_metrics {
        return None;
    }
    let [one] = completions else { return Some(Value::Null) };
    let accepted: u64 = (0..).zip(&one.accept_histogram).map(|(drafts, rounds)| drafts * rounds).sum();
    let largest = state.worker.facts().options.policy.shapes().map(|shape| shape.num_draft_tokens - 1).max();
    Some(json!({"speculative_decoding": {
        // Drafts and bonus token of a round; the token of the prefill belongs to none.
        "mean_acceptance_length": (one.rounds > 0).then(|| 1.0 + accepted as f64 / one.rounds as f64),
        "draft_acceptance_rate": (one.proposed_drafts > 0).then(|| accepted as f64 / one.proposed_drafts as f64),
        "acceptance_histogram": one.accept_histogram,
        "num_spec_steps": one.rounds,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": one.proposed_drafts,
        "num_spec_tokens": largest,
    }}))
}
