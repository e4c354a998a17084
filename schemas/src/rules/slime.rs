//! What slime passes on.

pub(super) mod sd170_slime_prefix;
