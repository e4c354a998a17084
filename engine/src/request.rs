//! Requests and their results.

use std::time::Duration;

use crate::{
    adjust::Adjustments,
    played::PlayedText,
    token::{ProducedToken, TokenLogprobs},
};

/// The id of a request, unique within an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// How tokens are chosen from the target's distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the smallest set of best tokens whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Keep this many best tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep tokens with at least this share of the best token's probability; 0 keeps all.
    pub min_p: f32,
    /// Seed of the request's own random numbers.
    pub seed: u64,
    /// Number of alternatives reported with each token; `None` reports no log-probabilities.
    pub logprobs: Option<usize>,
    /// What changes the logits before a token is chosen. Log-probabilities refer to the unchanged
    /// logits.
    pub adjustments: Adjustments,
    /// Which log-probabilities of the prompt to report.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Maximum number of drafts that the target verifies for it in a round, 0 for no speculation;
    /// `None` for what the policy says. It does not change the output.
    pub most_drafts: Option<usize>,
    /// The text whose acceptance it has while acceptance is played
    /// ([`Simulated`](crate::Simulated)).
    pub played: Option<PlayedText>,
}

/// Which log-probabilities of a prompt's tokens are reported, each given the tokens before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLogprobs {
    /// The first position to report. The token at position 0 has no log-probability, since nothing
    /// precedes it.
    pub from: usize,
    /// Number of alternatives reported with each token.
    pub alternatives: usize,
}

/// When a request ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StopConditions {
    /// Maximum number of output tokens; `None` means as many as the context holds. With 0 the
    /// prompt is only prefilled.
    pub max_new_tokens: Option<usize>,
    /// Texts that end the output; they are not part of it unless [`keep_stop`](Self::keep_stop).
    pub stop: Vec<String>,
    /// Number of first output tokens within whose text no stop string ends the output (vLLM's
    /// `min_tokens`).
    pub unsearched_tokens: usize,
    /// Tokens that end the output, in addition to the model's end-of-text tokens.
    pub stop_token_ids: Vec<u32>,
    /// Whether the model's end-of-text tokens are treated as ordinary tokens. With a grammar they
    /// end the output nevertheless.
    pub ignore_eos: bool,
    /// Whether the stop string or stop token that ends the output is part of its text.
    pub keep_stop: bool,
    /// Which tokens become the text that is searched for stop strings and returned.
    pub text: OutputText,
}

/// Which tokens become text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputText {
    /// All except special tokens.
    #[default]
    Plain,
    /// All tokens.
    WithSpecialTokens,
    /// None: only token ids are returned.
    Off,
}

/// A prompt and how to continue it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The prompt; never empty.
    pub input_ids: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// When it ends.
    pub stop: StopConditions,
}

/// Why a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-text or stop token, which is part of the token ids but not of the text.
    StopToken(u32),
    /// A stop string.
    StopString(String),
    /// Maximum number of tokens, or the end of the context.
    Length,
    /// Cancelled by the caller.
    Cancelled,
    /// The target's logits for the token at this position are not finite; the tokens before it are
    /// valid.
    NotFinite(usize),
    /// The output cannot follow its grammar any further; the reason.
    Grammar(String),
}

/// What happened to a request in a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A request produced tokens. `text` is what can be shown now: text is held back while it may
    /// still become a stop string, or while a character is incomplete.
    Tokens {
        /// The request.
        request: RequestId,
        /// The new tokens.
        tokens: Vec<ProducedToken>,
        /// The new text.
        text: String,
    },
    /// A request ended.
    Finished {
        /// The request.
        request: RequestId,
        /// Its result. Boxed, since the other variant is small.
        completion: Box<Completion>,
    },
}

/// A finished request.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// Output tokens, including a stop token.
    pub output_ids: Vec<u32>,
    /// Their text, without the stop token and stop string.
    pub text: String,
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// Number of its tokens that were in the KV cache and not prefilled.
    pub cached_tokens: usize,
    /// Number of times that it was put back into the queue while it ran; prompt and output were
    /// prefilled again then.
    pub retractions: usize,
    /// Number of verify rounds of the request (prefill is not one).
    pub rounds: usize,
    /// Number of drafts that the target verified in them.
    pub proposed_drafts: u64,
    /// Entry k counts the rounds in which k drafts were accepted and kept.
    pub accept_histogram: Vec<u64>,
    /// Log-probabilities of the prompt's tokens from [`PromptLogprobs::from`] on, except of
    /// position 0.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// From submission to the first prefill.
    pub queued: Duration,
    /// From submission to the first token.
    pub time_to_first_token: Duration,
    /// From submission to the end.
    pub elapsed: Duration,
}

impl Default for SamplingParams {
    /// Greedy.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            seed: 0,
            logprobs: None,
            adjustments: Adjustments::default(),
            prompt_logprobs: None,
            most_drafts: None,
            played: None,
        }
    }
}

impl SamplingParams {
    /// Whether the most probable token is always chosen.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }
}

impl Completion {
    /// Number of drafts that were accepted and kept.
    pub fn accepted_drafts(&self) -> u64 {
        (0..).zip(&self.accept_histogram).map(|(drafts, rounds)| drafts * rounds).sum()
    }

    /// Output tokens / rounds, including the first token (from prefill) and bonus tokens: SGLang's
    /// definition. `None` if the request ended without a round.
    pub fn accept_length(&self) -> Option<f64> {
        (self.rounds > 0).then(|| self.output_ids.len() as f64 / self.rounds as f64)
    }
}

impl FinishReason {
    /// The finish reason in OpenAI's terms.
    pub fn word(&self) -> &'static str {
        match self {
            Self::StopToken(_) | Self::StopString(_) => "stop",
            Self::Length => "length",
            Self::Cancelled | Self::NotFinite(_) | Self::Grammar(_) => "abort",
        }
    }
}
