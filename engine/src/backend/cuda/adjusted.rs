//! Requests whose logits are adjusted before a token is chosen (penalties, bias, a grammar), and
//! log-probabilities of prompts.
//!
//! An adjustment depends on all tokens before the one that is chosen, which the host keeps
//! ([`Adjuster`]). So a round with such requests runs in two halves. In the first, the device
//! drafts, runs the target over all nodes and chooses tokens for all requests. The host then reads
//! the logits of the nodes that these requests visit, and replaces the device's choices along their
//! trees. In the second half the device accepts. The other requests of the round keep the device's
//! choices, but wait for the host.

use std::collections::VecDeque;

use kernels::{
    device::Slice,
    launch::{NOT_FINITE, Rows},
};
use rayon::prelude::*;
use schemas::tree::TreeShape;

use super::{CudaBackend, limits::LOGIT_ROWS};
use crate::{
    adjust::Adjuster,
    backend::{PrefillChunk, Slot, choice::choose},
    error::EngineError,
    request::{PromptLogprobs, SamplingParams},
    sampling,
    tree::{DraftTree, simulated_walk},
};

/// The host's walk down the tree of one request.
struct HostWalk {
    /// Row of its root.
    first: usize,
    slot: Slot,
    sampling: SamplingParams,
    adjuster: Adjuster,
    tree: DraftTree,
    /// Position of the token after each node.
    positions: Vec<usize>,
    /// Nodes still to visit after this one, if acceptance is simulated.
    simulated: Option<VecDeque<usize>>,
    /// The node whose choice is next; `None` at the end.
    node: Option<usize>,
}

impl HostWalk {
    /// Chooses the token after the current node from its logits, and moves to the child with this
    /// token.
    fn step(&mut self, logits: &[f32]) -> Option<i32> {
        let node = self.node?;
        let token = choose(logits, &self.sampling, Some(&mut self.adjuster), self.positions[node]);
        self.node = match &mut self.simulated {
            Some(rest) => token.and_then(|_| rest.pop_front()),
            None => token.and_then(|token| self.tree.child(node, token)),
        };
        Some(token.map_or(NOT_FINITE, |token| token as i32))
    }
}

impl CudaBackend {
    /// The requests of a batch whose logits are adjusted.
    pub(super) fn adjusted(&self, slots: &[Slot]) -> Vec<usize> {
        (0..slots.len()).filter(|at| self.adjuster(slots[*at]).is_some()).collect()
    }

    pub(super) fn adjuster(&self, slot: Slot) -> Option<&Adjuster> {
        self.slots.find(slot)?.adjuster.as_ref()
    }

    /// Replaces the device's choices along the trees of some requests of a batch.
    pub(super) fn choose_adjusted(
        &mut self,
        shape: TreeShape,
        slots: &[Slot],
        adjusted: &[usize],
    ) -> Result<(), EngineError> {
        let rows = slots.len() * shape.num_draft_tokens;
        let mut chosen = vec![0_i32; rows];
        self.device.read(self.round.chosen.range(0..rows * 4), &mut chosen)?;
        let mut walks = self.host_walks(shape, slots, adjusted)?;
        let vocabulary = self.machine.target.spec.vocabulary;
        loop {
            // All walks advance by a node at a time, so that their logits are computed together.
            let mut open: Vec<(usize, &mut HostWalk)> =
                walks.iter_mut().filter_map(|walk| Some((walk.first + walk.node?, walk))).collect();
            if open.is_empty() {
                break;
            }
            for open in open.chunks_mut(LOGIT_ROWS.min(self.extent.rows)) {
                let rows: Vec<usize> = open.iter().map(|(row, _)| *row).collect();
                let logits = self.logits_after(&rows)?;
                let steps = open.par_iter_mut().zip(logits.par_chunks_exact(vocabulary));
                let tokens: Vec<Option<i32>> = steps.map(|((_, walk), logits)| walk.step(logits)).collect();
                for (row, token) in rows.into_iter().zip(tokens) {
                    chosen[row] = token.unwrap_or(chosen[row]);
                }
            }
        }
        for walk in walks {
            if let Some(open) = self.slots.find_mut(walk.slot) {
                open.adjuster = Some(walk.adjuster);
            }
        }
        Ok(self.device.write(self.round.chosen.range(0..rows * 4), &chosen)?)
    }

