//! Page-locked memory of prefills in flight: what the host sends for them, and the first tokens
//! that come back.

use kernels::device::{Device, DeviceEvent, HostBuffer, Slice};

use super::{limits::DESCRIBED_WORDS, workspace::WorkspaceShape};
use crate::error::EngineError;

/// Number of passes over prompts that may be in flight: the host fills one while the device reads
/// the other.
const PLACES: usize = 2;
/// Values that the host sends per row of a pass, and per piece. Not all passes need all of them.
const PER_ROW: usize = 8;
const PER_PIECE: usize = 24;

/// Memory of one pass over pieces of prompts, from its launch until the place is used again.
pub struct PrefillStaging {
    /// What the host sends, in the order of its copies: int32.
    input: HostBuffer,
    /// Number of values in it.
    filled: usize,
    /// The first tokens: int32 `[slots]`.
    pub chosen: HostBuffer,
    /// Their log-probabilities.
    pub described: HostBuffer,
    /// Before the first copy.
    pub begin: DeviceEvent,
    /// After the first tokens have been copied, before the draft runs.
    pub known: DeviceEvent,
    /// After all work.
    pub end: DeviceEvent,
    /// Number of rounds launched before it, until its time is counted.
    pub untimed: Option<u64>,
}

impl PrefillStaging {
    /// Copies values to the device, in order with the stream, without waiting.
    pub fn send(&mut self, device: &Device, to: Slice<'_>, values: &[i32]) -> Result<(), EngineError> {
        let begin = self.filled;
        self.filled += values.len();
        self.input.store(begin, values);
        Ok(device.write_async(to, &self.input, begin * 4..self.filled * 4)?)
    }

    /// Starts over. The device must have passed `end`.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Whether there is room for passes of this extent.
    pub fn holds(&self, extent: WorkspaceShape, slots: usize) -> bool {
        let [input, chosen, described] = sizes(extent, slots);
        self.input.bytes() >= input && self.chosen.bytes() >= chosen && self.described.bytes() >= described
    }
}

fn sizes(extent: WorkspaceShape, slots: usize) -> [usize; 3] {
    let input = extent.rows * PER_ROW + slots * PER_PIECE;
    [input * 4, slots * 4, extent.described_rows() * DESCRIBED_WORDS * 4]
}

/// Memory for passes of this extent.
pub fn prefill_staging_of(
    device: &Device,
    extent: WorkspaceShape,
    slots: usize,
) -> Result<Vec<PrefillStaging>, EngineError> {
    let [input, chosen, described] = sizes(extent, slots);
    let place = |_| {
        Ok(PrefillStaging {
            input: device.host_buffer(input)?,
            filled: 0,
            chosen: device.host_buffer(chosen)?,
            described: device.host_buffer(described)?,
            begin: device.event()?,
            known: device.event()?,
            end: device.event()?,
            untimed: None,
        })
    };
    (0..PLACES).map(place).collect()
}
