//! The maximum sequence length.

pub(super) mod sd060_draft_context_shorter;
pub(super) mod sd061_draft_context_env_ima;
pub(super) mod sd062_draft_context_quality;
pub(super) mod sd063_rope_theta_mismatch;
pub(super) mod sd064_context_budget;
pub(super) mod sd065_long_context_mask;
pub(super) mod sd066_context_beyond_model;

mod draft_length;
