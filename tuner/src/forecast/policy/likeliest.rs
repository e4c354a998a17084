//! Which drafts of a batch are verified within a budget of rows.

use engine::replay::trace::Nodes;
use schemas::tree::TreeShape;

/// The drafts of the largest values, `drafts` of all requests together: for each request their
/// places in its nodes, ascending. `values` are those of a request's nodes; no node is worth more
/// than its parent, so the path to a chosen draft is chosen too. Ties go to earlier requests, and
/// then to earlier places. It is the rule of the engine (`engine::tree::likeliest`).
pub fn likeliest(nodes: &[&Nodes], values: &[Vec<f64>], limit: TreeShape, drafts: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<(f64, usize, usize)> = Vec::new();
    for (request, (nodes, values)) in nodes.iter().zip(values).enumerate() {
        all.extend(nodes.kept(limit).into_iter().map(|at| (values[at], request, at)));
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut kept = vec![Vec::new(); nodes.len()];
    for (_, request, at) in all.into_iter().take(drafts) {
        kept[request].push(at);
    }
    kept.iter_mut().for_each(|kept: &mut Vec<usize>| kept.sort_unstable());
    kept
}

/// The same by the draft's own scores, as on the device.
pub fn likeliest_by_score(nodes: &[&Nodes], limit: TreeShape, drafts: usize) -> Vec<Vec<usize>> {
    let scores = |nodes: &&Nodes| nodes.score.iter().copied().map(f64::from).collect();
    likeliest(nodes, &nodes.iter().map(scores).collect::<Vec<_>>(), limit, drafts)
}
