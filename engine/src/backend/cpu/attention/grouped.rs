//! Grouped-query attention.

use kernels::reference::{CacheScales, KeyValues, Rope, Visible, attention_with_sinks, rms_norm, sigmoid};

use super::{super::linear::CpuLinear, RowPlacement};
use crate::{
    checkpoint::Tensors,
    error::EngineError,
    spec::{GroupedQuery, GroupedTensors},
};

/// Grouped-query attention with its projections.
#[derive(Debug)]
pub struct Grouped {
    shape: GroupedQuery,
    query: CpuLinear,
    key: CpuLinear,
    value: CpuLinear,
    output: CpuLinear,
    /// Norms of query heads and of key heads.
    norms: Option<(Vec<f32>, Vec<f32>)>,
    /// Scores of query heads without a value.
    sinks: Option<Vec<f32>>,
    /// The scales of its cache, if that is in FP8.
    cache_scales: Option<CacheScales>,
    epsilon: f32,
    rotation: Rope,
    /// Factor of the values.
    pub value_scale: f32,
}

impl Grouped {
    /// Loads the attention of a layer.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(
        from: Tensors<'_>,
        tensors: &GroupedTensors,
        shape: GroupedQuery,
        epsilon: f32,
    ) -> Result<Self, EngineError> {
        let norms = |(query, key): &(_, _)| Ok::<_, EngineError>((from.vector(query)?, from.vector(key)?));
        let [query, key, value] = CpuLinear::load_readers(from, [&tensors.query, &tensors.key, &tensors.value])?;
        Ok(Self {
            shape,
            query,
            key,
            value,
            output: CpuLinear::load(from, &tensors.output)?,
            norms: tensors.head_norms.as_ref().map(norms).transpose()?,
            sinks: from.optional_vector(tensors.sinks.as_ref())?,
            cache_scales: tensors.cache_scales.as_ref().map(|names| from.cache_scales(names)).transpose()?,
            epsilon,
            rotation: shape.rope.rotation(shape.head_dim),
            value_scale: 1.0,
        })
    }

    /// An empty cache of this layer's shape.
    pub fn cache(&self, rows: usize) -> KeyValues {
        KeyValues::new(rows, self.shape.key_value_heads, self.shape.head_dim).in_fp8(self.cache_scales)
    }

    /// Writes keys and values of the rows to the cache, then attends. `x` is `[rows, input]`, the
    /// result is `[rows, output]`.
    pub fn forward(&self, x: &[f32], rows: RowPlacement<'_>, cache: &mut KeyValues) -> Vec<f32> {
        // Before attention, since a row sees its own key and value too.
        self.store(x, rows, cache);
        let (mut queries, gates) = self.queries(x);
        if let Some((query, _)) = &self.norms {
            queries = rms_norm(&queries, query, self.epsilon);
        }
        self.rotation.apply(&mut queries, rows.positions);
        let within: Vec<Visible<'_>>;
        let visible = match self.shape.window {
            None => rows.visible,
            Some(window) => {
                within = rows.visible.iter().map(|visible| visible.last(window)).collect();
                &within
            }
        };
        let mut joined = attention_with_sinks(&queries, self.shape.heads, visible, cache, self.sinks.as_deref());
        if let Some(gates) = gates {
            joined.iter_mut().zip(gates).for_each(|(x, gate)| *x *= sigmoid(gate));
        }
        self.output.forward(&joined)
    }

    /// Queries before their norms, and the gates of the outputs, if there are any:
    /// `[rows, heads · head_dim]` each.
    fn queries(&self, x: &[f32]) -> (Vec<f32>, Option<Vec<f32>>) {
        let both = self.query.forward(x);
        if !self.shape.output_gate {
            return (both, None);
        }
        let halves = || both.chunks_exact(self.shape.head_dim);
        // Published head by head: its queries, then its gates.
        let part = |first: usize| halves().skip(first).step_by(2).flatten().copied().collect();
        (part(0), Some(part(1)))
    }

    /// Writes keys and values of the rows to the cache.
    pub fn store(&self, x: &[f32], rows: RowPlacement<'_>, cache: &mut KeyValues) {
        let mut keys = self.key.forward(x);
        let mut values = self.value.forward(x);
        if let Some((_, key)) = &self.norms {
            keys = rms_norm(&keys, key, self.epsilon);
        }
        self.rotation.apply(&mut keys, rows.positions);
        if self.value_scale != 1.0 {
            values.iter_mut().for_each(|value| *value *= self.value_scale);
        }
        cache.write(rows.write, &keys, &values);
    }
}
