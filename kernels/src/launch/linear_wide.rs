//! Linear layers of 17 to 128 rows on Hopper: `cuda/linear_wide.cu`.

use super::{
    Kernels, Linear, Parts, address, grid, int,
    linear::{PIECE, ring_bytes_per_block, shares},
};
use crate::{
    device::{Arg, DeviceError, DeviceMatrix, Element, KernelFile, Properties, Slice, Split, Tile},
    reference::Fp8Scales,
};

pub(super) const FILE: KernelFile =
    KernelFile { name: "linear_wide.cu", text: include_str!("../../cuda/linear_wide.cu"), split: Split::Shared };

/// Maximum number of stages of a ring.
pub(super) const MOST_STAGES: usize = 12;
/// Minimum number of rows for which these kernels are faster: products have 64 rows anyway.
const LEAST_ROWS: usize = 17;
/// Maximum number of rows per block.
pub(super) const MOST_ROWS: usize = 128;
/// Threads of a block.
const THREADS: u32 = 320;
/// Cycles between early loads of two stages of gate and up, in a narrow layer. Measured on an H200
/// with layers of 2,048: 1 to 2% of a round. For other layers, and with layers of 4,096, it gains
/// nothing.
const PAUSE: usize = 350;

/// How [`linear_wide`](Kernels::linear_wide) divides a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wide {
    /// Rows of a block's unit.
    pub(super) rows: usize,
    /// Columns per block: of the result or, if gated, of gate and up.
    pub(super) columns: usize,
    /// Inputs of a part.
    pub(super) share: usize,
    pub(super) parts: usize,
}

impl Wide {
    /// Number of parts in which the sums are left; a single part is the result.
    pub fn parts(self) -> usize {
        self.parts
    }
}

impl Kernels {
    /// Maximum number of rows of a layer that may be left in parts.
    pub const MOST_ROWS_LEFT_IN_PARTS: usize = MOST_ROWS;

    /// How to divide a layer of this many rows, inputs and columns (gated: twice the outputs) into
    /// at most `most_parts` parts, the best division first; `scales` is the layout of the scales if
    /// the weights are FP8. Empty if there is no such kernel: for devices other than Hopper,
    /// float32, fewer rows than 17 (FP8: 33) or more than 128 (FP8: 512), inputs that are not
    /// multiples of 8 (FP8: 16), and columns that are not multiples of 16.
    pub fn wide(
        &self,
        rows: usize,
        [inputs, columns]: [usize; 2],
        most_parts: usize,
        scales: Option<Fp8Scales>,
    ) -> Vec<Wide> {
        if let Some(layout) = scales {
            return self.wide_fp8(rows, [inputs, columns], most_parts, layout);
        }
        let properties = self.device.properties();
        let multiples = inputs.is_multiple_of(8) && columns.is_multiple_of(16);
        if !has_warp_groups(self.element, properties) || !multiples || !(LEAST_ROWS..=MOST_ROWS).contains(&rows) {
            return Vec::new();
        }
        partitions(properties.multiprocessors, most_rows(rows), inputs, columns, most_parts)
    }