    /// Walks at the roots of the trees of some requests. Takes the adjusters out of their slots.
    fn host_walks(
        &mut self,
        shape: TreeShape,
        slots: &[Slot],
        adjusted: &[usize],
    ) -> Result<Vec<HostWalk>, EngineError> {
        let nodes = shape.num_draft_tokens;
        let rows = slots.len() * nodes;
        // Waits for the draft's kernels, since the host walks the tree that they have grown.
        let column = |values: Slice<'_>| {
            let mut column = vec![0_i32; rows];
            self.device.read(values.range(0..rows * 4), &mut column).map(|()| column)
        };
        let tokens = column(self.round.node_token.slice())?;
        let parents = column(self.round.node_parent.slice())?;
        let positions = column(self.arrays.sample_position.slice())?;
        let simulation = self.simulated.clone();
        let mut walks = Vec::with_capacity(adjusted.len());
        for at in adjusted {
            let (slot, first) = (slots[*at], at * nodes);
            let Some(open) = self.slots.find_mut(slot) else { continue };
            // Taken out of the slot, so that all walks can be advanced in parallel; given back at
            // the end.
            let Some(adjuster) = open.adjuster.take() else { continue };
            let of_tree = first..first + nodes;
            let tree = tree(&tokens[of_tree.clone()], &parents[of_tree.clone()]);
            let positions: Vec<usize> = positions[of_tree].iter().map(|at| (*at).max(0) as usize).collect();
            // The root's position is the length of the sequence.
            let length = positions[0].saturating_sub(1);
            let count =
                simulation.as_ref().and_then(|one| one.count(shape, open.sampling.played, open.sampling.seed, length));
            let simulated = count.map(|count| {
                // Only the path is needed: tokens are chosen step by step, with the logits of each
                // node.
                let way = simulated_walk(&tree, count, shape.max_tokens_per_round(), |_| 0);
                way.into_iter().skip(1).collect()
            });
            let sampling = open.sampling.clone();
            walks.push(HostWalk { first, slot, sampling, adjuster, tree, positions, simulated, node: Some(0) });
        }
        Ok(walks)
    }

    /// The target's logits after rows of its last pass, `[rows, vocabulary]`. Overwrites
    /// `work.added` and `arrays.source`.
    fn logits_after(&self, rows: &[usize]) -> Result<Vec<f32>, EngineError> {
        let hidden = self.machine.target.spec.hidden;
        let source: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
        self.device.write(self.arrays.source.slice(), &source)?;
        let (to, from) = (self.machine.rows(&self.work.added, hidden), self.machine.rows(&self.work.normed, hidden));
        self.machine.kernels.gather_rows(to, None, from, Some(self.arrays.source.slice()), rows.len(), hidden)?;
        self.read_logits(to, rows.len())
    }

    /// The target's logits after rows of hidden states, `[rows, vocabulary]`.
    pub(super) fn read_logits(&self, states: Rows<'_>, rows: usize) -> Result<Vec<f32>, EngineError> {
        let vocabulary = self.machine.target.spec.vocabulary;
        let mut logits = vec![0.0_f32; rows * vocabulary];
        self.machine.target_logits(&self.work, states, rows, |start, part| {
            let end = start + part.rows;
            self.device.read(part.at, &mut logits[start * vocabulary..end * vocabulary])
        })?;
        Ok(logits)
    }

    /// Replaces the device's choices (`ids`) of first tokens after prompts for the slots that have
    /// adjustments. The prompts' final states are in the first rows of `work.added`.
    pub(super) fn choose_first_adjusted(
        &mut self,
        slots: &[Slot],
        positions: &[usize],
        ids: &mut [i32],
    ) -> Result<(), EngineError> {
        let hidden = self.machine.target.spec.hidden;
        let bytes = hidden * self.machine.element_bytes();
        for row in self.adjusted(slots) {
            // One row at a time, since only few requests have grammars or penalties.
            let state = Rows { at: self.work.added.range(row * bytes..(row + 1) * bytes), stride: hidden };
            let logits = self.read_logits(state, 1)?;
            let Some(open) = self.slots.find_mut(slots[row]) else { continue };
            let token = choose(&logits, &open.sampling, open.adjuster.as_mut(), positions[row]);
            ids[row] = token.map_or(NOT_FINITE, |token| token as i32);
        }
        Ok(())
    }

    /// Keeps the log-probabilities of prompt tokens for the slots that request them. `lasts` are
    /// the last rows of the pieces in the target's pass.
    pub(super) fn keep_prompt_logprobs(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        lasts: &[i32],
    ) -> Result<(), EngineError> {
        let vocabulary = self.machine.target.spec.vocabulary;
        for (chunk, last) in chunks.iter().zip(lasts) {
            let open = self.slots.find(chunk.slot);
            let Some(PromptLogprobs { from, alternatives }) = open.and_then(|open| open.sampling.prompt_logprobs)
            else {
                continue;
            };
            let (rows, tokens): (Vec<usize>, Vec<u32>) = chunk.rows_before(from, *last as usize).unzip();
            let most = LOGIT_ROWS.min(self.extent.rows);
            for (rows, tokens) in rows.chunks(most).zip(tokens.chunks(most)) {
                let logits = self.logits_after(rows)?;
                let of_row = |(logits, token): (&[f32], &u32)| sampling::logprobs(logits, *token, alternatives);
                let all: Vec<_> = logits.par_chunks_exact(vocabulary).zip(tokens).map(of_row).collect();
                if let Some(open) = self.slots.find_mut(chunk.slot) {
                    open.prompt_logprobs.extend(all);
                }
            }
        }
        Ok(())
    }
}

/// A tree from the tokens and the parents of its nodes. Those that only pad it come last and have
/// no parent.
fn tree(tokens: &[i32], parents: &[i32]) -> DraftTree {
    let mut tree = DraftTree::root(tokens[0] as u32);
    // Nodes come before padding, which has no parent.
    for (token, parent) in tokens.iter().zip(parents).skip(1).take_while(|(_, parent)| **parent >= 0) {
        tree.add(*parent as usize, *token as u32);
    }
    tree
}
