//! Copies of the target's states of texts, to the host and back.

use std::ops::Range;

use kernels::device::{Buffer, Slice};

use super::CudaBackend;
use crate::{
    backend::{PrefillChunk, StateRow, TargetStates, states::not_of_a_text},
    error::EngineError,
};

/// A block of rows in a buffer that is part of the kept states.
struct RowBlock<'a> {
    buffer: &'a Buffer,
    /// Bytes per row.
    row: usize,
    /// Rows of the buffer.
    rows: Range<usize>,
}

impl CudaBackend {
    /// The layout of the kept states of a position.
    pub(super) fn kept_row(&self) -> Option<StateRow> {
        let draft = self.machine.draft.as_ref()?;
        let element = self.options.element;
        let features = self.machine.feature_width(draft) * element.bytes();
        // If the draft's feature is the final state, it is kept only once.
        let last = if draft.sees_final() { 0 } else { self.machine.target.spec.hidden * element.bytes() };
        Some(StateRow { element: element.name().into(), captured: draft.captured().to_vec(), features, last })
    }

    /// Checks that all pieces belong to traced texts that continue, and that the given states have
    /// the expected size.
    pub(super) fn check_traced(
        &self,
        chunks: &[PrefillChunk<'_>],
        states: &TargetStates<'_>,
    ) -> Result<(), EngineError> {
        if chunks.iter().any(|chunk| chunk.next.is_none() || self.trace_of(chunk.slot).is_none()) {
            return Err(not_of_a_text());
        }
        // The number of rows does not depend on where they are.
        let ends: Vec<i32> = chunks.iter().map(|chunk| chunk.tokens.len() as i32 - 1).collect();
        let needed: usize = self.parts(chunks, &ends)?.iter().map(RowBlock::bytes).sum();
        match states {
            TargetStates::In(from) if from.len() != needed => Err(EngineError::Device(format!(
                "there are {} bytes of kept states for positions of {needed}",
                from.len()
            ))),
            _ => Ok(()),
        }
    }

    /// Appends the target's states of pieces whose last rows are `lasts`.
    pub(super) fn give_out(
        &self,
        chunks: &[PrefillChunk<'_>],
        lasts: &[i32],
        to: &mut Vec<u8>,
    ) -> Result<(), EngineError> {
        for part in self.parts(chunks, lasts)? {
            let start = to.len();
            to.resize(start + part.bytes(), 0);
            self.device.read(part.slice(), &mut to[start..])?;
        }
        Ok(())
    }

    /// Copies the first of these bytes to where the target's pass would have stored its states, and
    /// advances past them.
    pub(super) fn take_in(
        &self,
        chunks: &[PrefillChunk<'_>],
        lasts: &[i32],
        from: &mut &[u8],
    ) -> Result<(), EngineError> {
        for part in self.parts(chunks, lasts)? {
            // The bytes come from a file, which may be of another text.
            let (these, rest) = from.split_at_checked(part.bytes()).ok_or_else(not_of_a_text)?;
            self.device.write(part.slice(), these)?;
            *from = rest;
        }
        Ok(())
    }

    fn parts(&self, chunks: &[PrefillChunk<'_>], lasts: &[i32]) -> Result<Vec<RowBlock<'_>>, EngineError> {
        let (Some(row), Some(draft)) = (self.kept_row(), &self.machine.draft) else { return Err(not_of_a_text()) };
        let features = if draft.sees_final() { &self.work.normed } else { &self.work.captured };
        let mut parts = Vec::with_capacity(2 * chunks.len());
        for (chunk, last) in chunks.iter().zip(lasts) {
            let count = chunk.tokens.len();
            let first = *last as usize + 1 - count;
            parts.push(RowBlock { buffer: features, row: row.features, rows: first..first + count });
            if let Some(trace) = self.trace_of(chunk.slot).filter(|_| row.last > 0) {
                let rows = chunk.rows_within(&trace.target_positions());
                let rows = first + rows.start..first + rows.end;
                parts.push(RowBlock { buffer: &self.work.normed, row: row.last, rows });
            }
        }
        parts.retain(|part| !part.rows.is_empty());
        Ok(parts)
    }
}

impl RowBlock<'_> {
    fn bytes(&self) -> usize {
        self.rows.len() * self.row
    }

    fn slice(&self) -> Slice<'_> {
        self.buffer.range(self.rows.start * self.row..self.rows.end * self.row)
    }
}
