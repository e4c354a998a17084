//! Self-attention of one layer, with its projections.

use kernels::reference::{KeyValues, Matrix, Rope, Visible, attention, linear, rms_norm};

use super::names::Names;
use crate::error::EngineError;

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

/// The shape of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Width of the input of q, k and v.
    pub input: usize,
    /// Width of the output.
    pub output: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub key_value_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
}

/// One attention layer.
#[derive(Debug)]
pub struct Attention {
    shape: AttentionShape,
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
    /// Loads `{q,k,v,o}_proj` under a prefix, with biases and per-head norms (Qwen3) where the checkpoint has them.
    pub fn load(names: &Names<'_>, prefix: &str, shape: AttentionShape, epsilon: f32) -> Result<Self, EngineError> {
        let AttentionShape { input, output, heads, key_value_heads, head_dim } = shape;
        let projection = |name: &str, outputs: usize, inputs: usize| -> Result<Projection, EngineError> {
            Ok(Projection {
                weight: names.matrix(&format!("{prefix}.{name}.weight"), outputs, inputs)?,
                bias: names.optional_vector(&format!("{prefix}.{name}.bias"), outputs)?,
            })
        };
        Ok(Self {
            shape,
            query: projection("q_proj", heads * head_dim, input)?,
            key: projection("k_proj", key_value_heads * head_dim, input)?,
            value: projection("v_proj", key_value_heads * head_dim, input)?,
            output: projection("o_proj", output, heads * head_dim)?,
            query_norm: names.optional_vector(&format!("{prefix}.q_norm.weight"), head_dim)?,
            key_norm: names.optional_vector(&format!("{prefix}.k_norm.weight"), head_dim)?,
            epsilon,
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
