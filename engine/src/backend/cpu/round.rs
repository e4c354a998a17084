//! The round: draft → verify → accept → extend.

use std::time::Instant;

use schemas::tree::TreeShape;

use super::{
    CpuBackend,
    draft::{Root, grow_trees},
    passes::{Stack, produce, select},
};
use crate::{
    backend::{ProducedToken, Round, RoundOutput, RoundTiming, Slot, Yield},
    error::EngineError,
    model::Pass,
    tree::{DraftTree, simulated_count, simulated_walk, walk},
};

/// What the target kept of one request's tree.
struct Verified {
    /// The accepted nodes, the root first.
    path: Vec<usize>,
    /// Rows of the verify pass that belong to them.
    rows: Vec<usize>,
    /// The target's choice at each of them.
    tokens: Vec<ProducedToken>,
}

impl CpuBackend {
    /// Runs one round for a batch.
    pub(super) fn run_round(&mut self, round: Round<'_>) -> Result<RoundOutput, EngineError> {
        let start = Instant::now();
        let trees = self.draft_trees(round.shape, round.slots)?;
        let drafted = Instant::now();
        let (pass, verified) = self.verify(&trees, round.slots, round.shape.most_tokens_a_round())?;
        let accepted = Instant::now();
        self.compact(&verified, round.slots)?;
        let extend = round.extend_draft || !round.shape.is_off();
        let recurrent = if extend { self.extend_draft(&pass, &verified, round.slots)? } else { Vec::new() };
        let yields = self.advance(verified, recurrent, round.slots)?;
        let timing = RoundTiming {
            draft: Some(drafted - start),
            verify: Some(accepted - drafted),
            extend: Some(accepted.elapsed()),
            total: start.elapsed(),
        };
        Ok(RoundOutput { yields, timing })
    }

    /// Grows the trees of all requests together, a step at a time.
    fn draft_trees(&mut self, shape: TreeShape, slots: &[Slot]) -> Result<Vec<DraftTree>, EngineError> {
        let states = self.slots.get(slots.iter().copied())?;
        if shape.is_off() {
            return Ok(states.iter().map(|state| DraftTree::root(state.root)).collect());
        }
        let scratch = self.capacity.pages * self.capacity.page_size;
        let (Some(draft), Some(cache)) = (&self.draft, &mut self.draft_cache) else {
            return Err(EngineError::Configuration(format!(
                "the tree shape {shape} needs a draft, and none is loaded"
            )));
        };
        if let Some((slot, _)) = slots.iter().zip(&states).find(|(_, state)| state.recurrent.is_empty()) {
            return Err(EngineError::Device(format!(
                "the draft has not followed slot {}: a round ran without extending the draft's cache",
                slot.0
            )));
        }
        let roots: Vec<Root<'_>> =
            states.iter().map(|state| Root::of(&state.rows[..state.length], &state.recurrent)).collect();
        let trees = grow_trees(draft.as_ref(), cache, scratch, shape, &roots, |_, _| {});
        Ok(trees.iter().zip(&states).map(|(tree, state)| tree.finish(state.root)).collect())
    }

