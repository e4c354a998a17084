//! Page-locked staging buffers of rounds: their input from the host, their log-probabilities, and the events between
//! which they are timed. Tokens go straight to [`RoundArrays::output`](super::workspace::RoundArrays::output).

use kernels::device::{Device, Event, HostBuffer};

use super::{
    limits::{DESCRIBED_WORDS, STAGING_SLOTS},
    part::Part,
    workspace::WorkspaceShape,
};
use crate::{backend::RoundTiming, error::EngineError};

/// The place of a round, by how many were launched before it.
pub fn place_of(launched: u64) -> usize {
    place_before(launched + 1)
}

/// The place from which it steps on to its own.
pub fn place_before(launched: u64) -> usize {
    (launched % STAGING_SLOTS as u64) as usize
}

/// Memory of one round between host and device.
pub struct RoundStaging {
    pub slots: HostBuffer,
    /// Slots whose draft reads before the round, and how much: int32 `[2, batch]`.
    pub pending: HostBuffer,
    pub described: HostBuffer,
    pub begin: Event,
    /// Where the first part ends and where the second does, of a round that runs part by part.
    pub between: [Event; Part::ALL.len() - 1],
    pub end: Event,
}

impl RoundStaging {
    /// What a round took that has ended and ran in these parts. What lies before the first and after the last, copies of
    /// a few bytes, is theirs.
    pub fn timing(&self, parts: &[Part]) -> Result<RoundTiming, EngineError> {
        let mut timing = RoundTiming { total: self.end.since(&self.begin)?, ..RoundTiming::default() };
        let mut begin = &self.begin;
        for (at, part) in parts.iter().enumerate() {
            let end = self.between.get(at).filter(|_| at + 1 < parts.len()).unwrap_or(&self.end);
            let taken = Some(end.since(begin)?);
            match part {
                Part::Draft => timing.draft = taken,
                Part::Verify => timing.verify = taken,
                // The host works between them, so that rounds with these are timed as a whole.
                Part::Choose | Part::Accept => {}
                Part::Extend => timing.extend = taken,
            }
            begin = end;
        }
        Ok(timing)
    }
}

/// Input and output of the rounds under way.
pub fn staging_of(device: &Device, extent: WorkspaceShape) -> Result<Vec<RoundStaging>, EngineError> {
    let place = |_| {
        Ok(RoundStaging {
            slots: device.host_buffer(extent.batch * 4)?,
            pending: device.host_buffer(extent.batch * 8)?,
            described: device.host_buffer(extent.described_rows() * DESCRIBED_WORDS * 4)?,
            begin: device.event()?,
            between: [device.event()?, device.event()?],
            end: device.event()?,
        })
    };
    (0..STAGING_SLOTS).map(place).collect()
}
