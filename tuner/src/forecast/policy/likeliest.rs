//! Which drafts of a batch are verified within a budget of rows, by the draft's own scores.

use engine::{likeliest, replay::trace::Nodes};
use schemas::tree::TreeShape;

/// The drafts of the best scores within trees of a shape, `drafts` of all requests together, as the
/// engine chooses them: for each request their places in its nodes, ascending.
pub fn likeliest_by_score(nodes: &[&Nodes], limit: TreeShape, drafts: usize) -> Vec<Vec<usize>> {
    let offered = |nodes: &&Nodes| {
        let score = |at: usize| (at, f64::from(nodes.score[at]));
        nodes.kept(limit).into_iter().map(score).collect()
    };
    likeliest(&nodes.iter().map(offered).collect::<Vec<_>>(), drafts)
}
