//! All rules, by code: the only list of them. A rule's area is its folder, and its page is the
//! start of its file.

use super::{
    LintRule, algorithm, context, dtype, graph, hidden, memory, sampling, scheduler, slime, tree, vllm, vocabulary,
};

macro_rules! rules {
    ($($area:ident::$file:ident,)*) => {
        /// Every rule, in the order of the codes.
        pub const RULES: &[LintRule] = &[$(LintRule::new(
            $area::$file::RULE,
            stringify!($area),
            include_str!(concat!(stringify!($area), "/", stringify!($file), ".rs")),
        )),*];

        /// Area and file of each rule.
        #[cfg(test)]
        const FILES: &[(&str, &str)] = &[$((stringify!($area), stringify!($file))),*];
    };
}

rules! {
    graph::nr01_deepep_dispatch_tokens,
    scheduler::nr02_mla_backend_draft,
    vocabulary::nr04_draft_vocab_multiple,
    algorithm::nr05_flags_run_together,
    algorithm::nr06_given_twice,
    sampling::nr07_grammar_outlines,
    scheduler::nr08_dp_attention_old,
    tree::nr09_flashinfer_mla_power_of_two,
    scheduler::nr10_blackwell_paged_chain,
    algorithm::nr11_draft_for_another_base,
    algorithm::nr12_eagle_upstream_layout,
    algorithm::nr13_eagle3_with_mtp,
    algorithm::nr14_draft_config_not_loadable,
    algorithm::nr15_dummy_nextn,
    hidden::nr16_eagle3_narrow_draft,
    scheduler::nr18_pd_decode_dp_attention,
    dtype::nr19_w4afp8_mtp,
    scheduler::nr20_ngram_lora,
    scheduler::nr21_mem_fraction_near_one,
    algorithm::nr22_multimodal_wrapper,
    algorithm::sd001_unknown_algorithm,
    algorithm::sd002_nextn_alias,
    algorithm::sd003_gemma4_promote,
    algorithm::sd004_eagle_with_eagle3_draft,
    algorithm::sd005_eagle3_with_eagle1_draft,
    algorithm::sd006_eagle3_no_draft_path,
    algorithm::sd007_eagle_no_draft_path_no_mtp,
    algorithm::sd008_standalone_no_draft_path,
    algorithm::sd009_draftless_algorithms,
    algorithm::sd010_mtp_draft_path_unneeded,
    algorithm::sd011_mtp_weights_dropped,
    algorithm::sd012_eagle3_target_unsupported,
    algorithm::sd013_draft_lm_head_missing,
    algorithm::sd014_draft_tie_word_embeddings,
    algorithm::sd015_draft_vocab_size_null,
    algorithm::sd016_draft_revision_replaced,
    algorithm::sd017_not_switched_on,
    algorithm::sd018_draft_of_a_variant,
    algorithm::sd019_algorithm_of_another_draft,
    tree::sd020_partial_trio_steps_missing,
    tree::sd021_partial_trio_topk_missing,
    tree::sd022_partial_trio_drafts_missing,
    tree::sd023_topk1_drafts_adjusted,
    tree::sd024_tree_too_large,
    tree::sd025_tree_too_small,
    tree::sd026_drafts_lt_2,
    tree::sd027_steps_le_0,
    tree::sd028_topk_gt_16_disagg,
    tree::sd029_topk_gt1_page_gt1,
    tree::sd030_trtllm_mha_topk,
    tree::sd031_mla_topk,
    tree::sd032_fa3_swa_topk_page,
    tree::sd033_specv2_topk,
    tree::sd034_topk_gt1_kvindices_bug,
    tree::sd035_int32_overflow,
    tree::sd036_tree_at_high_concurrency,
    vocabulary::sd040_standalone_vocab_size,
    vocabulary::sd041_standalone_vocab_map,
    vocabulary::sd042_eagle_vocab,
    vocabulary::sd043_d2t_missing,
    vocabulary::sd044_d2t_shape,
    vocabulary::sd045_token_map_eagle3,
    vocabulary::sd046_token_map_standalone,
    vocabulary::sd047_token_map_tp,
    vocabulary::sd048_token_map_rejection,
    vocabulary::sd049_token_map_file,
    hidden::sd050_eagle_hidden_size,
    hidden::sd051_eagle3_target_hidden_size,
    hidden::sd052_eagle3_num_aux,
    hidden::sd053_eagle3_aux_ids_default,
    hidden::sd054_eagle3_aux_ids_convention,
    hidden::sd055_eagle3_aux_ids_range,
    hidden::sd056_use_aux_false,
    hidden::sd057_eagle31_norms,
    hidden::sd058_standalone_hidden_size,
    hidden::sd059_unexpected_weights_ignored,
    context::sd060_draft_context_shorter,
    context::sd061_draft_context_env_ima,
    context::sd062_draft_context_quality,
    context::sd063_rope_theta_mismatch,
    context::sd064_context_budget,
    context::sd065_long_context_mask,
    context::sd066_context_beyond_model,
    dtype::sd070_dtype_mismatch,
    dtype::sd071_dtype_missing_becomes_fp16,
    dtype::sd073_draft_inherits_quantization,
    dtype::sd074_quantized_mtp,
    dtype::sd075_moe_runner_inherit,
    dtype::sd076_fa3_e5m2,
    dtype::sd077_nvfp4_kv,
    graph::sd080_graph_max_bs_lt_max_running,
    graph::sd081_graph_bs_gaps,
    graph::sd082_graph_bs_explicit_sparse,
    graph::sd083_disable_padding_with_spec,
    graph::sd084_graph_bs_alignment,
    graph::sd085_graph_memory,
    graph::sd086_flag_renamed,
    graph::sd087_disable_draft_cuda_graph,
    graph::sd088_cuda_graph_disabled,
    scheduler::sd090_max_running_48,
    scheduler::sd091_spec_v2_variable,
    scheduler::sd092_mixed_chunk,
    scheduler::sd093_pipeline_parallel,
    scheduler::sd094_standalone_dp_attention,
    scheduler::sd095_dflash_dp,
    scheduler::sd096_tp_divisibility,
    scheduler::sd097_two_batch_overlap,
    scheduler::sd098_deterministic,
    scheduler::sd099_lora_algorithm,
    scheduler::sd100_cache_features,
    scheduler::sd101_pd_decode_radix,
    scheduler::sd102_mamba_hybrid,
    tree::sd103_multi_layer_eagle,
    tree::sd104_architecture_topk1,
    algorithm::sd105_deepseek_v4_algorithms,
    scheduler::sd106_backend_flex,
    scheduler::sd107_dcp_xpu,
    sampling::sd108_rocm_greedy,
    scheduler::sd109_parallelism_without_speculation,
    sampling::sd110_accept_thresholds,
    sampling::sd111_rejection_sampling,
    sampling::sd112_block_verification,
    sampling::sd113_min_p_ignored,
    sampling::sd114_penalties,
    sampling::sd115_structured_output,
    sampling::sd116_return_hidden_states,
    sampling::sd117_not_bitwise,
    sampling::sd118_chat_template,
    tree::sd120_adaptive_disabled,
    tree::sd121_adaptive_steps,
    tree::sd122_adaptive_memory,
    tree::sd130_ngram_topk_overwritten,
    tree::sd131_ngram_page,
    tree::sd132_ngram_external,
    tree::sd133_ngram_breadth,
    tree::sd134_ngram_device,
    tree::sd140_dflash_block,
    tree::sd141_dflash_steps,
    tree::sd142_dflash_target_layers,
    tree::sd143_dflash_trtllm,
    tree::sd144_block_size_and_tokens,
    tree::sd145_draft_window,
    tree::sd146_ragged_verify_table,
    tree::sd147_block_of_head,
    tree::sd148_block_draft_width,
    memory::sd150_mem_fraction_conflict,
    memory::sd151_mem_fraction_too_low,
    memory::sd152_kv_budget,
    memory::sd153_paged_decode_leak,
    memory::sd154_logits_memory,
    tree::sd160_negative_speedup,
    slime::sd162_rl_drift,
    slime::sd163_wrong_metric,
    slime::sd170_slime_prefix,
    slime::sd171_slime_skipped_flags,
    slime::sd172_slime_dp,
    slime::sd173_slime_fp16,
    slime::sd175_slime_yaml_override,
    slime::sd176_slime_sglang_pin,
    slime::sd177_slime_colocate_memory,
    slime::sd179_slime_pd_mtp,
    slime::sd180_slime_mtp_layers,
    sampling::sd190_simulated_acceptance,
    scheduler::sd191_dp_spec_prefill_coordination,
    scheduler::sd192_ragged_verify_mode,
    algorithm::sd193_known_crash,
    algorithm::sd194_known_corruption,
    algorithm::sd195_value_not_accepted,
    scheduler::sd196_backend_and_gpu,
    scheduler::sd197_dspark_limits,
    scheduler::sd198_uno_limits,
    scheduler::sd199_two_attention_backends,
    scheduler::sd200_decoupled_spec_endpoints,
    scheduler::sd201_variable_not_read,
    vllm::vl01_draft_vocabulary,
    vllm::vl02_num_speculative_tokens_missing,
    vllm::vl03_draft_context,
    vllm::vl05_eagle3_hidden_size,
    vllm::vl06_mtp_pipeline_parallel,
    vllm::vl07_vllm_ngram_lora,
    vllm::vl08_method_and_head,
    vllm::vl09_draft_model_method,
    vllm::vl10_capture_sizes_tensor_parallel,
    vllm::vl11_unknown_method,
    vllm::vl12_num_speculative_tokens_not_positive,
    vllm::vl13_unknown_key,
    vllm::vl14_key_given_twice,
    vllm::vl15_draft_missing,
    vllm::vl16_prompt_lookup_bounds,
    vllm::vl17_draft_tensor_parallel,
    vllm::vl18_rejection_sample_method,
    vllm::vl19_vllm_flag_not_in_version,
    vllm::vl20_vllm_value_not_accepted,
    vllm::vl21_mtp_without_layers,
    vllm::vl22_draft_block,
    vllm::vl23_token_schedule,
    vllm::vl24_vllm_known_crash,
    vllm::vl25_vllm_known_corruption,
    vllm::vl26_simulated_by_vllm,
    vllm::vl27_keys_apart,
    vllm::vl28_mtp_tensors_missing,
    vllm::vl29_eagle3_target_in_vllm,
    vllm::vl31_json_replaced,
    vllm::vl32_model_runner,
    vllm::vl33_vllm_block_draft_width,
    vllm::vl34_context_lowered,
    vllm::vl35_vllm_variable_not_read,
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn the_list_is_in_order_and_has_every_file_of_the_folders() {
        let name = |rule: &LintRule| format!("{}_{}", rule.code.to_lowercase(), rule.name.replace('-', "_"));
        assert!(RULES.iter().map(|rule| rule.code).is_sorted());
        for (rule, (area, file)) in RULES.iter().zip(FILES) {
            assert_eq!((rule.area, name(rule).as_str()), (*area, *file));
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rules");
        let is_rule = |name: &str| {
            let code = name.split('_').next().unwrap_or_default();
            ["nr", "sd", "vl"]
                .iter()
                .any(|series| code.strip_prefix(series).is_some_and(|digits| digits.parse::<u32>().is_ok()))
        };
        let mut found = BTreeSet::new();
        for (area, _) in FILES {
            for entry in fs::read_dir(folder.join(area)).expect("the folder of an area") {
                let path = entry.expect("an entry").path();
                let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
                found.extend(is_rule(&name).then_some((*area, name)));
            }
        }
        let listed: BTreeSet<(&str, String)> = FILES.iter().map(|(area, file)| (*area, (*file).to_owned())).collect();
        assert_eq!(found, listed);
    }
}
