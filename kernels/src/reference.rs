//! The definition of each kernel, in f32 on the CPU.
//!
//! Matrices are row-major slices. Every function panics on lengths that do not fit its stated
//! shapes: callers validate external data when they load it.

mod activation;
mod attention;
mod delta;
mod dot;
mod exp;
mod experts;
mod fp8;
mod fp8_rows;
mod latent;
mod linear;
mod mxfp4;
mod norm;
mod rope;
mod route;
mod select;

pub use activation::{GateActivation, sigmoid, silu_gate};
pub use attention::{CacheScales, KeyValues, Visible, attention, attention_with_sinks};
pub use delta::{DeltaRows, DeltaSizes, delta_commit, delta_convolution, delta_history, delta_rows, delta_rule};
pub use experts::{Expert, experts};
pub use fp8::{FP8_BLOCK, FP8_LARGEST, Fp8Matrix, Fp8Scales, from_e4m3, to_e4m3};
pub use fp8_rows::{FP8_LEAST_AMAX, Fp8Rows, QuantisedRows, quantise_rows};
pub use latent::{Latents, latent_attention, per_head};
pub use linear::{Matrix, linear};
pub use mxfp4::{MXFP4_BLOCK, Mxfp4Matrix};
pub use norm::rms_norm;
pub use rope::{Pairing, Rope, RopeScaling};
pub use route::{Router, Routes, Scoring, uniform_logits};
pub use select::{argmax, finite_argmax, log_softmax, log_sum_exp, softmax, top_k};
