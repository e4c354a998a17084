//! What a flag means, whatever an engine or a version calls it.

macro_rules! keys {
    ($($key:ident),* $(,)?) => {
        /// A flag that spectune knows, by what it means. Names differ by engine and version; the key does not.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "each key is explained by its row in the table")]
        pub enum Key {
            $($key),*
        }

        impl Key {
            /// Every key, in alphabetical order.
            pub const ALL: &'static [Self] = &[$(Self::$key),*];
        }
    };
}

keys! {
    AttentionBackend,
    AttnDpSize,
    BatchInvariant,
    ChunkedPrefillSize,
    Colocate,
    ContextLength,
    CudaGraphBackendDecode,
    CudaGraphBs,
    CudaGraphMaxBs,
    DecodeAttentionBackend,
    Device,
    DisableCudaGraph,
    DisableCudaGraphPadding,
    DisableDecodeCudaGraph,
    DisableOverlapSchedule,
    DisableRadixCache,
    DisaggregationDecodeEnableRadixCache,
    DisaggregationMode,
    DpSize,
    Dtype,
    EnableDeterministicInference,
    EnableDpAttention,
    EnableDpLmHead,
    EnableHierarchicalCache,
    EnableLora,
    EnableMixedChunk,
    EnableMtpTraining,
    EnableMultiLayerEagle,
    EnableTorchCompile,
    EnableTwoBatchOverlap,
    EpSize,
    Fp16,
    GrammarBackend,
    KvCacheDtype,
    LoadFormat,
    LoraPaths,
    MambaSchedulerStrategy,
    MaxPrefillTokens,
    MaxRunningRequests,
    MaxTotalTokens,
    MemFractionStatic,
    ModelPath,
    ModelShape,
    MoeA2aBackend,
    MoeRunnerBackend,
    PageSize,
    PpSize,
    PrefillAttentionBackend,
    Quantization,
    RolloutNumGpusPerEngine,
    ServerConcurrency,
    SglangConfig,
    SimulateAcceptLength,
    SkipTokenizerInit,
    SpeculativeAcceptThresholdAcc,
    SpeculativeAcceptThresholdSingle,
    SpeculativeAdaptive,
    SpeculativeAdaptiveConfig,
    SpeculativeAlgorithm,
    SpeculativeAttentionMode,
    SpeculativeDflashBlockSize,
    SpeculativeDraftAttentionBackend,
    SpeculativeDraftKvCacheDtype,
    SpeculativeDraftLoadFormat,
    SpeculativeDraftModelPath,
    SpeculativeDraftModelQuantization,
    SpeculativeDraftWindowSize,
    SpeculativeDsparkBlockSize,
    SpeculativeEagleTopk,
    SpeculativeMoeRunnerBackend,
    SpeculativeNgramMaxBfsBreadth,
    SpeculativeNgramMaxMatchWindowSize,
    SpeculativeNumDraftTokens,
    SpeculativeNumSteps,
    SpeculativeTokenMap,
    SpeculativeUseBlockVerification,
    SpeculativeUseRejectionSampling,
    TokenizerPath,
    TorchCompileMaxBs,
    TpSize,
    TrustRemoteCode,
    UnoLoraPath,
}
