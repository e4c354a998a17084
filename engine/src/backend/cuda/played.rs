//! Acceptance that is played from texts: its tables on the device.

use std::sync::Arc;

use kernels::{
    device::{Buffer, Device, DeviceError, Slice},
    launch::Played,
};
use schemas::tree::TreeShape;

use super::{CudaBackend, SimulationKey};
use crate::{
    error::EngineError,
    played::{PlayedAcceptance, PlayedText, Simulated},
};

/// Words of a slot's place in the texts.
pub const PLACE_WORDS: usize = 4;

/// The accepted drafts of each shape at all positions.
pub struct PlayedTables {
    acceptance: Arc<PlayedAcceptance>,
    /// int32 `[shapes, positions]`.
    accepted: Buffer,
    shapes: Vec<TreeShape>,
}

impl PlayedTables {
    fn new(device: &Device, acceptance: Arc<PlayedAcceptance>) -> Result<Self, DeviceError> {
        let shapes = acceptance.shapes().map(|(shape, _)| shape).collect();
        let all: Vec<i32> = acceptance.shapes().flat_map(|(_, accepted)| accepted.iter().copied()).collect();
        Ok(Self { accepted: device.upload(&all)?, acceptance, shapes })
    }

    /// What the kernels of a shape's round read; `None` for no speculation. `places` are those of
    /// the slots.
    pub fn of<'a>(&'a self, shape: TreeShape, places: Slice<'a>) -> Option<Played<'a>> {
        let at = self.shapes.iter().position(|known| *known == shape)?;
        let bytes = self.accepted.bytes() / self.shapes.len();
        Some(Played { accepted: self.accepted.range(at * bytes..(at + 1) * bytes), places })
    }

    /// The place of a slot in the texts.
    pub fn place(&self, played: Option<PlayedText>) -> [u32; PLACE_WORDS] {
        let [begin, positions, origin] = played.map_or([0; 3], |played| self.acceptance.place(played));
        [begin as u32, positions as u32, origin as u32, 0]
    }
}

impl CudaBackend {
    /// Sets how acceptance is simulated. Graphs of played rounds contain the addresses of the
    /// tables.
    pub(super) fn set_simulation(&mut self, simulated: Option<Simulated>) -> Result<(), EngineError> {
        self.device.synchronize()?;
        self.graphs.retain(|key, _| key.simulation != Some(SimulationKey::Played));
        self.machine.played = None;
        self.simulated = None;
        if let Some(Simulated::Played(acceptance)) = &simulated {
            self.machine.played = Some(PlayedTables::new(&self.device, Arc::clone(acceptance))?);
        }
        self.simulated = simulated;
        Ok(())
    }
}
