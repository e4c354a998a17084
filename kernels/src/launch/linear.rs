//! Linear layers that stream their weights: `cuda/linear.cu`.
//!
//! This kernel has the one summation order of batch-invariant mode and runs on every device. The
//! default mode times it against [`linear_few`](super::linear_few) (up to 4 rows), on Hopper
//! [`linear_group`](super::linear_group) (5 to 32 rows of wide layers, in FP8 from one on) and
//! [`linear_wide`](super::linear_wide) (up to 128 rows), and the device's library.

use super::{Kernels, RowForm, RowScales, Rows, WeightScales, WeightType, address, check_ints, grid, int};
use crate::device::{Arg, DeviceError, Element, KernelFile, Properties, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "linear.cu", text: include_str!("../../cuda/linear.cu"), split: Split::Shared };
pub(super) const PAIRS_FILE: KernelFile =
    KernelFile { name: "linear_pairs.cu", text: include_str!("../../cuda/linear_pairs.cu"), split: Split::Shared };
pub(super) const FLOAT_FILE: KernelFile =
    KernelFile { name: "linear_float.cu", text: include_str!("../../cuda/linear_float.cu"), split: Split::Shared };

/// Maximum number of rows of `linear_few.cu`.
pub(super) const FEW_ROWS: usize = 4;
/// Inputs of a stage of the ring, with plain weights.
pub(super) const PIECE: usize = 64;
/// Bytes of a row of weights in a stage.
const ROW: usize = 128;
/// Maximum number of stages of a ring.
const MOST_STAGES: usize = 6;
/// Maximum number of rows per block.
const MOST_ROWS: usize = 64;
/// Number of inputs and outputs of a layer from which optimisations pay that scale with its size,
/// such as adding to the stream directly. For narrower layers, all early loads are paced. Measured
/// with 4,096 and with 2,048.
pub(super) const WIDE_LAYER: usize = 4096;
/// Maximum number of rows of blocks that can apply a norm's scale.
pub(super) const MOST_ROWS_TO_SCALE: usize = 32;
/// Cycles between early loads of two stages of a narrow layer, with more rows than `linear_few.cu`
/// takes. Measured on an H200 with 8 rows and layers of 2,048, where a round gains 1.5%.
const PAUSE: usize = 300;
/// Minimum number of inputs of a part: with fewer, a block ends almost before it starts.
const LEAST_SHARE: usize = 512;
/// Possible numbers of warps per block.
const WARPS: [usize; 5] = [8, 7, 6, 5, 4];
/// Outputs per block of kernels whose warps have pairs of tiles.
const PAIRS_OUTPUTS: usize = 128;
/// Blocks that run concurrently on a multiprocessor.
pub(super) const BLOCKS: usize = 2;

/// Operands of [`Kernels::linear`].
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// The result: of the element type, or float.
    pub y: Slice<'a>,
    /// Whether the result is float regardless of the element type.
    pub y_is_float: bool,
    /// The input.
    pub x: Rows<'a>,
    /// `[outputs, inputs]`, of the element type or FP8.
    pub weight: Slice<'a>,
    /// The scales of FP8 weights, which are in the order of [`fp8_order`](super::fp8_order).
    pub scales: Option<WeightScales<'a>>,
    /// `[outputs]`.
    pub bias: Option<Slice<'a>>,
    /// Number of rows.
    pub rows: usize,
    /// Width of the input.
    pub inputs: usize,
    /// Width of the result.
    pub outputs: usize,
    /// The pending scale of the input's rows, if the layer has to apply it.
    pub unscaled: Option<Unscaled<'a>>,
    /// The scales of rows in FP8, which are then `x`; the weight is in FP8 too.
    pub row_scales: Option<RowScales<'a>>,
    /// int32 `[1]`: if it is 0 when the layer runs, the result is not needed and the warp-group
    /// kernels skip the layer: `y` is unchanged. Other kernels compute it anyway. `None` if it is
    /// always needed.
    pub needed: Option<Slice<'a>>,
}