    /// `y = x · weightᵀ + bias`, with a division that [`wide`](Self::wide) or, for rows in FP8,
    /// [`wide_products`](Self::wide_products) returned for these rows, inputs and outputs. In one
    /// part `y` is the result; in several it is float `[parts, rows, outputs]`, and they are
    /// returned for the next kernel to sum.
    ///
    /// # Errors
    /// When a buffer is too short, no such kernel supports the layer, or the device fails.
    pub fn linear_wide<'a>(&self, linear: Linear<'a>, wide: Wide) -> Result<Option<Parts<'a>>, DeviceError> {
        let Linear { y, y_is_float, rows, outputs, .. } = linear;
        let linear = Linear { y_is_float: y_is_float || wide.parts > 1, ..linear };
        self.launch_wide(linear, wide, false)?;
        let parts = || Parts { at: y.range(0..wide.parts * rows * outputs * 4), count: wide.parts };
        Ok((wide.parts > 1).then(parts))
    }

    /// `y = silu(x · gateᵀ) · (x · upᵀ)`: the weight is `[2 · outputs, inputs]`, gate first, the
    /// bias likewise; with a division that [`wide`](Self::wide) returned for twice the outputs in
    /// one part.
    ///
    /// # Errors
    /// When the division has several parts; otherwise as [`linear_wide`](Self::linear_wide).
    pub fn linear_wide_gated(&self, linear: Linear<'_>, wide: Wide) -> Result<(), DeviceError> {
        if wide.parts > 1 {
            return Err(DeviceError::Shape(format!("a gated linear layer in {} parts", wide.parts)));
        }
        self.launch_wide(linear, wide, true)
    }

    fn launch_wide(&self, linear: Linear<'_>, wide: Wide, gated: bool) -> Result<(), DeviceError> {
        match (linear.scales, linear.row_scales) {
            (Some(weights), Some(rows)) => return self.launch_products(linear, (weights, rows), wide, gated),
            (Some(weights), None) => return self.launch_wide_fp8(linear, weights, wide, gated),
            (None, _) => linear.check_unquantised()?,
        }
        let Linear { rows, inputs, outputs, .. } = linear;
        let Wide { rows: most_rows, columns, share, parts } = wide;
        let all_columns = if gated { 2 * outputs } else { outputs };
        let refused = || {
            let name = self.element.name();
            DeviceError::Shape(format!(
                "no wide linear layer has {rows} rows of {name}, {inputs} → {outputs}, as {wide:?}"
            ))
        };
        self.wide(rows, [inputs, all_columns], parts, None)
            .into_iter()
            .find(|known| *known == wide)
            .ok_or_else(refused)?;
        let (_, _, name) =
            NAMES.into_iter().find(|known| (known.0, known.1) == (most_rows, columns)).ok_or_else(refused)?;
        self.check_linear(linear, parts, all_columns)?;
        // Contiguous columns of a warp group: gate and up are separate.
        let run = if gated { columns / 2 } else { columns } / if most_rows > 64 { 1 } else { 2 };
        let pause = if gated { self.pause(inputs, PAUSE) } else { 0 };
        let arguments = self.tile_arguments(linear, most_rows, all_columns, Tile::Rows(run))?;
        let properties = self.device.properties();
        let units = all_columns.div_ceil(columns) * parts;
        // A block of one unit needs no more stages than steps: the rest of shared memory is left to
        // blocks of attention.
        let most = if units <= properties.multiprocessors { share.div_ceil(PIECE) } else { MOST_STAGES };
        let stages = stages(properties.shared_bytes, stage_bytes(most_rows, columns)).min(most);
        let arguments = [&arguments[..], &[int(share), int(parts), int(pause), int(stages)]].concat();
        let kernel = self.kernel(FILE, if gated { name[1] } else { name[0] })?;
        let shared = stages * (stage_bytes(most_rows, columns) + BARRIERS_BYTES) + scale_bytes(most_rows);
        let geometry = grid([units.min(properties.multiprocessors), 1, 1], THREADS, shared);
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, geometry, &arguments) }
    }

    /// The first arguments of kernels that copy tiles: tiles of x have `most_rows` rows; the weight
    /// has `weight_rows` rows, cut as `weight_tile`.
    pub(super) fn tile_arguments(
        &self,
        linear: Linear<'_>,
        most_rows: usize,
        weight_rows: usize,
        weight_tile: Tile,
    ) -> Result<Vec<Arg>, DeviceError> {
        let Linear { y, y_is_float, x, weight, bias, rows, inputs, outputs, needed, .. } = linear;
        // In pairs of bytes.
        let pairs = |elements: usize| elements * linear.row_element() / 2;
        let x = DeviceMatrix { at: x.at, rows, columns: pairs(inputs), stride: pairs(x.stride) };
        let width = linear.weights().bytes(self.element, inputs) / 2;
        let weight = DeviceMatrix { at: weight, rows: weight_rows, columns: width, stride: width };
        let arguments = [
            address(y),
            Arg::Int(y_is_float.into()),
            Arg::Tiles(self.device.tiles(x, Tile::Rows(most_rows))?),
            Arg::Tiles(self.device.tiles(weight, weight_tile)?),
            address(bias.unwrap_or(Slice::NONE)),
            int(rows),
            int(inputs),
            int(outputs),
        ];
        let needed = [address(needed.unwrap_or(Slice::NONE))];
        Ok([&arguments[..], &linear.scale_arguments(), &needed].concat())
    }
}

/// Rows and columns of a unit, and the kernels with such units: plain and gated.
const NAMES: [(usize, usize, [&str; 2]); 11] = [
    (32, 64, ["wide_32_64", "wide_32_64_gated"]),
    (32, 128, ["wide_32_128", "wide_32_128_gated"]),
    (32, 192, ["wide_32_192", "wide_32_192_gated"]),
    (32, 224, ["wide_32_224", "wide_32_224_gated"]),
    (64, 64, ["wide_64_64", "wide_64_64_gated"]),
    (64, 128, ["wide_64_128", "wide_64_128_gated"]),
    (64, 192, ["wide_64_192", "wide_64_192_gated"]),
    (64, 224, ["wide_64_224", "wide_64_224_gated"]),
    (128, 128, ["wide_128_128", "wide_128_128_gated"]),
    (128, 192, ["wide_128_192", "wide_128_192_gated"]),
    (128, 224, ["wide_128_224", "wide_128_224_gated"]),
];

