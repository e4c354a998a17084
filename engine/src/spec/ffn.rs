//! Feed-forward block of a layer: one gated block, or routed experts.

use kernels::reference::{GateActivation, Router, Scoring};

/// The feed-forward block of a layer.
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
    /// Number of outputs of gate and of up.
    pub intermediate: usize,
    /// Whether gate, up and down each have a bias.
    pub bias: bool,
}

/// Experts with their router.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertsSpec {
    /// How experts are chosen and weighted.
    pub router: RouterSpec,
    /// Number of routed experts.
    pub experts: usize,
    /// Number of experts chosen per row.
    pub per_token: usize,
    /// Number of outputs of gate and of up of one expert.
    pub intermediate: usize,
    /// Number of outputs of gate and of up of the shared expert, which processes every row and is
    /// added with weight 1, or that of its gate (several shared experts count as one of their total
    /// width).
    pub shared: Option<usize>,
    /// Whether the shared expert has a gate: the sigmoid of a product of the row with one vector
    /// multiplies its output. Such releases (Qwen) name it `shared_expert`, others
    /// `shared_experts`.
    pub shared_gate: bool,
    /// How an expert joins gate and up.
    pub activation: GateActivation,
    /// Whether the router and each projection of an expert have a bias. Logits with their bias are
    /// what the router compares and weights.
    pub bias: bool,
    /// How checkpoints name and store them.
    pub layout: ExpertsLayout,
}

/// How a checkpoint stores experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpertsLayout {
    /// The router is `gate`, and each expert has tensors of its own (or all share one, with the
    /// rows of gate before those of up).
    #[default]
    Separate,
    /// gpt-oss: the router is `router`, and all experts share tensors in which rows of gate and up
    /// alternate.
    Alternating,
}

/// How experts are chosen for a row and weighted. Ties go to the lowest expert and the lowest
/// group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterSpec {
    /// The function that turns logits into scores.
    pub score: RouterScore,
    /// The precision of the logits.
    pub logits: RouterPrecision,
    /// Chosen scores are divided by their sum plus this value; `None` if they are not divided.
    pub renormalise: Option<f32>,
    /// Whether a float32 bias is added to the scores for choosing experts; the weights are the
    /// scores without it.
    pub correction_bias: bool,
    /// Number of groups of experts, all of the same size; 1 means no groups.
    pub groups: usize,
    /// Number of groups from which experts are chosen: the ones with the largest sum of their two
    /// best (biased) scores.
    pub groups_kept: usize,
    /// Factor of the weights, after renormalising.
    pub scaling: f32,
    /// To measure: experts are chosen by a hash of the logits, all equally often.
    pub uniform: bool,
}

/// The function that turns a router's logits into scores, in float32.
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
    /// The model's type: logits are rounded to it.
    Model,
    /// Float32: inputs and weights are converted, and logits are not rounded.
    Float32,
}

impl FfnSpec {
    /// The largest intermediate width of a block: dense, of one expert, or shared.
    pub fn widest(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.intermediate,
            Self::Experts(experts) => experts.intermediate.max(experts.shared.unwrap_or_default()),
        }
    }

    /// Experts, if there are any.
    pub fn experts(&self) -> Option<&ExpertsSpec> {
        match self {
            Self::Dense(_) => None,
            Self::Experts(experts) => Some(experts),
        }
    }
}

impl ExpertsSpec {
    /// The router in terms of the kernels' reference.
    pub fn router(&self) -> Router {
        let RouterSpec { score, renormalise, groups, groups_kept, scaling, uniform, .. } = self.router;
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
            uniform,
        }
    }

    /// The expected number of distinct experts that `rows` rows choose together, if each chooses
    /// uniformly and independently: `E · (1 − (1 − k/E)^rows)`.
    pub fn expected_distinct(&self, rows: usize) -> f64 {
        self.experts as f64 * share_touched(self.per_token as f64 / self.experts.max(1) as f64, rows)
    }
}

/// The share of experts that at least one of `rows` rows chooses, if each row chooses the share
/// `chosen`.
pub(super) fn share_touched(chosen: f64, rows: usize) -> f64 {
    1.0 - (1.0 - chosen.clamp(0.0, 1.0)).powf(rows as f64)
}
