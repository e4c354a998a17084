//! Linear layers of up to 4 rows: `cuda/linear_few.cu`.

use super::{
    Kernels, Linear, Rows, Unscaled, WeightScales, WeightType, address,
    elementwise::NO_ROWS,
    grid, int,
    linear::{BLOCKS, FEW_ROWS, WIDE_LAYER, options, ring_bytes, squares_stride},
};
use crate::device::{Arg, DeviceError, Element, KernelFile, Properties, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "linear_few.cu", text: include_str!("../../cuda/linear_few.cu"), split: Split::Shared };

/// Outputs of a block, and its warps.
const OUTPUTS: usize = 16;
const WARPS: usize = 8;
/// Cycles between early loads of two stages of a narrow layer. Measured on an H200 with layers of
/// 2,048, where it gains up to 5% of a round; with layers of 4,096 it gains nothing.
const PAUSE: usize = 500;

/// How a layer is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputPartition {
    /// One block per 16 outputs, with all their inputs.
    Whole,
    /// Two blocks per 16 outputs, each with half of the inputs.
    Halved,
}

/// Further operands of [`Kernels::few_to_stream`].
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// Optional copy of the sum.
    pub keep: Option<Rows<'a>>,
    /// `[outputs]`: weights of the norm.
    pub norm: Slice<'a>,
    /// Receives the sum times `norm`, `[rows, outputs]`.
    pub normed: Slice<'a>,
    /// Receives the sums of squares, up to [`squares_bytes`](Kernels::squares_bytes).
    pub squares: Slice<'a>,
    /// Added to the mean square.
    pub epsilon: f32,
}

impl Kernels {
    /// Whether [`linear_few`](Self::linear_few) supports a layer, and keeps the device busy with it
    /// where [`linear`](Self::linear) would need several parts.
    pub fn suits_few(&self, rows: usize, inputs: usize, outputs: usize, weights: WeightType) -> bool {
        let in_parts = self.element != Element::F32 && self.parts_of(inputs, outputs, weights) > 1;
        in_parts && rows <= FEW_ROWS && partition(self.device.properties(), inputs, outputs, weights).is_some()
    }

    /// Whether [`few_to_stream`](Self::few_to_stream) is faster for adding a layer to the stream
    /// and norming the sum. Its output is not bounded like normed rows, so not for float16.
    pub fn suits_few_to_stream(&self, rows: usize, inputs: usize, outputs: usize, weights: WeightType) -> bool {
        self.element == Element::BF16
            && self.is_wide(outputs, WIDE_LAYER)
            && self.suits_few(rows, inputs, outputs, weights)
    }

    /// `y = x · weightᵀ + bias` of up to 4 rows, in a separate summation order: the result is
    /// complete where other kernels would leave their sums in parts.
    ///
    /// # Errors
    /// When a buffer is too short, there are more rows, the element type is float, or the device
    /// fails.
    pub fn linear_few(&self, linear: Linear<'_>) -> Result<(), DeviceError> {
        self.launch_few(linear, ["linear_few", "linear_few_halved"], &[])
    }

    /// Adds such a layer to the residual stream `y`, of the element type, and norms the sum without
    /// the scale.
    ///
    /// # Errors
    /// When the input's rows are unscaled; otherwise as [`linear_few`](Self::linear_few).
    pub fn few_to_stream<'a>(&self, linear: Linear<'_>, stream: Stream<'a>) -> Result<Unscaled<'a>, DeviceError> {
        let Linear { rows, outputs, y_is_float, .. } = linear;
        let Stream { keep, norm, normed, squares, epsilon } = stream;
        linear.check_scaled()?;
        if y_is_float {
            return Err(DeviceError::Shape("a residual stream of float".into()));
        }
        if let Some(keep) = keep {
            self.check_rows(keep, rows, outputs)?;
        }
        let (count, element) = (outputs.div_ceil(OUTPUTS), self.element.bytes());
        norm.check(outputs * element)?;
        normed.check(rows * outputs * element)?;
        squares.check(rows * squares_stride(count) * 4)?;
        let keep = keep.unwrap_or(NO_ROWS);
        let more = [address(keep.at), int(keep.stride), address(norm), address(normed), address(squares)];
        self.launch_few(linear, ["few_to_stream", "few_to_stream_halved"], &more)?;
        Ok(Unscaled { squares, count, epsilon })
    }

