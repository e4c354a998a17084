//! Steps, topk and draft tokens, and the backends that can run such a tree.

pub(super) mod nr09_flashinfer_mla_power_of_two;
pub(super) mod sd020_partial_trio_steps_missing;
pub(super) mod sd021_partial_trio_topk_missing;
pub(super) mod sd022_partial_trio_drafts_missing;
pub(super) mod sd023_topk1_drafts_adjusted;
pub(super) mod sd024_tree_too_large;
pub(super) mod sd025_tree_too_small;
pub(super) mod sd026_drafts_lt_2;
pub(super) mod sd027_steps_le_0;
pub(super) mod sd028_topk_gt_16_disagg;
pub(super) mod sd029_topk_gt1_page_gt1;
pub(super) mod sd030_trtllm_mha_topk;
pub(super) mod sd031_mla_topk;
pub(super) mod sd032_fa3_swa_topk_page;
pub(super) mod sd033_specv2_topk;
pub(super) mod sd034_topk_gt1_kvindices_bug;
pub(super) mod sd035_int32_overflow;
pub(super) mod sd036_tree_at_high_concurrency;
pub(super) mod sd103_multi_layer_eagle;
pub(super) mod sd104_architecture_topk1;
pub(super) mod sd120_adaptive_disabled;
pub(super) mod sd121_adaptive_steps;
pub(super) mod sd122_adaptive_memory;
pub(super) mod sd130_ngram_topk_overwritten;
pub(super) mod sd131_ngram_page;
pub(super) mod sd132_ngram_external;
pub(super) mod sd133_ngram_breadth;
pub(super) mod sd134_ngram_device;
pub(super) mod sd140_dflash_block;
pub(super) mod sd141_dflash_steps;
pub(super) mod sd142_dflash_target_layers;
pub(super) mod sd143_dflash_trtllm;
pub(super) mod sd144_block_size_and_tokens;
pub(super) mod sd145_draft_window;
pub(super) mod sd146_ragged_verify_table;
pub(super) mod sd147_block_of_head;
pub(super) mod sd148_block_draft_width;
pub(super) mod sd160_negative_speedup;

use super::Context;

/// SGLang's log message when it replaces the draft tokens of a chain.
const ADJUSTED: &str =
    "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1";

/// The triple that runs, if completely known and not chosen at run time. Unlike
/// [`TreeShape`](schemas::tree::TreeShape) it may be an invalid tree.
struct GivenShape {
    num_steps: usize,
    topk: usize,
    num_draft_tokens: usize,
}

impl GivenShape {
    fn from_context(context: &Context<'_>) -> Option<Self> {
        context.tree_algorithm().filter(|_| !context.is_adaptive())?;
        let resolved = context.resolved;
        Some(Self {
            num_steps: resolved.num_steps.as_ref()?.value,
            topk: resolved.topk.as_ref()?.value,
            num_draft_tokens: resolved.num_draft_tokens.as_ref()?.value,
        })
    }

    /// Maximum number of draft tokens of the tree, including the root.
    fn bound(&self) -> usize {
        let (num_steps, topk, num_draft_tokens) = (self.num_steps, self.topk, self.num_draft_tokens);
        schemas::tree::TreeShape::whole_tree(num_steps, topk, num_draft_tokens).largest_num_draft_tokens()
    }
}
