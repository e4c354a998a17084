//! A recurrent draft as a source of nodes: the beams of all trees of a batch run together, one step at a time.

use std::convert::Infallible;

use kernels::reference::{log_sum_exp, top_k};
use schemas::tree::{NodeSource, TreeShape};

use super::{
    attention::Cache,
    passes::{Stack, select},
    recurrent::Recurrent,
    source::{Root, Source},
    target::Pass,
};
use crate::{
    backend::{Pool, expert_reads::ExpertTally},
    spec::DraftSpec,
    tree::{Expansion, grow, largest},
};

impl Source for Recurrent {
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

    fn read(&self, pass: &Pass, stack: &Stack<'_>, caches: &mut [Cache]) -> Vec<f32> {
        let features = self.features(pass);
        stack.run(|tokens, rows| self.forward(tokens, &features, rows, &mut caches[0]))
    }

    fn pools(&self, caches: &mut [Cache], scratch: usize, shapes: &[TreeShape], roots: &[Root<'_>]) -> Vec<Pool> {
        let shape = largest(shapes);
        let each = NodeSource::Beams.scratch_rows(shape);
        caches[0].grow(scratch + each * roots.len());
        // State after each row of the last pass.
        let mut recurrent: Vec<f32> = roots.iter().flat_map(|root| root.state).copied().collect();
        let first = proposals(self, &recurrent, shape.topk);
        let prune = |at: usize, tree: &mut Expansion| {
            if let Some((text, wanted)) = roots[at].followed {
                tree.prune(text, wanted);
            }
        };
        let grown = grow(shape, &first, prune, |step, beams| {
            let mut stack = Stack::default();
            for row in beams {
                let prefix = roots[row.tree].prefix;
                let cache_row = |beam: &usize| (scratch + row.tree * each + beam) as u32;
                let own: Vec<u32> = row.beam.path.iter().map(cache_row).collect();
                let write = own.last().copied().unwrap_or_default();
                // All beams of a depth share one position; at the first depth it is the root's.
                stack.push(row.beam.token, prefix.len() + step - 1, write, prefix, own);
            }
            let features = select(&recurrent, self.hidden_size(), beams.iter().map(|row| row.source));
            recurrent = stack.run(|tokens, rows| self.forward(tokens, &features, rows, &mut caches[0]));
            Ok::<_, Infallible>(proposals(self, &recurrent, shape.topk))
        });
        let Ok(trees) = grown;
        trees.into_iter().map(Expansion::into_pool).collect()
    }
}

/// The best tokens after each row of recurrent state, with their log-probabilities over the draft's vocabulary.
fn proposals(draft: &Recurrent, recurrent: &[f32], topk: usize) -> Vec<Vec<(u32, f32)>> {
    let logits = draft.logits(recurrent);
    let best = |logits: &[f32]| ranked(logits, topk, |index| draft.token(index));
    logits.chunks_exact(draft.vocab_size()).map(best).collect()
}

/// The best tokens of a row of logits over a draft's vocabulary, with their log-probabilities, best first.
pub fn ranked(logits: &[f32], topk: usize, token: impl Fn(usize) -> u32) -> Vec<(u32, f32)> {
    let shift = log_sum_exp(logits);
    top_k(logits, topk).into_iter().map(|(index, logit)| (token(index), logit - shift)).collect()
}
