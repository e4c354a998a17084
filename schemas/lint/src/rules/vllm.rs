//! vLLM's flags and its speculative configuration.

pub(super) mod vl01_draft_vocabulary;
pub(super) mod vl02_num_speculative_tokens_missing;
pub(super) mod vl03_draft_context;
pub(super) mod vl05_eagle3_hidden_size;
pub(super) mod vl06_mtp_pipeline_parallel;
pub(super) mod vl07_vllm_ngram_lora;
pub(super) mod vl08_method_and_head;
pub(super) mod vl09_draft_model_method;
pub(super) mod vl10_capture_sizes_tensor_parallel;
pub(super) mod vl11_unknown_method;
pub(super) mod vl12_num_speculative_tokens_not_positive;
pub(super) mod vl13_unknown_key;
pub(super) mod vl14_key_given_twice;
pub(super) mod vl15_draft_missing;
pub(super) mod vl16_prompt_lookup_bounds;
pub(super) mod vl17_draft_tensor_parallel;
pub(super) mod vl18_rejection_sample_method;
pub(super) mod vl19_vllm_flag_not_in_version;
pub(super) mod vl20_vllm_value_not_accepted;
pub(super) mod vl21_mtp_without_layers;
pub(super) mod vl22_draft_block;
pub(super) mod vl23_token_schedule;
pub(super) mod vl24_vllm_known_crash;
pub(super) mod vl25_vllm_known_corruption;
pub(super) mod vl26_simulated_by_vllm;
pub(super) mod vl27_keys_apart;
pub(super) mod vl28_mtp_tensors_missing;
pub(super) mod vl29_eagle3_target_in_vllm;
pub(super) mod vl31_json_replaced;
pub(super) mod vl32_model_runner;
pub(super) mod vl33_vllm_block_draft_width;
pub(super) mod vl34_context_lowered;
pub(super) mod vl35_vllm_variable_not_read;
pub(super) mod vl36_vllm_flags_refused;
pub(super) mod vl37_target_heads;
pub(super) mod vl38_experts_of_dense_target;
pub(super) mod vl39_draft_slots;
pub(super) mod vl40_quantization_of_target;
pub(super) mod vl41_cache_format_of_target;
pub(super) mod vl42_verification_without_full_graph;
pub(super) mod vl43_transfer_pair;
pub(super) mod vl44_graphs_of_a_full_batch;
pub(super) mod vl45_draft_read_as_class;

mod eagle3_targets;

use super::support::method_of;
