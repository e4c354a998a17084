//! Chooses which nodes of a batch's trees the target runs over in a round.
//!
//! Acceptance of a draft depends on the token after its parent, so a leaf matters only if
//! acceptance ends there. If a batch has more rows than the target can multiply while it reads its
//! weights, the target need not run over all of them.

use schemas::tree::{NodeSource, TreeShape};

use crate::{
    error::EngineError,
    spec::{ModelCost, PassCost},
};

/// Number of rows for which multiplying 16-bit weights takes as long as reading them: about 0.66
/// PFLOP/s against 4.2 TB/s on an H200, and similar on other GPUs of its generation.
const ROWS_A_READING: usize = 160;

/// Minimum number of nodes, and of branches per node. In smaller trees more than half of the nodes
/// may have children.
const LEAFY: (usize, usize) = (16, 4);

/// Which nodes of a tree the target computes a token for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyPlan {
    /// All nodes, at once: the vocabulary head is read once.
    AllNodes,
    /// Only nodes on the accepted path, one depth at a time: the head runs once per step, on one
    /// row per request.
    AcceptedPathOnly,
    /// Nodes with children, or the likeliest of them, and then the node where acceptance ends: the
    /// target runs over no others, but twice.
    InnerNodesFirst,
    /// The likeliest nodes of all requests together, as many as the shape's budget of rows.
    LikeliestNodes,
}

impl VerifyPlan {
    /// The plan with the shortest estimated time.
    pub fn for_batch(shape: TreeShape, batch: usize, cost: &ModelCost) -> Self {
        if shape.row_budget.is_some() {
            return Self::LikeliestNodes;
        }
        let element = cost.element;
        let head =
            PassCost { bytes: cost.target_vocabulary, weights: cost.target_vocabulary / element.max(1), experts: None };
        let layers = PassCost {
            bytes: cost.target.bytes.saturating_sub(head.bytes),
            weights: cost.target.weights.saturating_sub(head.weights),
            ..cost.target
        };
        let pass = |cost: &PassCost, rows: usize| bytes_meanwhile(cost, rows, element);
        let (rows, steps) = (batch.saturating_mul(shape.num_draft_tokens), shape.num_steps as f64);
        let path_only = pass(&layers, rows) + (steps + 1.0) * pass(&head, batch);
        let mut plans = vec![(pass(&cost.target, rows), Self::AllNodes), (path_only, Self::AcceptedPathOnly)];
        let leafy = shape.num_draft_tokens >= LEAFY.0 && shape.topk >= LEAFY.1;
        if let Some(second_pass) = cost.second_pass.filter(|_| leafy) {
            let twice = pass(&cost.target, inner_rows(rows)) + pass(&cost.target, batch) + second_pass as f64;
            plans.push((twice, Self::InnerNodesFirst));
        }
        // Ties go to the first.
        plans.into_iter().min_by(|one, other| one.0.total_cmp(&other.0)).map_or(Self::AllNodes, |least| least.1)
    }
}

/// Checks that the target can verify a part of the trees, if the shape has a budget of rows.
///
/// # Errors
/// When look-ups fill the trees, whose nodes have no scores, or layers have a state, which is
/// computed along whole trees.
pub fn check_budget(shape: TreeShape, nodes: NodeSource, has_states: bool) -> Result<(), EngineError> {
    let reason = match (shape.row_budget, nodes) {
        (None, _) => return Ok(()),
        (Some(_), NodeSource::Text(_)) => "drafts that are looked up have no scores to choose by",
        (Some(_), _) if has_states => "layers with a state (gated delta nets) verify whole trees",
        (Some(_), _) => return Ok(()),
    };
    Err(EngineError::Configuration(format!(
        "the tree shape {shape} has a budget of rows, but {reason}: use {} without one",
        shape.drafted()
    )))
}

/// The time of a pass, expressed as the bytes that can be read in it: the maximum of memory traffic
/// and arithmetic.
fn bytes_meanwhile(cost: &PassCost, rows: usize, element: u64) -> f64 {
    let arithmetic = cost.flops(rows) / 2.0 * element as f64 / ROWS_A_READING as f64;
    cost.bytes(rows).max(arithmetic)
}

