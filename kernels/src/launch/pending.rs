//! The draft's backlog of tokens: `cuda/pending.cu`.

use super::{Kernels, PassRows, Sequences, address, check_ints, int, line};
use crate::device::{DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "pending.cu", text: include_str!("../../cuda/pending.cu"), split: Split::Shared };

/// The draft's backlog of tokens: a ring for each slot, in which position p is at p mod `depth`.
#[derive(Clone, Copy, Debug)]
pub struct PendingTokens<'a> {
    /// int32 `[slots, depth]`.
    pub tokens: Slice<'a>,
    /// Maximum number of pending tokens of a slot.
    pub depth: usize,
}

/// Operands of [`Kernels::pending_rows`]: `batch · most` causal rows.
#[derive(Clone, Copy, Debug)]
pub struct PendingRows<'a> {
    /// Number of requests, without padding.
    pub batch: usize,
    /// Maximum number of pending tokens of a request.
    pub most: usize,
    /// int32 `[batch]`.
    pub batch_slot: Slice<'a>,
    /// Number of pending tokens of each request, 1 to `most`: int32 `[batch]`.
    pub pending: Slice<'a>,
    /// The rows.
    pub rows: PassRows<'a>,
    /// The place of each row in the rings, int32 `[batch · most]`.
    pub row_source: Slice<'a>,
    /// The last row of each request, int32 `[batch]`.
    pub last_row: Slice<'a>,
}

impl PendingTokens<'_> {
    fn check(&self, slots: usize) -> Result<(), DeviceError> {
        if self.depth == 0 {
            return Err(DeviceError::Shape("rings without places".into()));
        }
        check_ints(self.tokens, slots * self.depth)
    }
}

impl Kernels {
    /// Keeps the tokens of `count` rows that [`accept`](Self::accept) laid out with at most one
    /// token per request, and writes their places in the rings: int32 `[count]`.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn keep_pending(
        &self,
        pending: PendingTokens<'_>,
        slots: usize,
        rows: PassRows<'_>,
        place: Slice<'_>,
        count: usize,
    ) -> Result<(), DeviceError> {
        pending.check(slots)?;
        rows.check(count, 0)?;
        check_ints(place, count)?;
        let kernel = self.device.kernel(FILE, &[], "keep_pending")?;
        let mut arguments = [pending.tokens, place, rows.token, rows.position, rows.slot].map(address).to_vec();
        arguments.extend([pending.depth, count].map(int));
        // SAFETY: lengths are checked above; the rows' slots are those that `accept` wrote, below
        // `slots`.
        unsafe { self.device.launch(&kernel, line(count.div_ceil(64), 64), &arguments) }
    }

    /// Lays out the rows with which the draft processes the pending tokens of slots. Slots and
    /// counts are trusted.
    ///
    /// # Errors
    /// When a buffer is too short, a request has more pending tokens than the rings hold, or the
    /// device fails.
    pub fn pending_rows(
        &self,
        reading: PendingRows<'_>,
        pending: PendingTokens<'_>,
        sequences: Sequences<'_>,
    ) -> Result<(), DeviceError> {
        let PendingRows { batch, most, rows, .. } = reading;
        sequences.check()?;
        pending.check(sequences.slots)?;
        if batch == 0 || most == 0 || most > pending.depth {
            return Err(DeviceError::Shape(format!(
                "{batch} requests with {most} pending tokens, but {} are kept",
                pending.depth
            )));
        }
        for values in [reading.batch_slot, reading.pending, reading.last_row] {
            check_ints(values, batch)?;
        }
        rows.check(batch * most, 0)?;
        check_ints(reading.row_source, batch * most)?;
        let kernel = self.device.kernel(FILE, &[], "pending_rows")?;
        let mut arguments =
            [reading.batch_slot, reading.pending, sequences.length, sequences.page_table].map(address).to_vec();
        arguments.extend([sequences.table_width, sequences.page_size, sequences.dummy()].map(int));
        arguments.push(address(pending.tokens));
        arguments.extend([pending.depth, most].map(int));
        arguments.extend(rows.causal());
        arguments.extend([reading.row_source, reading.last_row].map(address));
        // SAFETY: lengths are checked above; slots of the batch and their counts are the caller's
        // promise.
        unsafe { self.device.launch(&kernel, line(batch, 32), &arguments) }
    }
}
