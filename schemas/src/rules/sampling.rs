//! What is accepted.

pub(super) mod sd110_accept_thresholds;
