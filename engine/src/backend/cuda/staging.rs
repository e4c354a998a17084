//! Page-locked staging buffers of rounds: input from the host, log-probabilities, and the events
//! that time them. Tokens go directly to
//! [`RoundArrays::output`](super::workspace::RoundArrays::output).

use kernels::device::{Device, DeviceEvent, HostBuffer};

use super::{
    limits::{DESCRIBED_WORDS, STAGING_SLOTS},
    part::RoundPart,
    workspace::WorkspaceShape,
};
use crate::{backend::RoundTiming, error::EngineError};

/// The staging place of a round, given the number of rounds launched before it.
pub fn place_of(launched: u64) -> usize {
    place_before(launched + 1)
}

/// The place before it in the ring, from which the device advances to it.
pub fn place_before(launched: u64) -> usize {
    (launched % STAGING_SLOTS as u64) as usize
}

/// Staging memory of one round, shared by host and device.
pub struct RoundStaging {
    pub slots: HostBuffer,
    /// Slots with pending draft tokens to process before the round, and their numbers of tokens:
    /// int32 `[2, batch]`.
    pub pending: HostBuffer,
    pub described: HostBuffer,
    /// What the host has drafted: see `host_drafts`.
    pub given: HostBuffer,
    /// The start of their copy.
    pub copy: DeviceEvent,
    pub begin: DeviceEvent,
    /// The ends of the first and second part, if the round runs in parts.
    pub between: [DeviceEvent; RoundPart::ALL.len() - 1],
    pub end: DeviceEvent,
}

impl RoundStaging {
    /// Times of a finished round that ran in these parts, and of the copy of what the host has
    /// drafted, if it has. The first and last part include the copies of a few bytes before and
    /// after the kernels.
    pub fn timing(&self, parts: &[RoundPart], is_given: bool) -> Result<RoundTiming, EngineError> {
        let stall = is_given.then(|| self.begin.since(&self.copy)).transpose()?;
        let mut timing = RoundTiming { total: self.end.since(&self.begin)?, stall, ..RoundTiming::default() };
        let mut begin = &self.begin;
        for (at, part) in parts.iter().enumerate() {
            let end = self.between.get(at).filter(|_| at + 1 < parts.len()).unwrap_or(&self.end);
            let taken = Some(end.since(begin)?);
            match part {
                RoundPart::Draft => timing.draft = taken,
                RoundPart::Verify => timing.verify = taken,
                // The host works between these two, so rounds that contain them are timed only as a
                // whole.
                RoundPart::Choose | RoundPart::Accept => {}
                RoundPart::Extend => timing.extend = taken,
            }
            begin = end;
        }
        Ok(timing)
    }
}

/// Staging buffers of the rounds in flight.
pub fn staging_of(device: &Device, extent: WorkspaceShape) -> Result<Vec<RoundStaging>, EngineError> {
    let place = |_| {
        Ok(RoundStaging {
            slots: device.host_buffer(extent.batch * 4)?,
            pending: device.host_buffer(extent.batch * 8)?,
            described: device.host_buffer(extent.described_rows() * DESCRIBED_WORDS * 4)?,
            given: device.host_buffer((extent.batch * extent.given * 8).max(16))?,
            copy: device.event()?,
            begin: device.event()?,
            between: [device.event()?, device.event()?],
            end: device.event()?,
        })
    };
    (0..STAGING_SLOTS).map(place).collect()
}
