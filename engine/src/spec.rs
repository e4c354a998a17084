//! One description of a model, without its tensors' values: pure data that names no file and no device.
//!
//! Families read a config.json into a [`TargetSpec`] and a [`DraftSpec`]. Both backends, memory accounting, cost models,
//! random weights and the self-test read these and nothing else: [`tensors`] is the only place that spells the names and
//! shapes of tensors, [`cost`] the only one that counts what a pass reads and multiplies.

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
