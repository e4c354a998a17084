//! Flags of slime, and those that it passes on.

pub(super) mod sd162_rl_drift;
pub(super) mod sd163_wrong_metric;
pub(super) mod sd170_slime_prefix;
pub(super) mod sd171_slime_skipped_flags;
pub(super) mod sd172_slime_dp;
pub(super) mod sd173_slime_fp16;
pub(super) mod sd175_slime_yaml_override;
pub(super) mod sd176_slime_sglang_pin;
pub(super) mod sd177_slime_colocate_memory;
pub(super) mod sd179_slime_pd_mtp;
pub(super) mod sd180_slime_mtp_layers;
