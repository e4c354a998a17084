//! What a draft reads of the target.

use kernels::launch::Rows;

use crate::backend::cuda::{machine::Machine, weights::DraftWeights, workspace::Activations};

impl Machine {
    /// The buffer in which a pass of the target stores the inputs of the draft's features.
    pub fn feature_rows<'a>(&self, draft: &DraftWeights, work: &'a Activations) -> Rows<'a> {
        let at = if draft.sees_final() { &work.normed } else { &work.captured };
        Rows { at: at.slice(), stride: self.feature_width(draft) }
    }

    /// Elements per row of the inputs of the draft's features.
    pub fn feature_width(&self, draft: &DraftWeights) -> usize {
        draft.feature_width(self.target.spec.hidden)
    }
}
