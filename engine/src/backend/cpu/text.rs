//! A text source on this backend. The host looks its drafts up and gives the trees of a round, so
//! nothing is loaded, kept or run here.

use schemas::tree::{NodeSource, TreeShape};

use super::{
    attention::Cache,
    draft::{CpuDraft, Root},
    passes::PassInput,
    target::PassOutput,
};
use crate::{
    backend::Pool,
    spec::{DraftSpec, TextSpec},
};

impl CpuDraft for TextSpec {
    fn spec(&self) -> DraftSpec {
        DraftSpec::Text(*self)
    }

    fn nodes(&self) -> NodeSource {
        TextSpec::nodes(self)
    }

    fn captured(&self) -> &[usize] {
        &[]
    }

    fn caches(&self, _rows: usize) -> Vec<Cache> {
        Vec::new()
    }

    fn state_width(&self) -> usize {
        0
    }

    fn read(&self, _pass: &PassOutput, _stack: &PassInput<'_>, _caches: &mut [Cache]) -> Vec<f32> {
        Vec::new()
    }

    /// Nothing to choose from: a round whose trees are not given has no drafts.
    fn pools(&self, _caches: &mut [Cache], _scratch: usize, _shapes: &[TreeShape], roots: &[Root<'_>]) -> Vec<Pool> {
        vec![Pool::default(); roots.len()]
    }
}
