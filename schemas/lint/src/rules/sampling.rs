//! Acceptance of drafts, and sampling.

pub(super) mod nr07_grammar_outlines;
pub(super) mod sd108_rocm_greedy;
pub(super) mod sd110_accept_thresholds;
pub(super) mod sd111_rejection_sampling;
pub(super) mod sd112_block_verification;
pub(super) mod sd113_min_p_ignored;
pub(super) mod sd114_penalties;
pub(super) mod sd115_structured_output;
pub(super) mod sd116_return_hidden_states;
pub(super) mod sd117_not_bitwise;
pub(super) mod sd118_chat_template;
pub(super) mod sd190_simulated_acceptance;

mod defaults;