/// Rows that are normed without the scale, as [`Kernels::rms_norm_unscaled`] leaves them: a linear
/// layer multiplies its sums by the scale.
#[derive(Clone, Copy, Debug)]
pub struct Unscaled<'a> {
    /// Float `[rows, count]`, rows a multiple of 4 apart: sums of squares of pieces of each row.
    pub squares: Slice<'a>,
    /// Number of pieces per row.
    pub count: usize,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// Partial sums: float `[count, rows, width]`, to be added in order.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The first part.
    pub at: Slice<'a>,
    /// Number of parts.
    pub count: usize,
}

/// How a layer is divided into blocks. A function of the layer and the device, not of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinearPartition {
    /// Warps per block, each with 16 outputs.
    pub(super) warps: usize,
    /// Inputs of a part.
    pub(super) share: usize,
    pub(super) parts: usize,
}

impl LinearPartition {
    /// Time of a layer with this many sums, if `resident` blocks share a multiprocessor: that of
    /// the weights which one of them reads, in elements.
    pub(super) fn cost(&self, properties: &Properties, resident: usize, sums: usize) -> usize {
        // Of a block in addition to its weights.
        const BLOCK: usize = 4096;
        let blocks = sums.div_ceil(16 * self.warps) * self.parts;
        blocks.div_ceil(resident * properties.multiprocessors) * (self.share * 16 * self.warps + BLOCK)
    }
}

impl Linear<'_> {
    /// The type of its weights.
    pub(crate) fn weights(self) -> WeightType {
        if self.scales.is_some() { WeightType::Fp8 } else { WeightType::Plain }
    }

    /// Rejects FP8 weights, for kernels that only read plain ones.
    pub(super) fn check_plain(self) -> Result<(), DeviceError> {
        let refused =
            || Err(DeviceError::Shape("the weights are in FP8, which this layer's kernel does not read".into()));
        self.scales.map_or(Ok(()), |_| refused())
    }

    /// The first arguments of all kernels of linear layers.
    pub(super) fn arguments(self) -> [Arg; 9] {
        let Self { y, y_is_float, x, weight, bias, rows, inputs, outputs, .. } = self;
        [
            address(y),
            Arg::Int(y_is_float.into()),
            address(x.at),
            int(x.stride),
            address(weight),
            address(bias.unwrap_or(Slice::NONE)),
            int(rows),
            int(inputs),
            int(outputs),
        ]
    }

    /// Rejects rows in FP8, for kernels that do not scale them.
    pub(super) fn check_unquantised(self) -> Result<(), DeviceError> {
        let refused = || Err(DeviceError::Shape("the rows are in FP8, which this layer's kernel does not read".into()));
        self.row_scales.map_or(Ok(()), |_| refused())
    }

    /// Whether the rows are FP8 numbers.
    pub(super) fn has_numbers(self) -> bool {
        self.row_scales.is_some_and(|scales| scales.form == RowForm::Numbers)
    }

    /// Bytes of an element of the rows.
    pub(super) fn row_element(self) -> usize {
        if self.has_numbers() { 1 } else { 2 }
    }

    /// Rejects rows of FP8 numbers on devices whose warps multiply values only.
    pub(super) fn check_form(self, properties: &Properties) -> Result<(), DeviceError> {
        if self.has_numbers() && !properties.multiplies_fp8() {
            let capability = properties.capability;
            return Err(DeviceError::Shape(format!(
                "the rows are FP8 numbers on a device of capability {capability:?}"
            )));
        }
        Ok(())
    }

    /// Compiler options of a file for this layer, given those for 16-bit weights and rows.
    pub(super) fn options(self, plain: Vec<String>) -> Vec<String> {
        if self.has_numbers() { number_options(plain) } else { self.weights().options(plain) }
    }

    /// The arguments of kernels that may have to scale rows.
    pub(super) fn scale_arguments(self) -> [Arg; 3] {
        let Self { unscaled, row_scales, rows, .. } = self;
        if let Some(scales) = row_scales {
            // Not sums of squares: see `ring.cuh`.
            let count = i32::try_from(scales.stride(rows)).map_or(i32::MIN, |stride| -stride);
            return [address(scales.at), Arg::Int(count), Arg::Float(0.0)];
        }
        [
            address(unscaled.map_or(Slice::NONE, |unscaled| unscaled.squares)),
            int(unscaled.map_or(0, |unscaled| unscaled.count)),
            Arg::Float(unscaled.map_or(0.0, |unscaled| unscaled.epsilon)),
        ]
    }

    /// Rejects unscaled rows, for kernels that cannot scale them.
    pub(super) fn check_scaled(self) -> Result<(), DeviceError> {
        let refused =
            || Err(DeviceError::Shape("the rows are not scaled yet, and this layer's kernel cannot scale them".into()));
        self.unscaled.map_or(Ok(()), |_| refused())
    }
}

