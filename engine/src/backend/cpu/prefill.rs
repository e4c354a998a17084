//! Prefill: one pass of the target over the chunks of all prompts, then one of the draft, whose row
//! i reads token i + 1.

use super::{
    CpuBackend, SlotState,
    passes::{PassInput, produce, select},
    target::PassOutput,
};
use crate::{
    backend::{PrefillChunk, TargetStates, TokenLogprobs, Yield, first_token},
    error::EngineError,
    request::PromptLogprobs,
    sampling::logprobs,
};

/// Maximum number of rows whose logits are in memory at a time, when they are requested for a whole
/// prompt.
const LOGIT_ROWS: usize = 64;

/// Pieces that the target has processed and the draft has not.
pub struct TargetRead {
    pass: PassOutput,
    /// The last row of each piece in the pass.
    lasts: Vec<usize>,
    /// The first token after each prompt that ends.
    first: Vec<Option<Yield>>,
}

impl TargetRead {
    /// The first token after each prompt that ends, in the order of the pieces.
    pub fn first(&self) -> &[Option<Yield>] {
        &self.first
    }
}

impl CpuBackend {
    /// Runs the target over pieces of prompts, or over pieces of texts whose target states are
    /// returned or given.
    pub(super) fn prefill_target(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        kept: Option<TargetStates<'_>>,
    ) -> Result<TargetRead, EngineError> {
        // Taken out of their slots, since they change while the slots' states are borrowed.
        let mut adjusters = self.slots.take_adjusters(chunks.iter().map(|chunk| chunk.slot));
        let states = self.slots.get_all(chunks.iter().map(|chunk| chunk.slot))?;
        let mut stack = PassInput::default();
        let mut lasts = Vec::new();
        for (chunk, state) in chunks.iter().zip(&states) {
            if chunk.tokens.is_empty() || chunk.start != state.length {
                let (start, length) = (chunk.start, state.length);
                return Err(EngineError::Device(format!(
                    "a piece from {start} does not continue a sequence of {length}"
                )));
            }
            let vocabulary = self.capacity.vocab_size;
            if let Some(token) = chunk.tokens.iter().chain(&chunk.next).find(|token| **token as usize >= vocabulary) {
                return Err(EngineError::Device(format!(
                    "token {token} is outside the {vocabulary} of the vocabulary"
                )));
            }
            state.rows_ahead(chunk.tokens.len())?;
            let first = stack.len();
            stack.push_causal(chunk.tokens, chunk.start, &state.rows);
            stack.continues(chunk.slot.0 as usize, first);
            lasts.push(stack.len() - 1);
        }
        let capture = self.draft.as_ref().map_or(&[][..], |draft| draft.captured());
        let pass = match kept {
            // The target does not run: its states at these positions are already known.
            Some(TargetStates::In(kept)) => self.take_in(chunks, &states, kept)?,
            kept => {
                let pass = stack.run_windowed(self.slots.windows(), |tokens, rows| {
                    self.target.forward(tokens, rows, &mut self.caches, capture)
                })?;
                if let Some(TargetStates::Out(to)) = kept {
                    self.give_out(chunks, &states, &pass, to)?;
                }
                pass
            }
        };

        let ends = chunks.iter().zip(&lasts).filter(|(chunk, _)| chunk.next.is_none()).map(|(_, last)| *last);
        let logits = self.target.logits(&select(&pass.hidden, self.target.hidden_size(), ends));
        let mut logits = logits.chunks_exact(self.capacity.vocab_size);
        let first = chunks
            .iter()
            .zip(&states)
            .zip(&mut adjusters)
            .map(|((chunk, state), adjuster)| {
                let logits = if chunk.next.is_none() { logits.next() } else { None };
                let position = chunk.start + chunk.tokens.len();
                let first = logits.map(|logits| produce(logits, &state.sampling, adjuster.as_mut(), position));
                first.map(|first| Yield::from_prompt(first, position))
            })
            .collect();
        self.slots.put_back(chunks.iter().map(|chunk| chunk.slot), adjusters);
        Ok(TargetRead { pass, lasts, first })
    }

