//! Grouped-query attention of one layer, with its projections.

use kernels::reference::{KeyValues, Rope, Visible, attention, rms_norm};

use super::linear::Linear;
use crate::{
    checkpoint::Tensors,
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
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    /// Of queries and of keys, head by head.
    norms: Option<(Vec<f32>, Vec<f32>)>,
    epsilon: f32,
    rotation: Rope,
}

impl Attention {
    /// Loads the attention of a layer.
    ///
    /// # Errors
    /// When a tensor is missing or misshapen, or attention is of a kind that is not implemented.
    pub fn load(from: Tensors<'_>, tensors: &AttentionTensors, layer: &LayerSpec) -> Result<Self, EngineError> {
        let (AttentionTensors::Grouped(tensors), AttentionSpec::Grouped(shape)) = (tensors, &layer.attention) else {
            return Err(EngineError::Configuration("latent attention is not implemented on the CPU".into()));
        };
        let norms = |(query, key): &(_, _)| Ok::<_, EngineError>((from.vector(query)?, from.vector(key)?));
        Ok(Self {
            shape: *shape,
            query: Linear::load(from, &tensors.query)?,
            key: Linear::load(from, &tensors.key)?,
            value: Linear::load(from, &tensors.value)?,
            output: Linear::load(from, &tensors.output)?,
            norms: tensors.head_norms.as_ref().map(norms).transpose()?,
            epsilon: layer.epsilon,
            rotation: shape.rope.rotation(shape.head_dim),
        })
    }

    /// An empty cache of this layer's shape.
    pub fn cache(&self, rows: usize) -> KeyValues {
        KeyValues::new(rows, self.shape.key_value_heads, self.shape.head_dim)
    }

    /// Writes keys and values of the rows to the cache, then attends. `x` is `[rows, input]`, the result
    /// `[rows, output]`.
    pub fn forward(&self, x: &[f32], rows: Rows<'_>, cache: &mut KeyValues) -> Vec<f32> {
        let mut queries = self.query.forward(x);
        let mut keys = self.key.forward(x);
        let values = self.value.forward(x);
        if let Some((query, key)) = &self.norms {
            queries = rms_norm(&queries, query, self.epsilon);
            keys = rms_norm(&keys, key, self.epsilon);
        }
        self.rotation.apply(&mut queries, rows.positions);
        self.rotation.apply(&mut keys, rows.positions);
        cache.write(rows.write, &keys, &values);
        self.output.forward(&attention(&queries, self.shape.heads, rows.visible, cache))
    }
}