    /// One pass of the target over all nodes of all trees, and what it accepts.
    fn verify(
        &mut self,
        trees: &[DraftTree],
        slots: &[Slot],
        most: usize,
    ) -> Result<(Pass, Vec<Verified>), EngineError> {
        let states = self.slots.get(slots.iter().copied())?;
        let mut stack = Stack::default();
        for (tree, state) in trees.iter().zip(&states) {
            let ahead = state.rows_ahead(tree.nodes().len())?;
            for (at, node) in tree.nodes().iter().enumerate() {
                let path = tree.path(at).into_iter().map(|node| ahead[node]).collect();
                stack.push(node.token, state.length + node.depth, ahead[at], &state.rows[..state.length], path);
            }
        }
        let capture = self.draft.as_ref().map_or(&[][..], |draft| draft.capture());
        let pass = stack.run(|tokens, rows| self.target.forward(tokens, rows, &mut self.caches, capture));
        let logits = self.target.logits(&pass.hidden);

        let mut rows = logits.chunks_exact(self.target.vocab_size());
        let mut begin = 0;
        let mut verified = Vec::new();
        for (tree, state) in trees.iter().zip(&states) {
            let logits: Vec<&[f32]> = rows.by_ref().take(tree.nodes().len()).collect();
            let mut tokens = Vec::new();
            let choose = |node: usize| {
                let position = state.length + tree.nodes()[node].depth + 1;
                let token = produce(logits[node], &state.sampling, position);
                let id = token.id;
                tokens.push(token);
                id
            };
            let path = match self.simulate {
                None => walk(tree, choose),
                Some(expected) => {
                    let count = simulated_count(expected, state.sampling.seed, state.length);
                    simulated_walk(tree, count, most, choose)
                }
            };
            verified.push(Verified { rows: path.iter().map(|node| begin + node).collect(), path, tokens });
            begin += tree.nodes().len();
        }
        Ok((pass, verified))
    }

    /// Moves the accepted rows of the target's caches to where their positions belong.
    fn compact(&mut self, verified: &[Verified], slots: &[Slot]) -> Result<(), EngineError> {
        for (verified, state) in verified.iter().zip(self.slots.get(slots.iter().copied())?) {
            let ahead = &state.rows[state.length..];
            let from: Vec<u32> = verified.path.iter().map(|node| ahead[*node]).collect();
            for cache in &mut self.caches {
                cache.compact(&from, &ahead[..from.len()]);
            }
        }
        Ok(())
    }

    /// Runs the draft over the accepted tokens with the target's own features, and returns its state behind the last
    /// of each request.
    fn extend_draft(
        &mut self,
        pass: &Pass,
        verified: &[Verified],
        slots: &[Slot],
    ) -> Result<Vec<Vec<f32>>, EngineError> {
        let states = self.slots.get(slots.iter().copied())?;
        let (Some(draft), Some(cache)) = (&self.draft, &mut self.draft_cache) else { return Ok(Vec::new()) };
        let mut stack = Stack::default();
        let mut lasts = Vec::new();
        for (verified, state) in verified.iter().zip(&states) {
            if state.recurrent.is_empty() {
                return Err(EngineError::Device(
                    "the draft's cache cannot be extended: an earlier round of this slot left it out".into(),
                ));
            }
            let tokens: Vec<u32> = verified.tokens.iter().map(|token| token.id).collect();
            stack.push_causal(&tokens, state.length, &state.rows);
            lasts.push(stack.len() - 1);
        }
        let rows = || verified.iter().flat_map(|verified| &verified.rows).copied();
        let width = self.target.hidden_size();
        let accepted = Pass {
            hidden: select(&pass.hidden, width, rows()),
            captured: select(&pass.captured, width * draft.capture().len(), rows()),
        };
        let features = draft.features(&accepted);
        let recurrent = stack.run(|tokens, rows| draft.forward(tokens, &features, rows, cache));
        let width = draft.hidden_size();
        Ok(lasts.iter().map(|last| recurrent[last * width..(last + 1) * width].to_vec()).collect())
    }

    /// Makes the accepted tokens part of the sequences.
    fn advance(
        &mut self,
        verified: Vec<Verified>,
        recurrent: Vec<Vec<f32>>,
        slots: &[Slot],
    ) -> Result<Vec<Yield>, EngineError> {
        let mut recurrent = recurrent.into_iter();
        let mut yields = Vec::new();
        for (verified, slot) in verified.into_iter().zip(slots) {
            let state = self.slots.get_mut(*slot)?;
            state.length += verified.tokens.len();
            state.root = verified.tokens.last().map_or(state.root, |token| token.id);
            state.recurrent = recurrent.next().unwrap_or_default();
            yields.push(Yield { tokens: verified.tokens });
        }
        Ok(yields)
    }
}
