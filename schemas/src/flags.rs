//! The table of flags: one row a flag, from which the launch parser, `--help`, the docs and the rules all read.

mod table;

pub use table::FLAGS;

use crate::version::EngineVersion;

/// A flag that spectune knows, by what it means. Names differ by engine and version; the key does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each key is explained by its row in the table")]
pub enum Key {
    AttentionBackend,
    BatchInvariant,
    ChunkedPrefillSize,
    ContextLength,
    CudaGraphBs,
    CudaGraphMaxBs,
    DecodeAttentionBackend,
    Device,
    DisableCudaGraph,
    DisableCudaGraphPadding,
    DisableOverlapSchedule,
    DisaggregationMode,
    DpSize,
    Dtype,
    EnableDpAttention,
    EnableMixedChunk,
    EpSize,
    KvCacheDtype,
    LoadFormat,
    MaxRunningRequests,
    MaxTotalTokens,
    MemFractionStatic,
    ModelPath,
    PageSize,
    PpSize,
    PrefillAttentionBackend,
    Quantization,
    SpeculativeAcceptThresholdAcc,
    SpeculativeAcceptThresholdSingle,
    SpeculativeAdaptive,
    SpeculativeAlgorithm,
    SpeculativeAttentionMode,
    SpeculativeDraftAttentionBackend,
    SpeculativeDraftModelPath,
    SpeculativeDraftModelQuantization,
    SpeculativeEagleTopk,
    SpeculativeNumDraftTokens,
    SpeculativeNumSteps,
    SpeculativeTokenMap,
    TokenizerPath,
    TpSize,
}

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Nothing: its presence is its value.
    Nothing,
    /// One text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One integer.
    Integer,
    /// One number.
    Number,
    /// One or more integers.
    Integers,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// What it means.
    pub key: Key,
    /// The name to print, without dashes: SGLang's own.
    pub name: &'static str,
    /// Other spellings that SGLang's parser takes, without dashes.
    pub aliases: &'static [&'static str],
    /// What it takes.
    pub takes: Takes,
    /// Whether spectune's own engine takes it too.
    pub ours: bool,
    /// First SGLang version that has it under `name`, where known.
    pub since: Option<EngineVersion>,
    /// First SGLang version that no longer has it under `name`, where known.
    pub until: Option<EngineVersion>,
    /// One line for `--help` and the docs.
    pub help: &'static str,
}

impl Key {
    /// The flag's row.
    pub fn flag(self) -> &'static Flag {
        FLAGS.iter().find(|flag| flag.key == self).unwrap_or(&FLAGS[0])
    }
}
