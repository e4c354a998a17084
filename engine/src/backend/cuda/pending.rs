//! The draft's backlog: rounds without speculation store the target's rows for the draft, which
//! processes them in one pass before speculation continues or when the buffer is full.
//!
//! The host counts: a round without speculation yields one token for each of its slots.

use kernels::{
    device::DeviceError,
    launch::{PendingRows, PendingTokens, Rows},
};

use super::{CudaBackend, machine::Machine, round::RoundMemory, weights::DraftWeights};
use crate::{
    backend::{Decode, MAX_PENDING_DRAFT, Slot},
    error::EngineError,
};

impl Machine {
    fn pending_rows(&self, draft: &DraftWeights) -> Rows<'_> {
        Rows { at: self.slots.pending_rows.slice(), stride: self.feature_width(draft) }
    }

    fn pending_tokens(&self) -> PendingTokens<'_> {
        PendingTokens { tokens: self.slots.pending_tokens.slice(), depth: MAX_PENDING_DRAFT }
    }

    /// Stores, after acceptance, what the draft needs from a round without speculation.
    pub fn keep_pending(&self, memory: RoundMemory<'_>, draft: &DraftWeights, batch: usize) -> Result<(), DeviceError> {
        let RoundMemory { work, arrays, round } = memory;
        let place = round.pending_place.slice();
        self.kernels.keep_pending(self.pending_tokens(), self.capacity.slots + 1, arrays.pass(), place, batch)?;
        let (to, from) = (self.pending_rows(draft), self.feature_rows(draft, work));
        let source = Some(arrays.source.slice());
        if self.feature_width(draft) == 0 {
            // A whole model reads the tokens alone.
            return Ok(());
        }
        self.kernels.gather_rows(to, Some(place), from, source, batch, self.feature_width(draft))
    }

    /// Runs the draft over the pending tokens of `batch` requests, at most `most` each, and keeps
    /// its state after the last token of each.
    fn read_pending(
        &self,
        memory: RoundMemory<'_>,
        draft: &DraftWeights,
        batch: usize,
        most: usize,
    ) -> Result<(), DeviceError> {
        let RoundMemory { arrays, round, .. } = memory;
        let reading = PendingRows {
            batch,
            most,
            batch_slot: round.slot.slice(),
            pending: round.pending.slice(),
            rows: arrays.pass(),
            row_source: arrays.source.slice(),
            last_row: round.last_row.slice(),
        };
        self.kernels.pending_rows(reading, self.pending_tokens(), self.slots.sequences(&self.capacity))?;
        self.extend(memory, draft, self.pending_rows(draft), batch, most)
    }
}

impl CudaBackend {
    /// Runs the draft over the pending tokens of these slots, as many at once as there is room for.
    /// `place` is the staging place of the round that follows.
    pub(super) fn read_pending(&mut self, place: usize, slots: &[Slot]) -> Result<(), EngineError> {
        let Some(draft) = &self.machine.draft else { return Ok(()) };
        let pending = slots.iter().map(|slot| (*slot, self.pending_draft_tokens(*slot)));
        let late: Vec<(Slot, usize)> = pending.filter(|(_, pending)| *pending > 0).collect();
        if late.is_empty() {
            return Ok(());
        }
        let slots = late.iter().map(|(slot, _)| slot.0 as i32);
        let columns: Vec<i32> = slots.chain(late.iter().map(|(_, pending)| *pending as i32)).collect();
        self.staging[place].pending.store(0, &columns);
        // The copies below overwrite the round's slots, so these must be sent again.
        self.sent.clear();
        // As many requests as fit even if each has the most pending tokens.
        let together = (self.extent.rows / MAX_PENDING_DRAFT).max(1);
        for (group, members) in late.chunks(together).enumerate() {
            let host = &self.staging[place].pending;
            for (column, to) in [&self.round.slot, &self.round.pending].into_iter().enumerate() {
                let from = (column * late.len() + group * together) * 4;
                self.device.write_async(to.slice(), host, from..from + members.len() * 4)?;
            }
            let memory = RoundMemory { work: &self.work, arrays: &self.arrays, round: &self.round };
            let most = members.iter().map(|(_, pending)| *pending).max().unwrap_or_default();
            self.machine.read_pending(memory, draft, members.len(), most)?;
        }
        for (slot, _) in late {
            if let Some(open) = self.slots.find_mut(slot) {
                open.pending = 0;
            }
        }
        Ok(())
    }

    /// Counts one more pending token for each of these slots.
    pub(super) fn count_pending(&mut self, slots: &[Slot]) {
        for slot in slots {
            if let Some(open) = self.slots.find_mut(*slot) {
                open.pending += 1;
            }
        }
    }
}
