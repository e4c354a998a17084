//! Measures how far a target with its KV cache in FP8 (`--kv-cache-dtype fp8_e4m3`) is from the one with a plain cache: the
//! comparison described in `docs/notes/performance/fp8.md`.
//!
//! `cargo run --release -p engine --example kv_cache_quality FOLDER [PROMPTS.json [NEW_TOKENS [DRAFT ALGORITHM SHAPE]]]`: a
//! target's folder, and a JSON list of token-id lists (default: a few synthetic prompts). The target with the plain cache
//! continues each prompt greedily, by 64 tokens by default. With a draft's folder (such as `models/tiny/eagle3 EAGLE3
//! 3,1,4`) its accept length is printed too.

use std::path::{Path, PathBuf};

use engine::{
    DeviceChoice, Engine, EngineError, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions,
    backend::cpu::cache_quality, spec::CacheFormat,
};

fn main() -> Result<(), EngineError> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map(PathBuf::from).ok_or_else(|| wrong("give the folder of a target"))?;
    let prompts: Vec<Vec<u32>> = match arguments.next() {
        None => (0..4_u32).map(|seed| (0..32).map(|at| (at * at * 31 + seed * 97) % 500 + 2).collect()).collect(),
        Some(path) => {
            let text =
                std::fs::read_to_string(&path).map_err(|source| EngineError::Read { path: path.into(), source })?;
            serde_json::from_str(&text).map_err(|error| wrong(&format!("not a list of token-id lists: {error}")))?
        }
    };
    let new_tokens = arguments.next().map_or(Ok(64), |count| count.parse()).map_err(|_| wrong("a number of tokens"))?;
    let found = cache_quality(&folder, &prompts, new_tokens)?;
    println!("positions compared             {}", found.positions);
    println!("largest difference of logits   {:.4}", found.largest);
    println!("mean difference of logits      {:.4} (mean size of a logit {:.4})", found.mean, found.mean_logit);
    println!("mean KL(plain || FP8)          {:.6} nats", found.divergence);
    println!("same greedy token              {:.2}%", 100.0 * found.same_token);
    let (Some(draft), Some(algorithm), Some(shape)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Ok(());
    };
    let policy = ShapePolicy::fixed(shape.parse().map_err(|_| wrong("a shape such as 3,1,4"))?);
    for kv_cache in [CacheFormat::Plain, CacheFormat::Fp8] {
        let options = EngineOptions {
            draft_model_path: Some(PathBuf::from(&draft)),
            algorithm: Some(algorithm.clone()),
            policy: policy.clone(),
            kv_cache,
            ..EngineOptions::default()
        };
        let accepted = accept_length(&folder, options, &prompts, new_tokens)?;
        println!("accept length, cache {:<9} {accepted:.3}", kv_cache.word().unwrap_or("plain"));
    }
    Ok(())
}

/// Output tokens / rounds of the prompts, bonus tokens included.
fn accept_length(
    target: &Path,
    options: EngineOptions,
    prompts: &[Vec<u32>],
    new_tokens: usize,
) -> Result<f64, EngineError> {
    let device = DeviceChoice::Cpu;
    let mut engine =
        Engine::load(EngineOptions { model_path: target.to_owned(), device, max_running_requests: 8, ..options })?;
    let stop = StopConditions { max_new_tokens: Some(new_tokens), ignore_eos: true, ..StopConditions::default() };
    let request = |prompt: &Vec<u32>| Request {
        input_ids: prompt.clone(),
        sampling: SamplingParams::default(),
        stop: stop.clone(),
    };
    let done = engine.run(prompts.iter().map(request).collect())?;
    let rounds: usize = done.iter().map(|completion| completion.rounds).sum();
    let tokens: usize = done.iter().map(|completion| completion.output_ids.len()).sum();
    Ok(tokens as f64 / rounds.max(1) as f64)
}

fn wrong(reason: &str) -> EngineError {
    EngineError::Configuration(reason.into())
}
