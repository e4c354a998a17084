//! Measures how far a target with FP8 weights (`--quantization fp8`) is from the original in each
//! mode of `--fp8-compute`: the comparison described in `docs/notes/performance/fp8.md`.
//!
//! `cargo run --release -p engine --example fp8_quality FOLDER [PROMPTS.json [NEW_TOKENS [DRAFT
//! ALGORITHM SHAPE]]]`: a target's folder, and a JSON list of token-id lists (default: a few
//! synthetic prompts). The plain target continues each prompt greedily, by 64 tokens by default.
//! With a draft's folder (such as `models/tiny/eagle3 EAGLE3 3,1,4`), which is quantised too, its
//! accept length is printed as well. The target of an FP8 checkpoint is compared with its own
//! dequantised weights.

mod quality;

use engine::{
    EngineError, EngineOptions,
    backend::cpu::quantisation_quality,
    options::{Fp8Compute, Quantization},
};

use quality::{Comparison, print, print_accept_length};

fn main() -> Result<(), EngineError> {
    let comparison = Comparison::from_arguments()?;
    let Comparison { folder, prompts, new_tokens, .. } = &comparison;
    let accept_length = |compute: Option<Fp8Compute>| {
        let by = compute.map(|_| Quantization::Fp8);
        comparison.accept_length(EngineOptions {
            quantization: by,
            draft_quantization: by,
            fp8_compute: compute,
            ..EngineOptions::default()
        })
    };
    if let Some(accepted) = accept_length(None)? {
        println!("plain");
        print_accept_length(accepted);
    }
    for compute in [Fp8Compute::Weights, Fp8Compute::Products] {
        let found = quantisation_quality(folder, Quantization::Fp8, compute, prompts, *new_tokens)?;
        println!("--fp8-compute {}", compute.name());
        print(&found, "quantised");
        accept_length(Some(compute))?.into_iter().for_each(print_accept_length);
    }
    Ok(())
}