impl Kernels {
    /// Maximum number of parts into which the inputs of a layer are divided.
    pub const MOST_PARTS: usize = 8;
    /// Maximum number of parts that are added to the residual stream at once: those of a linear
    /// layer, or of a row's experts.
    pub const MOST_ADDENDS: usize = 9;
    /// Maximum number of rows of [`linear_in_parts`](Self::linear_in_parts).
    pub const MOST_ROWS_IN_PARTS: usize = MOST_ROWS;

    /// Number of parts in which [`linear_in_parts`](Self::linear_in_parts) leaves the sums of a
    /// layer.
    pub fn parts_of(&self, inputs: usize, outputs: usize, weights: WeightType) -> usize {
        if self.element == Element::F32 {
            1
        } else {
            self.ring_partition([inputs, outputs], Self::MOST_PARTS, weights).parts
        }
    }

    fn ring_partition(&self, [inputs, sums]: [usize; 2], most_parts: usize, weights: WeightType) -> LinearPartition {
        partition(self.device.properties(), BLOCKS, [inputs, sums], most_parts, weights.piece())
    }

    /// `y = x · weightᵀ + bias`; the summation order of a row does not depend on the others.
    ///
    /// # Errors
    /// When a buffer is too short, there are more than 32 rows and they are unscaled, or they are
    /// unscaled and the element type is float or the layer has several parts, or the device fails.
    pub fn linear(&self, linear: Linear<'_>) -> Result<(), DeviceError> {
        self.check_linear(linear, 1, linear.outputs)?;
        let Linear { rows, inputs, outputs, .. } = linear;
        if self.element == Element::F32 {
            linear.check_scaled()?;
            return self.launch_float(linear);
        }
        let partition = self.ring_partition([inputs, outputs], Self::MOST_PARTS, linear.weights());
        if partition.parts > 1 {
            return self.launch_ring("linear_64_all", 64, linear, LinearPartition { parts: 1, ..partition }, outputs);
        }
        let (name, tile) = kernel_for(rows, false);
        self.launch_ring(name, tile, linear, partition, outputs)
    }

