//! A target built from its [`TargetSpec`](crate::spec::TargetSpec): embedding, layers, norm and vocabulary head.

use std::sync::Arc;

use kernels::reference::{Matrix, linear, rms_norm};

use super::{
    attention::{Cache, Rows},
    layer::{Layer, embed},
};
use crate::{
    checkpoint::{Tensors, Weights},
    error::EngineError,
    spec::TargetSpec,
};

/// A loaded target.
#[derive(Debug)]
pub struct Target {
    /// Rows are tokens.
    pub embedding: Arc<Matrix>,
    /// Rows are tokens; the embedding itself where the two are tied.
    pub head: Arc<Matrix>,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    spec: TargetSpec,
}

/// What a pass over some rows yields.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// After the final norm, `[rows, hidden]`: what the head, EAGLE-1/2 and MTP layers see.
    pub hidden: Vec<f32>,
    /// The residual stream on entry to each captured layer, side by side: `[rows, captured × hidden]`.
    pub captured: Vec<f32>,
}

impl Target {
    /// Loads a target by its description.
    ///
    /// # Errors
    /// When a tensor is missing or misshapen.
    pub fn load(weights: &Weights, spec: TargetSpec) -> Result<Self, EngineError> {
        let (from, tensors) = (Tensors::new(weights), spec.tensors());
        let embedding = Arc::new(from.matrix(&tensors.embedding)?);
        let head = match &tensors.head {
            Some(head) => Arc::new(from.matrix(head)?),
            None => embedding.clone(),
        };
        let layers = spec.layers.iter().zip(&tensors.layers).map(|(spec, tensors)| Layer::load(from, tensors, spec));
        Ok(Self { layers: layers.collect::<Result<_, _>>()?, norm: from.vector(&tensors.norm)?, embedding, head, spec })
    }

    /// What it is.
    pub fn spec(&self) -> &TargetSpec {
        &self.spec
    }

    /// Width of the residual stream.
    pub fn hidden_size(&self) -> usize {
        self.norm.len()
    }

    /// Tokens.
    pub fn vocab_size(&self) -> usize {
        self.embedding.outputs()
    }

    /// Empty caches, one a layer.
    pub fn caches(&self, rows: usize) -> Vec<Cache> {
        self.layers.iter().map(|layer| layer.cache(rows)).collect()
    }

    /// Runs some rows through all layers. `capture` lists the layers on whose entry the residual stream is kept,
    /// ascending; an entry equal to the number of layers means the stream that leaves the last one.
    pub fn forward(&self, tokens: &[u32], rows: Rows<'_>, caches: &mut [Cache], capture: &[usize]) -> Pass {
        let mut x = embed(&self.embedding, tokens);
        let width = self.hidden_size();
        let mut captured = vec![0.0; tokens.len() * width * capture.len()];
        let mut keep = |layer: usize, x: &[f32]| {
            for place in capture.iter().enumerate().filter(|(_, at)| **at == layer).map(|(place, _)| place) {
                for (row, x) in x.chunks_exact(width).enumerate() {
                    let start = (row * capture.len() + place) * width;
                    captured[start..start + width].copy_from_slice(x);
                }
            }
        };
        for (at, (layer, cache)) in self.layers.iter().zip(caches).enumerate() {
            keep(at, &x);
            layer.forward(&mut x, rows, cache);
        }
        keep(self.layers.len(), &x);
        Pass { hidden: rms_norm(&x, &self.norm, self.spec.epsilon), captured }
    }

    /// Logits of rows of [`Pass::hidden`]: `[rows, vocab_size]`.
    pub fn logits(&self, hidden: &[f32]) -> Vec<f32> {
        linear(hidden, &self.head, None)
    }
}
