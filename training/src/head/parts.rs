//! Trainable values by their published names, and layers built from them.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor, Var};
use engine::spec::{GatedTensors, LinearTensors, TensorSpec, VocabularySource};

use super::{SharedWeights, indices};
use crate::{error::TrainingError, math};

/// Returns the values of a tensor.
pub type Values<'a> = dyn Fn(&TensorSpec) -> std::result::Result<Vec<f32>, TrainingError> + 'a;

/// Builds layers, and collects the trained variables. These have 32 bits, or more if layers compute
/// in more: updates are far smaller than values, and 16 bits would lose them.
pub struct Builder<'a> {
    values: &'a Values<'a>,
    /// The type in which layers compute.
    pub dtype: DType,
    /// The device of all tensors.
    pub device: &'a Device,
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

/// A norm of rows.
pub struct Norm {
    weight: Tensor,
    epsilon: f64,
}

/// The matrices in which a draft looks up tokens and by which it proposes them.
pub struct Vocabulary {
    /// `[target vocabulary, hidden]`. Never trained.
    embedding: Tensor,
    /// `[vocabulary, hidden]`.
    head: Tensor,
    /// Whether the head is the draft's own.
    trains: bool,
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

    /// A norm.
    pub fn norm(&mut self, spec: &TensorSpec, epsilon: f32) -> std::result::Result<Norm, TrainingError> {
        Ok(Norm { weight: self.trained(spec)?, epsilon: f64::from(epsilon) })
    }

    /// A norm, if the spec contains it.
    pub fn optional_norm(
        &mut self,
        spec: Option<&TensorSpec>,
        epsilon: f32,
    ) -> std::result::Result<Option<Norm>, TrainingError> {
        spec.map(|spec| self.norm(spec, epsilon)).transpose()
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
        // Variables may have more bits than the rows that they multiply.
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

impl Norm {
    /// Norms over the last dimension.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        math::rms_norm(x, &self.weight, self.epsilon)
    }
}

impl Vocabulary {
    /// Those of a draft: its own tensors if its checkpoint has them, else the target's, of which
    /// only the rows of `tokens` if it proposes a subset.
    pub fn new(
        builder: &mut Builder<'_>,
        (embedding, head): (Option<&TensorSpec>, Option<&TensorSpec>),
        (source, tokens): (VocabularySource, Option<&[u32]>),
        shared: &SharedWeights,
    ) -> std::result::Result<Self, TrainingError> {
        let dtype = builder.dtype;
        let embedding = match embedding {
            Some(own) => builder.frozen(own)?,
            None => shared.embedding.to_dtype(dtype)?,
        };
        let trains = head.is_some();
        let head = match (head, source, tokens) {
            (Some(own), ..) => builder.trained(own)?,
            (None, VocabularySource::Embedding, _) => embedding.clone(),
            (None, _, None) => shared.head.to_dtype(dtype)?,
            (None, _, Some(tokens)) => {
                shared.head.to_dtype(dtype)?.index_select(&indices(tokens, builder.device)?, 0)?
            }
        };
        Ok(Self { embedding, head, trains })
    }

    /// Embeddings of tokens, `[rows, hidden]`.
    pub fn embed(&self, tokens: &Tensor) -> Result<Tensor> {
        self.embedding.index_select(tokens, 0)
    }

    /// Logits of rows `[rows, hidden]`: `[rows, vocabulary]`.
    pub fn logits(&self, x: &Tensor) -> Result<Tensor> {
        // The target's head is not trained: its gradient would be as large as the head.
        math::product(x, &self.head.to_dtype(x.dtype())?, self.trains)
    }
}