    /// As [`linear`](Self::linear), with the same bits once `y`, here float
    /// `[parts, rows, outputs]`, is summed: in [`parts_of`](Self::parts_of) parts, so that few
    /// outputs keep the whole device busy.
    ///
    /// # Errors
    /// When a buffer is too short, there are more than 64 rows, the element type is float, or the
    /// device fails.
    pub fn linear_in_parts<'a>(&self, linear: Linear<'a>) -> Result<Parts<'a>, DeviceError> {
        let Linear { y, rows, inputs, outputs, .. } = linear;
        if self.element == Element::F32 || rows > MOST_ROWS {
            let name = self.element.name();
            return Err(DeviceError::Shape(format!("{rows} rows of {name} are not multiplied in parts")));
        }
        let partition = self.ring_partition([inputs, outputs], Self::MOST_PARTS, linear.weights());
        let linear = Linear { y_is_float: true, ..linear };
        self.check_linear(linear, partition.parts, outputs)?;
        let (name, tile) = kernel_for(rows, false);
        self.launch_ring(name, tile, linear, partition, outputs)?;
        Ok(Parts { at: y.range(0..partition.parts * rows * outputs * 4), count: partition.parts })
    }

    /// `y = silu(x · gateᵀ) · (x · upᵀ)`: the weight is `[2 · outputs, inputs]`, gate first, the
    /// bias likewise. The bits are those of [`linear`](Self::linear) in one part and
    /// [`silu_gate`](Self::silu_gate), without the buffer between them.
    ///
    /// # Errors
    /// When the element type is float, which has no such kernel; otherwise as `linear`.
    pub fn linear_gated(&self, linear: Linear<'_>) -> Result<(), DeviceError> {
        let Linear { rows, inputs, outputs, .. } = linear;
        if self.element == Element::F32 {
            return Err(DeviceError::Shape("there is no gated linear layer of float32".into()));
        }
        self.check_linear(linear, 1, 2 * outputs)?;
        let (name, tile) = kernel_for(rows, true);
        self.launch_ring(
            name,
            tile,
            linear,
            self.ring_partition([inputs, 2 * outputs], 1, linear.weights()),
            2 * outputs,
        )
    }

    /// Whether [`linear_pairs`](Self::linear_pairs) is faster for an FP8 layer: with 9 to 32 rows.
    pub fn suits_pairs(&self, rows: usize, weights: WeightType) -> bool {
        weights == WeightType::Fp8 && self.element != Element::F32 && (9..=MOST_ROWS_TO_SCALE).contains(&rows)
    }

    /// Number of parts in which [`linear_pairs`](Self::linear_pairs) leaves the sums of a layer, if
    /// it may leave several.
    pub fn parts_of_pairs(&self, inputs: usize, outputs: usize) -> usize {
        self.pairs_partition([inputs, outputs], Self::MOST_PARTS).parts
    }

    /// As `partition`, for blocks of 128 outputs, the number of eight warps elsewhere.
    fn pairs_partition(&self, [inputs, sums]: [usize; 2], most_parts: usize) -> LinearPartition {
        let places = BLOCKS * self.device.properties().multiprocessors;
        let cost = |(share, parts): &(usize, usize)| (sums.div_ceil(PAIRS_OUTPUTS) * parts).div_ceil(places) * share;
        let piece = WeightType::Fp8.piece();
        let best = shares(inputs, most_parts, piece).min_by_key(cost);
        let (share, parts) = best.unwrap_or((inputs.next_multiple_of(piece), 1));
        LinearPartition { warps: PAIRS_OUTPUTS / 16, share, parts }
    }

    /// `y = x · weightᵀ + bias` of 9 to 32 rows with an FP8 weight, in a separate summation order.
    /// In one part `y` is the result; in several, at most `most_parts`, it is float
    /// `[parts, rows, outputs]`, and they are returned for the next kernel to sum.
    ///
    /// # Errors
    /// When a buffer is too short, no such kernel supports the layer, or the device fails.
    pub fn linear_pairs<'a>(&self, linear: Linear<'a>, most_parts: usize) -> Result<Option<Parts<'a>>, DeviceError> {
        let Linear { y, y_is_float, rows, inputs, outputs, .. } = linear;
        let partition = self.pairs_partition([inputs, outputs], most_parts);
        let linear = Linear { y_is_float: y_is_float || partition.parts > 1, ..linear };
        self.launch_pairs(linear, partition, outputs, ["linear_16_pairs", "linear_32_pairs"])?;
        let parts = || Parts { at: y.range(0..partition.parts * rows * outputs * 4), count: partition.parts };
        Ok((partition.parts > 1).then(parts))
    }

    /// `y = silu(x · gateᵀ) · (x · upᵀ)` likewise: the weight is `[2 · outputs, inputs]`, gate
    /// first, the bias likewise.
    ///
    /// # Errors
    /// As [`linear_pairs`](Self::linear_pairs).
    pub fn linear_pairs_gated(&self, linear: Linear<'_>) -> Result<(), DeviceError> {
        let sums = 2 * linear.outputs;
        let partition = self.pairs_partition([linear.inputs, sums], 1);
        self.launch_pairs(linear, partition, sums, ["linear_16_pairs_gated", "linear_32_pairs_gated"])
    }

    fn launch_pairs(
        &self,
        linear: Linear<'_>,
        partition: LinearPartition,
        sums: usize,
        [of_16, of_32]: [&'static str; 2],
    ) -> Result<(), DeviceError> {
        let rows = linear.rows;
        if !self.suits_pairs(rows, linear.weights()) {
            let name = self.element.name();
            return Err(DeviceError::Shape(format!(
                "{rows} rows of {name} are not multiplied by the kernels of pairs"
            )));
        }
        self.check_linear(linear, partition.parts, sums)?;
        let (name, tile) = if rows <= 16 { (of_16, 16) } else { (of_32, 32) };
        self.launch_ring(name, tile, linear, partition, sums)
    }

    pub(super) fn check_linear(&self, linear: Linear<'_>, parts: usize, sums: usize) -> Result<(), DeviceError> {
        let Linear { y, y_is_float, x, weight, scales, bias, rows, inputs, outputs, unscaled, row_scales, needed } =
            linear;
        if let Some(needed) = needed {
            check_ints(needed, 1)?;
        }
        if let Some(Unscaled { squares, count, .. }) = unscaled {
            squares.check(rows * squares_stride(count) * 4)?;
        }
        match row_scales {
            Some(of_rows) if unscaled.is_some() || scales.is_none() => {
                return Err(DeviceError::Shape(format!("{of_rows:?} of a layer with {unscaled:?} and {scales:?}")));
            }
            Some(of_rows) => of_rows.at.check(Self::row_scales_bytes(of_rows.layout, rows, inputs))?,
            None => {}
        }
        match row_scales.map(|of_rows| of_rows.form) {
            Some(RowForm::Numbers) if x.stride != inputs => {
                return Err(DeviceError::Shape(format!("{} bytes apart are rows of {inputs} FP8 numbers", x.stride)));
            }
            Some(RowForm::Numbers) => x.at.check(rows * inputs)?,
            Some(RowForm::Values) | None => self.check_rows(x, rows, inputs)?,
        }
        let element = self.element.bytes();
        weight.check(linear.weights().bytes(self.element, sums * inputs))?;
        if let Some(scales) = scales {
            scales.check(sums, inputs)?;
        }
        if let Some(bias) = bias {
            bias.check(sums * element)?;
        }
        y.check(parts * rows * outputs * if y_is_float { 4 } else { element })
    }

    /// Whether a layer has at least this many inputs or outputs. In the emulator, which runs small
    /// models, all layers do.
    pub(super) fn is_wide(&self, width: usize, least: usize) -> bool {
        self.device.properties().emulated || width >= least
    }

    /// Cycles between early loads of two stages, if the layer is narrow enough to pace them and the
    /// device starts kernels before their predecessors end; else nothing benefits from later loads.
    pub(super) fn pause(&self, width: usize, cycles: usize) -> usize {
        let begins_ahead = self.device.properties().most_cluster > 1;
        if begins_ahead && width < WIDE_LAYER { cycles } else { 0 }
    }

    fn launch_ring(
        &self,
        name: &'static str,
        tile: usize,
        linear: Linear<'_>,
        partition: LinearPartition,
        sums: usize,
    ) -> Result<(), DeviceError> {
        if tile > MOST_ROWS_TO_SCALE {
            linear.check_scaled()?;
        }
        linear.check_form(self.device.properties())?;
        let blocks = [linear.rows.div_ceil(tile), sums.div_ceil(16 * partition.warps), partition.parts];
        let of_rows = tile * linear.weights().piece() * linear.row_element();
        let stage = partition.warps * 16 * ROW + of_rows;
        let shared = stages(self.device.properties(), of_rows) * stage;
        // A warp of a pairs kernel has two tiles of outputs.
        let is_pairs = name.contains("pairs");
        let warps = if is_pairs { partition.warps / 2 } else { partition.warps };
        let geometry = grid(blocks, warps as u32 * 32, shared);
        let width = linear.inputs.min(linear.outputs);
        let pause = if linear.rows > FEW_ROWS { self.pause(width, PAUSE) } else { 0 };
        let of_weights = WeightScales::arguments(linear.scales, linear.inputs);
        let arguments =
            [&linear.arguments()[..], &linear.scale_arguments(), &[int(partition.share), int(pause)], &of_weights]
                .concat();
        let plain = options(self.element, self.device.properties());
        let kernel = self.device.kernel(if is_pairs { PAIRS_FILE } else { FILE }, &linear.options(plain), name)?;
        // SAFETY: lengths are checked by the callers.
        unsafe { self.device.launch(&kernel, geometry, &arguments) }
    }

    fn launch_float(&self, linear: Linear<'_>) -> Result<(), DeviceError> {
        linear.check_plain()?;
        linear.check_unquantised()?;
        let kernel = self.device.kernel(FLOAT_FILE, &self.options, "linear_float")?;
        let geometry = grid([linear.outputs.div_ceil(8), linear.rows.div_ceil(8), 1], 256, 0);
        // SAFETY: lengths are checked by the caller.
        unsafe { self.device.launch(&kernel, geometry, &linear.arguments()) }
    }
}

