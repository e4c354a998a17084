//! A whole model as a draft (STANDALONE). Its cache has the token of a position at that position,
//! as its target's has, and its state is that after the last token, which the target has not
//! processed.

use schemas::tree::{NodeSource, TreeShape};

use super::{
    attention::{Cache, RowPlacement},
    beams::{StepwiseDraft, pools},
    draft::{CpuDraft, Root},
    passes::PassInput,
    target::{PassOutput, Target},
};
use crate::{
    backend::{Pool, expert_reads::ExpertTally},
    checkpoint::Weights,
    error::EngineError,
    spec::{DraftSpec, TargetSpec},
};

/// A loaded model that drafts.
#[derive(Debug)]
pub struct ModelDraft(Target);

impl ModelDraft {
    /// Loads a model that has this spec from its own folder.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(weights: &Weights, spec: TargetSpec) -> Result<Self, EngineError> {
        Target::load(weights, spec).map(Self)
    }
}

impl CpuDraft for ModelDraft {
    fn spec(&self) -> DraftSpec {
        DraftSpec::Model(self.0.spec().clone())
    }

    fn nodes(&self) -> NodeSource {
        NodeSource::Beams
    }

    fn captured(&self) -> &[usize] {
        &[]
    }

    fn caches(&self, rows: usize) -> Vec<Cache> {
        // Drafts have neither window pages of their own nor layers with a state.
        self.0.caches(rows, rows, 0)
    }

    fn tallies(&self) -> Vec<&ExpertTally> {
        self.0.tallies().collect()
    }

    fn state_width(&self) -> usize {
        self.0.hidden_size()
    }

    fn read(&self, _pass: &PassOutput, stack: &PassInput<'_>, caches: &mut [Cache]) -> Vec<f32> {
        stack.run(|tokens, rows| self.0.forward(tokens, rows, caches, &[]).hidden)
    }

    fn pools(&self, caches: &mut [Cache], scratch: usize, shapes: &[TreeShape], roots: &[Root<'_>]) -> Vec<Pool> {
        pools(self, caches, scratch, shapes, roots)
    }
}

impl StepwiseDraft for ModelDraft {
    fn width(&self) -> usize {
        self.0.hidden_size()
    }

    fn step(&self, tokens: &[u32], _states: &[f32], rows: RowPlacement<'_>, caches: &mut [Cache]) -> Vec<f32> {
        self.0.forward(tokens, rows, caches, &[]).hidden
    }

    fn logits(&self, states: &[f32]) -> Vec<f32> {
        self.0.logits(states)
    }

    fn token(&self, index: usize) -> u32 {
        index as u32
    }

    fn vocabulary(&self) -> usize {
        self.0.vocab_size()
    }
}
