//! Compares each kernel with its CPU reference, for `spectune selftest` and for the tests that run
//! the kernels in the emulator.

mod accept;
mod ahead;
mod attention;
mod attention_groups;
mod block;
mod block_rows;
mod delta;
mod elementwise;
mod experts;
mod host_trees;
mod inner;
mod join;
mod latent;
mod latent_prompt;
mod layout;
mod linear;
mod linear_few;
mod linear_group;
mod linear_wide;
mod look_up;
mod pending;
mod products;
mod quantise;
mod ranks;
mod sampling;
mod select;
mod state;
mod training;
mod tree;
mod windows;

use crate::device::{Device, DeviceError, Element, Slice};

pub use accept::{check_accept, check_advance_accept, check_compact_cache};
pub use ahead::check_next_positions;
pub use attention::{check_attention, check_attention_fp8, check_attention_sinks, check_attention_together};
pub use attention_groups::{check_rotate_and_attend, check_rotate_and_attend_fp8, check_rotate_and_attend_sinks};
pub use block::{check_add_base, check_block_rows, check_block_trees};
pub use block_rows::{check_markov, check_write_context};
pub use delta::{check_delta_chunks, check_delta_gate, check_delta_rows, check_delta_steps};
pub use elementwise::{
    check_add_and_gather, check_embed, check_join_normed, check_rms_norm, check_rotation, check_silu_gate,
};
pub use experts::{
    check_expert_products, check_experts, check_narrow_experts, check_router_ties, check_uniform_router,
};
pub use host_trees::{check_host_trees, check_play_trees};
pub use inner::{check_list_nodes, check_pick_rows};
pub use join::check_join_chains;
pub use latent::{check_latent_attention, check_latent_heads, check_latent_write};
pub use latent_prompt::check_latent_prompt;
pub use linear::{check_dequantise, check_linear, check_linear_fp8, check_linear_gated};
pub use linear_few::check_linear_few;
pub use linear_group::check_linear_group;
pub use linear_wide::{check_linear_wide, check_linear_wide_fp8};
pub use look_up::check_look_up;
pub use pending::check_pending;
pub use products::{check_linear_products, check_products};
pub use quantise::{check_norm_of_any_rows, check_quantise};
pub use ranks::{check_alarm, check_ranks};
pub use sampling::{check_sample_rows, check_sampled_distribution};
pub use select::{check_argmax_rows, check_logprob_rows, check_top_k_among_many, check_top_k_rows};
pub use state::check_state;
pub use training::{check_training_norm, check_training_softmax, check_training_steps};
pub use tree::{check_decode_rows, check_draft_trees};
pub use windows::check_windows;

