//! Computes what any tree shape would accept along known texts, without running rounds.
//!
//! Speculation is lossless, so every shape produces the same text. One pass over it fills the
//! caches with the same values as rounds would. Then only the draft runs: at a position it yields
//! the tree that it would have drafted, and so the number of tokens that a round would have
//! accepted. Each shape visits the positions at which its rounds start. One expansion of a position
//! serves all shapes of a family (with the same `topk`, or with blocks of the same size), and only
//! visited positions are expanded.
//!
//! The target runs once per text, for any number of shapes. If its states are [kept](KeepStates), a
//! later replay of the same texts does not run it at all.

mod expected;
mod family;
mod group;
mod kept;
pub(crate) mod positions;
pub(crate) mod texts;
pub mod trace;

use std::ops::ControlFlow;

use schemas::tree::TreeShape;

pub(crate) use self::kept::Keeping;
use self::{group::TextGroup, kept::StateFile};
pub use self::{
    kept::KeepStates,
    texts::{KnownText, TextAcceptance, TextHistory, replay_texts},
    trace::PositionTrace,
};
use crate::{
    backend::Replay,
    error::EngineError,
    request::{Completion, Request, SamplingParams},
    spec::TextSpec,
    text_drafts::SecondSource,
};

/// A text to replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayText {
    /// Prompt and output.
    pub tokens: Vec<u32>,
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// How the output was chosen. Accepted drafts do not depend on it, expected ones do.
    pub sampling: SamplingParams,
}

/// Acceptance of a shape along one text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShapeAcceptance {
    /// Length of the output.
    pub output_tokens: usize,
    /// Number of verify rounds.
    pub rounds: usize,
    /// Number of drafts that they verify.
    pub proposed_drafts: u64,
    /// Entry k counts the rounds in which k drafts are accepted and kept, as in [`Completion`].
    pub accept_histogram: Vec<u64>,
    /// For a sampled text, the expected number of accepted drafts in these rounds, over the tokens
    /// that the target could have sampled at each position given the text before it. It has the
    /// same mean as the number of accepted drafts, and less variance.
    pub expected_drafts: Option<f64>,
}

/// Progress of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayProgress {
    /// Output tokens processed so far, summed over all shapes.
    pub walked: usize,
    /// Output tokens of all texts, counted once per shape.
    pub total: usize,
}

impl ReplayText {
    /// The text of a completed request.
    pub fn new(request: &Request, completion: &Completion) -> Self {
        Self {
            tokens: [request.input_ids.as_slice(), &completion.output_ids].concat(),
            prompt_tokens: request.input_ids.len(),
            sampling: request.sampling.clone(),
        }
    }

    /// Length of the output.
    pub fn output_tokens(&self) -> usize {
        self.tokens.len().saturating_sub(self.prompt_tokens)
    }

    /// Number of tokens that come from rounds: the first one comes from prefill.
    fn round_tokens(&self) -> usize {
        self.output_tokens().saturating_sub(1)
    }
}

impl ShapeAcceptance {
    /// Number of drafts that were accepted and kept.
    pub fn accepted_drafts(&self) -> u64 {
        (0..).zip(&self.accept_histogram).map(|(drafts, rounds)| drafts * rounds).sum()
    }

    /// Output tokens / rounds, including the first token and bonus tokens: SGLang's definition.
    /// `None` without a round.
    pub fn accept_length(&self) -> Option<f64> {
        (self.rounds > 0).then(|| self.output_tokens as f64 / self.rounds as f64)
    }

    /// Counts a round in which this many drafts were accepted, with at most `left` tokens of the
    /// text remaining; returns the number of kept tokens.
    fn count(&mut self, shape: TreeShape, accepted: usize, left: usize) -> usize {
        self.count_drafts(shape.drafts(), accepted, left)
    }

    /// Like [`count`](Self::count), for a round with this many drafts.
    fn count_drafts(&mut self, drafts: usize, accepted: usize, left: usize) -> usize {
        self.proposed_drafts += drafts as u64;
        // The last round may accept more than the text has.
        let kept = (accepted + 1).min(left);
        let drafts = kept.min(accepted);
        self.rounds += 1;
        if self.accept_histogram.len() <= drafts {
            self.accept_histogram.resize(drafts + 1, 0);
        }
        self.accept_histogram[drafts] += 1;
        kept
    }
}