/// Elements between rows of this many sums of squares.
pub(crate) fn squares_stride(count: usize) -> usize {
    count.next_multiple_of(4)
}

/// Compiler options of the files of linear layers.
pub(super) fn options(element: Element, properties: &Properties) -> Vec<String> {
    match element {
        Element::F32 => vec![element.option()],
        _ => vec![element.option(), format!("-DRING={}", ring_bytes(properties.shared_bytes))],
    }
}

/// Compiler options for rows and weights that are FP8 numbers, given those for 16 bits.
pub(super) fn number_options(plain: Vec<String>) -> Vec<String> {
    let mut options = WeightType::Fp8.options(plain);
    options.push("-DX_FP8".into());
    options
}

/// Bytes of a block's ring, given the shared memory available to a block: two blocks per
/// multiprocessor if their rings are then large enough to keep memory busy. More than 110 KiB gain
/// nothing.
pub(super) fn ring_bytes(shared_bytes: usize) -> usize {
    const OTHER: usize = 1 << 10;
    let half = shared_bytes / BLOCKS;
    if half < 64 << 10 { shared_bytes - OTHER } else { (half - OTHER).min(110 << 10) }
}

/// Bytes of a ring if this many blocks share a multiprocessor.
pub(super) fn ring_bytes_per_block(shared_bytes: usize, resident: usize) -> usize {
    BLOCKS * ring_bytes(shared_bytes) / resident
}