    /// Launches the kernel with whole or with halved blocks.
    fn launch_few(&self, linear: Linear<'_>, names: [&'static str; 2], more: &[Arg]) -> Result<(), DeviceError> {
        let Linear { rows, inputs, outputs, .. } = linear;
        if self.element == Element::F32 || rows > FEW_ROWS {
            let name = self.element.name();
            return Err(DeviceError::Shape(format!("{rows} rows of {name} are not multiplied by the kernel for few")));
        }
        self.check_linear(linear, 1, outputs)?;
        let properties = self.device.properties();
        linear.check_form(properties)?;
        let weights = linear.weights();
        let (name, blocks) = match partition(properties, inputs, outputs, weights) {
            Some(OutputPartition::Halved) => (names[1], 2),
            Some(OutputPartition::Whole) | None => (names[0], 1),
        };
        let kernel = self.device.kernel(FILE, &linear.options(options(self.element, properties)), name)?;
        let stage = stage_bytes(weights, linear.row_element());
        let stages = ring_bytes(properties.shared_bytes) / stage;
        let shared = stages * stage + if blocks > 1 { OUTPUTS * FEW_ROWS * 4 } else { 0 };
        let geometry = grid([blocks * outputs.div_ceil(OUTPUTS), 1, 1], 256, shared);
        let pause = self.pause(inputs.min(outputs), PAUSE);
        let of_weights = WeightScales::arguments(linear.scales, inputs);
        let arguments = [&linear.arguments()[..], &linear.scale_arguments(), &[int(pause)], &of_weights, more].concat();
        // SAFETY: lengths are checked above and by the caller.
        unsafe { self.device.launch(&kernel, geometry.in_clusters(blocks), &arguments) }
    }
}

/// Inputs of a stage: one piece per warp.
fn piece(weights: WeightType) -> usize {
    WARPS * weights.piece()
}

/// Bytes of a stage: 16 rows of weights, whose bytes do not depend on the type, and rows of
/// elements of this many bytes.
fn stage_bytes(weights: WeightType, row_element: usize) -> usize {
    OUTPUTS * piece(WeightType::Plain) * 2 + FEW_ROWS * piece(weights) * row_element
}

/// Stages of a ring for rows of 16-bit elements; there are more for shorter ones.
fn stages(properties: &Properties, weights: WeightType) -> usize {
    ring_bytes(properties.shared_bytes) / stage_bytes(weights, 2)
}

/// How a layer is divided to keep the device busy, or `None` if that is not possible.
fn partition(properties: &Properties, inputs: usize, outputs: usize, weights: WeightType) -> Option<OutputPartition> {
    let places = BLOCKS * properties.multiprocessors;
    let blocks = outputs.div_ceil(OUTPUTS);
    // At least nine in ten places are used in every wave of blocks.
    let fill = |blocks: usize| blocks * 10 >= blocks.div_ceil(places) * places * 9;
    // Blocks load everything at once, so their placement does not matter.
    let at_once = blocks <= places && inputs.div_ceil(piece(weights)) < stages(properties, weights);
    if fill(blocks) || at_once {
        Some(OutputPartition::Whole)
    } else {
        (properties.most_cluster > 1 && 2 * blocks <= places && fill(2 * blocks)).then_some(OutputPartition::Halved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::linear::tests::h200;

    #[test]
    fn layers_of_few_outputs_are_halved_and_those_of_one_ring_are_not() {
        for (inputs, outputs, expected) in [
            (4096, 4096, Some(OutputPartition::Whole)),
            (14336, 4096, Some(OutputPartition::Whole)),
            (4096, 6144, None),
            (8192, 2048, Some(OutputPartition::Halved)),
            (2048, 2048, Some(OutputPartition::Whole)),
            (2048, 3072, Some(OutputPartition::Whole)),
            (4096, 3072, None),
        ] {
            assert_eq!(partition(&h200(), inputs, outputs, WeightType::Plain), expected, "{inputs} → {outputs}");
        }
        assert_eq!(partition(&Properties { most_cluster: 1, ..h200() }, 8192, 2048, WeightType::Plain), None);
    }

    #[test]
    fn copies_are_under_way_while_a_stage_is_used() {
        for shared_bytes in [232_448, 166_912, 101_376] {
            for weights in [WeightType::Plain, WeightType::Fp8] {
                let properties = Properties { shared_bytes, ..h200() };
                assert!(stages(&properties, weights) >= 3, "{shared_bytes}, {weights:?}");
            }
        }
    }
}
