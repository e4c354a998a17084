//! Measures how far a target with its KV cache in FP8 (`--kv-cache-dtype fp8_e4m3`) is from the one
//! with a plain cache: the comparison described in `docs/notes/performance/fp8.md`.
//!
//! `cargo run --release -p engine --example kv_cache_quality FOLDER [PROMPTS.json [NEW_TOKENS
//! [DRAFT ALGORITHM SHAPE]]]`: a target's folder, and a JSON list of token-id lists (default: a few
//! synthetic prompts). The target with the plain cache continues each prompt greedily, by 64 tokens
//! by default. With a draft's folder (such as `models/tiny/eagle3 EAGLE3 3,1,4`) its accept length
//! is printed too.

mod quality;

use engine::{EngineError, EngineOptions, backend::cpu::cache_quality, spec::CacheFormat};

use quality::{Comparison, print, print_accept_length};

fn main() -> Result<(), EngineError> {
    let comparison = Comparison::from_arguments()?;
    let Comparison { folder, prompts, new_tokens, .. } = &comparison;
    let accept_length = |kv_cache| comparison.accept_length(EngineOptions { kv_cache, ..EngineOptions::default() });
    if let Some(accepted) = accept_length(CacheFormat::Plain)? {
        println!("plain");
        print_accept_length(accepted);
    }
    println!("--kv-cache-dtype fp8_e4m3");
    print(&cache_quality(folder, prompts, *new_tokens)?, "FP8");
    accept_length(CacheFormat::Fp8)?.into_iter().for_each(print_accept_length);
    Ok(())
}
