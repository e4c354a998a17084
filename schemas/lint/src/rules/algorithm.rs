//! The algorithm that runs, and the draft that it needs.

pub(super) mod nr05_flags_run_together;
pub(super) mod nr06_given_twice;
pub(super) mod nr11_draft_for_another_base;
pub(super) mod nr12_eagle_upstream_layout;
pub(super) mod nr13_eagle3_with_mtp;
pub(super) mod nr14_draft_config_not_loadable;
pub(super) mod nr15_dummy_nextn;
pub(super) mod nr22_embedding_not_shared;
pub(super) mod sd001_unknown_algorithm;
pub(super) mod sd002_nextn_alias;
pub(super) mod sd003_gemma4_promote;
pub(super) mod sd004_eagle_with_eagle3_draft;
pub(super) mod sd005_eagle3_with_eagle1_draft;
pub(super) mod sd006_eagle3_no_draft_path;
pub(super) mod sd007_eagle_no_draft_path_no_mtp;
pub(super) mod sd008_standalone_no_draft_path;
pub(super) mod sd009_draftless_algorithms;
pub(super) mod sd010_mtp_draft_path_unneeded;
pub(super) mod sd011_mtp_weights_dropped;
pub(super) mod sd012_eagle3_target_unsupported;
pub(super) mod sd013_draft_lm_head_missing;
pub(super) mod sd014_draft_tie_word_embeddings;
pub(super) mod sd015_draft_vocab_size_null;
pub(super) mod sd016_draft_revision_replaced;
pub(super) mod sd017_not_switched_on;
pub(super) mod sd018_draft_of_a_variant;
pub(super) mod sd019_algorithm_of_another_draft;
pub(super) mod sd105_deepseek_v4_algorithms;
pub(super) mod sd193_known_crash;
pub(super) mod sd194_known_corruption;
pub(super) mod sd195_value_not_accepted;
pub(super) mod sd203_block_target_unsupported;
pub(super) mod sd205_config_refused;

mod families;
mod hooks;
