//! The convolution of gated delta nets: `cuda/delta_convolve.cu`.

use super::{
    DeltaInputs, DeltaOrder, DeltaPass, DeltaPaths, DeltaStates, DeltaWeights, Kernels, address, check_ints,
    delta::{CONVOLVE, options, ranges},
    grid, int,
};
use crate::{
    device::{Arg, DeviceError, Slice},
    reference::DeltaSizes,
};

/// Maximum number of rows of a channel that a thread convolves, one after the other.
const MOST_TILE: usize = 16;
/// A pass that has this many times as many rows as a thread has blocks for all multiprocessors.
const ROWS_APART: usize = 32;

impl Kernels {
    /// Convolves the rows of a layer.
    ///
    /// # Errors
    /// When a buffer is too short, there are no kernels for the sizes, or the device fails.
    pub(super) fn delta_convolve(
        &self,
        pass: DeltaPass<'_>,
        weights: DeltaWeights<'_>,
        states: DeltaStates<'_>,
    ) -> Result<(), DeviceError> {
        let DeltaPass { sizes, layer, inputs, groups, row_slot, order } = pass;
        self.check_delta(&sizes, weights, states)?;
        if layer >= states.layers {
            return Err(DeviceError::Shape(format!("there is no layer {layer} of {}", states.layers)));
        }
        let DeltaInputs { mixed, convolved, rows, .. } = inputs;
        let channels = sizes.channels();
        self.check_delta_layers(mixed, 0, rows, channels, 1)?;
        convolved.check(rows * channels * self.element.bytes())?;
        check_ints(row_slot, rows)?;
        let (first, each, count) = ranges(groups, rows)?;
        let parent = match order {
            DeltaOrder::Chain { .. } => Slice::NONE,
            DeltaOrder::Tree(steps) => check_ints(steps.parent, rows).map(|()| steps.parent)?,
        };
        let tile = (rows / ROWS_APART).clamp(1, MOST_TILE);
        let arguments = [
            address(convolved),
            address(mixed.at),
            Arg::Long(mixed.stride as u64),
            address(weights.convolution),
            address(states.histories),
            int(states.layers),
            int(layer),
            int(channels),
            address(row_slot),
            int(states.dummy),
            address(first),
            int(each),
            address(parent),
            int(tile),
        ];
        let kernel = self.device.kernel(CONVOLVE, &options(self.element, &sizes), "delta_convolve")?;
        let blocks = [channels.div_ceil(128), groups.largest().div_ceil(tile), count];
        // SAFETY: lengths are checked above; slots, groups and parents come from the caller's
        // layout and are within bounds.
        unsafe { self.device.launch(&kernel, grid(blocks, 128, 0), &arguments) }
    }

    /// Makes the last rows of the accepted paths the last rows of their sequences, in all layers.
    /// After everything that reads the ones before.
    ///
    /// # Errors
    /// As [`delta_rows`](Self::delta_rows).
    pub fn delta_histories(
        &self,
        sizes: &DeltaSizes,
        inputs: DeltaInputs<'_>,
        paths: DeltaPaths<'_>,
        states: DeltaStates<'_>,
    ) -> Result<(), DeviceError> {
        let paths = paths.checked(inputs.rows)?;
        let DeltaPaths { batch, nodes, slot, node, most, count } = paths;
        let own = [
            address(slot),
            int(states.dummy),
            address(Slice::NONE),
            int(nodes),
            address(node),
            int(most),
            address(count),
        ];
        self.move_histories(sizes, inputs, (0, states.layers), batch, own, states)
    }

    /// The same for the rows of one layer that continue their sequences, group by group.
    ///
    /// # Errors
    /// As [`delta_rows`](Self::delta_rows).
    pub fn delta_continue(&self, pass: DeltaPass<'_>, states: DeltaStates<'_>) -> Result<(), DeviceError> {
        let DeltaPass { sizes, layer, inputs, groups, row_slot, .. } = pass;
        check_ints(row_slot, inputs.rows)?;
        let (first, each, count) = ranges(groups, inputs.rows)?;
        let own = [
            address(row_slot),
            int(states.dummy),
            address(first),
            int(each),
            address(Slice::NONE),
            int(0),
            address(Slice::NONE),
        ];
        self.move_histories(&sizes, DeltaInputs { mixed_layer: 0, ..inputs }, (layer, 1), count, own, states)
    }

    fn move_histories(
        &self,
        sizes: &DeltaSizes,
        inputs: DeltaInputs<'_>,
        (layer, some): (usize, usize),
        groups: usize,
        own: [Arg; 7],
        states: DeltaStates<'_>,
    ) -> Result<(), DeviceError> {
        states.check(sizes, self.element)?;
        let DeltaInputs { mixed, mixed_layer, rows, .. } = inputs;
        self.check_delta_layers(mixed, mixed_layer, rows, sizes.channels(), some)?;
        let shared = [
            address(states.histories),
            address(mixed.at),
            Arg::Long(mixed.stride as u64),
            Arg::Long(mixed_layer as u64),
            int(states.layers),
            int(layer),
            int(sizes.channels()),
        ];
        let kernel = self.device.kernel(CONVOLVE, &options(self.element, sizes), "delta_history")?;
        let arguments = [&shared[..], &own].concat();
        let blocks = [sizes.channels().div_ceil(128), groups, some];
        // SAFETY: lengths are checked above; slots and paths are as in the kernels before.
        unsafe { self.device.launch(&kernel, grid(blocks, 128, 0), &arguments) }
    }
}
