//! State of slots between rounds.

use kernels::{
    device::{Buffer, Device, DeviceError},
    launch::Sequences,
};

use super::{super::played::PLACE_WORDS, WorkspaceSizes};
use crate::backend::{Capacity, MAX_PENDING_DRAFT};

/// State that persists between rounds: one entry per slot, and a last one for padding.
#[derive(Debug)]
pub struct SlotArrays {
    /// int32 `[slots, table_width]`.
    pub page_table: Buffer,
    pub table_width: usize,
    pub length: Buffer,
    pub root: Buffer,
    pub temperature: Buffer,
    pub top_p: Buffer,
    pub top_k: Buffer,
    pub min_p: Buffer,
    /// u64.
    pub seed: Buffer,
    /// Places in the texts that are played, int32 `[slots, 4]`.
    pub played: Buffer,
    pub logprob_count: Buffer,
    /// The draft's state after the last token that it has processed: `[slots, draft hidden]`.
    pub recurrent: Buffer,
    /// Tokens that the draft has not processed, a ring per slot: int32
    /// `[slots, MAX_PENDING_DRAFT]`.
    pub pending_tokens: Buffer,
    /// The feature inputs of these tokens: `[slots, MAX_PENDING_DRAFT, …]`.
    pub pending_rows: Buffer,
    /// Slot, length and last token of the requests of a prefill: int32 `[slots, 3]`.
    pub update: Buffer,
    /// Where the first tokens of a prefill belong, in its rows and in `update`: int32 `[slots, 2]`.
    pub first_place: Buffer,
}

impl SlotArrays {
    /// Operands of the layout kernels.
    pub fn sequences(&self, capacity: &Capacity) -> Sequences<'_> {
        Sequences {
            slots: capacity.slots + 1,
            length: self.length.slice(),
            root: self.root.slice(),
            page_table: self.page_table.slice(),
            table_width: self.table_width,
            page_size: capacity.page_size,
        }
    }

    /// Arrays for `capacity + 1` slots; `slack` positions can be written past the context.
    pub fn new(
        device: &Device,
        capacity: &Capacity,
        slack: usize,
        sizes: &WorkspaceSizes<'_>,
    ) -> Result<Self, DeviceError> {
        let slots = capacity.slots + 1;
        let table_width = (capacity.context_length + slack).div_ceil(capacity.page_size);
        // Rows that no request owns map to the page after the last, which is never read.
        let table = device.upload(&vec![capacity.pages as i32; slots * table_width])?;
        let words = || device.zeros(slots * 4);
        Ok(Self {
            page_table: table,
            table_width,
            length: words()?,
            root: words()?,
            temperature: words()?,
            top_p: words()?,
            top_k: words()?,
            min_p: words()?,
            seed: device.zeros(slots * 8)?,
            played: device.zeros(slots * PLACE_WORDS * 4)?,
            logprob_count: device.upload(&vec![-1_i32; slots])?,
            // Zeros, since rows of padding read the state of the extra slot.
            recurrent: device.zeros(slots * sizes.state_bytes().max(16))?,
            pending_tokens: device.zeros(slots * MAX_PENDING_DRAFT * 4)?,
            pending_rows: device.zeros(slots * sizes.pending_row() * MAX_PENDING_DRAFT + 16)?,
            update: device.zeros(slots * 3 * 4)?,
            first_place: device.zeros(slots * 2 * 4)?,
        })
    }
}
