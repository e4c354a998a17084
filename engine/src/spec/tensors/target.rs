//! Tensors of a target.

use super::{LayerTensors, Role, Split, TensorSpec};
use crate::spec::TargetSpec;

/// Tensors of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetTensors {
    /// `[vocabulary, hidden]`.
    pub embedding: TensorSpec,
    /// `[vocabulary, hidden]`; `None` where the embedding is the head too.
    pub head: Option<TensorSpec>,
    /// In their order.
    pub layers: Vec<LayerTensors>,
    /// After the last layer.
    pub norm: TensorSpec,
}

impl TargetSpec {
    /// Its tensors.
    pub fn tensors(&self) -> TargetTensors {
        let (vocabulary, hidden) = (self.vocabulary, self.hidden);
        let matrix = |name: &str, rows, role, split| TensorSpec::matrix(name.into(), rows, hidden, role, split);
        TargetTensors {
            // Looked up, not read: a sum over ranks would take longer than a whole table on each saves.
            embedding: matrix("model.embed_tokens.weight", vocabulary, Role::Embedding, Split::Replicated),
            head: (!self.tied).then(|| matrix("lm_head.weight", self.head_rows, Role::VocabularyHead, Split::Rows)),
            layers: self.layers.iter().enumerate().map(|(at, layer)| layer.tensors(&Self::layer_prefix(at))).collect(),
            norm: TensorSpec::norm("model.norm.weight".into(), hidden),
        }
    }

    /// What the names of a layer's tensors begin with, without a dot.
    pub fn layer_prefix(at: usize) -> String {
        format!("model.layers.{at}")
    }
}

impl TargetTensors {
    /// All of them.
    pub fn all(&self) -> Vec<&TensorSpec> {
        let mut all: Vec<&TensorSpec> = [&self.embedding, &self.norm].into_iter().chain(&self.head).collect();
        all.extend(self.layers.iter().flat_map(LayerTensors::all));
        all
    }
}
