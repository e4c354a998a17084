//! Replay of look-ups in texts: no model runs, so any rule can be replayed along any texts.

use std::{collections::BTreeMap, ops::ControlFlow};

use schemas::tree::TreeShape;

use super::{ReplayProgress, ReplayText, ShapeAcceptance};
use crate::{error::EngineError, spec::TextSpec, text_drafts::TextDrafts, tree::DraftTree};

/// What a rule can look up besides the request's own tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextHistory {
    /// Nothing.
    OwnRequest,
    /// The outputs of the texts before it, in the given order: requests that run one after the
    /// other on an engine that has just started.
    Cold,
    /// The outputs of all texts, which have all run once before in the given order.
    Warm,
}

/// Acceptance of looked up drafts along one text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextAcceptance {
    /// As of any draft. The proposed drafts are those that were found.
    pub acceptance: ShapeAcceptance,
    /// Number of rounds by the rows that the target verified (the root included) and the drafts
    /// that were accepted and kept.
    pub rounds: BTreeMap<(usize, usize), u64>,
}

/// A text along which a rule is replayed.
#[derive(Clone, Copy, Debug)]
pub struct KnownText<'a> {
    /// The prompt.
    pub prompt: &'a [u32],
    /// The output.
    pub output: &'a [u32],
    /// What the target would have continued with, as far as it is known. In a last round the target
    /// may accept drafts beyond the end of the output; suffix decoding keeps them for other
    /// requests.
    pub after: &'a [u32],
}

impl<'a> From<&'a ReplayText> for KnownText<'a> {
    fn from(text: &'a ReplayText) -> Self {
        let (prompt, output) = text.tokens.split_at(text.prompt_tokens.min(text.tokens.len()));
        Self { prompt, output, after: &[] }
    }
}

/// What a rule accepts along texts, in their order, as rounds of these requests one after the other
/// would.
///
/// # Errors
/// When the rule or the shape is invalid, or a text has no prompt or no output.
pub fn replay_texts(
    rule: TextSpec,
    shape: TreeShape,
    texts: &[KnownText<'_>],
    history: TextHistory,
) -> Result<Vec<TextAcceptance>, EngineError> {
    rule.check()?;
    rule.nodes().check(shape).map_err(|error| {
        EngineError::Configuration(format!(
            "the tree shape {shape} cannot be replayed for {}: {error}",
            rule.algorithm()
        ))
    })?;
    if let Some(at) = texts.iter().position(|text| text.prompt.is_empty() || text.output.is_empty()) {
        return Err(EngineError::InvalidRequest(format!("text {at} to replay needs both a prompt and an output")));
    }
    let own = history == TextHistory::OwnRequest;
    let mut drafts = TextDrafts::new(if own { rule.own_tokens_only() } else { rule });
    let mut results = Vec::new();
    for pass in 0..if history == TextHistory::Warm { 2 } else { 1 } {
        results.clear();
        for (at, text) in texts.iter().enumerate() {
            if own {
                drafts.clear();
            }
            results.push(walk(&mut drafts, (pass * texts.len() + at) as u64, shape, *text));
        }
    }
    Ok(results)
}

/// Implements [`Engine::replay`](crate::Engine::replay) for an engine that looks drafts up.
pub fn run(
    rule: TextSpec,
    texts: &[ReplayText],
    shapes: &[TreeShape],
    progress: &mut dyn FnMut(ReplayProgress) -> ControlFlow<()>,
) -> Result<Option<Vec<Vec<ShapeAcceptance>>>, EngineError> {
    let tokens: usize = texts.iter().map(ReplayText::round_tokens).sum();
    let known: Vec<KnownText<'_>> = texts.iter().map(KnownText::from).collect();
    let mut results = vec![Vec::with_capacity(shapes.len()); texts.len()];
    for (done, shape) in shapes.iter().enumerate() {
        if progress(ReplayProgress { walked: done * tokens, total: shapes.len() * tokens }).is_break() {
            return Ok(None);
        }
        let replayed = replay_texts(rule, *shape, &known, TextHistory::Cold)?;
        results.iter_mut().zip(replayed).for_each(|(result, one)| result.push(one.acceptance));
    }
    Ok(Some(results))
}

/// The rounds of one request.
fn walk(drafts: &mut TextDrafts, request: u64, shape: TreeShape, text: KnownText<'_>) -> TextAcceptance {
    let KnownText { prompt, output, after } = text;
    let all = [output, after].concat();
    let mut counted = TextAcceptance::default();
    counted.acceptance.output_tokens = output.len();
    // The first token comes from the prompt's prefill.
    let mut known = 1;
    drafts.update(request, prompt, &output[..known]);
    while known < output.len() {
        let tree = drafts.draft(request, shape);
        let (rows, left) = (tree.nodes().len(), output.len() - known);
        let accepted = accepted(&tree, &all[known..]);
        let kept = counted.acceptance.count_drafts(rows - 1, accepted, left);
        *counted.rounds.entry((rows, accepted.min(kept))).or_default() += 1;
        drafts.append(request, &all[known..(known + accepted + 1).min(all.len())]);
        known += kept;
    }
    drafts.end(request);
    counted
}

/// Number of tokens after the root that a tree holds.
fn accepted(tree: &DraftTree, text: &[u32]) -> usize {
    let mut node = 0;
    let steps = text.iter().map_while(|token| {
        node = tree.child(node, *token)?;
        Some(())
    });
    steps.count()
}