/// Bytes of the two barriers of a stage.
pub(super) const BARRIERS_BYTES: usize = 16;

/// Bytes of the rows' scales and their barrier.
pub(super) fn scale_bytes(rows: usize) -> usize {
    8 + rows * 4
}

/// Rows of the smallest unit that fits.
fn most_rows(rows: usize) -> usize {
    match rows {
        ..=32 => 32,
        33..=64 => 64,
        _ => 128,
    }
}

/// Bytes of a stage.
fn stage_bytes(rows: usize, columns: usize) -> usize {
    (rows + columns) * PIECE * 2
}

/// Stages, of this many bytes each, of the ring of a block that has a multiprocessor to itself.
pub(super) fn stages(shared_bytes: usize, stage_bytes: usize) -> usize {
    (ring_bytes_per_block(shared_bytes, 1) / stage_bytes).min(MOST_STAGES)
}

/// Whether a device runs the warp-group kernels.
pub(super) fn has_warp_groups(element: Element, properties: &Properties) -> bool {
    element != Element::F32 && (properties.is_hopper() || properties.emulated)
}

/// The possible divisions of a layer among multiprocessors that run one block at a time, in order
/// of cost.
fn partitions(multiprocessors: usize, rows: usize, inputs: usize, all_columns: usize, most_parts: usize) -> Vec<Wide> {
    // In elements of weights, as measured on an H200: the fixed cost of a unit, and of an input
    // regardless of the columns of a unit. In addition, an input costs one for every eight rows.
    const UNIT: usize = 16_384;
    const INPUT: usize = 24;
    let cost = |wide: &Wide| {
        let Wide { columns, share, parts, .. } = *wide;
        let units = all_columns.div_ceil(columns) * parts;
        // Parts are written and read again.
        let sums = if parts > 1 { 8 * parts * rows * all_columns / multiprocessors } else { 0 };
        units.div_ceil(multiprocessors) * (share * (columns + INPUT + rows / 8) + UNIT) + sums
    };
    // Ties go to the first: rows are read less often.
    let tiles = NAMES.into_iter().rev().filter(|known| known.0 == rows).map(|known| (known.0, known.1));
    by_cost(tiles, shares(inputs, most_parts, PIECE), cost)
}

/// The divisions of a layer in order of cost: each tile, of rows and columns, with each division of
/// the inputs. Ties go to the first tile.
pub(super) fn by_cost(
    tiles: impl Iterator<Item = (usize, usize)>,
    shares: impl Iterator<Item = (usize, usize)> + Clone,
    cost: impl Fn(&Wide) -> usize,
) -> Vec<Wide> {
    let mut partitions: Vec<Wide> = tiles
        .flat_map(|(rows, columns)| shares.clone().map(move |(share, parts)| Wide { rows, columns, share, parts }))
        .collect();
    partitions.sort_by_key(cost);
    partitions.dedup();
    partitions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The best division on an H200.
    fn best(rows: usize, inputs: usize, columns: usize, most_parts: usize) -> Wide {
        partitions(132, rows, inputs, columns, most_parts)[0]
    }

    #[test]
    fn layers_of_llama_fill_the_multiprocessors_of_an_h200() {
        for rows in [32, 64, 128] {
            for (inputs, columns, most_parts) in [(4096, 6144, 8), (4096, 4096, 8), (4096, 28672, 1), (14336, 4096, 8)]
            {
                let wide = best(rows, inputs, columns, most_parts);
                let blocks = columns.div_ceil(wide.columns) * wide.parts;
                assert!((128..=132).contains(&blocks), "{rows} rows, {inputs} → {columns}: {wide:?}");
            }
        }
    }

    #[test]
    fn copies_are_under_way_while_a_stage_is_used() {
        for (rows, columns, _) in NAMES {
            let stages = stages(232_448, stage_bytes(rows, columns));
            assert!(stages >= 3, "{rows} rows, {columns} columns");
            assert!(
                stages * (stage_bytes(rows, columns) + BARRIERS_BYTES) + scale_bytes(rows) <= 232_448,
                "{rows} rows, {columns} columns"
            );
        }
    }

    #[test]
    fn parts_cover_all_inputs_and_none_is_empty() {
        for inputs in (512..16_384).step_by(8) {
            for Wide { share, parts, .. } in partitions(132, 64, inputs, 4096, 8) {
                assert!(share.is_multiple_of(PIECE) && (parts - 1) * share < inputs && parts * share >= inputs);
            }
        }
    }
}
