//! The draft's backlog: rounds without speculation store the target's rows for the draft, which processes them in one
//! pass before speculation continues or when the buffer is full.
//!
//! The host counts: a round without speculation yields one token for each of its slots.

use kernels::{
    device::DeviceError,
    launch::{Reading, Rows, UnreadTokens},
};

use super::{CudaBackend, machine::Machine, round::RoundMemory, weights::DraftWeights};
use crate::{
    backend::{Backend, MOST_UNREAD, Slot},
    error::EngineError,
};

impl Machine {
    fn unread_rows(&self, draft: &DraftWeights) -> Rows<'_> {
        Rows { at: self.slots.unread_rows.slice(), stride: self.feature_width(draft) }
    }

    fn unread_tokens(&self) -> UnreadTokens<'_> {
        UnreadTokens { tokens: self.slots.unread_tokens.slice(), depth: MOST_UNREAD }
    }

    /// Stores what the draft needs from a round without speculation, after acceptance.
    pub fn keep_unread(&self, memory: RoundMemory<'_>, draft: &DraftWeights, batch: usize) -> Result<(), DeviceError> {
        let RoundMemory { work, arrays, round } = memory;
        let place = round.unread_place.slice();
        self.kernels.keep_unread(self.unread_tokens(), self.capacity.slots + 1, arrays.pass(), place, batch)?;
        let (to, from) = (self.unread_rows(draft), self.feature_rows(draft, work));
        let source = Some(arrays.source.slice());
        self.kernels.gather_rows(to, Some(place), from, source, batch, self.feature_width(draft))
    }

    /// Runs the draft over what `batch` requests have left unread, at most `most` each, and keeps its state after the
    /// last token of each.
    fn read_unread(
        &self,
        memory: RoundMemory<'_>,
        draft: &DraftWeights,
        batch: usize,
        most: usize,
    ) -> Result<(), DeviceError> {
        let RoundMemory { arrays, round, .. } = memory;
        let reading = Reading {
            batch,
            most,
            batch_slot: round.slot.slice(),
            unread: round.unread.slice(),
            rows: arrays.pass(),
            row_source: arrays.source.slice(),
            last_row: round.last_row.slice(),
        };
        self.kernels.unread_rows(reading, self.unread_tokens(), self.slots.sequences(&self.capacity))?;
        self.extend(memory, draft, self.unread_rows(draft), batch, most)
    }
}

impl CudaBackend {
    /// Lets the draft read what these slots have left, as many at once as there is room for. `place` is that of the round
    /// after it.
    pub(super) fn read_unread(&mut self, place: usize, slots: &[Slot]) -> Result<(), EngineError> {
        let Some(draft) = &self.machine.draft else { return Ok(()) };
        let unread = slots.iter().map(|slot| (*slot, self.unread(*slot)));
        let late: Vec<(Slot, usize)> = unread.filter(|(_, unread)| *unread > 0).collect();
        if late.is_empty() {
            return Ok(());
        }
        let host = &mut self.ring[place].unread;
        let columns = host.values_mut::<i32>(0, 2 * late.len());
        for (at, (slot, unread)) in late.iter().enumerate() {
            columns[at] = slot.0 as i32;
            columns[late.len() + at] = *unread as i32;
        }
        self.sent.clear();
        let together = (self.extent.rows / MOST_UNREAD).max(1);
        for (group, members) in late.chunks(together).enumerate() {
            let host = &self.ring[place].unread;
            for (column, to) in [&self.round.slot, &self.round.unread].into_iter().enumerate() {
                let from = (column * late.len() + group * together) * 4;
                self.device.write_async(to.slice(), host, from..from + members.len() * 4)?;
            }
            let memory = RoundMemory { work: &self.work, arrays: &self.arrays, round: &self.round };
            let most = members.iter().map(|(_, unread)| *unread).max().unwrap_or_default();
            self.machine.read_unread(memory, draft, members.len(), most)?;
        }
        for (slot, _) in late {
            if let Some(Some(open)) = self.slots.get_mut(slot.0 as usize) {
                open.unread = 0;
            }
        }
        Ok(())
    }

    /// A round leaves one more token of each of these slots.
    pub(super) fn count_unread(&mut self, slots: &[Slot]) {
        for slot in slots {
            if let Some(Some(open)) = self.slots.get_mut(slot.0 as usize) {
                open.unread += 1;
            }
        }
    }
}