/// Maximum number of inner (non-leaf) nodes in the first verify pass. About 40% of the nodes of
/// trees from trained heads are inner; beyond this cap the least likely ones are treated as leaves.
pub fn inner_rows(nodes: usize) -> usize {
    nodes.div_ceil(2)
}

/// Rows of the target's passes in a round: over all nodes, or over inner nodes and then over one
/// node of each request.
pub fn target_passes(shape: TreeShape, batch: usize, cost: &ModelCost) -> (usize, Option<usize>) {
    let rows = shape.verified_rows(batch);
    match VerifyPlan::for_batch(shape, batch, cost) {
        VerifyPlan::InnerNodesFirst => (inner_rows(rows), Some(batch)),
        VerifyPlan::AllNodes | VerifyPlan::AcceptedPathOnly | VerifyPlan::LikeliestNodes => (rows, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ExpertCost;

    /// A model with this many layers and bytes of 16-bit weights.
    fn model(layers: u64, target: u64, target_vocabulary: u64) -> ModelCost {
        ModelCost {
            target: PassCost { bytes: target, weights: target / 2, experts: None },
            target_vocabulary,
            second_pass: Some(layers * (100 << 20)),
            element: 2,
            ..ModelCost::default()
        }
    }

    fn check(cost: ModelCost, shape: &str, batch: usize, expected: VerifyPlan) {
        let shape = shape.parse().expect("a shape");
        assert_eq!(VerifyPlan::for_batch(shape, batch, &cost), expected, "{shape} at {batch}");
        let (first, second) = target_passes(shape, batch, &cost);
        let nodes = batch * shape.num_draft_tokens;
        let twice = expected == VerifyPlan::InnerNodesFirst;
        assert_eq!((first, second), if twice { (nodes / 2, Some(batch)) } else { (nodes, None) });
    }

    #[test]
    fn the_target_runs_over_less_than_all_nodes_where_these_are_many() {
        let eight_billion = model(32, 15_009_316_864, 1_050_673_152);
        for (shape, batch) in [("0,1,1", 256), ("3,1,4", 64), ("5,8,32", 8), ("8,10,60", 4), ("3,4,8", 64)] {
            check(eight_billion, shape, batch, VerifyPlan::AllNodes);
        }
        for (shape, batch) in [("5,8,32", 16), ("5,8,32", 64), ("8,10,60", 8), ("5,8,64", 256), ("3,4,16", 64)] {
            check(eight_billion, shape, batch, VerifyPlan::InnerNodesFirst);
        }
        check(eight_billion, "5,3,32", 64, VerifyPlan::AcceptedPathOnly);
        let once = ModelCost { second_pass: None, ..eight_billion };
        for (shape, batch) in [("5,8,32", 64), ("8,10,60", 32)] {
            check(once, shape, batch, VerifyPlan::AcceptedPathOnly);
        }
        // With few weights a pass consists mostly of small kernels.
        let one_billion = model(16, 2_471_493_632, 525_336_576);
        check(one_billion, "5,8,32", 16, VerifyPlan::AllNodes);
        check(one_billion, "5,8,32", 64, VerifyPlan::InnerNodesFirst);
        check(model(6, 54_000_000, 8_000_000), "8,10,60", 64, VerifyPlan::AcceptedPathOnly);
    }

    #[test]
    fn experts_that_few_rows_leave_unread_make_fewer_rows_worth_it() {
        // Qwen3-235B's shape in bytes: with few layers of small kernels in between, half of the
        // rows read fewer experts.
        let dense = 15_700_000_000;
        let experts = ExpertCost { bytes: 454_000_000_000, weights: 227_000_000_000, chosen: 8.0 / 128.0 };
        let target = PassCost { experts: Some(experts), ..model(94, dense, 0).target };
        let cost = ModelCost { target, ..model(94, dense, 1_244_000_000) };
        check(cost, "5,8,32", 1, VerifyPlan::InnerNodesFirst);
        check(model(94, target.all_bytes(), 1_244_000_000), "5,8,32", 1, VerifyPlan::AllNodes);
    }
}
