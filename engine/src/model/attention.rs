//! Self-attention of one layer, with its projections.

use kernels::reference::{KeyValues, Matrix, Rope, Visible, attention, linear, rms_norm};

use super::names::Names;
use crate::{
    error::EngineError,
    spec::{AttentionSpec, AttentionTensors, GroupedQuery, LayerSpec},
};

/// What a pass over some rows needs to know of each of them.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Positions, for the rotary embedding.
    pub positions: &'a [usize],
    /// Cache rows to which keys and values go.
    pub write: &'a [u32],
    /// Cache rows that each row sees, its own included.
    pub visible: &'a [Visible<'a>],
}

/// One attention layer.
#[derive(Debug)]
pub struct Attention {
    shape: GroupedQuery,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    query_norm: Option<Vec<f32>>,
    key_norm: Option<Vec<f32>>,
    epsilon: f32,
}

#[derive(Debug)]
struct Projection {
    weight: Matrix,
    bias: Option<Vec<f32>>,
}

impl Attention {
    /// Loads the attention of a layer.
    ///
    /// # Errors
    /// When a tensor is missing or misshapen, or attention is of a kind that is not implemented.
    pub fn load(names: &Names<'_>, tensors: &AttentionTensors, layer: &LayerSpec) -> Result<Self, EngineError> {
        let (AttentionTensors::Grouped(tensors), AttentionSpec::Grouped(shape)) = (tensors, &layer.attention) else {
            return Err(EngineError::Unsupported {
                path: names.weights().folder().to_owned(),
                feature: "latent attention".into(),
                hint: "supported is grouped-query attention".into(),
            });
        };
        let projection = |tensors| names.linear(tensors).map(|(weight, bias)| Projection { weight, bias });
        let norms = tensors.head_norms.as_ref();
        Ok(Self {
            shape: *shape,
            query: projection(&tensors.query)?,
            key: projection(&tensors.key)?,
            value: projection(&tensors.value)?,
            output: projection(&tensors.output)?,
            query_norm: norms.map(|(query, _)| names.tensor_vector(query)).transpose()?,
            key_norm: norms.map(|(_, key)| names.tensor_vector(key)).transpose()?,
            epsilon: layer.epsilon,
        })
    }

    /// An empty cache of this layer's shape.
    pub fn cache(&self, rows: usize) -> KeyValues {
        KeyValues::new(rows, self.shape.key_value_heads, self.shape.head_dim)
    }

    /// Writes keys and values of the rows to the cache, then attends. `x` is `[rows, input]`, the result
    /// `[rows, output]`.
    pub fn forward(&self, x: &[f32], rows: Rows<'_>, rope: &Rope, cache: &mut KeyValues) -> Vec<f32> {
        let mut queries = self.query.forward(x);
        let mut keys = self.key.forward(x);
        let values = self.value.forward(x);
        if let Some(norm) = &self.query_norm {
            queries = rms_norm(&queries, norm, self.epsilon);
        }
        if let Some(norm) = &self.key_norm {
            keys = rms_norm(&keys, norm, self.epsilon);
        }
        rope.apply(&mut queries, rows.positions);
        rope.apply(&mut keys, rows.positions);
        cache.write(rows.write, &keys, &values);
        self.output.forward(&attention(&queries, self.shape.heads, rows.visible, cache))
    }
}

impl Projection {
    fn forward(&self, x: &[f32]) -> Vec<f32> {
        linear(x, &self.weight, self.bias.as_deref())
    }
}
