//! What slime passes on.

pub(super) mod sd170_slime_prefix;
pub(super) mod sd171_slime_skipped_flags;
pub(super) mod sd172_slime_dp;
pub(super) mod sd173_slime_fp16;
pub(super) mod sd179_slime_pd_mtp;
