//! The cost of training steps.

use engine::spec::{
    BlockTensors, DraftSpec, LayerTensors, LinearTensors, Role, TargetSpec, TensorSpec, VocabularySource,
};

use crate::head::trained_tensors;

/// What steps ran over.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrainedRows {
    /// Rows of texts.
    pub rows: u64,
    /// Anchors, from which drafts were made.
    pub anchors: u64,
    /// Number of drafts after each anchor.
    pub depth: usize,
}

impl TrainedRows {
    /// Adds what other steps of the same depth ran over.
    pub fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.anchors += other.anchors;
        self.depth = other.depth;
    }
}

/// Floating-point operations (multiplications and additions) of steps, computed from the matrices:
/// for each trained value two in the forward pass and four in the backward pass; two fewer for
/// frozen values; and the target's vocabulary head for the labels.
pub fn flops(draft: &DraftSpec, target: &TargetSpec, trained: TrainedRows) -> f64 {
    let (rows, anchors, depth) = (trained.rows as f64, trained.anchors as f64, trained.depth as f64);
    let (source, vocabulary, _) = draft.head();
    let frozen = if source == VocabularySource::Own { 0 } else { (vocabulary * draft.hidden()) as u64 };
    let tensors = trained_tensors(draft, target.vocabulary);
    let matrices: u64 = tensors.iter().map(matrix).sum();
    // Values that every row of a text passes through, every draft, and every row of a block.
    let (of_rows, of_drafts, of_blocks) = match draft {
        DraftSpec::Recurrent(spec) => {
            let reduce = spec.tensors(target.vocabulary).reduce.map_or(0, |reduce| reduce.weight.values());
            (reduce, matrices - reduce, 0)
        }
        DraftSpec::Block(spec) => {
            let BlockTensors { reduce, head, layers, markov, confidence, .. } = spec.tensors(target.vocabulary);
            let layers = layers.iter().flat_map(LayerTensors::all).map(matrix).sum();
            let context: usize =
                spec.layers.iter().map(|layer| layer.layer.attention.kv()).map(|kv| kv.planes * kv.width).sum();
            let reduce = reduce.weight.values() + (context * spec.hidden()) as u64;
            // W1 of a Markov head is looked up.
            let markov = markov.iter().flat_map(|markov| markov.all().filter(|tensor| tensor.role != Role::Embedding));
            let of_drafts = head.iter().chain(markov).chain(confidence.iter().flat_map(LinearTensors::all));
            (reduce, of_drafts.map(matrix).sum(), layers)
        }
        DraftSpec::Model(_) | DraftSpec::Text(_) => (0, 0, 0),
    };
    let block = match draft {
        DraftSpec::Block(spec) => spec.block.given.unwrap_or(spec.block.rows) as f64,
        _ => 0.0,
    };
    let labels = 2.0 * (target.vocabulary * target.hidden) as f64;
    rows * (6.0 * of_rows as f64 + labels)
        + anchors * (depth * (6.0 * of_drafts as f64 + 4.0 * frozen as f64) + block * 6.0 * of_blocks as f64)
}

/// The values of a matrix; 0 for a vector.
fn matrix(tensor: &TensorSpec) -> u64 {
    if tensor.shape.len() > 1 { tensor.values() } else { 0 }
}
