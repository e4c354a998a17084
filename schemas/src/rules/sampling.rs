//! What is accepted.

pub(super) mod nr07_grammar_outlines;
pub(super) mod sd108_rocm_greedy;
pub(super) mod sd110_accept_thresholds;
pub(super) mod sd111_rejection_sampling;
pub(super) mod sd112_block_verification;
pub(super) mod sd190_simulated_acceptance;
