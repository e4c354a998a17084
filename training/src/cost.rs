//! The cost of a trained row.

use engine::spec::{RecurrentSpec, TargetSpec, TensorSpec, VocabularySource};

use crate::head::trained_tensors;

/// Floating-point operations (multiplications and additions) of a trained row, computed from the
/// matrices: for each trained value two in the forward pass and four in the backward pass; two
/// fewer for frozen values; and the target's vocabulary head for the labels.
pub fn flops_of_a_row(draft: &RecurrentSpec, target: &TargetSpec, depth: usize) -> f64 {
    let depth = depth as f64;
    let reduce = draft.tensors(target.vocabulary).reduce.map_or(0, |reduce| reduce.weight.values());
    let tensors = trained_tensors(draft, target.vocabulary);
    let matrices: u64 = tensors.iter().filter(|tensor| tensor.shape.len() > 1).map(TensorSpec::values).sum();
    let frozen = if draft.head == VocabularySource::Own { 0 } else { (draft.vocabulary * draft.hidden()) as u64 };
    let labels = (target.vocabulary * target.hidden) as f64;
    6.0 * reduce as f64 + depth * (6.0 * (matrices - reduce) as f64 + 4.0 * frozen as f64) + 2.0 * labels
}
