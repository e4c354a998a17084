//! The target's states of texts, in memory as far as they fit.

use std::{collections::HashMap, sync::Arc, time::Instant};

use engine::{Engine, ReplayText, TextStates};

use crate::{batch::Known, error::TrainingError};

/// States of texts. What does not fit is made anew by the engine each time.
pub struct States<'a> {
    texts: &'a [Option<ReplayText>],
    kept: HashMap<usize, Arc<TextStates>>,
    bytes: usize,
    most_bytes: usize,
    /// Seconds that the engine took to make states.
    pub seconds: f64,
}

impl<'a> States<'a> {
    /// Of texts, in at most this many MiB.
    pub fn new(texts: &'a [Option<ReplayText>], most_mib: usize) -> Self {
        Self { texts, kept: HashMap::new(), bytes: 0, most_bytes: most_mib << 20, seconds: 0.0 }
    }

    /// Tokens of a text, and of its prompt.
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
        let states = match self.kept.get(&text) {
            Some(states) => states.clone(),
            None => {
                let begin = Instant::now();
                let states = Arc::new(engine.states(tokens)?);
                self.seconds += begin.elapsed().as_secs_f64();
                let bytes = (states.captured.len() + states.last.len()) * size_of::<f32>();
                if self.bytes + bytes <= self.most_bytes {
                    self.bytes += bytes;
                    self.kept.insert(text, states.clone());
                }
                states
            }
        };
        Ok(Known { tokens: tokens.clone(), prompt_tokens: *prompt_tokens, states })
    }

    fn text(&self, text: usize) -> Option<&'a ReplayText> {
        self.texts.get(text)?.as_ref()
    }
}
