//! A target built from its [`TargetSpec`](crate::spec::TargetSpec): embedding, layers, norm and
//! vocabulary head.

use std::sync::Arc;

use kernels::reference::{Matrix, linear, rms_norm};

use super::{
    attention::{Cache, RowPlacement},
    layer::{CpuLayer, embed},
};
use crate::{
    backend::expert_reads::ExpertTally,
    checkpoint::{Tensors, Weights},
    error::EngineError,
    spec::TargetSpec,
};

/// A loaded target.
#[derive(Debug)]
pub struct Target {
    /// One row per token.
    pub embedding: Arc<Matrix>,
    /// One row per token; the embedding itself if the two are tied.
    pub head: Arc<Matrix>,
    layers: Vec<CpuLayer>,
    norm: Vec<f32>,
    spec: TargetSpec,
}

/// Outputs of a pass.
#[derive(Clone, Debug, Default)]
pub struct PassOutput {
    /// After the final norm, `[rows, hidden]`: the input of the head, and of EAGLE-1/2 and MTP
    /// layers.
    pub hidden: Vec<f32>,
    /// The residual stream before each captured layer, concatenated: `[rows, captured × hidden]`.
    pub captured: Vec<f32>,
}

impl Target {
    /// Loads a target that has this spec.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(weights: &Weights, spec: TargetSpec) -> Result<Self, EngineError> {
        let (from, tensors) = (Tensors::new(weights), spec.tensors());
        let embedding = Arc::new(from.matrix(&tensors.embedding)?);
        let head = match &tensors.head {
            Some(head) => Arc::new(from.matrix(head)?),
            None => embedding.clone(),
        };
        let layers = spec.layers.iter().zip(&tensors.layers).map(|(spec, tensors)| CpuLayer::load(from, tensors, spec));
        Ok(Self { layers: layers.collect::<Result<_, _>>()?, norm: from.vector(&tensors.norm)?, embedding, head, spec })
    }

    /// The spec that it was built from.
    pub fn spec(&self) -> &TargetSpec {
        &self.spec
    }

    /// Width of the residual stream.
    pub fn hidden_size(&self) -> usize {
        self.norm.len()
    }

    /// Size of the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.embedding.outputs()
    }

    /// Counts of the layers of experts.
    pub fn tallies(&self) -> impl Iterator<Item = &ExpertTally> {
        self.layers.iter().filter_map(CpuLayer::tally)
    }

    /// Empty caches, one per layer: of `rows` rows, of `windowed` rows if it has a window, or for
    /// `states` states.
    pub fn caches(&self, rows: usize, windowed: usize, states: usize) -> Vec<Cache> {
        let rows = |at: usize| if self.has_window(at) { windowed } else { rows };
        self.layers.iter().enumerate().map(|(at, layer)| layer.cache(rows(at), states)).collect()
    }

    /// Whether the rows of a layer see a window only.
    pub fn has_window(&self, layer: usize) -> bool {
        self.spec.layers[layer].attention.window().is_some()
    }

    /// Runs rows through all layers. `capture` lists the layers before which the residual stream is
    /// kept, ascending; an entry equal to the number of layers means the stream after the last one.
    pub fn forward(
        &self,
        tokens: &[u32],
        rows: RowPlacement<'_>,
        caches: &mut [Cache],
        capture: &[usize],
    ) -> PassOutput {
        let mut x = embed(&self.embedding, tokens);
        let width = self.hidden_size();
        let mut captured = vec![0.0; tokens.len() * width * capture.len()];
        let mut keep = |layer: usize, x: &[f32]| {
            // A draft may list the same layer more than once.
            for place in capture.iter().enumerate().filter(|(_, at)| **at == layer).map(|(place, _)| place) {
                for (row, x) in x.chunks_exact(width).enumerate() {
                    let start = (row * capture.len() + place) * width;
                    captured[start..start + width].copy_from_slice(x);
                }
            }
        };
        for (at, (layer, cache)) in self.layers.iter().zip(caches).enumerate() {
            keep(at, &x);
            layer.forward(&mut x, if self.has_window(at) { rows.windowed() } else { rows }, cache);
        }
        keep(self.layers.len(), &x);
        PassOutput { hidden: rms_norm(&x, &self.norm, self.spec.epsilon), captured }
    }

    /// Logits of rows of [`PassOutput::hidden`]: `[rows, vocab_size]`.
    pub fn logits(&self, hidden: &[f32]) -> Vec<f32> {
        linear(hidden, &self.head, None)
    }
}
