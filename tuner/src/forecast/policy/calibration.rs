//! From a draft's probabilities to those of acceptance.
//!
//! A draft's probability of a token is not the probability that the target takes it. A logistic
//! function of its log-odds corrects it, with its own slope and intercept for the best child of a
//! node and for the others: best children are underestimated more than their siblings. The values
//! of a path are multiplied.

use engine::replay::trace::{Nodes, ROOT};
use schemas::tree::TreeShape;

/// Steps of Newton's method; more change nothing.
const STEPS: usize = 25;
/// Keeps log-odds finite.
const LEAST: f64 = 1e-6;
/// Weight of the prior: slope 1, intercept 0.
const RIDGE: f64 = 1e-3;

/// A correction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// (slope, intercept) of the best child of a node, and of its siblings.
    of_rank: [(f64, f64); 2],
}

impl Calibration {
    /// The draft's probabilities as they are.
    pub const NONE: Self = Self { of_rank: [(1.0, 0.0); 2] };
    /// With which vLLM 0.33 starts for drafts without a confidence head; it refits it while it
    /// serves.
    pub const VLLM_START: Self = Self { of_rank: [(0.5, -0.2); 2] };

    /// Fits the correction to nodes for which the target's probability is known.
    pub fn fit(nodes: &[&Nodes]) -> Self {
        let mut edges: [Vec<(f64, f64)>; 2] = Default::default();
        for one in nodes {
            for at in 0..one.len() {
                if let Some(chance) = one.chance[at] {
                    edges[usize::from(one.rank[at] > 0)].push((log_odds(edge(one, at)), f64::from(chance)));
                }
            }
        }
        Self { of_rank: edges.map(|edges| logistic_fit(&edges)) }
    }

    /// The nodes of trees of a shape, each with its value.
    pub fn kept_values(&self, nodes: &Nodes, limit: TreeShape) -> Vec<(usize, f64)> {
        let values = self.values(nodes);
        nodes.kept(limit).into_iter().map(|at| (at, values[at])).collect()
    }

    /// The probability of each node that the target's continuation leads through it: at most that
    /// of its parent.
    pub fn values(&self, nodes: &Nodes) -> Vec<f64> {
        let mut values: Vec<f64> = Vec::with_capacity(nodes.len());
        for at in 0..nodes.len() {
            let above = values.get(usize::from(nodes.parent[at])).copied().unwrap_or(1.0);
            let (slope, intercept) = self.of_rank[usize::from(nodes.rank[at] > 0)];
            values.push(above * logistic(slope * log_odds(edge(nodes, at)) + intercept));
        }
        values
    }
}

/// The draft's probability of a node after its parent.
fn edge(nodes: &Nodes, at: usize) -> f64 {
    let above = if nodes.parent[at] == ROOT { 0.0 } else { nodes.score[usize::from(nodes.parent[at])] };
    f64::from(nodes.score[at] - above).exp()
}

fn log_odds(chance: f64) -> f64 {
    let chance = chance.clamp(LEAST, 1.0 - LEAST);
    (chance / (1.0 - chance)).ln()
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Newton's method for `chance ≈ logistic(slope·x + intercept)`.
fn logistic_fit(edges: &[(f64, f64)]) -> (f64, f64) {
    let (mut slope, mut intercept) = (1.0, 0.0);
    for _ in 0..STEPS {
        let (mut gradient, mut hessian) = ([-RIDGE * (slope - 1.0), -RIDGE * intercept], [RIDGE, 0.0, RIDGE]);
        for (x, chance) in edges {
            let predicted = logistic(slope * x + intercept);
            let (error, weight) = (chance - predicted, predicted * (1.0 - predicted));
            gradient[0] += error * x;
            gradient[1] += error;
            hessian[0] += weight * x * x;
            hessian[1] += weight * x;
            hessian[2] += weight;
        }
        let determinant = hessian[0] * hessian[2] - hessian[1] * hessian[1];
        if determinant <= 0.0 {
            break;
        }
        slope += ((gradient[0] * hessian[2] - gradient[1] * hessian[1]) / determinant).clamp(-1.0, 1.0);
        intercept += ((gradient[1] * hessian[0] - gradient[0] * hessian[1]) / determinant).clamp(-1.0, 1.0);
    }
    // A falling or exploding correction comes from too few nodes.
    if slope > 0.0 && (slope + intercept).is_finite() { (slope, intercept) } else { (1.0, 0.0) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A chain of drafts with these scores, whose acceptance is not known.
    pub(in crate::forecast::policy) fn chain(scores: [f32; 3]) -> Nodes {
        Nodes {
            score: scores.to_vec(),
            parent: vec![ROOT, 0, 1],
            rank: vec![0; 3],
            depth: vec![1, 2, 3],
            chance: vec![None; 3],
            on_text: vec![],
            ..Nodes::default()
        }
    }

    #[test]
    fn a_known_correction_is_found_and_values_fall_along_a_path() {
        let nodes: Vec<Nodes> = (1..40)
            .map(|at| {
                let (best, other) = (f64::from(at) / 42.0, f64::from(40 - at) / 90.0);
                Nodes {
                    score: vec![best.ln() as f32, other.ln() as f32],
                    parent: vec![ROOT; 2],
                    rank: vec![0, 1],
                    depth: vec![1; 2],
                    chance: vec![
                        Some(logistic(0.8 * log_odds(best) + 0.5) as f32),
                        Some(logistic(1.2 * log_odds(other) - 0.1) as f32),
                    ],
                    on_text: vec![],
                    ..Nodes::default()
                }
            })
            .collect();
        let calibration = Calibration::fit(&nodes.iter().collect::<Vec<_>>());
        let near = |one: f64, other: f64| assert!((one - other).abs() < 0.01, "{calibration:?}");
        let [(slope, intercept), (other_slope, other_intercept)] = calibration.of_rank;
        near(slope, 0.8);
        near(intercept, 0.5);
        near(other_slope, 1.2);
        near(other_intercept, -0.1);
        let values = Calibration::NONE.values(&chain([-0.1, -0.3, -0.9]));
        assert!((values[2] - 0.9_f64.mul_add(-1.0, 0.0).exp()).abs() < 1e-5, "{values:?}");
        assert!(values.is_sorted_by(|a, b| a >= b));
        assert_eq!(Calibration::fit(&[]), Calibration::NONE);
    }
}
