//! The rows, in alphabetical order. `since` and `until` are only as exact as the wheels that were read (see
//! `sglang.tsv`): the flag was added or removed somewhere between the previous wheel and the one named.

use super::{Flag, Key, Takes::*};
use crate::version::EngineVersion;

/// Every flag that spectune knows.
pub const FLAGS: &[Flag] = &[
    Flag::new(
        Key::ActorNumGpusPerNode,
        "actor-num-gpus-per-node",
        Integer,
        "slime: training GPUs of one node; with colocate the engines run on them",
    )
    .of_slime(),
    Flag::new(
        Key::ActorNumNodes,
        "actor-num-nodes",
        Integer,
        "slime: nodes that train; with colocate the engines run on them",
    )
    .of_slime(),
    Flag::new(
        Key::AttentionBackend,
        "attention-backend",
        Text,
        "Attention kernels of the target and, by default, of the draft",
    )
    .ours(),
    Flag::new(Key::AttnDpSize, "attn-dp-size", Integer, "Data parallelism of the attention layers")
        .aliases(&["attention-data-parallel-size"])
        .since(EngineVersion::new(0, 5, 22)),
    Flag::new(
        Key::BatchInvariant,
        "batch-invariant",
        Nothing,
        "Give every request the same output whatever else is in the batch",
    )
    .ours(),
    Flag::new(Key::ChatTemplate, "chat-template", Text, "Chat template, in place of the target's own"),
    Flag::new(
        Key::ChunkedPrefillSize,
        "chunked-prefill-size",
        Size,
        "Maximum number of prompt tokens per prefill pass; -1 turns chunking off",
    )
    .ours(),
    Flag::new(Key::Colocate, "colocate", Nothing, "slime: trainer and engine share the GPUs").of_slime(),
    Flag::new(Key::Config, "config", Text, "YAML file with flags; flags on the command line override it")
        .since(EngineVersion::new(0, 5, 3)),
    Flag::new(
        Key::ContextLength,
        "context-length",
        Size,
        "Maximum sequence length, prompt and output together (default: the model's)",
    )
    .ours(),
    Flag::new(
        Key::CudaGraphBackendDecode,
        "cuda-graph-backend-decode",
        Text,
        "How decode graphs are captured, or disabled",
    )
    .since(EngineVersion::new(0, 5, 14)),
    Flag::new(Key::CudaGraphBackendPrefill, "cuda-graph-backend-prefill", Text, "How prefill is captured, or disabled")
        .since(EngineVersion::new(0, 5, 14)),
    Flag::new(Key::CudaGraphBs, "cuda-graph-bs", Integers, "Batch sizes for which a decode graph is captured")
        .aliases(&["cuda-graph-bs-decode"])
        .ours()
        .until(EngineVersion::new(0, 5, 20)),
    Flag::new(
        Key::CudaGraphMaxBs,
        "cuda-graph-max-bs",
        Integer,
        "Largest batch size for which a decode graph is captured",
    )
    .aliases(&["cuda-graph-max-bs-decode"])
    .ours()
    .until(EngineVersion::new(0, 5, 20)),
    Flag::new(Key::DcpSize, "dcp-size", Integer, "Context parallelism of decode")
        .aliases(&["decode-context-parallel-size"])
        .since(EngineVersion::new(0, 5, 15)),
    Flag::new(Key::DebugRolloutOnly, "debug-rollout-only", Nothing, "slime: run the engines and train nothing")
        .of_slime(),
    Flag::new(
        Key::DecodeAttentionBackend,
        "decode-attention-backend",
        Text,
        "Attention kernels of decode, in place of --attention-backend",
    )
    .since(EngineVersion::new(0, 4, 9).post(5)),
    Flag::new(
        Key::DecoupledSpecBindEndpoint,
        "decoupled-spec-bind-endpoint",
        Text,
        "Decoupled speculation: the ZMQ endpoint on which this engine receives",
    )
    .since(EngineVersion::new(0, 5, 15)),
    Flag::new(
        Key::DecoupledSpecConnectEndpoints,
        "decoupled-spec-connect-endpoints",
        Text,
        "Decoupled speculation: JSON list of the peers' endpoints, in the order of their ranks",
    )
    .since(EngineVersion::new(0, 5, 15)),
    Flag::new(
        Key::DecoupledSpecRank,
        "decoupled-spec-rank",
        Integer,
        "Decoupled speculation: rank of this engine among those of its role",
    )
    .since(EngineVersion::new(0, 5, 15)),
    Flag::new(
        Key::DecoupledSpecRole,
        "decoupled-spec-role",
        Choice(&["null", "verifier", "drafter"]),
        "Run drafts and verification in separate engines, and which of them this one is",
    )
    .since(EngineVersion::new(0, 5, 15)),
    Flag::new(
        Key::DeepepMode,
        "deepep-mode",
        Choice(&["normal", "low_latency", "auto"]),
        "How DeepEP exchanges tokens; auto is low latency for decode",
    ),
    Flag::new(Key::Device, "device", Text, "Device to run on: auto, cpu, cuda or cuda:N").ours(),
    Flag::new(Key::DisableCudaGraph, "disable-cuda-graph", Nothing, "Run every batch without CUDA graphs").ours(),
    Flag::new(
        Key::DisableCudaGraphPadding,
        "disable-cuda-graph-padding",
        Nothing,
        "Use a graph only for batches of exactly its size",
    ),
    Flag::new(Key::DisableDecodeCudaGraph, "disable-decode-cuda-graph", Nothing, "Run decode without CUDA graphs")
        .since(EngineVersion::new(0, 5, 14)),
    Flag::new(
        Key::DisableOverlapSchedule,
        "disable-overlap-schedule",
        Nothing,
        "Do not overlap the scheduler with the GPU",
    ),
    Flag::new(Key::DisablePrefillCudaGraph, "disable-prefill-cuda-graph", Nothing, "Run prefill without CUDA graphs")
        .since(EngineVersion::new(0, 5, 14)),
    Flag::new(
        Key::DisableRadixCache,
        "disable-radix-cache",
        Nothing,
        "Prefill every prompt in full, even if its prefix is in the KV cache",
    )
    .ours(),
    Flag::new(
        Key::DisaggregationDecodeEnableRadixCache,
        "disaggregation-decode-enable-radix-cache",
        Nothing,
        "Prefix cache on a decode engine",
    )
    .since(EngineVersion::new(0, 5, 11)),
    Flag::new(
        Key::DisaggregationMode,
        "disaggregation-mode",
        Choice(&["null", "prefill", "decode"]),
        "Role of the engine with disaggregated prefill and decode",
    ),
    Flag::new(Key::DpSize, "dp-size", Integer, "Data-parallel replicas").aliases(&["data-parallel-size"]),
    Flag::new(
        Key::Dtype,
        "dtype",
        Choice(&["auto", "half", "float16", "bfloat16", "float", "float32"]),
        "Dtype of weights and activations; auto follows the checkpoint",
    )
    .ours(),
    Flag::new(Key::DwdpSize, "dwdp-size", Integer, "Data parallelism with experts fetched from the other ranks")
        .since(EngineVersion::new(0, 5, 17)),
    Flag::new(
        Key::EnableCustomLogitProcessor,
        "enable-custom-logit-processor",
        Nothing,
        "Let requests provide code that changes their logits",
    ),
    Flag::new(
        Key::EnableDeterministicInference,
        "enable-deterministic-inference",
        Nothing,
        "Kernels whose results do not depend on the batch",
    )
    .since(EngineVersion::new(0, 5, 3)),
    Flag::new(
        Key::EnableDpAttention,
        "enable-dp-attention",
        Nothing,
        "Data-parallel attention under tensor-parallel experts",
    ),
    Flag::new(Key::EnableDpLmHead, "enable-dp-lm-head", Nothing, "Data-parallel output head under DP attention"),
    Flag::new(
        Key::EnableHierarchicalCache,
        "enable-hierarchical-cache",
        Nothing,
        "Keep evicted KV pages in host memory",
    )
    .aliases(&["enable-hicache"]),
    Flag::new(
        Key::EnableKvCacheSharding,
        "enable-kv-cache-sharding",
        Nothing,
        "Distribute the pages of the KV cache over the ranks of a prefill engine",
    )
    .since(EngineVersion::new(0, 5, 22)),
    Flag::new(
        Key::EnableLayernormSp,
        "enable-layernorm-sp",
        Nothing,
        "Distribute sequences over the ranks between layers",
    )
    .since(EngineVersion::new(0, 5, 19)),
    Flag::new(
        Key::EnableLinearReplayssmSpec,
        "enable-linear-replayssm-spec",
        Nothing,
        "Replay accepted tokens into the states of linear attention",
    )
    .aliases(&["enable-gdn-replayssm-spec"])
    .since(EngineVersion::new(0, 5, 17)),
    Flag::new(Key::EnableLora, "enable-lora", Nothing, "Serve LoRA adapters")
        .since(EngineVersion::new(0, 4, 9).post(3)),
    Flag::new(Key::EnableMixedChunk, "enable-mixed-chunk", Nothing, "Mix prefill chunks and decode in one batch"),
    Flag::new(
        Key::EnableMtpTraining,
        "enable-mtp-training",
        Nothing,
        "slime: train the MTP layers along with the target",
    )
    .of_slime(),
    Flag::new(Key::EnableMultiLayerEagle, "enable-multi-layer-eagle", Nothing, "One MTP layer per draft step")
        .since(EngineVersion::new(0, 5, 7)),
    Flag::new(Key::EnablePdmux, "enable-pdmux", Nothing, "Run prefill and decode side by side on one GPU")
        .since(EngineVersion::new(0, 4, 9).post(3)),
    Flag::new(
        Key::EnableReturnHiddenStates,
        "enable-return-hidden-states",
        Nothing,
        "Let requests ask for hidden states",
    )
    .since(EngineVersion::new(0, 4, 7).post(1)),
    Flag::new(Key::EnableTorchCompile, "enable-torch-compile", Nothing, "Compile the model with torch.compile"),
    Flag::new(Key::EnableTwoBatchOverlap, "enable-two-batch-overlap", Nothing, "Overlap two half batches"),
    Flag::new(Key::EnableUnifiedMemory, "enable-unified-memory", Nothing, "One pool of memory for all kinds of caches")
        .since(EngineVersion::new(0, 5, 15)),
    Flag::new(Key::EnableWatermark, "enable-watermark", Nothing, "Watermark sampled text")
        .since(EngineVersion::new(0, 5, 22)),
    Flag::new(Key::EpSize, "ep-size", Integer, "Expert parallelism").aliases(&["ep", "expert-parallel-size"]),
    Flag::new(Key::Fp16, "fp16", Nothing, "slime: train in float16, which also sets the engine's dtype").of_slime(),
    Flag::new(Key::GrammarBackend, "grammar-backend", Text, "Library for structured output"),
    Flag::new(Key::KvCacheDtype, "kv-cache-dtype", Text, "Dtype of the KV cache"),
    Flag::new(Key::LoadFormat, "load-format", Text, "Format of the weights; dummy makes random ones").ours(),
    Flag::new(Key::LoraPaths, "lora-paths", Texts, "LoRA adapters to load"),
    Flag::new(
        Key::MambaSchedulerStrategy,
        "mamba-scheduler-strategy",
        Text,
        "How states of linear attention are scheduled",
    )
    .aliases(&["mamba-radix-cache-strategy"])
    .since(EngineVersion::new(0, 5, 7))
    .until(EngineVersion::new(0, 5, 20)),
    Flag::new(
        Key::MambaTrackInterval,
        "mamba-track-interval",
        Integer,
        "Tokens between kept states of linear attention",
    )
    .since(EngineVersion::new(0, 5, 7)),
    Flag::new(Key::MaxPrefillTokens, "max-prefill-tokens", Size, "Maximum number of tokens in one prefill batch"),
    Flag::new(Key::MaxRunningRequests, "max-running-requests", Integer, "Maximum number of running requests").ours(),
    Flag::new(
        Key::MaxTotalTokens,
        "max-total-tokens",
        Integer,
        "Tokens in the KV pool, in place of what the memory fraction allows",
    ),
    Flag::new(Key::MemFractionStatic, "mem-fraction-static", Number, "Share of GPU memory for weights and KV pool")
        .ours(),
    Flag::new(Key::ModelPath, "model-path", Text, "The target: a folder or a Hugging Face id")
        .aliases(&["hf-checkpoint", "model"])
        .ours(),
    Flag::new(
        Key::ModelShape,
        "model-shape",
        Text,
        "spectune: published model shape for the random weights of --load-format dummy, such as llama-3.1-8b",
    )
    .ours(),
    Flag::new(Key::MoeA2aBackend, "moe-a2a-backend", Text, "All-to-all library of the experts")
        .since(EngineVersion::new(0, 4, 10).post(2)),
    Flag::new(Key::MoeRunnerBackend, "moe-runner-backend", Text, "Kernels of the experts")
        .since(EngineVersion::new(0, 5, 1)),
    Flag::new(Key::MtpNumLayers, "mtp-num-layers", Integer, "slime: MTP layers of the trained model").of_slime(),
    Flag::new(Key::NSamplesPerPrompt, "n-samples-per-prompt", Integer, "slime: samples per prompt of a rollout")
        .of_slime(),
    Flag::new(
        Key::NumLayers,
        "num-layers",
        Integer,
        "spectune: keep only the first N layers of --model-shape, if all of them do not fit into memory",
    )
    .ours(),
    Flag::new(Key::OffloadRollout, "offload-rollout", Nothing, "slime: move the engines off the GPU while it trains")
        .of_slime(),
    Flag::new(
        Key::OverSamplingBatchSize,
        "over-sampling-batch-size",
        Integer,
        "slime: prompts sent at once when samples are filtered",
    )
    .of_slime(),
    Flag::new(Key::PageSize, "page-size", Integer, "Tokens per KV page").ours(),
    Flag::new(Key::PpSize, "pp-size", Integer, "Pipeline parallelism").aliases(&["pipeline-parallel-size"]),
    Flag::new(
        Key::PreferredSamplingParams,
        "preferred-sampling-params",
        Text,
        "JSON object with default sampling parameters for requests",
    ),
    Flag::new(
        Key::PrefillAttentionBackend,
        "prefill-attention-backend",
        Text,
        "Attention kernels of prefill, in place of --attention-backend",
    )
    .since(EngineVersion::new(0, 4, 9).post(5)),
    Flag::new(Key::PrefillNumServers, "prefill-num-servers", Integer, "slime: engines that only prefill").of_slime(),
    Flag::new(
        Key::Quantization,
        "quantization",
        Text,
        "Quantisation of 16-bit weights at load time, such as fp8; by default of the draft too",
    )
    .ours(),
    Flag::new(
        Key::ReturnHiddenStatesMode,
        "return-hidden-states-mode",
        Text,
        "Which hidden states requests may ask for: last or full",
    )
    .since(EngineVersion::new(0, 5, 17)),
    Flag::new(Key::Revision, "revision", Text, "Branch, tag or commit of the target on the hub"),
    Flag::new(
        Key::RlOnPolicyTarget,
        "rl-on-policy-target",
        Text,
        "Compute as this trainer does, so that samples are on-policy to the bit",
    )
    .since(EngineVersion::new(0, 5, 4).post(1)),
    Flag::new(Key::RolloutBatchSize, "rollout-batch-size", Integer, "slime: prompts per rollout").of_slime(),
    Flag::new(
        Key::RolloutMaxContextLen,
        "rollout-max-context-len",
        Integer,
        "slime: maximum length of prompt and response together",
    )
    .of_slime(),
    Flag::new(Key::RolloutMaxPromptLen, "rollout-max-prompt-len", Integer, "slime: maximum prompt length").of_slime(),
    Flag::new(Key::RolloutMaxResponseLen, "rollout-max-response-len", Integer, "slime: maximum response length")
        .of_slime(),
    Flag::new(Key::RolloutNumGpus, "rollout-num-gpus", Integer, "slime: total GPUs of all engines").of_slime(),
    Flag::new(
        Key::RolloutNumGpusPerEngine,
        "rollout-num-gpus-per-engine",
        Integer,
        "slime: GPUs per engine: tensor times pipeline parallelism",
    )
    .of_slime(),
    Flag::new(Key::RolloutTemperature, "rollout-temperature", Number, "slime: temperature of rollouts").of_slime(),
    Flag::new(Key::RolloutTopK, "rollout-top-k", Integer, "slime: top-k of rollouts").of_slime(),
    Flag::new(Key::RolloutTopP, "rollout-top-p", Number, "slime: top-p of rollouts").of_slime(),
    Flag::new(
        Key::SamplingDefaults,
        "sampling-defaults",
        Text,
        "Source of sampling parameters that requests omit: model or openai",
    )
    .since(EngineVersion::new(0, 5, 3).post(1)),
    Flag::new(Key::SglangConfig, "sglang-config", Text, "slime: YAML file whose overrides win over the flags")
        .of_slime(),
    Flag::new(
        Key::ServerConcurrency,
        "sglang-server-concurrency",
        Integer,
        "slime: requests in flight to one engine (default 512)",
    )
    .of_slime(),
    Flag::new(
        Key::SimulateAcceptLength,
        "simulate-accept-length",
        Number,
        "spectune: accept this many tokens per round on average, whatever the target predicts; the output is \
         meaningless",
    )
    .ours(),
    Flag::new(Key::SkipTokenizerInit, "skip-tokenizer-init", Nothing, "Accept and return token ids only"),
    Flag::new(
        Key::SpeculativeAcceptThresholdAcc,
        "speculative-accept-threshold-acc",
        Number,
        "Raise the acceptance probability of a draft token to p/threshold; below 1 the output is lossy",
    ),
    Flag::new(
        Key::SpeculativeAcceptThresholdSingle,
        "speculative-accept-threshold-single",
        Number,
        "Accept a draft token above this target probability; below 1 the output is lossy",
    ),
    Flag::new(Key::SpeculativeAdaptive, "speculative-adaptive", Nothing, "Choose the number of steps at run time")
        .ours()
        .since(EngineVersion::new(0, 5, 11)),
    Flag::new(
        Key::SpeculativeAdaptiveConfig,
        "speculative-adaptive-config",
        Text,
        "File with the candidate steps of adaptive speculation",
    )
    .ours()
    .since(EngineVersion::new(0, 5, 11)),
    Flag::new(
        Key::SpeculativeAlgorithm,
        "speculative-algorithm",
        Text,
        "EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, …; absent means no speculation",
    )
    .ours(),
    Flag::new(
        Key::SpeculativeAttentionMode,
        "speculative-attention-mode",
        Choice(&["prefill", "decode"]),
        "Which half of a split attention backend runs verify and draft extension",
    )
    .since(EngineVersion::new(0, 5, 2)),
    Flag::new(Key::SpeculativeDflashBlockSize, "speculative-dflash-block-size", Integer, "DFLASH: tokens per block")
        .since(EngineVersion::new(0, 5, 11))
        .ours(),
    Flag::new(
        Key::SpeculativeDraftAttentionBackend,
        "speculative-draft-attention-backend",
        Text,
        "Attention kernels of the draft",
    )
    .since(EngineVersion::new(0, 5, 7)),
    Flag::new(
        Key::SpeculativeDraftKvCacheDtype,
        "speculative-draft-kv-cache-dtype",
        Text,
        "Dtype of the draft's KV cache",
    )
    .since(EngineVersion::new(0, 5, 18)),
    Flag::new(Key::SpeculativeDraftLoadFormat, "speculative-draft-load-format", Text, "Format of the draft's weights")
        .since(EngineVersion::new(0, 5, 3).post(2)),
    Flag::new(
        Key::SpeculativeDraftModelPath,
        "speculative-draft-model-path",
        Text,
        "The draft: a folder or a Hugging Face id",
    )
    .aliases(&["speculative-draft-model"])
    .ours(),
    Flag::new(
        Key::SpeculativeDraftModelQuantization,
        "speculative-draft-model-quantization",
        Text,
        "Quantisation of the draft's weights; unquant for none",
    )
    .since(EngineVersion::new(0, 5, 7))
    .ours(),
    Flag::new(
        Key::SpeculativeDraftModelRevision,
        "speculative-draft-model-revision",
        Text,
        "Branch, tag or commit of the draft on the hub",
    )
    .since(EngineVersion::new(0, 5, 2)),
    Flag::new(
        Key::SpeculativeDraftWindowSize,
        "speculative-draft-window-size",
        Integer,
        "Window of the draft's attention",
    )
    .since(EngineVersion::new(0, 5, 12)),
    Flag::new(
        Key::SpeculativeDsparkBlockSize,
        "speculative-dspark-block-size",
        Integer,
        "DSPARK: proposed tokens per block",
    )
    .since(EngineVersion::new(0, 5, 16))
    .ours(),
    Flag::new(
        Key::SpeculativeEagleTopk,
        "speculative-eagle-topk",
        Integer,
        "Branches that each beam proposes at each draft step",
    )
    .ours(),
    Flag::new(
        Key::SpeculativeMoeRunnerBackend,
        "speculative-moe-runner-backend",
        Text,
        "Kernels of the draft's experts",
    )
    .since(EngineVersion::new(0, 5, 4).post(3)),
    Flag::new(
        Key::SpeculativeNgramExternalCorpusMaxTokens,
        "speculative-ngram-external-corpus-max-tokens",
        Integer,
        "NGRAM: maximum number of tokens in the external corpus",
    )
    .since(EngineVersion::new(0, 5, 11)),
    Flag::new(
        Key::SpeculativeNgramExternalCorpusPath,
        "speculative-ngram-external-corpus-path",
        Text,
        "NGRAM: texts to look up in addition to those of the requests",
    )
    .since(EngineVersion::new(0, 5, 11)),
    Flag::new(
        Key::SpeculativeNgramExternalSamBudget,
        "speculative-ngram-external-sam-budget",
        Integer,
        "NGRAM: draft tokens that the external corpus may propose",
    )
    .since(EngineVersion::new(0, 5, 11)),
    Flag::new(
        Key::SpeculativeNgramMaxBfsBreadth,
        "speculative-ngram-max-bfs-breadth",
        Integer,
        "NGRAM: maximum breadth of the proposed tree, in place of topk",
    )
    .since(EngineVersion::new(0, 5, 3)),
    Flag::new(
        Key::SpeculativeNgramMaxMatchWindowSize,
        "speculative-ngram-max-match-window-size",
        Integer,
        "NGRAM: maximum length of the suffix that is looked up",
    )
    .since(EngineVersion::new(0, 5, 3))
    .until(EngineVersion::new(0, 5, 10)),
    Flag::new(
        Key::SpeculativeNgramMaxTrieDepth,
        "speculative-ngram-max-trie-depth",
        Integer,
        "NGRAM: maximum length of stored token runs",
    )
    .since(EngineVersion::new(0, 5, 10)),
    Flag::new(
        Key::SpeculativeNgramMinBfsBreadth,
        "speculative-ngram-min-bfs-breadth",
        Integer,
        "NGRAM: minimum breadth of the proposed tree",
    )
    .since(EngineVersion::new(0, 5, 3)),
    Flag::new(
        Key::SpeculativeNumDraftTokens,
        "speculative-num-draft-tokens",
        Integer,
        "Tree nodes that the target verifies, root included",
    )
    .ours(),
    Flag::new(Key::SpeculativeNumSteps, "speculative-num-steps", Integer, "Draft steps: the depth of the tree").ours(),
    Flag::new(
        Key::SpeculativeTokenMap,
        "speculative-token-map",
        Text,
        "File with the tokens that an EAGLE draft may propose (FR-Spec)",
    )
    .ours(),
    Flag::new(
        Key::SpeculativeUseBlockVerification,
        "speculative-use-block-verification",
        Nothing,
        "Verify a sampled chain as a block",
    )
    .since(EngineVersion::new(0, 5, 22)),
    Flag::new(
        Key::SpeculativeUseRejectionSampling,
        "speculative-use-rejection-sampling",
        Nothing,
        "Verify a sampled chain by exact rejection sampling",
    )
    .since(EngineVersion::new(0, 5, 14)),
    Flag::new(Key::TokenizerPath, "tokenizer-path", Text, "The tokenizer, if it is not in the target's folder"),
    Flag::new(Key::TorchCompileMaxBs, "torch-compile-max-bs", Integer, "Largest batch size to compile"),
    Flag::new(Key::TpSize, "tp-size", Integer, "Tensor parallelism").aliases(&["tensor-parallel-size"]).ours(),
    Flag::new(Key::TrustRemoteCode, "trust-remote-code", Nothing, "Run the checkpoint's own Python code"),
    Flag::new(Key::UnoLoraPath, "uno-lora-path", Text, "UNO: the adapter that drafts")
        .since(EngineVersion::new(0, 5, 20)),
    Flag::new(Key::UseTensorboard, "use-tensorboard", Nothing, "slime: write metrics for TensorBoard").of_slime(),
    Flag::new(Key::UseWandb, "use-wandb", Nothing, "slime: send metrics to Weights & Biases").of_slime(),
    Flag::new(
        Key::WeightCacheMode,
        "weight-cache-mode",
        Text,
        "Share weights with a process that keeps them loaded: off, client or daemon",
    )
    .since(EngineVersion::new(0, 5, 17)),
];
