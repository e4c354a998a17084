//! The draft's part of a round, shared with replay: the trees of a batch grow together, one step at a time.

use std::convert::Infallible;

use kernels::reference::{log_sum_exp, top_k};
use schemas::tree::TreeShape;

use super::{
    attention::Cache,
    draft::Draft,
    passes::{Stack, select},
    scratch_rows,
};
use crate::tree::{Expansion, grow};

/// The start of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Root<'a> {
    /// The cache rows of all positions before the root.
    prefix: &'a [u32],
    /// The draft's state after the last of them.
    recurrent: &'a [f32],
}

impl<'a> Root<'a> {
    /// A root after these cache rows, with the draft's state after the last of them.
    pub fn of(prefix: &'a [u32], recurrent: &'a [f32]) -> Self {
        Self { prefix, recurrent }
    }
}

/// Grows a tree from each root. Beams write to cache rows from `scratch` on. For `prune`, which is called before each
/// step, see [`grow`].
pub fn grow_trees(
    draft: &Draft,
    cache: &mut Cache,
    scratch: usize,
    shape: TreeShape,
    roots: &[Root<'_>],
    prune: impl FnMut(usize, &mut Expansion),
) -> Vec<Expansion> {
    cache.grow(scratch + scratch_rows(shape) * roots.len());
    // State after each row of the last pass.
    let mut recurrent: Vec<f32> = roots.iter().flat_map(|root| root.recurrent).copied().collect();
    let first = proposals(draft, &recurrent, shape.topk);
    let grown = grow(shape, &first, prune, |step, beams| {
        let mut stack = Stack::default();
        for row in beams {
            let prefix = roots[row.tree].prefix;
            let cache_row = |beam: &usize| (scratch + row.tree * scratch_rows(shape) + beam) as u32;
            let own: Vec<u32> = row.beam.path.iter().map(cache_row).collect();
            let write = own.last().copied().unwrap_or_default();
            // All beams of a depth share one position; at the first depth it is the root's.
            stack.push(row.beam.token, prefix.len() + step - 1, write, prefix, own);
        }
        let features = select(&recurrent, draft.hidden_size(), beams.iter().map(|row| row.source));
        recurrent = stack.run(|tokens, rows| draft.forward(tokens, &features, rows, cache));
        Ok::<_, Infallible>(proposals(draft, &recurrent, shape.topk))
    });
    let Ok(trees) = grown;
    trees
}

/// The best tokens after each row of recurrent state, with their log-probabilities over the draft's vocabulary.
fn proposals(draft: &Draft, recurrent: &[f32], topk: usize) -> Vec<Vec<(u32, f32)>> {
    let logits = draft.logits(recurrent);
    let best = |logits: &[f32]| {
        let shift = log_sum_exp(logits);
        top_k(logits, topk).into_iter().map(|(index, logit)| (draft.token(index), logit - shift)).collect()
    };
    logits.chunks_exact(draft.vocab_size()).map(best).collect()
}
