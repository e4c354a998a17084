//! Feed-forward part of a layer: one gated block, or routed experts.

use kernels::reference::{Router, Scoring};

/// The feed-forward part of a layer.
#[derive(Clone, Debug, PartialEq)]
pub enum FfnSpec {
    /// `down(silu(gate(x)) · up(x))`.
    Dense(DenseSpec),
    /// A weighted sum of the experts that a router chooses for each row.
    Experts(ExpertsSpec),
}

/// One gated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenseSpec {
    /// Outputs of gate and up.
    pub intermediate: usize,
    /// Whether gate, up and down have a bias each.
    pub bias: bool,
}

/// Experts with their router.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertsSpec {
    /// How experts are chosen and weighted.
    pub router: RouterSpec,
    /// Routed experts.
    pub experts: usize,
    /// Experts chosen for a row.
    pub per_token: usize,
    /// Outputs of gate and up of one expert.
    pub intermediate: usize,
    /// Outputs of gate and up of the expert that every row passes, added with weight 1 (several shared experts are one of
    /// their summed width).
    pub shared: Option<usize>,
}

/// How experts are chosen for a row and weighted. Ties go to the lowest expert and the lowest group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterSpec {
    /// What becomes of the logits.
    pub score: RouterScore,
    /// How exact the logits are.
    pub logits: RouterPrecision,
    /// Chosen scores are divided by their sum plus this; `None`: they are not.
    pub renormalise: Option<f32>,
    /// Whether a float32 bias is added to the scores for the choice alone; weights are scores without it.
    pub correction_bias: bool,
    /// Groups of experts, each of the same size; 1: no groups.
    pub groups: usize,
    /// Groups from which experts are chosen: those whose two best (biased) scores have the largest sums.
    pub groups_kept: usize,
    /// Factor on the weights, after renormalising.
    pub scaling: f32,
}

/// What becomes of a router's logits, in float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterScore {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each.
    Sigmoid,
}

/// The type in which a router's logits are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterPrecision {
    /// That of the model: logits are rounded to it.
    Model,
    /// Inputs and weights are taken as float32, and logits stay so.
    Float32,
}

impl FfnSpec {
    /// The widest intermediate of a block: dense, of one expert, or shared.
    pub fn widest(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.intermediate,
            Self::Experts(experts) => experts.intermediate.max(experts.shared.unwrap_or_default()),
        }
    }

    /// Experts, where there are any.
    pub fn experts(&self) -> Option<&ExpertsSpec> {
        match self {
            Self::Dense(_) => None,
            Self::Experts(experts) => Some(experts),
        }
    }
}

impl ExpertsSpec {
    /// The router as the kernels' reference defines it.
    pub fn router(&self) -> Router {
        let RouterSpec { score, renormalise, groups, groups_kept, scaling, .. } = self.router;
        Router {
            scoring: match score {
                RouterScore::Softmax => Scoring::Softmax,
                RouterScore::Sigmoid => Scoring::Sigmoid,
            },
            top_k: self.per_token,
            groups,
            top_k_groups: groups_kept,
            renormalize: renormalise,
            scale: scaling,
        }
    }

    /// The number of distinct experts that some rows choose together, if each chooses evenly and by itself:
    /// `E · (1 − (1 − k/E)^rows)`.
    pub fn expected_distinct(&self, rows: usize) -> f64 {
        self.experts as f64 * share_touched(self.per_token as f64 / self.experts.max(1) as f64, rows)
    }
}

/// The share of experts that at least one of `rows` rows chooses, each of which chooses this share of them.
pub(super) fn share_touched(chosen: f64, rows: usize) -> f64 {
    1.0 - (1.0 - chosen.clamp(0.0, 1.0)).powf(rows as f64)
}
