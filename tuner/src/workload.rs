//! What a trial asks of the engine: prompts from files, or random ones.

mod prompts;

use std::path::Path;

use engine::{Engine, Request, SamplingParams, StopConditions};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::sweep;

use self::prompts::Prompts;
use crate::TunerError;

/// The requests of a trial. Every trial asks the same, so that shapes are compared on one text.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// In the order in which they are sent.
    pub requests: Vec<Request>,
    /// New tokens of each warm-up request; 0 for no warm-up.
    pub warm_up_tokens: usize,
    /// Hash of tokens, lengths and sampling.
    pub hash: String,
    /// Prompts of the file that were passed over: too long, or a conversation in which no user speaks.
    pub left_out: usize,
}

/// What prompts must fit into.
#[derive(Debug)]
struct Room {
    /// Prompts that are needed; no more are read.
    requests: usize,
    /// Longer ones are left out.
    max_prompt_tokens: Option<usize>,
    /// New tokens of a request.
    output_length: usize,
    context_length: usize,
    vocab_size: usize,
}

impl Workload {
    /// Reads the prompts of a sweep. Relative paths start at `folder`.
    ///
    /// # Errors
    /// When a file cannot be read or is malformed, or a prompt does not fit the engine's context: known before any trial
    /// runs, since it would fail every one of them.
    pub fn load(workload: &sweep::Workload, folder: &Path, engine: &Engine) -> Result<Self, TunerError> {
        let capacity = engine.capacity();
        let room = Room {
            requests: workload.requests,
            max_prompt_tokens: workload.max_prompt_tokens,
            output_length: workload.output_length,
            context_length: capacity.context_length,
            vocab_size: capacity.vocab_size,
        };
        let mut numbers = StdRng::seed_from_u64(workload.seed);
        let prompts = if let Some(path) = &workload.input_ids {
            prompts::token_ids(&folder.join(path), &room)?
        } else if let Some(path) = &workload.prompts {
            prompts::texts(&folder.join(path), workload, engine, &room)?
        } else if let Some(random) = &workload.random {
            random_prompts(random, &mut numbers, &room, &engine.generation_config().eos_token_id)?
        } else {
            Prompts::default()
        };
        if prompts.tokens.is_empty() {
            let left_out = match prompts.left_out {
                0 => String::new(),
                count => format!(" ({count} were left out: longer than max_prompt_tokens, or without a user's words)"),
            };
            return Err(TunerError::Configuration(format!("the workload has no prompt{left_out}")));
        }
        let fewest = workload
            .random
            .as_ref()
            .map_or(workload.output_length, |random| share(workload.output_length, random.ratio));
        let requests: Vec<Request> = prompts
            .tokens
            .iter()
            .cycle()
            .take(workload.requests)
            .zip(workload.seed..)
            .map(|(input_ids, seed)| {
                let length = numbers.random_range(fewest..=workload.output_length);
                request(workload, input_ids.clone(), length, seed)
            })
            .collect();
        let hash = hash(workload, &requests);
        Ok(Self { requests, warm_up_tokens: workload.warm_up_tokens, hash, left_out: prompts.left_out })
    }
}

impl Room {
    fn check(&self, tokens: &[u32]) -> Result<(), String> {
        if tokens.is_empty() {
            return Err("the prompt is empty".into());
        }
        if let Some(token) = tokens.iter().find(|token| **token as usize >= self.vocab_size) {
            return Err(format!("token {token} is outside the vocabulary of {}", self.vocab_size));
        }
        if tokens.len().saturating_add(self.output_length) > self.context_length {
            return Err(format!(
                "the prompt has {} tokens; with {} new ones it does not fit the context of {}: lower \
                 workload.output_length, or leave long prompts out with workload.max_prompt_tokens",
                tokens.len(),
                self.output_length,
                self.context_length
            ));
        }
        Ok(())
    }
}

fn request(workload: &sweep::Workload, input_ids: Vec<u32>, output_length: usize, seed: u64) -> Request {
    let sweep::Workload { temperature, top_p, top_k, ignore_eos, .. } = *workload;
    Request {
        input_ids,
        sampling: SamplingParams { temperature, top_p, top_k, seed, ..SamplingParams::default() },
        stop: StopConditions { max_new_tokens: Some(output_length), ignore_eos, ..StopConditions::default() },
    }
}

/// Uniform tokens, the model's end-of-text tokens left out; lengths uniform between the shortest and the longest.
fn random_prompts(
    random: &sweep::RandomPrompts,
    numbers: &mut StdRng,
    room: &Room,
    ends: &[u32],
) -> Result<Prompts, TunerError> {
    let vocabulary: Vec<u32> = (0..room.vocab_size as u32).filter(|token| !ends.contains(token)).collect();
    if vocabulary.is_empty() {
        return Err(TunerError::Configuration("random prompts: the target has no token but end-of-text".into()));
    }
    let shortest = share(random.input_length, random.ratio);
    // Checked at its longest before any is made.
    room.check(&vec![vocabulary[0]; random.input_length])
        .map_err(|reason| TunerError::Configuration(format!("workload.random: {reason}")))?;
    let prompt = |_| {
        let length = numbers.random_range(shortest..=random.input_length);
        (0..length).map(|_| vocabulary[numbers.random_range(0..vocabulary.len())]).collect()
    };
    Ok(Prompts { tokens: (0..room.requests).map(prompt).collect(), left_out: 0 })
}

/// A share of a length, at least one.
fn share(length: usize, ratio: f64) -> usize {
    ((length as f64 * ratio) as usize).clamp(1, length.max(1))
}

fn hash(workload: &sweep::Workload, requests: &[Request]) -> String {
    let mut hasher = blake3::Hasher::new();
    for request in requests {
        hasher.update(&(request.input_ids.len() as u64).to_le_bytes());
        hasher.update(&(request.stop.max_new_tokens.unwrap_or_default() as u64).to_le_bytes());
        request.input_ids.iter().for_each(|token| {
            hasher.update(&token.to_le_bytes());
        });
    }
    let sweep::Workload { ignore_eos, temperature, top_p, top_k, seed, warm_up_tokens, .. } = workload;
    hasher.update(format!("{ignore_eos} {temperature} {top_p} {top_k} {seed} {warm_up_tokens}").as_bytes());
    hasher.finalize().to_hex()[..16].to_owned()
}
