//! The feed-forward block of a layer: dense, or routed experts with a shared one.

use kernels::reference::{Expert, Matrix, Router, experts, linear, sigmoid};

use super::linear::{Gated, as_multiplied};
use crate::{
    backend::expert_reads::ExpertTally,
    checkpoint::{InputScales, Tensors},
    error::EngineError,
    spec::{ExpertsSpec, ExpertsTensors, FfnSpec, FfnTensors, GatedTensors},
};

/// The feed-forward block of a layer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per layer, and most layers of a model are of one kind")]
pub enum CpuFfn {
    /// A dense block.
    Dense(Gated),
    /// Experts chosen by a router.
    Experts(CpuExperts),
}

/// Routed experts, and the shared expert, which processes every row.
#[derive(Debug)]
pub struct CpuExperts {
    router: Router,
    /// `[experts, hidden]`.
    gate: Matrix,
    /// `[experts]`.
    gate_bias: Option<Vec<f32>>,
    /// Added to the scores for choosing experts only.
    correction: Option<Vec<f32>>,
    experts: Vec<Expert>,
    /// How the rows that all experts read are quantised, if they multiply in FP8.
    inputs: Option<InputScales>,
    shared: Option<Gated>,
    /// `[1, hidden]`: the gate of the shared expert.
    shared_gate: Option<Matrix>,
    tally: ExpertTally,
}

impl CpuFfn {
    /// Loads the block.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(from: Tensors<'_>, tensors: &FfnTensors, spec: &FfnSpec) -> Result<Self, EngineError> {
        match (tensors, spec) {
            (FfnTensors::Experts(tensors), FfnSpec::Experts(spec)) => {
                Ok(Self::Experts(CpuExperts::load(from, tensors, spec)?))
            }
            (FfnTensors::Dense(tensors), _) => Ok(Self::Dense(Gated::load(from, tensors)?)),
            _ => Err(EngineError::Configuration("a dense layer with the tensors of experts".into())),
        }
    }

    /// Counts the experts that its rows choose; `None` for a dense block.
    pub fn tally(&self) -> Option<&ExpertTally> {
        match self {
            Self::Dense(_) => None,
            Self::Experts(experts) => Some(&experts.tally),
        }
    }

    /// `x` and the result are `[rows, hidden]`.
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        match self {
            Self::Dense(dense) => dense.forward(x),
            Self::Experts(experts) => experts.forward(x),
        }
    }
}

impl CpuExperts {
    fn load(from: Tensors<'_>, tensors: &ExpertsTensors, spec: &ExpertsSpec) -> Result<Self, EngineError> {
        // Static scales are the largest of all experts, as in SGLang and vLLM.
        let all = || tensors.experts.iter();
        let inputs = from.input_scales(all().flat_map(|expert| [&expert.gate.weight, &expert.up.weight]))?;
        let middle = from.input_scales(all().map(|expert| &expert.down.weight))?;
        let expert = |tensors: &GatedTensors| {
            Ok(Expert {
                gate: from.matrix(&tensors.gate.weight)?,
                up: from.matrix(&tensors.up.weight)?,
                down: from.matrix(&tensors.down.weight)?,
                biases: match [&tensors.gate.bias, &tensors.up.bias, &tensors.down.bias] {
                    [Some(gate), Some(up), Some(down)] => {
                        Some([from.vector(gate)?, from.vector(up)?, from.vector(down)?])
                    }
                    _ => None,
                },
                activation: spec.activation,
                middle: middle.map(|InputScales { layout, fixed }| (layout, fixed)),
            })
        };
        Ok(Self {
            router: spec.router(),
            gate: from.matrix(&tensors.router)?,
            gate_bias: from.optional_vector(tensors.router_bias.as_ref())?,
            correction: from.optional_vector(tensors.correction_bias.as_ref())?,
            experts: tensors.experts.iter().map(expert).collect::<Result<_, EngineError>>()?,
            inputs,
            shared: tensors.shared.as_ref().map(|tensors| Gated::load(from, tensors)).transpose()?,
            shared_gate: tensors.shared_gate.as_ref().map(|tensor| from.matrix(tensor)).transpose()?,
            tally: ExpertTally::default(),
        })
    }

    fn forward(&self, x: &[f32]) -> Vec<f32> {
        let logits = linear(x, &self.gate, self.gate_bias.as_deref());
        let routes = self.router.route(&logits, self.experts.len(), self.correction.as_deref());
        self.tally.add(routes.experts.iter().copied(), self.experts.len());
        let mut y = experts(&as_multiplied(x, self.gate.inputs(), self.inputs), &routes, &self.experts);
        if let Some(shared) = &self.shared {
            let mut shared = shared.forward(x);
            if let Some(gate) = &self.shared_gate {
                let width = gate.inputs();
                for (row, gate) in shared.chunks_exact_mut(width).zip(linear(x, gate, None)) {
                    row.iter_mut().for_each(|value| *value *= sigmoid(gate));
                }
            }
            y.iter_mut().zip(shared).for_each(|(y, shared)| *y += shared);
        }
        y
    }
}
