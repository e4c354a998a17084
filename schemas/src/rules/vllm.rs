//! What vLLM does with its speculative configuration.

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