/// Stages of the ring of a block with this many bytes of rows in each, and the maximum number of
/// outputs.
fn stages(properties: &Properties, of_rows: usize) -> usize {
    (ring_bytes(properties.shared_bytes) / (WARPS[0] * 16 * ROW + of_rows)).min(MOST_STAGES)
}

/// The kernel for a number of rows, and the rows of its blocks.
fn kernel_for(rows: usize, gated: bool) -> (&'static str, usize) {
    match (rows, gated) {
        (..=8, false) => ("linear_8", 8),
        (..=8, true) => ("linear_8_gated", 8),
        (9..=16, false) => ("linear_16", 16),
        (9..=16, true) => ("linear_16_gated", 16),
        (17..=32, false) => ("linear_32", 32),
        (17..=32, true) => ("linear_32_gated", 32),
        (_, false) => ("linear_64", 64),
        (_, true) => ("linear_64_gated", 64),
    }
}

/// The possible divisions of a layer's inputs into at most this many parts: inputs of a part (whole
/// stages of `piece` inputs) and number of parts.
pub(super) fn shares(inputs: usize, most_parts: usize, piece: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    (1..=most_parts.min(inputs / LEAST_SHARE).max(1)).map(move |parts| {
        let share = inputs.div_ceil(parts).next_multiple_of(piece);
        (share, inputs.div_ceil(share))
    })
}

