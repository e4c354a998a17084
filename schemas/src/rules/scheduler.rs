//! Requests, parallelism and backends.

pub(super) mod nr02_mla_backend_draft;
pub(super) mod nr08_dp_attention_old;
pub(super) mod nr10_blackwell_paged_chain;
pub(super) mod nr18_pd_decode_dp_attention;
pub(super) mod nr20_ngram_lora;
pub(super) mod nr21_mem_fraction_near_one;
pub(super) mod sd090_max_running_48;
pub(super) mod sd091_spec_v2_variable;
pub(super) mod sd092_mixed_chunk;
pub(super) mod sd093_pipeline_parallel;
pub(super) mod sd094_standalone_dp_attention;
pub(super) mod sd095_dflash_dp;
pub(super) mod sd096_tp_divisibility;
pub(super) mod sd097_two_batch_overlap;
pub(super) mod sd098_deterministic;
pub(super) mod sd099_lora_algorithm;
pub(super) mod sd100_cache_features;
pub(super) mod sd101_pd_decode_radix;
pub(super) mod sd102_mamba_hybrid;
pub(super) mod sd106_backend_flex;
pub(super) mod sd107_dcp_xpu;
pub(super) mod sd109_parallelism_without_speculation;
pub(super) mod sd191_dp_spec_prefill_coordination;
pub(super) mod sd192_ragged_verify_mode;
