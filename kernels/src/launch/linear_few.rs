//! `cuda/linear_few.cu`.

use super::{
    Kernels, Linear, grid,
    linear::{BLOCKS, options, ring_bytes},
};
use crate::device::{DeviceError, Element, KernelFile, Properties, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "linear_few.cu", text: include_str!("../../cuda/linear_few.cu"), split: Split::Shared };

/// Rows, at most.
const FEW_ROWS: usize = 4;
/// Outputs of a block, and inputs of a stage.
const OUTPUTS: usize = 16;
const PIECE: usize = 512;
/// Bytes of a stage.
const STAGE: usize = (OUTPUTS + FEW_ROWS) * PIECE * 2;

/// What computes a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deal {
    /// A block for some outputs, and all their inputs.
    Whole,
    /// Two of them, each for half of the inputs.
    Halved,
}

impl Kernels {
    /// Whether [`linear_few`](Self::linear_few) computes a layer, and keeps the device busy with it as
    /// [`linear`](Self::linear) would not without parts.
    pub fn suits_few(&self, rows: usize, inputs: usize, outputs: usize) -> bool {
        let in_parts = self.element != Element::F32 && self.parts_of(inputs, outputs) > 1;
        in_parts && rows <= FEW_ROWS && deal(self.device.properties(), inputs, outputs).is_some()
    }

    /// `y = x · weightᵀ + bias` of up to 4 rows, in an order of its own: where other layers would leave their sums in parts,
    /// the result is whole.
    ///
    /// # Errors
    /// When a buffer is too short, there are more rows, the element type is float, or the device fails.
    pub fn linear_few(&self, linear: Linear<'_>) -> Result<(), DeviceError> {
        let Linear { rows, inputs, outputs, .. } = linear;
        if self.element == Element::F32 || rows > FEW_ROWS {
            let name = self.element.name();
            return Err(DeviceError::Shape(format!("{rows} rows of {name} are not multiplied by the kernel for few")));
        }
        self.check_linear(linear, 1, outputs)?;
        let properties = self.device.properties();
        let (name, blocks) = match deal(properties, inputs, outputs) {
            Some(Deal::Halved) => ("linear_few_halved", 2),
            Some(Deal::Whole) | None => ("linear_few", 1),
        };
        let kernel = self.device.kernel(FILE, &options(self.element, properties), name)?;
        let geometry = grid([blocks * outputs.div_ceil(OUTPUTS), 1, 1], 256, stages(properties) * STAGE);
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, geometry.in_clusters(blocks), &linear.arguments()) }
    }
}

/// Stages of a ring.
fn stages(properties: &Properties) -> usize {
    ring_bytes(properties.shared_bytes) / STAGE
}

/// How a layer is dealt so that the device is kept busy, if that can be.
fn deal(properties: &Properties, inputs: usize, outputs: usize) -> Option<Deal> {
    let places = BLOCKS * properties.multiprocessors;
    let blocks = outputs.div_ceil(OUTPUTS);
    // Of the places, nine in ten are taken in every wave of blocks.
    let fill = |blocks: usize| blocks * 10 >= blocks.div_ceil(places) * places * 9;
    // All that blocks read is asked for at once: it does not matter where they are.
    let at_once = blocks <= places && inputs.div_ceil(PIECE) < stages(properties);
    if fill(blocks) || at_once {
        Some(Deal::Whole)
    } else {
        (properties.most_cluster > 1 && 2 * blocks <= places && fill(2 * blocks)).then_some(Deal::Halved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::linear::tests::h200;

    #[test]
    fn layers_of_few_outputs_are_halved_and_those_of_one_ring_are_not() {
        for (inputs, outputs, expected) in [
            (4096, 4096, Some(Deal::Whole)),
            (14336, 4096, Some(Deal::Whole)),
            (4096, 6144, None),
            (8192, 2048, Some(Deal::Halved)),
            (2048, 2048, Some(Deal::Whole)),
            (2048, 3072, Some(Deal::Whole)),
            (4096, 3072, None),
        ] {
            assert_eq!(deal(&h200(), inputs, outputs), expected, "{inputs} → {outputs}");
        }
        assert_eq!(deal(&Properties { most_cluster: 1, ..h200() }, 8192, 2048), None);
    }

    #[test]
    fn copies_are_under_way_while_a_stage_is_used() {
        for shared_bytes in [232_448, 166_912, 101_376] {
            assert!(stages(&Properties { shared_bytes, ..h200() }) >= 3, "{shared_bytes}");
        }
    }
}
