//! The KV cache of a simulated engine: which requests it is expected to hold, by the engine's own
//! rule.

use engine::new_token_ratio::{NewTokenRatio, Output};

use super::Memory;
use crate::TunerError;

/// The KV cache and the rule's state. A request is given by its tokens so far, and those of its
/// prompt.
#[derive(Clone, Copy, Debug)]
pub struct Occupancy {
    memory: Memory,
    ratio: NewTokenRatio,
}

impl Occupancy {
    /// Before the first request.
    pub fn new(memory: Memory) -> Self {
        Self { memory, ratio: NewTokenRatio::default() }
    }

    /// Checks that a request fits alone.
    ///
    /// # Errors
    /// With the figures, if it does not.
    pub fn check(&self, prompt: usize, output: usize) -> Result<(), TunerError> {
        let Memory { tokens, max_new_tokens, slack } = self.memory;
        let needed = prompt + max_new_tokens + slack;
        if output <= max_new_tokens && needed <= tokens {
            return Ok(());
        }
        Err(TunerError::Configuration(format!(
            "forecast: a request of {prompt} prompt and {output} output tokens, with a limit of {max_new_tokens} new tokens, \
             needs {needed} tokens of a KV cache of {tokens}: expected a limit of at least its output, and room for both"
        )))
    }

    /// Whether another request may start.
    pub fn admits(&self, running: &[(usize, usize)], next: (usize, usize)) -> bool {
        let expected =
            |(length, prompt): (usize, usize)| length + self.ratio.expected(output(&self.memory, length, prompt));
        let running: usize = running.iter().map(|one| expected(*one) + self.memory.slack).sum();
        let next = next.0 + output(&self.memory, next.0, next.1).at_start() + self.memory.slack;
        running + next <= self.memory.tokens
    }

    /// Number of requests, the oldest first, that stay for the next round. It is one step of the
    /// rule.
    pub fn keeps(&mut self, running: &[(usize, usize)]) -> usize {
        if running.is_empty() {
            self.ratio.reset();
            return 0;
        }
        let mut held = 0;
        let fits = |(length, _): &&(usize, usize)| {
            held += length + 1 + self.memory.slack;
            held <= self.memory.tokens
        };
        let kept = running.iter().take_while(fits).count().max(1);
        if kept == running.len() {
            self.ratio.decay();
        } else {
            let memory = self.memory;
            self.ratio.retracted(running[..kept].iter().map(|(length, prompt)| output(&memory, *length, *prompt)));
        }
        kept
    }
}

fn output(memory: &Memory, length: usize, prompt: usize) -> Output {
    Output { generated: length - prompt, most: memory.max_new_tokens, is_certain: false }
}