/// What a replay has beside the backend.
#[derive(Default)]
pub(crate) struct Extras<'a, 'b> {
    /// What rounds look up beside the draft: in the texts, as if these were requests that run one
    /// after the other on an engine that has just started.
    pub second_source: Option<TextSpec>,
    /// Where the target's states are kept, if they are.
    pub keeping: Option<Keeping<'a, 'b>>,
}

/// Implements [`Engine::replay_keeping`](crate::Engine::replay_keeping).
pub(crate) fn run(
    backend: &mut dyn Replay,
    texts: &[ReplayText],
    shapes: &[TreeShape],
    extras: Extras<'_, '_>,
    progress: &mut dyn FnMut(ReplayProgress) -> ControlFlow<()>,
) -> Result<Option<Vec<Vec<ShapeAcceptance>>>, EngineError> {
    let nodes = backend.cost().nodes;
    for shape in shapes {
        if shape.row_budget.is_some() {
            return Err(EngineError::Configuration(format!(
                "the tree shape {shape} cannot be replayed: what a budget of rows accepts depends on the other requests; \
                 trace {} and simulate it (spectune simulate --shapes)",
                shape.drafted()
            )));
        }
        nodes.check(*shape).map_err(|error| {
            EngineError::Configuration(format!("the tree shape {shape} cannot be replayed: {error}"))
        })?;
    }
    texts.iter().enumerate().try_for_each(|(at, text)| check(backend, at, text))?;
    let round_tokens: usize = texts.iter().map(ReplayText::round_tokens).sum();
    let mut reported = ReplayReport { progress, done: 0, total: round_tokens * shapes.len() };
    let speculates = shapes.iter().any(|shape| !shape.is_off());
    let mut kept = extras.keeping.filter(|_| speculates).and_then(|keeping| StateFile::open(keeping, backend, texts));
    let mut second_source = extras.second_source.map(SecondSource::new);
    let mut results = Vec::with_capacity(texts.len());
    while results.len() < texts.len() {
        let mut group = TextGroup::open(backend, texts, results.len(), shapes, second_source.as_mut())?;
        let walked = group.run(kept.as_mut(), &mut reported);
        // Before a failure is returned: the backend is lent, and its slots must be free again.
        let closed = group.close();
        match walked? {
            Some(walked) => results.extend(walked),
            None => return closed.map(|()| None),
        }
        closed?;
    }
    Ok(Some(results))
}

/// Reports the progress of all groups together.
struct ReplayReport<'a> {
    progress: &'a mut dyn FnMut(ReplayProgress) -> ControlFlow<()>,
    /// Tokens of the finished groups.
    done: usize,
    total: usize,
}

impl ReplayReport<'_> {
    fn tell(&mut self, walked: usize) -> ControlFlow<()> {
        (self.progress)(ReplayProgress { walked: self.done + walked, total: self.total })
    }
}

fn check(backend: &dyn Replay, at: usize, text: &ReplayText) -> Result<(), EngineError> {
    let capacity = backend.capacity();
    let ReplayText { tokens, prompt_tokens, .. } = text;
    let refused = |reason: String| Err(EngineError::InvalidRequest(format!("text {at} to replay: {reason}")));
    if *prompt_tokens == 0 || tokens.len() <= *prompt_tokens {
        let count = tokens.len();
        return refused(format!(
            "{prompt_tokens} of its {count} tokens are the prompt: expected both a prompt and an output"
        ));
    }
    if let Some(token) = tokens.iter().find(|token| **token as usize >= capacity.vocab_size) {
        return refused(format!("token {token} is outside the vocabulary of {}", capacity.vocab_size));
    }
    if tokens.len() > capacity.context_length {
        let (count, most) = (tokens.len(), capacity.context_length);
        return refused(format!("it has {count} tokens, but the context length is {most}; raise --context-length"));
    }
    let (needed, there) = (group::pages(text, capacity), capacity.pages);
    if needed > there {
        return refused(format!("it needs {needed} pages, but the KV cache has {there}; raise --mem-fraction-static"));
    }
    Ok(())
}
