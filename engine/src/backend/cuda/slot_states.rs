//! States of sequences: what linear attention keeps of them beside pages. A place holds the state
//! of a slot, or a copy of one that is kept for later sequences with the same beginning.

use kernels::{
    device::{Buffer, Device, DeviceError, Slice},
    launch::DeltaStates,
};

use crate::{
    backend::Capacity,
    spec::{StateLayout, TargetSpec},
};

/// States of all slots, then of all snapshots.
pub struct States {
    layers: usize,
    places: usize,
    /// Of one place.
    layout: StateLayout,
    matrices: Buffer,
    histories: Buffer,
    element: usize,
}

impl States {
    /// Zeros, if the target's sequences have states.
    pub fn new(
        device: &Device,
        target: &TargetSpec,
        capacity: &Capacity,
        element: usize,
    ) -> Result<Option<Self>, DeviceError> {
        let layout = target.state();
        let layers = target.delta_nets().count();
        if layers == 0 {
            return Ok(None);
        }
        let places = capacity.slots + capacity.snapshots.unwrap_or_default();
        Ok(Some(Self {
            layers,
            places,
            layout,
            matrices: device.zeros(places * layout.recurrent * size_of::<f32>())?,
            histories: device.zeros(places * layout.history * element)?,
            element,
        }))
    }

    /// Operands of the kernels; slots that are `dummy` have no state.
    pub fn operands(&self, dummy: usize) -> DeltaStates<'_> {
        DeltaStates {
            matrices: self.matrices.slice(),
            histories: self.histories.slice(),
            places: self.places,
            layers: self.layers,
            dummy,
        }
    }

    /// Matrices and history of a place.
    fn state_at(&self, place: usize) -> [Slice<'_>; 2] {
        let (matrix, history) = (self.layout.recurrent * size_of::<f32>(), self.layout.history * self.element);
        [
            self.matrices.range(place * matrix..(place + 1) * matrix),
            self.histories.range(place * history..(place + 1) * history),
        ]
    }

    /// Makes the state of a place that of an empty sequence.
    pub fn reset(&self, device: &Device, place: usize) -> Result<(), DeviceError> {
        self.state_at(place).into_iter().try_for_each(|part| device.fill(part, 0))
    }

    /// Copies the state of a place to another.
    pub fn copy(&self, device: &Device, from: usize, to: usize) -> Result<(), DeviceError> {
        self.state_at(from).into_iter().zip(self.state_at(to)).try_for_each(|(from, to)| device.copy(to, from))
    }
}
