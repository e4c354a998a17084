//! Drafts that run step by step as sources of nodes: the beams of all trees of a batch run
//! together, one step at a time.

use std::convert::Infallible;

use kernels::reference::{log_sum_exp, top_k};
use schemas::tree::{NodeSource, TreeShape};

use super::{
    attention::{Cache, RowPlacement},
    draft::{CpuDraft, Root},
    passes::{PassInput, select},
    recurrent::Recurrent,
    target::PassOutput,
};
use crate::{
    backend::{Pool, expert_reads::ExpertTally},
    spec::DraftSpec,
    tree::{Expansion, grow, largest},
};

/// A draft whose beams run step by step.
pub trait StepwiseDraft {
    /// Values of its state after a row.
    fn width(&self) -> usize;

    /// Runs rows that continue `states`, `[rows, width]`, and returns their states.
    fn step(&self, tokens: &[u32], states: &[f32], rows: RowPlacement<'_>, caches: &mut [Cache]) -> Vec<f32>;

    /// Logits over its vocabulary, for rows of its state.
    fn logits(&self, states: &[f32]) -> Vec<f32>;

    /// The target's token for an index of its vocabulary.
    fn token(&self, index: usize) -> u32;

    /// Number of tokens that it can propose.
    fn vocabulary(&self) -> usize;
}

impl CpuDraft for Recurrent {
    fn spec(&self) -> DraftSpec {
        DraftSpec::Recurrent(self.spec().clone())
    }

    fn nodes(&self) -> NodeSource {
        NodeSource::Beams
    }

    fn captured(&self) -> &[usize] {
        self.spec().captured()
    }

    fn caches(&self, rows: usize) -> Vec<Cache> {
        vec![self.cache(rows)]
    }

    fn tallies(&self) -> Vec<&ExpertTally> {
        self.tally().into_iter().collect()
    }

    fn state_width(&self) -> usize {
        self.hidden_size()
    }

    fn read(&self, pass: &PassOutput, stack: &PassInput<'_>, caches: &mut [Cache]) -> Vec<f32> {
        let features = self.features(pass);
        stack.run(|tokens, rows| self.forward(tokens, &features, rows, &mut caches[0]))
    }

    fn pools(&self, caches: &mut [Cache], scratch: usize, shapes: &[TreeShape], roots: &[Root<'_>]) -> Vec<Pool> {
        pools(self, caches, scratch, shapes, roots)
    }
}

impl StepwiseDraft for Recurrent {
    fn width(&self) -> usize {
        self.hidden_size()
    }

    fn step(&self, tokens: &[u32], states: &[f32], rows: RowPlacement<'_>, caches: &mut [Cache]) -> Vec<f32> {
        self.forward(tokens, states, rows, &mut caches[0])
    }

    fn logits(&self, states: &[f32]) -> Vec<f32> {
        Recurrent::logits(self, states)
    }

    fn token(&self, index: usize) -> u32 {
        Recurrent::token(self, index)
    }

    fn vocabulary(&self) -> usize {
        self.vocab_size()
    }
}

/// The pools after some roots, as [`CpuDraft::pools`].
pub fn pools(
    draft: &impl StepwiseDraft,
    caches: &mut [Cache],
    scratch: usize,
    shapes: &[TreeShape],
    roots: &[Root<'_>],
) -> Vec<Pool> {
    let shape = largest(shapes);
    let each = NodeSource::Beams.scratch_rows(shape);
    caches.iter_mut().for_each(|cache| cache.grow(scratch + each * roots.len()));
    // State after each row of the last pass.
    let mut states: Vec<f32> = roots.iter().flat_map(|root| root.state).copied().collect();
    let first = proposals(draft, &states, shape.topk);
    let prune = |at: usize, tree: &mut Expansion| {
        if let Some((text, wanted)) = roots[at].followed {
            tree.prune(text, wanted);
        }
    };
    let grown = grow(shape, &first, prune, |step, beams| {
        let mut stack = PassInput::default();
        for row in beams {
            let prefix = roots[row.tree].prefix;
            let cache_row = |beam: &usize| (scratch + row.tree * each + beam) as u32;
            let own: Vec<u32> = row.beam.path.iter().map(cache_row).collect();
            let write = own.last().copied().unwrap_or_default();
            // All beams of a depth share one position; at the first depth it is the one after the
            // kept rows.
            stack.push(row.beam.token, prefix.len() + step - 1, write, prefix, own);
        }
        let before = select(&states, draft.width(), beams.iter().map(|row| row.source));
        states = stack.run(|tokens, rows| draft.step(tokens, &before, rows, caches));
        Ok::<_, Infallible>(proposals(draft, &states, shape.topk))
    });
    let Ok(trees) = grown;
    trees.into_iter().map(Expansion::into_pool).collect()
}

/// The best tokens after each row of state, with their log-probabilities over the draft's
/// vocabulary.
fn proposals(draft: &impl StepwiseDraft, states: &[f32], topk: usize) -> Vec<Vec<(u32, f32)>> {
    let logits = draft.logits(states);
    let best = |logits: &[f32]| ranked(logits, topk, |index| draft.token(index));
    logits.chunks_exact(draft.vocabulary()).map(best).collect()
}

/// The best tokens of a row of logits over a draft's vocabulary, with their log-probabilities, best
/// first.
pub fn ranked(logits: &[f32], topk: usize, token: impl Fn(usize) -> u32) -> Vec<(u32, f32)> {
    let shift = log_sum_exp(logits);
    top_k(logits, topk).into_iter().map(|(index, logit)| (token(index), logit - shift)).collect()
}
