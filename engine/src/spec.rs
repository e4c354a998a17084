//! The description of a model without the values of its tensors: pure data, independent of files
//! and devices.
//!
//! Families read a config.json into a [`TargetSpec`] and a [`RecurrentSpec`]. Both backends, memory
//! accounting, cost models, random weights and the self-test depend on nothing else: only `tensors`
//! spells the names and shapes of tensors, and only `cost` counts the bytes and operations of a
//! pass.

mod attention;
mod block;
mod cache;
mod cost;
mod draft;
mod features;
mod ffn;
mod format;
mod layer;
mod published;
mod recurrent;
mod rope;
mod share;
mod target;
mod tensors;
mod text;
mod uniform;
mod window;

pub use self::{
    attention::{AttentionSpec, DeltaNet, GroupedQuery, KvLayout, MultiHeadLatent, StateLayout},
    block::{BlockLayer, BlockSpec, BlockTensorLayout, ConfidenceSpec, MarkovKind, MarkovSpec, default_layers},
    cache::CacheFormat,
    cost::{Cost, CountedShares, ExpertCost, ModelCost, PassCost, WindowedCache},
    draft::DraftSpec,
    features::{CaptureNorms, CapturedFeatures, DraftSource, EmbeddingSource, Features, LinearSpec, VocabularySource},
    ffn::{DenseSpec, ExpertsLayout, ExpertsSpec, FfnSpec, RouterPrecision, RouterScore, RouterSpec},
    format::{LayerFormats, WeightFormat},
    layer::{LayerSpec, NormWeights},
    published::{PUBLISHED, PublishedModel, published},
    recurrent::{Feedback, Join, RecurrentSpec, RecurrentTensorLayout},
    rope::{Pairing, RopeSpec},
    share::Share,
    target::TargetSpec,
    tensors::{
        AttentionTensors, BlockTensors, CacheScaleNames, DeltaTensors, ExpertsTensors, FfnTensors, GatedTensors,
        GroupedTensors, JoinTensors, LatentTensors, LayerTensors, LinearTensors, MASK_EMBEDDING, MarkovTensors,
        RecurrentTensors, Role, TargetTensors, TensorSpec, TensorSplit,
    },
    text::{Occurrence, PromptLookup, SuffixRule, TextSpec, TrieMatch, TrieRule},
};