    /// Runs the draft, if it follows the sequences, over pieces that the target has processed, and
    /// updates their slots.
    pub(super) fn prefill_draft(&mut self, chunks: &[PrefillChunk<'_>], read: TargetRead) -> Result<(), EngineError> {
        let TargetRead { pass, lasts, first } = read;
        let states = self.slots.get_all(chunks.iter().map(|chunk| chunk.slot))?;
        let of_prompts: Vec<Vec<TokenLogprobs>> = chunks
            .iter()
            .zip(&states)
            .zip(&lasts)
            .map(|((chunk, state), last)| self.prompt_logprobs(chunk, state, &pass, *last))
            .collect();

        let (mut states_behind, mut width) = (Vec::new(), 0);
        let reads = self.follows || states.iter().any(|state| state.trace.is_some());
        if let (Some(draft), true) = (&self.draft, reads) {
            let (mut stack, ahead) = (PassInput::default(), draft.ahead());
            for ((chunk, state), first) in chunks.iter().zip(&states).zip(&first) {
                let next = chunk.next.unwrap_or_else(|| first_token(first));
                let shifted: Vec<u32> = chunk.tokens.iter().skip(1).copied().chain([next]).collect();
                state.rows_before(chunk.start + chunk.tokens.len() + ahead)?;
                // The first token of a sequence, and the one after a reused prefix, follow no piece
                // that has read them.
                stack.push_causal(&chunk.tokens[..ahead], chunk.start, &state.rows);
                stack.push_causal(&shifted, chunk.start + ahead, &state.rows);
            }
            width = draft.state_width();
            states_behind = draft.read(&pass, &stack, &mut self.draft_caches);
            if ahead > 0 {
                let firsts: Vec<usize> =
                    lasts.iter().zip(chunks).map(|(last, chunk)| last + 1 - chunk.tokens.len()).collect();
                states_behind = without_firsts(&states_behind, width, &firsts);
            }
        }

        let hidden = self.target.hidden_size();
        for (((chunk, first), last), of_prompt) in chunks.iter().zip(&first).zip(&lasts).zip(of_prompts) {
            let state = self.slots.get_mut(chunk.slot)?;
            if let Some(trace) = &mut state.trace {
                let begin = last + 1 - chunk.tokens.len();
                let draft = &states_behind[begin * width..(last + 1) * width];
                let target = &pass.hidden[begin * hidden..(last + 1) * hidden];
                trace.keep(chunk, draft, target);
            }
            state.prompt_logprobs.extend(of_prompt);
            state.length += chunk.tokens.len();
            if first.is_some() {
                state.root = first_token(first);
            }
            state.drafted = reads.then(|| states_behind[last * width..(last + 1) * width].to_vec());
        }
        Ok(())
    }

    /// Log-probabilities of the tokens after the rows of a piece, as far as the request wants them.
    /// `last` is the piece's last row in the pass.
    fn prompt_logprobs(
        &self,
        chunk: &PrefillChunk<'_>,
        state: &SlotState,
        pass: &PassOutput,
        last: usize,
    ) -> Vec<TokenLogprobs> {
        let Some(PromptLogprobs { from, alternatives }) = state.sampling.prompt_logprobs else { return Vec::new() };
        let rows: Vec<(usize, u32)> = chunk.rows_before(from, last).collect();
        let some = |rows: &[(usize, u32)]| {
            let hidden = select(&pass.hidden, self.target.hidden_size(), rows.iter().map(|(row, _)| *row));
            let logits = self.target.logits(&hidden);
            let of_row = |(logits, (_, token)): (&[f32], &(usize, u32))| logprobs(logits, *token, alternatives);
            logits.chunks_exact(self.capacity.vocab_size).zip(rows).map(of_row).collect::<Vec<_>>()
        };
        rows.chunks(LOGIT_ROWS).flat_map(some).collect()
    }
}

/// States of rows without those of the tokens at the starts of pieces, of which each piece has one
/// more row: `firsts` are the indices of the pieces' first rows among the rest.
fn without_firsts(states: &[f32], width: usize, firsts: &[usize]) -> Vec<f32> {
    let skipped = firsts.iter().enumerate().map(|(piece, first)| first + piece);
    let skipped: std::collections::BTreeSet<usize> = skipped.collect();
    let rows = states.chunks_exact(width.max(1)).enumerate();
    rows.filter(|(row, _)| !skipped.contains(row)).flat_map(|(_, state)| state).copied().collect()
}
