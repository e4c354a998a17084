//! What slime passes on.

pub(super) mod sd170_slime_prefix;
pub(super) mod sd172_slime_dp;
