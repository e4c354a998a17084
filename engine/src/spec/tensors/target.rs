//! Tensors of a target.

use super::{LayerTensors, Role, TensorSpec, TensorSplit};
use crate::spec::TargetSpec;

/// Tensors of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetTensors {
    /// `[vocabulary, hidden]`.
    pub embedding: TensorSpec,
    /// `[vocabulary, hidden]`; `None` if the embedding is also the head.
    pub head: Option<TensorSpec>,
    /// In order.
    pub layers: Vec<LayerTensors>,
    /// Norm after the last layer.
    pub norm: TensorSpec,
}

impl TargetSpec {
    /// Its tensors.
    pub fn tensors(&self) -> TargetTensors {
        let (vocabulary, hidden) = (self.vocabulary, self.hidden);
        let matrix = |name: &str, rows, role, split| TensorSpec::matrix(name.into(), rows, hidden, role, split);
        TargetTensors {
            // Replicated, since it is looked up, not read: summing over ranks would cost more time
            // than splitting the table saves.
            embedding: matrix("model.embed_tokens.weight", vocabulary, Role::Embedding, TensorSplit::Replicated),
            head: (!self.tied)
                .then(|| matrix("lm_head.weight", self.head_rows, Role::VocabularyHead, TensorSplit::Rows)),
            layers: self.layers.iter().enumerate().map(|(at, layer)| layer.tensors(&Self::layer_prefix(at))).collect(),
            norm: TensorSpec::norm("model.norm.weight".into(), hidden).stored(self.norms()),
        }
    }

    /// The common prefix of the names of a layer's tensors, without a trailing dot.
    pub fn layer_prefix(at: usize) -> String {
        format!("model.layers.{at}")
    }
}

impl TargetTensors {
    /// All tensors.
    pub fn all(&self) -> Vec<&TensorSpec> {
        let mut all: Vec<&TensorSpec> = [&self.embedding, &self.norm].into_iter().chain(&self.head).collect();
        all.extend(self.layers.iter().flat_map(LayerTensors::all));
        all
    }
}
