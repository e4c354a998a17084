//! Trainable values by their published names, and layers built from them.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor, Var};
use engine::spec::{GatedTensors, LinearTensors, TensorSpec};

use crate::{error::TrainingError, math};

/// Returns the values of a tensor.
pub type Values<'a> = dyn Fn(&TensorSpec) -> std::result::Result<Vec<f32>, TrainingError> + 'a;

/// Builds layers, and collects the trained variables. These have 32 bits, or more if layers compute
/// in more: updates are far smaller than values, and 16 bits would lose them.
pub struct Builder<'a> {
    values: &'a Values<'a>,
    /// The type in which layers compute.
    dtype: DType,
    device: &'a Device,
    /// The trained variables by their published names.
    pub trained: BTreeMap<String, Var>,
}

/// A linear layer.
pub struct HeadLinear {
    /// `[outputs, inputs]`.
    weight: Tensor,
    bias: Option<Tensor>,
}

/// A gated block: `down(silu(gate(x)) · up(x))`.
pub struct HeadGated {
    gate: HeadLinear,
    up: HeadLinear,
    down: HeadLinear,
}

impl<'a> Builder<'a> {
    /// A builder with these values, for layers that compute in this type on this device.
    pub fn new(values: &'a Values<'a>, dtype: DType, device: &'a Device) -> Self {
        Self { values, dtype, device, trained: BTreeMap::new() }
    }

    /// A tensor that is trained.
    pub fn trained(&mut self, spec: &TensorSpec) -> std::result::Result<Tensor, TrainingError> {
        let variable = Var::from_tensor(&self.tensor(spec, math::wide(self.dtype))?)?;
        let tensor = variable.as_tensor().clone();
        self.trained.insert(spec.name.clone(), variable);
        Ok(tensor)
    }

    /// A tensor that is not trained.
    pub fn frozen(&self, spec: &TensorSpec) -> std::result::Result<Tensor, TrainingError> {
        self.tensor(spec, self.dtype)
    }

    fn tensor(&self, spec: &TensorSpec, dtype: DType) -> std::result::Result<Tensor, TrainingError> {
        let values = (self.values)(spec)?;
        Ok(Tensor::from_vec(values, spec.shape.as_slice(), self.device)?.to_dtype(dtype)?)
    }

    /// A trained tensor, if the spec contains it.
    pub fn optional(&mut self, spec: Option<&TensorSpec>) -> std::result::Result<Option<Tensor>, TrainingError> {
        spec.map(|spec| self.trained(spec)).transpose()
    }

    /// A linear layer.
    pub fn linear(&mut self, tensors: &LinearTensors) -> std::result::Result<HeadLinear, TrainingError> {
        Ok(HeadLinear { weight: self.trained(&tensors.weight)?, bias: self.optional(tensors.bias.as_ref())? })
    }

    /// A gated block.
    pub fn gated(&mut self, tensors: &GatedTensors) -> std::result::Result<HeadGated, TrainingError> {
        Ok(HeadGated {
            gate: self.linear(&tensors.gate)?,
            up: self.linear(&tensors.up)?,
            down: self.linear(&tensors.down)?,
        })
    }
}

impl HeadLinear {
    /// Maps `[rows, inputs]` to `[rows, outputs]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = math::product(x, &self.weight.to_dtype(x.dtype())?, true)?;
        self.bias.as_ref().map_or(Ok(y.clone()), |bias| y.broadcast_add(&bias.to_dtype(x.dtype())?))
    }
}

impl HeadGated {
    /// Maps `[rows, hidden]` to `[rows, hidden]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down.forward(&(self.gate.forward(x)?.silu()? * self.up.forward(x)?)?)
    }
}

/// A norm of rows.
pub struct Norm {
    weight: Tensor,
    epsilon: f64,
}

impl Norm {
    /// A norm with this weight.
    pub fn new(weight: Tensor, epsilon: f32) -> Self {
        Self { weight, epsilon: f64::from(epsilon) }
    }

    /// Norms over the last dimension.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        math::rms_norm(x, &self.weight, self.epsilon)
    }
}