/// Divides a layer so that concurrent blocks, `resident` per multiprocessor, get the same amount of
/// weights, with as little as possible above a fair share: on an H200, 256 blocks in 264 places are
/// 4% faster than 224, which leave some multiprocessors with one block and some with two.
pub(super) fn partition(
    properties: &Properties,
    resident: usize,
    [inputs, sums]: [usize; 2],
    most_parts: usize,
    piece: usize,
) -> LinearPartition {
    // Ties go to the first: more warps have more weights in flight.
    let partitions = WARPS.into_iter().flat_map(|warps| {
        shares(inputs, most_parts, piece).map(move |(share, parts)| LinearPartition { warps, share, parts })
    });
    let cost = |partition: &LinearPartition| partition.cost(properties, resident, sums);
    partitions.min_by_key(cost).unwrap_or(LinearPartition { warps: 8, share: inputs.next_multiple_of(piece), parts: 1 })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::launch) fn h200() -> Properties {
        Properties {
            name: "NVIDIA H200".into(),
            driver: "13.0".into(),
            multiprocessors: 132,
            capability: (9, 0),
            cache_bytes: 60 << 20,
            shared_bytes: 232_448,
            most_cluster: 8,
            emulated: false,
        }
    }

    #[test]
    fn layers_of_llama_fill_the_places_of_an_h200() {
        for (inputs, sums, most_parts) in [(4096, 6144, 8), (4096, 4096, 8), (4096, 28672, 1), (14336, 4096, 8)] {
            let partition = partition(&h200(), BLOCKS, [inputs, sums], most_parts, PIECE);
            let blocks = sums.div_ceil(16 * partition.warps) * partition.parts;
            assert_eq!(blocks, 256, "{inputs} → {sums}: {partition:?}");
            assert!(partition.warps >= 6, "{inputs} → {sums}: {partition:?}");
        }
    }

    #[test]
    fn small_layers_stay_whole() {
        for (inputs, sums) in [(8, 8), (64, 4096), (1000, 100)] {
            let partition = partition(&h200(), BLOCKS, [inputs, sums], Kernels::MOST_PARTS, PIECE);
            assert_eq!((partition.parts, partition.share), (1, inputs.next_multiple_of(PIECE)), "{inputs} → {sums}");
        }
    }

    #[test]
    fn parts_cover_all_inputs_and_none_is_empty() {
        for inputs in (512..16_384).step_by(8) {
            for piece in [WeightType::Plain, WeightType::Fp8].map(WeightType::piece) {
                let LinearPartition { share, parts, .. } =
                    partition(&h200(), BLOCKS, [inputs, 4096], Kernels::MOST_PARTS, piece);
                assert!(
                    share.is_multiple_of(piece) && (parts - 1) * share < inputs && parts * share >= inputs,
                    "{inputs}"
                );
            }
        }
    }

    #[test]
    fn two_rings_fit_a_multiprocessor_or_one_fits_a_block() {
        for (shared_bytes, blocks) in [(232_448, 2), (166_912, 2), (101_376, 1)] {
            assert!(blocks * (ring_bytes(shared_bytes) + 1024) <= shared_bytes);
            // Copies have to be in flight while a stage is used.
            let properties = Properties { shared_bytes, ..h200() };
            let with_rows = |weights: WeightType| stages(&properties, MOST_ROWS * weights.piece() * 2);
            assert!(with_rows(WeightType::Plain) >= 3, "{shared_bytes}");
            assert!(with_rows(WeightType::Fp8) >= 2, "{shared_bytes}");
        }
    }
}
