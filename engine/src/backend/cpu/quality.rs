//! Measures how much quantisation at load time changes a target's logits.

use std::path::Path;

use kernels::reference::{argmax, log_softmax};

use super::{passes::PassInput, target::Target};
use crate::{
    checkpoint::{Folder, Tensors},
    description::cached,
    error::EngineError,
    families::read_target,
    quantization::{Fp8Compute, Quantization, StoredIn, quantised_target},
    spec::CacheFormat,
};

/// Differences between two targets over the same texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Number of compared positions.
    pub positions: usize,
    /// The largest difference of two logits, each relative to the mean of its row, since a shift of
    /// all logits changes nothing.
    pub largest: f64,
    /// The mean of all absolute differences.
    pub mean: f64,
    /// The mean of |logit|, likewise relative to the row's mean: the scale for the differences.
    pub mean_logit: f64,
    /// The mean divergence of next-token distributions, in nats: KL(plain ‖ quantised).
    pub divergence: f64,
    /// The share of positions with the same most likely token.
    pub same_token: f64,
}

/// Compares a folder's target with its quantised version in one of the modes, over texts that the
/// plain one continues greedily from these prompts by `new_tokens` tokens each. In float32 on the
/// CPU.
///
/// # Errors
/// When the target cannot be loaded, a prompt is empty, or a token is outside the vocabulary.
pub fn quantisation_quality(
    folder: &Path,
    by: Quantization,
    compute: Fp8Compute,
    prompts: &[Vec<u32>],
    new_tokens: usize,
) -> Result<Quality, EngineError> {
    let folder = Folder::open(folder)?;
    let weights = folder.weights()?;
    let spec = read_target(&folder, &weights)?;
    let plain = Target::load(&weights, spec.clone())?;
    let quantised = quantised_target(spec, StoredIn::Checkpoint(Tensors::new(&weights)), Some(by), compute)?;
    compare(&plain, &Target::load(&weights, quantised)?, prompts, new_tokens)
}

/// The same for a folder's target with its cache in FP8 instead of its weights.
///
/// # Errors
/// As [`quantisation_quality`], and when the target has no such cache.
pub fn cache_quality(folder: &Path, prompts: &[Vec<u32>], new_tokens: usize) -> Result<Quality, EngineError> {
    let folder = Folder::open(folder)?;
    let weights = folder.weights()?;
    let stored = StoredIn::Checkpoint(Tensors::new(&weights));
    let spec = quantised_target(read_target(&folder, &weights)?, stored, None, Fp8Compute::Weights)?;
    let plain = Target::load(&weights, spec.clone())?;
    let in_fp8 = cached("target", CacheFormat::Fp8, |format| spec.with_cache(format))?;
    compare(&plain, &Target::load(&weights, in_fp8)?, prompts, new_tokens)
}

fn compare(
    plain: &Target,
    quantised: &Target,
    prompts: &[Vec<u32>],
    new_tokens: usize,
) -> Result<Quality, EngineError> {
    let mut sums = Quality { positions: 0, largest: 0.0, mean: 0.0, mean_logit: 0.0, divergence: 0.0, same_token: 0.0 };
    for prompt in prompts {
        if prompt.is_empty() || prompt.iter().any(|token| *token as usize >= plain.vocab_size()) {
            return Err(EngineError::Configuration(
                "a prompt is empty or has a token outside the target's vocabulary".into(),
            ));
        }
        let text = written(plain, prompt, new_tokens);
        let [one, other] = [plain, quantised].map(|target| logits(target, &text));
        let width = plain.vocab_size();
        one.chunks_exact(width).zip(other.chunks_exact(width)).for_each(|(one, other)| sums.add(one, other));
    }
    // Without prompts the differences are zero, not NaN.
    let share = |sum: f64| sum / sums.positions.max(1) as f64;
    Ok(Quality {
        mean: share(sums.mean),
        mean_logit: share(sums.mean_logit),
        divergence: share(sums.divergence),
        same_token: share(sums.same_token),
        ..sums
    })
}

impl Quality {
    fn add(&mut self, one: &[f32], other: &[f32]) {
        let centre = |row: &[f32]| row.iter().map(|logit| f64::from(*logit)).sum::<f64>() / row.len() as f64;
        let (of_one, of_other) = (centre(one), centre(other));
        let (mut sum, mut size) = (0.0, 0.0);
        for (one, other) in one.iter().zip(other) {
            let (one, other) = (f64::from(*one) - of_one, f64::from(*other) - of_other);
            self.largest = self.largest.max((one - other).abs());
            sum += (one - other).abs();
            size += one.abs();
        }
        self.positions += 1;
        self.mean += sum / one.len() as f64;
        self.mean_logit += size / one.len() as f64;
        self.same_token += f64::from(u8::from(argmax(one) == argmax(other)));
        let terms = log_softmax(one).into_iter().zip(log_softmax(other));
        self.divergence += terms.map(|(one, other)| f64::from(one).exp() * f64::from(one - other)).sum::<f64>();
    }
}

/// A prompt, and the target's greedy continuation of it.
fn written(target: &Target, prompt: &[u32], new_tokens: usize) -> Vec<u32> {
    let rows: Vec<u32> = (0..(prompt.len() + new_tokens) as u32).collect();
    let mut caches = target.caches(rows.len(), rows.len(), 1);
    let (mut text, mut read) = (prompt.to_vec(), 0);
    for _ in 0..new_tokens {
        let mut stack = PassInput::default();
        stack.push_causal(&text[read..], read, &rows);
        stack.continues(0, 0);
        let hidden = stack.run(|tokens, rows| target.forward(tokens, rows, &mut caches, &[])).hidden;
        read = text.len();
        let last = &hidden[hidden.len() - target.hidden_size()..];
        text.push(argmax(&target.logits(last)) as u32);
    }
    text
}

/// Logits after each token of a text.
fn logits(target: &Target, text: &[u32]) -> Vec<f32> {
    let rows: Vec<u32> = (0..text.len() as u32).collect();
    let mut stack = PassInput::default();
    stack.push_causal(text, 0, &rows);
    stack.continues(0, 0);
    let mut caches = target.caches(text.len(), text.len(), 1);
    target.logits(&stack.run(|tokens, rows| target.forward(tokens, rows, &mut caches, &[])).hidden)
}
