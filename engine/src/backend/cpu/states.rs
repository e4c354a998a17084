//! Exports and imports the target's states of texts.

use std::ops::Range;

use super::{CpuBackend, slot::SlotState, target::PassOutput};
use crate::{
    backend::{PrefillChunk, StateRow, states::not_of_a_text},
    error::EngineError,
};

const ELEMENT: usize = size_of::<f32>();

impl CpuBackend {
    /// The layout of the kept states of a position.
    pub(super) fn kept_row(&self) -> Option<StateRow> {
        let draft = self.draft.as_ref()?.spec();
        let hidden = self.target.hidden_size();
        // If the draft's feature is the final state, it is kept only once.
        let last = if draft.sees_final() { 0 } else { hidden * ELEMENT };
        let features = draft.feature_width(hidden) * ELEMENT;
        Some(StateRow { element: "float32".into(), captured: draft.captured().to_vec(), features, last })
    }

    /// Appends the states that a pass has computed for pieces.
    pub(super) fn give_out(
        &self,
        chunks: &[PrefillChunk<'_>],
        states: &[&SlotState],
        pass: &PassOutput,
        to: &mut Vec<u8>,
    ) -> Result<(), EngineError> {
        let row = self.kept_row().ok_or_else(not_of_a_text)?;
        let features = if row.last == 0 { &pass.hidden } else { &pass.captured };
        let mut first = 0;
        for (chunk, state) in chunks.iter().zip(states) {
            let last = last_rows(&row, chunk, state)?;
            let count = chunk.tokens.len();
            for (from, width, rows) in [(features, row.features, 0..count), (&pass.hidden, row.last, last)] {
                to.extend(from[value_range(first, &rows, width)].iter().flat_map(|value| value.to_le_bytes()));
            }
            first += count;
        }
        Ok(())
    }

    /// The states of pieces as a pass would have returned them; zeros where none were kept.
    pub(super) fn take_in(
        &self,
        chunks: &[PrefillChunk<'_>],
        states: &[&SlotState],
        mut from: &[u8],
    ) -> Result<PassOutput, EngineError> {
        let row = self.kept_row().ok_or_else(not_of_a_text)?;
        let positions: usize = chunks.iter().map(|chunk| chunk.tokens.len()).sum();
        let mut hidden = vec![0.0; positions * self.target.hidden_size()];
        let mut captured = vec![0.0; positions * row.captured.len() * self.target.hidden_size()];
        let mut first = 0;
        for (chunk, state) in chunks.iter().zip(states) {
            let last = last_rows(&row, chunk, state)?;
            let count = chunk.tokens.len();
            let features = if row.last == 0 { &mut hidden } else { &mut captured };
            from = decode(from, &mut features[value_range(first, &(0..count), row.features)])?;
            from = decode(from, &mut hidden[value_range(first, &last, row.last)])?;
            first += count;
        }
        if from.is_empty() { Ok(PassOutput { hidden, captured }) } else { Err(not_as_many()) }
    }
}

/// Rows of a piece at which the final state is kept in addition to the draft's features.
fn last_rows(row: &StateRow, chunk: &PrefillChunk<'_>, state: &SlotState) -> Result<Range<usize>, EngineError> {
    match &state.trace {
        Some(trace) if chunk.next.is_some() && row.last > 0 => Ok(chunk.rows_within(&trace.target_positions())),
        Some(_) if chunk.next.is_some() => Ok(0..0),
        _ => Err(not_of_a_text()),
    }
}

/// Range of the values of these rows, each `bytes` wide, after those of earlier pieces.
fn value_range(first: usize, rows: &Range<usize>, bytes: usize) -> Range<usize> {
    let width = bytes / ELEMENT;
    (first + rows.start) * width..(first + rows.end) * width
}

/// Fills values from the first bytes; returns the remaining bytes.
fn decode<'a>(from: &'a [u8], to: &mut [f32]) -> Result<&'a [u8], EngineError> {
    let (these, rest) = from.split_at_checked(to.len() * ELEMENT).ok_or_else(not_as_many)?;
    let (words, _) = these.as_chunks::<ELEMENT>();
    to.iter_mut().zip(words).for_each(|(to, word)| *to = f32::from_le_bytes(*word));
    Ok(rest)
}

fn not_as_many() -> EngineError {
    EngineError::Device("the number of kept states does not match the number of positions".into())
}
