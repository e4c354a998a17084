//! The target's states of texts, kept in the memory of the training device as far as they fit.

use std::{collections::HashMap, time::Instant};

use engine::{Engine, ReplayText};

use crate::{
    batch::{Known, Left},
    compute::Compute,
    error::TrainingError,
};

/// States of texts. States that do not fit are recomputed by the engine each time.
pub struct PromptStates<'a> {
    texts: &'a [Option<ReplayText>],
    kept: HashMap<usize, Left>,
    bytes: usize,
    most_bytes: usize,
    compute: Compute,
    /// Seconds in which the engine computed states.
    pub seconds: f64,
}

impl<'a> PromptStates<'a> {
    /// States of these texts, using at most this many MiB.
    pub fn new(texts: &'a [Option<ReplayText>], most_mib: usize, compute: Compute) -> Self {
        Self { texts, kept: HashMap::new(), bytes: 0, most_bytes: most_mib << 20, compute, seconds: 0.0 }
    }

    /// Lengths of a text and of its prompt.
    pub fn size(&self, text: usize) -> (usize, usize) {
        self.text(text).map_or((0, 0), |text| (text.tokens.len(), text.prompt_tokens))
    }

    /// A text with its states.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn known(&mut self, engine: &mut Engine, text: usize) -> Result<Known, TrainingError> {
        let Some(ReplayText { tokens, prompt_tokens, .. }) = self.text(text) else {
            return Err(TrainingError::Configuration(format!("there is no text {text}")));
        };
        let left = match self.kept.get(&text) {
            Some(left) => left.clone(),
            None => {
                let begin = Instant::now();
                let left = Left::new(&engine.states(tokens)?, self.compute.tensors())?;
                self.seconds += begin.elapsed().as_secs_f64();
                if self.bytes + left.bytes() <= self.most_bytes {
                    self.bytes += left.bytes();
                    self.kept.insert(text, left.clone());
                }
                left
            }
        };
        Ok(Known { tokens: tokens.clone(), prompt_tokens: *prompt_tokens, left })
    }

    fn text(&self, text: usize) -> Option<&'a ReplayText> {
        self.texts.get(text)?.as_ref()
    }
}
