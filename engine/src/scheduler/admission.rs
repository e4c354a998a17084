//! Checks whether a request can run at all, and computes how much of the cache it may need.

use crate::{
    backend::Capacity,
    error::EngineError,
    request::{OutputText, Request, SamplingParams},
};

/// Limits for requests.
pub struct Limits {
    /// The device's capacity.
    pub capacity: Capacity,
    /// Number of positions that a round can fill: the nodes of the largest tree, and those at which
    /// the draft is ahead.
    pub tree: usize,
    /// Maximum number of tokens per round.
    pub tokens_a_round: usize,
    /// Whether tokens can be turned into text.
    pub has_text: bool,
}

impl Limits {
    /// Checks a request, resolves its maximum number of output tokens, and returns the number of
    /// positions that it can fill: prompt, output, the tree of its last round, and the rounds in
    /// flight when it ends.
    ///
    /// # Errors
    /// When the request can never run.
    pub fn admit(&self, request: &mut Request) -> Result<usize, EngineError> {
        let capacity = &self.capacity;
        let prompt = request.input_ids.len();
        if prompt == 0 {
            return invalid("the prompt is empty".into());
        }
        if let Some(token) = request.input_ids.iter().find(|token| **token as usize >= capacity.vocab_size) {
            return invalid(format!("token {token} is outside the vocabulary of {}", capacity.vocab_size));
        }
        let nothing_new = request.stop.max_new_tokens == Some(0);
        // A request that generates nothing may fill the context.
        if prompt >= capacity.context_length + usize::from(nothing_new) {
            return invalid(format!(
                "the prompt has {prompt} tokens, but the context length is {}, so nothing can be generated; shorten the \
                 prompt or raise --context-length",
                capacity.context_length
            ));
        }
        if !request.stop.stop.is_empty() && !self.has_text {
            return invalid("stop strings need a tokenizer, but this model has none; use stop token ids".into());
        }
        if !request.stop.stop.is_empty() && request.stop.text == OutputText::Off {
            return invalid("stop strings need text output, which this request turns off; use stop token ids".into());
        }
        check_sampling(&request.sampling)?;
        let room = capacity.context_length - prompt;
        let new = request.stop.max_new_tokens.unwrap_or(room).min(room);
        request.stop.max_new_tokens = Some(new);
        let positions = self.positions(request);
        let (needed, total) = (positions.div_ceil(capacity.page_size), capacity.pages);
        if needed > total {
            return invalid(format!(
                "{prompt} prompt and {new} new tokens need {needed} pages of {} tokens, but the KV cache has \
                 {total}; request fewer tokens, or raise --max-total-tokens if it is given, else --mem-fraction-static",
                capacity.page_size
            ));
        }
        Ok(positions)
    }

    /// Number of positions that a request can fill, once its maximum number of output tokens is
    /// resolved.
    pub fn positions(&self, request: &Request) -> usize {
        request.input_ids.len() + request.stop.max_new_tokens.unwrap_or_default() + self.slack()
    }

    /// Number of positions after a sequence that rounds can fill: the tree of the last one, and
    /// those in flight.
    pub fn slack(&self) -> usize {
        self.tree + self.capacity.rounds_in_flight.saturating_sub(1) * self.tokens_a_round
    }
}

fn check_sampling(sampling: &SamplingParams) -> Result<(), EngineError> {
    let SamplingParams { temperature, top_p, min_p, .. } = *sampling;
    if !(temperature >= 0.0 && temperature.is_finite()) {
        return invalid(format!("temperature is {temperature}: expected a number of at least 0"));
    }
    for (name, share) in [("top_p", top_p), ("min_p", min_p)] {
        if !(0.0..=1.0).contains(&share) {
            return invalid(format!("{name} is {share}: expected a number from 0 to 1"));
        }
    }
    Ok(())
}

fn invalid<T>(reason: String) -> Result<T, EngineError> {
    Err(EngineError::InvalidRequest(reason))
}
