//! Measures how far a target with FP8 weights (`--quantization fp8`) is from the original: the comparison described in
//! `docs/notes/performance/fp8.md`.
//!
//! `cargo run --release -p engine --example fp8_quality FOLDER [PROMPTS.json [NEW_TOKENS]]`: a target's folder, and a
//! JSON list of token-id lists (default: a few synthetic prompts). The plain target continues each prompt greedily, by
//! 64 tokens by default.

use std::path::PathBuf;

use engine::{EngineError, backend::cpu::quantisation_quality, options::Quantization};

fn main() -> Result<(), EngineError> {
    let mut arguments = std::env::args().skip(1);
    let wrong = |reason: String| EngineError::Configuration(reason);
    let folder = arguments.next().map(PathBuf::from).ok_or_else(|| wrong("give the folder of a target".into()))?;
    let prompts: Vec<Vec<u32>> = match arguments.next() {
        None => (0..4_u32).map(|seed| (0..32).map(|at| (at * at * 31 + seed * 97) % 500 + 2).collect()).collect(),
        Some(path) => {
            let text =
                std::fs::read_to_string(&path).map_err(|source| EngineError::Read { path: path.into(), source })?;
            serde_json::from_str(&text).map_err(|error| wrong(format!("not a list of token-id lists: {error}")))?
        }
    };
    let new_tokens =
        arguments.next().map_or(Ok(64), |count| count.parse()).map_err(|_| wrong("a number of tokens".into()))?;
    let found = quantisation_quality(&folder, Quantization::Fp8, &prompts, new_tokens)?;
    println!("positions compared             {}", found.positions);
    println!("largest difference of logits   {:.4}", found.largest);
    println!("mean difference of logits      {:.4} (mean size of a logit {:.4})", found.mean, found.mean_logit);
    println!("mean KL(plain || quantised)    {:.6} nats", found.divergence);
    println!("same greedy token              {:.2}%", 100.0 * found.same_token);
    Ok(())
}
