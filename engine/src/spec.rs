//! The description of a model without the values of its tensors: pure data, independent of files and devices.
//!
//! Families read a config.json into a [`TargetSpec`] and a [`DraftSpec`]. Both backends, memory accounting, cost
//! models, random weights and the self-test depend on nothing else: only [`tensors`] spells the names and shapes of
//! tensors, and only [`cost`] counts the bytes and operations of a pass.

mod attention;
mod cost;
mod draft;
mod ffn;
mod format;
mod layer;
mod published;
mod rope;
mod share;
mod target;
mod tensors;

pub use self::{
    attention::{AttentionSpec, GroupedQuery, KvLayout, MultiHeadLatent},
    cost::{Cost, ExpertCost, ModelCost, PassCost},
    draft::{
        CaptureNorms, CapturedFeatures, DraftSource, DraftSpec, DraftTensorLayout, EmbeddingSource, Features, Feedback,
        Join, LinearSpec, VocabularySource,
    },
    ffn::{DenseSpec, ExpertsSpec, FfnSpec, RouterPrecision, RouterScore, RouterSpec},
    format::{LayerFormats, WeightFormat},
    layer::LayerSpec,
    published::{PUBLISHED, PublishedModel, published},
    rope::{Pairing, RopeSpec},
    share::Share,
    target::TargetSpec,
    tensors::{
        AttentionTensors, DraftTensors, ExpertsTensors, FfnTensors, GatedTensors, GroupedTensors, JoinTensors,
        LatentTensors, LayerTensors, LinearTensors, Role, Split, TargetTensors, TensorSpec,
    },
};
