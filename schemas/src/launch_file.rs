//! Our TOML launch file: SGLang's flags in snake case, each optional.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The engine that a launch file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    /// SGLang's server.
    Sglang,
    /// slime, which passes the flags on to SGLang.
    Slime,
    /// spectune's own engine.
    Spectune,
}

/// A launch of an engine: its flags under SGLang's own names, in snake case. A switch is on where it is `true`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LaunchFile {
    /// The engine that runs it (default: spectune's own).
    pub engine: Option<EngineName>,
    /// The engine's version, such as "0.5.9".
    pub engine_version: Option<String>,
    /// Attention kernels of the target and, by default, of the draft.
    pub attention_backend: Option<String>,
    /// Data parallelism of the attention layers.
    pub attn_dp_size: Option<i64>,
    /// Give every request the same output whatever else is in the batch.
    pub batch_invariant: Option<bool>,
    /// Chat template, in place of the target's own.
    pub chat_template: Option<String>,
    /// Maximum number of prompt tokens per prefill pass; -1 turns chunking off.
    pub chunked_prefill_size: Option<i64>,
    /// Maximum sequence length, prompt and output together (default: the model's).
    pub context_length: Option<i64>,
    /// How decode graphs are captured, or disabled.
    pub cuda_graph_backend_decode: Option<String>,
    /// How prefill is captured, or disabled.
    pub cuda_graph_backend_prefill: Option<String>,
    /// Batch sizes for which a decode graph is captured.
    pub cuda_graph_bs: Option<Vec<i64>>,
    /// Largest batch size for which a decode graph is captured.
    pub cuda_graph_max_bs: Option<i64>,
    /// Context parallelism of decode.
    pub dcp_size: Option<i64>,
    /// Attention kernels of decode, in place of --attention-backend.
    pub decode_attention_backend: Option<String>,
    /// Decoupled speculation: the ZMQ endpoint on which this engine receives.
    pub decoupled_spec_bind_endpoint: Option<String>,
    /// Decoupled speculation: JSON list of the peers' endpoints, in the order of their ranks.
    pub decoupled_spec_connect_endpoints: Option<String>,
    /// Decoupled speculation: rank of this engine among those of its role.
    pub decoupled_spec_rank: Option<i64>,
    /// Decoupled speculation: whether this engine drafts or verifies.
    pub decoupled_spec_role: Option<String>,
    /// How DeepEP exchanges tokens; auto is low latency for decode.
    pub deepep_mode: Option<String>,
    /// Device to run on: auto, cpu, cuda or cuda:N.
    pub device: Option<String>,
    /// Run every batch without CUDA graphs.
    pub disable_cuda_graph: Option<bool>,
    /// Use a graph only for batches of exactly its size.
    pub disable_cuda_graph_padding: Option<bool>,
    /// Run decode without CUDA graphs.
    pub disable_decode_cuda_graph: Option<bool>,
    /// Do not overlap the scheduler with the GPU.
    pub disable_overlap_schedule: Option<bool>,
    /// Run prefill without CUDA graphs.
    pub disable_prefill_cuda_graph: Option<bool>,
    /// Prefill every prompt in full, even if its prefix is in the KV cache.
    pub disable_radix_cache: Option<bool>,
    /// Prefix cache on a decode engine.
    pub disaggregation_decode_enable_radix_cache: Option<bool>,
    /// Role of the engine with disaggregated prefill and decode.
    pub disaggregation_mode: Option<String>,
    /// Data-parallel replicas.
    pub dp_size: Option<i64>,
    /// Dtype of weights and activations; auto follows the checkpoint.
    pub dtype: Option<String>,
    /// Data parallelism with experts fetched from the other ranks.
    pub dwdp_size: Option<i64>,
    /// Let requests provide code that changes their logits.
    pub enable_custom_logit_processor: Option<bool>,
    /// Kernels whose results do not depend on the batch.
    pub enable_deterministic_inference: Option<bool>,
    /// Data-parallel attention under tensor-parallel experts.
    pub enable_dp_attention: Option<bool>,
    /// Data-parallel output head under DP attention.
    pub enable_dp_lm_head: Option<bool>,
    /// Keep evicted KV pages in host memory.
    pub enable_hierarchical_cache: Option<bool>,
    /// Distribute the pages of the KV cache over the ranks of a prefill engine.
    pub enable_kv_cache_sharding: Option<bool>,
    /// Distribute sequences over the ranks between layers.
    pub enable_layernorm_sp: Option<bool>,
    /// Replay accepted tokens into the states of linear attention.
    pub enable_linear_replayssm_spec: Option<bool>,
    /// Serve LoRA adapters.
    pub enable_lora: Option<bool>,
    /// Mix prefill chunks and decode in one batch.
    pub enable_mixed_chunk: Option<bool>,
    /// One MTP layer per draft step.
    pub enable_multi_layer_eagle: Option<bool>,
    /// Run prefill and decode side by side on one GPU.
    pub enable_pdmux: Option<bool>,
    /// Let requests return hidden states.
    pub enable_return_hidden_states: Option<bool>,
    /// Compile the model with torch.compile.
    pub enable_torch_compile: Option<bool>,
    /// Overlap two half batches.
    pub enable_two_batch_overlap: Option<bool>,
    /// One pool of memory for all kinds of caches.
    pub enable_unified_memory: Option<bool>,
    /// Watermark sampled text.
    pub enable_watermark: Option<bool>,
    /// Expert parallelism.
    pub ep_size: Option<i64>,
    /// Library for structured output.
    pub grammar_backend: Option<String>,
    /// Dtype of the KV cache.
    pub kv_cache_dtype: Option<String>,
    /// Format of the weights; dummy makes random ones.
    pub load_format: Option<String>,
    /// LoRA adapters to load.
    pub lora_paths: Option<Vec<String>>,
    /// How states of linear attention are scheduled.
    pub mamba_scheduler_strategy: Option<String>,
    /// Tokens between kept states of linear attention.
    pub mamba_track_interval: Option<i64>,
    /// Maximum number of tokens in one prefill batch.
    pub max_prefill_tokens: Option<i64>,
    /// Maximum number of running requests.
    pub max_running_requests: Option<i64>,
    /// Tokens in the KV pool, in place of what the memory fraction allows.
    pub max_total_tokens: Option<i64>,
    /// Share of GPU memory for weights and KV pool.
    pub mem_fraction_static: Option<f64>,
    /// The target: a folder or a Hugging Face id.
    pub model_path: Option<String>,
    /// spectune: published model shape for the random weights of load_format dummy, such as "llama-3.1-8b".
    pub model_shape: Option<String>,
    /// All-to-all library of the experts.
    pub moe_a2a_backend: Option<String>,
    /// Kernels of the experts.
    pub moe_runner_backend: Option<String>,
    /// spectune: keep only the first N layers of model_shape.
    pub num_layers: Option<i64>,
    /// Tokens per KV page.
    pub page_size: Option<i64>,
    /// Pipeline parallelism.
    pub pp_size: Option<i64>,
    /// JSON object with default sampling parameters for requests.
    pub preferred_sampling_params: Option<String>,
    /// Attention kernels of prefill, in place of --attention-backend.
    pub prefill_attention_backend: Option<String>,
    /// Quantisation of the target's weights.
    pub quantization: Option<String>,
    /// Which hidden states requests may ask for: last or full.
    pub return_hidden_states_mode: Option<String>,
    /// Branch, tag or commit of the target on the hub.
    pub revision: Option<String>,
    /// Compute as this trainer does, so that samples are on-policy to the bit.
    pub rl_on_policy_target: Option<String>,
    /// Source of sampling parameters that requests omit: model or openai.
    pub sampling_defaults: Option<String>,
    /// spectune: accept this many tokens per round on average, whatever the target predicts; the output is meaningless.
    pub simulate_accept_length: Option<f64>,
    /// Accept and return token ids only.
    pub skip_tokenizer_init: Option<bool>,
    /// Raise the acceptance probability of a draft token to p/threshold; below 1 the output is lossy.
    pub speculative_accept_threshold_acc: Option<f64>,
    /// Accept a draft token above this target probability; below 1 the output is lossy.
    pub speculative_accept_threshold_single: Option<f64>,
    /// Choose the number of steps at run time.
    pub speculative_adaptive: Option<bool>,
    /// File with the candidate steps of adaptive speculation.
    pub speculative_adaptive_config: Option<String>,
    /// EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, …; absent means no speculation.
    pub speculative_algorithm: Option<String>,
    /// Which half of a split attention backend runs verify and draft extension.
    pub speculative_attention_mode: Option<String>,
    /// DFLASH: tokens per block.
    pub speculative_dflash_block_size: Option<i64>,
    /// Attention kernels of the draft.
    pub speculative_draft_attention_backend: Option<String>,
    /// Dtype of the draft's KV cache.
    pub speculative_draft_kv_cache_dtype: Option<String>,
    /// Format of the draft's weights.
    pub speculative_draft_load_format: Option<String>,
    /// The draft: a folder or a Hugging Face id.
    pub speculative_draft_model_path: Option<String>,
    /// Quantisation of the draft's weights; unquant for none.
    pub speculative_draft_model_quantization: Option<String>,
    /// Window of the draft's attention.
    pub speculative_draft_window_size: Option<i64>,
    /// Branch, tag or commit of the draft on the hub.
    pub speculative_draft_model_revision: Option<String>,
    /// DSPARK: proposed tokens per block.
    pub speculative_dspark_block_size: Option<i64>,
    /// Branches that each beam proposes at each draft step.
    pub speculative_eagle_topk: Option<i64>,
    /// Kernels of the draft's experts.
    pub speculative_moe_runner_backend: Option<String>,
    /// NGRAM: maximum number of tokens in the external corpus.
    pub speculative_ngram_external_corpus_max_tokens: Option<i64>,
    /// NGRAM: texts to look up in addition to those of the requests.
    pub speculative_ngram_external_corpus_path: Option<String>,
    /// NGRAM: draft tokens that the external corpus may propose.
    pub speculative_ngram_external_sam_budget: Option<i64>,
    /// NGRAM: maximum breadth of the proposed tree, in place of topk.
    pub speculative_ngram_max_bfs_breadth: Option<i64>,
    /// NGRAM: maximum length of the suffix that is looked up.
    pub speculative_ngram_max_match_window_size: Option<i64>,
    /// NGRAM: maximum length of stored token runs.
    pub speculative_ngram_max_trie_depth: Option<i64>,
    /// NGRAM: minimum breadth of the proposed tree.
    pub speculative_ngram_min_bfs_breadth: Option<i64>,
    /// Tree nodes that the target verifies, root included.
    pub speculative_num_draft_tokens: Option<i64>,
    /// Draft steps: the depth of the tree.
    pub speculative_num_steps: Option<i64>,
    /// File with the tokens that an EAGLE draft may propose (FR-Spec).
    pub speculative_token_map: Option<String>,
    /// Verify a sampled chain as a block.
    pub speculative_use_block_verification: Option<bool>,
    /// Verify a sampled chain by exact rejection sampling.
    pub speculative_use_rejection_sampling: Option<bool>,
    /// The tokenizer, if it is not in the target's folder.
    pub tokenizer_path: Option<String>,
    /// Largest batch size to compile.
    pub torch_compile_max_bs: Option<i64>,
    /// Tensor parallelism.
    pub tp_size: Option<i64>,
    /// Run the checkpoint's own Python code.
    pub trust_remote_code: Option<bool>,
    /// UNO: the adapter that drafts.
    pub uno_lora_path: Option<String>,
    /// Share weights with a process that keeps them loaded: off, client or daemon.
    pub weight_cache_mode: Option<String>,
    /// Environment variables of the engine.
    pub environment: BTreeMap<String, String>,
}