/// A named check.
pub type NamedCheck = (&'static str, fn(&Device, Element) -> Result<(), String>);

/// All checks that run for every element type.
pub const CHECKS: [NamedCheck; 42] = [
    ("embed", check_embed),
    ("rms_norm", check_rms_norm),
    ("join_normed", check_join_normed),
    ("add_rows and gather_rows", check_add_and_gather),
    ("silu_gate and sigmoid_gate", check_silu_gate),
    ("rotate_and_write", check_rotation),
    ("linear", check_linear),
    ("linear in FP8", check_linear_fp8),
    ("dequantise", check_dequantise),
    ("linear_gated", check_linear_gated),
    ("linear_few", check_linear_few),
    ("linear_group", check_linear_group),
    ("linear_wide", check_linear_wide),
    ("linear_wide_fp8", check_linear_wide_fp8),
    ("quantise_rows", check_quantise),
    ("norms of any number of rows", check_norm_of_any_rows),
    ("products in FP8", check_products),
    ("linear_products", check_linear_products),
    ("experts", check_experts),
    ("experts, products in FP8", check_expert_products),
    ("experts, narrow blocks", check_narrow_experts),
    ("route_rows, ties", check_router_ties),
    ("route_rows, uniform", check_uniform_router),
    ("attention_rows", check_attention),
    ("attention_rows together", check_attention_together),
    ("attention_rows, sinks and windows", check_attention_sinks),
    ("attention_rows over a cache in FP8", check_attention_fp8),
    ("rotate_and_attend", check_rotate_and_attend),
    ("rotate_and_attend, sinks and windows", check_rotate_and_attend_sinks),
    ("rotate_and_attend over a cache in FP8", check_rotate_and_attend_fp8),
    ("latent_write", check_latent_write),
    ("latent_queries and latent_values", check_latent_heads),
    ("latent_attention", check_latent_attention),
    ("latent_prompt", check_latent_prompt),
    ("delta_convolve, delta_chains, delta_trees, delta_commit and delta_history", check_delta_rows),
    ("delta_triangles and delta_chunks", check_delta_chunks),
    ("delta_gate", check_delta_gate),
    ("training, softmax", check_training_softmax),
    ("training, norms", check_training_norm),
    ("compact_cache", check_compact_cache),
    ("write_context", check_write_context),
    ("markov_inputs, markov_gate and markov_cell", check_markov),
];

/// A named check of kernels that are independent of the element type.
pub type UntypedCheck = (&'static str, fn(&Device) -> Result<(), String>);

/// All checks that run once.
pub const UNTYPED_CHECKS: [UntypedCheck; 25] = [
    ("top_k_rows", check_top_k_rows),
    ("top_k_rows, a row alone and among many", check_top_k_among_many),
    ("argmax_rows", check_argmax_rows),
    ("logprob_rows", check_logprob_rows),
    ("draft_begin, draft_expand and draft_finish", check_draft_trees),
    ("decode_begin", check_decode_rows),
    ("host_trees", check_host_trees),
    ("play_trees", check_play_trees),
    ("join_chains", check_join_chains),
    ("look_up", check_look_up),
    ("block_begin", check_block_rows),
    ("block_grow", check_block_trees),
    ("add_base", check_add_base),
    ("accept", check_accept),
    ("list_nodes", check_list_nodes),
    ("pick_rows", check_pick_rows),
    ("advance_accept", check_advance_accept),
    ("keep_pending and pending_rows", check_pending),
    ("next_positions", check_next_positions),
    ("put_first and set_state", check_state),
    ("window_rows, window_moves and change_windows", check_windows),
    ("delta_steps", check_delta_steps),
    ("sample_rows", check_sample_rows),
    ("sample_rows, distribution", check_sampled_distribution),
    ("training, steps", check_training_steps),
];

/// A pseudo-random number generator with the same stream on all platforms.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        // SplitMix64 with its published constants.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    /// A random number from 0 to `bound` − 1; `bound` must be above 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// Uniformly distributed from −1 to 1.
    pub fn float(&mut self) -> f32 {
        // 24 bits, which a float32 represents exactly.
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// A random permutation of the numbers 0 to `count` − 1.
    pub fn shuffled(&mut self, count: usize) -> Vec<i32> {
        let mut values: Vec<i32> = (0..count as i32).collect();
        for at in (1..count).rev() {
            values.swap(at, self.below(at + 1));
        }
        values
    }

    /// Random floats, rounded to an element type.
    pub fn floats(&mut self, count: usize, element: Element) -> Vec<f32> {
        let values: Vec<f32> = (0..count).map(|_| self.float()).collect();
        element.decode(&element.encode(&values))
    }
}

/// The values of a slice of elements.
pub(crate) fn values(device: &Device, from: Slice<'_>, element: Element) -> Result<Vec<f32>, String> {
    let bytes: Vec<u8> = device.download(from).map_err(text)?;
    Ok(element.decode(&bytes))
}

/// The largest relative error that rounding to an element type explains.
pub(crate) fn tolerance(element: Element) -> f32 {
    match element {
        Element::F16 => 2e-3,
        Element::BF16 => 1.6e-2,
        Element::F32 => 2e-5,
    }
}

/// Compares with an absolute tolerance that scales with the largest expected value.
pub(crate) fn compare(what: &str, found: &[f32], expected: &[f32], tolerance: f32) -> Result<(), String> {
    // A buffer may be longer than what a check expects in it.
    if found.len() < expected.len() {
        return Err(format!("{what}: {} values, expected {}", found.len(), expected.len()));
    }
    // With a floor, since expected zeros would allow no rounding at all.
    let scale = expected.iter().fold(1e-3_f32, |scale, value| scale.max(value.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        // NaN is not above any tolerance.
        if error > tolerance * scale || error.is_nan() {
            return Err(format!(
                "{what}: value {at} is {found}, expected {expected} (tolerance {})",
                tolerance * scale
            ));
        }
    }
    Ok(())
}

pub(crate) fn text(error: DeviceError) -> String {
    error.to_string()
}
