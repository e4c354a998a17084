//! Every kernel against its CPU reference, in the emulator: what a GPU would compute, on a machine
//! without one.
//!
//! One test per check and element type. The emulator needs a C++ compiler; without one these tests
//! fail.

use kernels::{
    checks::{self, CHECKS, UNTYPED_CHECKS},
    device::{Device, Element},
};

fn device() -> Device {
    Device::emulated().unwrap_or_else(|error| panic!("{error}"))
}

/// A test for each check and element type, named after both.
macro_rules! typed {
    ($($name:ident = $check:ident,)*) => {
        const TYPED: &[fn(&Device, Element) -> Result<(), String>] = &[$(checks::$check),*];
        typed!(in float16, Element::F16, $($name = $check,)*);
        typed!(in bfloat16, Element::BF16, $($name = $check,)*);
        typed!(in float32, Element::F32, $($name = $check,)*);
    };
    (in $module:ident, $element:expr, $($name:ident = $check:ident,)*) => {
        mod $module {
            use super::*;

            $(
                #[test]
                fn $name() {
                    checks::$check(&device(), $element).unwrap_or_else(|reason| panic!("{reason}"));
                }
            )*
        }
    };
}

/// A test for each check without an element type.
macro_rules! untyped {
    ($($name:ident = $check:ident,)*) => {
        const UNTYPED: &[fn(&Device) -> Result<(), String>] = &[$(checks::$check),*];
        mod untyped {
            use super::*;

            $(
                #[test]
                fn $name() {
                    checks::$check(&device()).unwrap_or_else(|reason| panic!("{reason}"));
                }
            )*
        }
    };
}

typed! {
    embed = check_embed,
    rms_norm = check_rms_norm,
    join_normed = check_join_normed,
    add_and_gather = check_add_and_gather,
    silu_gate = check_silu_gate,
    rotation = check_rotation,
    linear = check_linear,
    linear_fp8 = check_linear_fp8,
    dequantise = check_dequantise,
    linear_gated = check_linear_gated,
    linear_few = check_linear_few,
    linear_group = check_linear_group,
    linear_wide = check_linear_wide,
    linear_wide_fp8 = check_linear_wide_fp8,
    quantise = check_quantise,
    norm_of_any_rows = check_norm_of_any_rows,
    products = check_products,
    linear_products = check_linear_products,
    experts = check_experts,
    expert_products = check_expert_products,
    narrow_experts = check_narrow_experts,
    router_ties = check_router_ties,
    uniform_router = check_uniform_router,
    attention = check_attention,
    attention_together = check_attention_together,
    attention_sinks = check_attention_sinks,
    attention_fp8 = check_attention_fp8,
    rotate_and_attend = check_rotate_and_attend,
    rotate_and_attend_sinks = check_rotate_and_attend_sinks,
    rotate_and_attend_fp8 = check_rotate_and_attend_fp8,
    latent_write = check_latent_write,
    latent_heads = check_latent_heads,
    latent_attention = check_latent_attention,
    latent_prompt = check_latent_prompt,
    delta_rows = check_delta_rows,
    delta_chunks = check_delta_chunks,
    delta_gate = check_delta_gate,
    training_softmax = check_training_softmax,
    training_norm = check_training_norm,
    compact_cache = check_compact_cache,
    write_context = check_write_context,
    markov = check_markov,
}

untyped! {
    top_k_rows = check_top_k_rows,
    top_k_among_many = check_top_k_among_many,
    argmax_rows = check_argmax_rows,
    logprob_rows = check_logprob_rows,
    draft_trees = check_draft_trees,
    decode_rows = check_decode_rows,
    host_trees = check_host_trees,
    play_trees = check_play_trees,
    join_chains = check_join_chains,
    look_up = check_look_up,
    block_rows = check_block_rows,
    block_trees = check_block_trees,
    add_base = check_add_base,
    accept = check_accept,
    list_nodes = check_list_nodes,
    pick_rows = check_pick_rows,
    advance_accept = check_advance_accept,
    pending = check_pending,
    next_positions = check_next_positions,
    state = check_state,
    windows = check_windows,
    delta_steps = check_delta_steps,
    sample_rows = check_sample_rows,
    training_steps = check_training_steps,
    sampled_distribution = check_sampled_distribution,
}

#[test]
fn every_check_has_a_test() {
    for (name, check) in CHECKS {
        assert!(TYPED.iter().any(|tested| std::ptr::fn_addr_eq(*tested, check)), "no test runs the check '{name}'");
    }
    for (name, check) in UNTYPED_CHECKS {
        assert!(UNTYPED.iter().any(|tested| std::ptr::fn_addr_eq(*tested, check)), "no test runs the check '{name}'");
    }
}
