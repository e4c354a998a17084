//! Prompts of random tokens, of given lengths.

use rand::{RngExt, rngs::StdRng};
use schemas::sweep;

use super::{ModelText, Room, check_total, prompts::PromptList};
use crate::TunerError;

/// The tokens of random prompts: all except the model's end-of-text tokens. Never empty.
pub struct RandomVocabulary(Vec<u32>);

impl RandomVocabulary {
    /// The vocabulary of the target.
    ///
    /// # Errors
    /// When it has no other tokens.
    pub fn from_model(model: &ModelText) -> Result<Self, TunerError> {
        let ends = &model.end_tokens;
        let tokens = 0..u32::try_from(model.vocab_size).unwrap_or(u32::MAX);
        let tokens: Vec<u32> = tokens.filter(|token| !ends.contains(token)).collect();
        match tokens.is_empty() {
            true => Err(TunerError::Configuration("random prompts: end-of-text is the target's only token".into())),
            false => Ok(Self(tokens)),
        }
    }

    /// A prompt of this many tokens, uniformly distributed.
    pub fn prompt(&self, length: usize, numbers: &mut StdRng) -> Vec<u32> {
        (0..length).map(|_| self.0[numbers.random_range(0..self.0.len())]).collect()
    }
}

/// Prompts whose lengths are uniform between the shortest and the longest.
pub fn prompts(
    random: &sweep::RandomPrompts,
    numbers: &mut StdRng,
    room: &Room,
    model: &ModelText,
) -> Result<PromptList, TunerError> {
    let vocabulary = RandomVocabulary::from_model(model)?;
    // The longest length is checked before any prompt is generated.
    room.check_length(random.input_length, room.output_length)
        .map_err(|reason| TunerError::Configuration(format!("workload.random: {reason}")))?;
    check_total(room.requests.saturating_mul(random.input_length))?;
    let shortest = share(random.input_length, random.ratio);
    let prompt = |_| {
        let length = numbers.random_range(shortest..=random.input_length);
        vocabulary.prompt(length, numbers)
    };
    Ok(PromptList { tokens: (0..room.requests).map(prompt).collect(), left_out: 0 })
}

/// A share of a length, at least one token.
pub fn share(length: usize, ratio: f64) -> usize {
    ((length as f64 * ratio) as usize).clamp(1, length.max(1))
}
