//! Measures how far a target with FP8 weights (`--quantization fp8`) is from the original in each mode of `--fp8-compute`: the
//! comparison described in `docs/notes/performance/fp8.md`.
//!
//! `cargo run --release -p engine --example fp8_quality FOLDER [PROMPTS.json [NEW_TOKENS [DRAFT ALGORITHM SHAPE]]]`: a
//! target's folder, and a JSON list of token-id lists (default: a few synthetic prompts). The plain target continues each
//! prompt greedily, by 64 tokens by default. With a draft's folder (such as `models/tiny/eagle3 EAGLE3 3,1,4`), which is
//! quantised too, its accept length is printed as well. The target of an FP8 checkpoint is compared with its own dequantised
//! weights.

use std::path::{Path, PathBuf};

use engine::{
    DeviceChoice, Engine, EngineError, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions,
    backend::cpu::quantisation_quality,
    options::{Fp8Compute, Quantization},
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
    let draft = match (arguments.next(), arguments.next(), arguments.next()) {
        (None, ..) => None,
        (Some(draft), Some(algorithm), Some(shape)) => {
            let shape = shape.parse().map_err(|_| wrong("a shape such as 3,1,4"))?;
            Some((PathBuf::from(draft), algorithm, ShapePolicy::fixed(shape)))
        }
        _ => return Err(wrong("give the algorithm and the shape of the draft too")),
    };
    if let Some(draft) = &draft {
        let accepted = accept_length(&folder, draft, None, &prompts, new_tokens)?;
        println!("plain\n  accept length                  {accepted:.3}");
    }
    for compute in [Fp8Compute::Weights, Fp8Compute::Products] {
        let found = quantisation_quality(&folder, Quantization::Fp8, compute, &prompts, new_tokens)?;
        println!("--fp8-compute {}", compute.name());
        println!("  positions compared             {}", found.positions);
        println!("  largest difference of logits   {:.4}", found.largest);
        println!("  mean difference of logits      {:.4} (mean size of a logit {:.4})", found.mean, found.mean_logit);
        println!("  mean KL(plain || quantised)    {:.6} nats", found.divergence);
        println!("  same greedy token              {:.2}%", 100.0 * found.same_token);
        if let Some(draft) = &draft {
            let accepted = accept_length(&folder, draft, Some(compute), &prompts, new_tokens)?;
            println!("  accept length                  {accepted:.3}");
        }
    }
    Ok(())
}

/// Output tokens / rounds of the prompts, bonus tokens included, with target and draft quantised for this mode.
fn accept_length(
    target: &Path,
    (draft, algorithm, policy): &(PathBuf, String, ShapePolicy),
    compute: Option<Fp8Compute>,
    prompts: &[Vec<u32>],
    new_tokens: usize,
) -> Result<f64, EngineError> {
    let by = compute.map(|_| Quantization::Fp8);
    let mut engine = Engine::load(EngineOptions {
        model_path: target.to_owned(),
        draft_model_path: Some(draft.clone()),
        algorithm: Some(algorithm.clone()),
        policy: policy.clone(),
        quantization: by,
        draft_quantization: by,
        fp8_compute: compute,
        device: DeviceChoice::Cpu,
        max_running_requests: 8,
        ..EngineOptions::default()
    })?;
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
