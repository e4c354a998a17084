//! What a trial asks of the engine: prompts from files, or random ones.

mod prompts;

use std::path::Path;

use engine::{Engine, Request, SamplingParams, StopConditions};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::sweep;

use crate::TunerError;

/// The requests of a trial. Every trial asks the same, so that shapes are compared on one text.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// In the order in which they are sent.
    pub requests: Vec<Request>,
    /// Hash of tokens, lengths and sampling.
    pub hash: String,
}

impl Workload {
    /// Reads the prompts of a sweep. Relative paths start at `folder`.
    ///
    /// # Errors
    /// When a file cannot be read or is malformed, or a prompt does not fit the engine's context.
    pub fn load(workload: &sweep::Workload, folder: &Path, engine: &Engine) -> Result<Self, TunerError> {
        let prompts = if let Some(path) = &workload.input_ids {
            prompts::token_ids(&folder.join(path))?
        } else if let Some(path) = &workload.prompts {
            prompts::texts(&folder.join(path), workload.chat, engine)?
        } else if let Some(random) = &workload.random {
            random_prompts(random, workload, engine)
        } else {
            Vec::new()
        };
        if prompts.is_empty() {
            return Err(TunerError::Configuration("the workload has no prompt".into()));
        }
        let requests: Vec<Request> = prompts
            .iter()
            .cycle()
            .take(workload.requests)
            .zip(workload.seed..)
            .map(|(input_ids, seed)| request(workload, input_ids.clone(), seed))
            .collect();
        check_lengths(&requests, engine.capacity().context_length)?;
        let hash = hash(workload, &requests);
        Ok(Self { requests, hash })
    }
}

fn request(workload: &sweep::Workload, input_ids: Vec<u32>, seed: u64) -> Request {
    let sweep::Workload { temperature, top_p, top_k, output_length, ignore_eos, .. } = *workload;
    Request {
        input_ids,
        sampling: SamplingParams { temperature, top_p, top_k, seed, ..SamplingParams::default() },
        stop: StopConditions { max_new_tokens: Some(output_length), ignore_eos, ..StopConditions::default() },
    }
}

/// Uniform tokens, the model's end-of-text tokens left out; lengths uniform between the shortest and the longest.
fn random_prompts(random: &sweep::RandomPrompts, workload: &sweep::Workload, engine: &Engine) -> Vec<Vec<u32>> {
    let mut numbers = StdRng::seed_from_u64(workload.seed);
    let vocabulary = engine.capacity().vocab_size as u32;
    let ends = &engine.generation_config().eos_token_id;
    let shortest = ((random.input_length as f64 * random.ratio) as usize).max(1);
    (0..workload.requests)
        .map(|_| {
            let length = numbers.random_range(shortest..=random.input_length);
            let tokens = std::iter::repeat_with(|| numbers.random_range(0..vocabulary));
            tokens.filter(|token| !ends.contains(token)).take(length).collect()
        })
        .collect()
}

/// Known before any trial runs: a prompt that leaves no room would fail every one of them.
fn check_lengths(requests: &[Request], context_length: usize) -> Result<(), TunerError> {
    let too_long = requests.iter().enumerate().find(|(_, request)| {
        request.input_ids.len() + request.stop.max_new_tokens.unwrap_or_default() > context_length
    });
    match too_long {
        None => Ok(()),
        Some((at, request)) => Err(TunerError::Configuration(format!(
            "prompt {} has {} tokens; with {} new ones it does not fit the context of {context_length}: lower \
             workload.output_length, or leave long prompts out",
            at + 1,
            request.input_ids.len(),
            request.stop.max_new_tokens.unwrap_or_default()
        ))),
    }
}

fn hash(workload: &sweep::Workload, requests: &[Request]) -> String {
    let mut hasher = blake3::Hasher::new();
    for request in requests {
        hasher.update(&(request.input_ids.len() as u64).to_le_bytes());
        request.input_ids.iter().for_each(|token| {
            hasher.update(&token.to_le_bytes());
        });
    }
    let sweep::Workload { output_length, ignore_eos, temperature, top_p, top_k, seed, .. } = workload;
    hasher.update(format!("{output_length} {ignore_eos} {temperature} {top_p} {top_k} {seed}").as_bytes());
    hasher.finalize().to_hex()[..16].to_owned()
}
