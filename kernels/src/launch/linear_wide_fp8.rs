//! Linear layers of 33 to 512 rows with FP8 weights on Hopper: `cuda/linear_wide_fp8.cu`.

use super::{
    Kernels, Linear, WeightScales, WeightType, grid, int,
    linear::shares,
    linear_wide::{BARRIERS_BYTES, MOST_STAGES, Wide, by_cost, has_warp_groups, scale_bytes, stages},
};
use crate::{
    device::{DeviceError, KernelFile, Properties, Split, Tile},
    reference::Fp8Scales,
};

pub(super) const FILE: KernelFile = KernelFile {
    name: "linear_wide_fp8.cu",
    text: include_str!("../../cuda/linear_wide_fp8.cu"),
    split: Split::Shared,
};

/// Minimum number of rows for which these kernels are faster: with 17 `linear_pairs.cu` is faster
/// by a tenth, with 32 they are equal.
const LEAST_ROWS: usize = 33;
/// Maximum number of rows for which they were measured to be faster than dequantisation followed by
/// the device's library: by a quarter with 512.
const MOST_ROWS: usize = 512;
/// Threads of a block.
const THREADS: u32 = 384;
/// Inputs of a stage.
const PIECE: usize = 128;
/// Columns of a unit for weights with any scales, and for weights with one scale per output.
const COLUMNS: usize = 128;
const COLUMNS_OF_CHANNELS: usize = 256;

/// Rows and columns of a unit, and the kernels with such units: plain and gated.
const NAMES: [(usize, usize, [&str; 2]); 3] = [
    (64, COLUMNS, ["wide_fp8_64_128", "wide_fp8_64_128_gated"]),
    (128, COLUMNS, ["wide_fp8_128_128", "wide_fp8_128_128_gated"]),
    (128, COLUMNS_OF_CHANNELS, ["wide_fp8_128_256", "wide_fp8_128_256_gated"]),
];

impl Kernels {
    /// As [`wide`](Self::wide), for FP8 weights: 33 to 512 rows, with inputs and columns that are
    /// multiples of 16.
    pub(super) fn wide_fp8(
        &self,
        rows: usize,
        [inputs, columns]: [usize; 2],
        most_parts: usize,
        layout: Fp8Scales,
    ) -> Vec<Wide> {
        let properties = self.device.properties();
        let multiples = inputs.is_multiple_of(16) && columns.is_multiple_of(16);
        if !has_warp_groups(self.element, properties) || !multiples || !(LEAST_ROWS..=MOST_ROWS).contains(&rows) {
            return Vec::new();
        }
        partitions(properties, rows, [inputs, columns], most_parts, layout)
    }

    /// Launches a layer with a division of [`wide_fp8`](Self::wide_fp8).
    pub(super) fn launch_wide_fp8(
        &self,
        linear: Linear<'_>,
        scales: WeightScales<'_>,
        wide: Wide,
        gated: bool,
    ) -> Result<(), DeviceError> {
        let Linear { rows, inputs, outputs, .. } = linear;
        let Wide { rows: most_rows, columns, share, parts } = wide;
        let all_columns = if gated { 2 * outputs } else { outputs };
        let known = self.wide_fp8(rows, [inputs, all_columns], parts, scales.layout).contains(&wide);
        let kernel = NAMES.into_iter().find(|names| known && (names.0, names.1) == (most_rows, columns));
        let Some((_, _, [plain, of_gated])) = kernel else {
            let name = self.element.name();
            return Err(DeviceError::Shape(format!(
                "no wide linear layer of FP8 has {rows} rows of {name}, {inputs} → {outputs}, as {wide:?}"
            )));
        };
        if linear.unscaled.is_some() && rows > most_rows {
            return Err(DeviceError::Shape(format!(
                "{rows} rows are not scaled yet, and the kernel can scale at most {most_rows}"
            )));
        }
        self.check_linear(linear, parts, all_columns)?;
        // Gate and up are separate.
        let run = if gated { columns / 2 } else { columns };
        let arguments = self.tile_arguments(linear, most_rows, all_columns, Tile::Rows(run))?;
        let properties = self.device.properties();
        let units = all_columns.div_ceil(columns) * parts * rows.div_ceil(most_rows);
        // A block of one unit needs no more stages than steps: the rest of shared memory is left to
        // blocks of attention.
        let most = if units <= properties.multiprocessors { share.div_ceil(PIECE) } else { MOST_STAGES };
        let stages = stages(properties.shared_bytes, stage_bytes(most_rows, columns)).min(most);
        let dealt = [int(share), int(parts), int(0), int(stages)];
        let of_weights = WeightScales::arguments(Some(scales), inputs);
        let arguments = [&arguments[..], &dealt, &of_weights].concat();
        let kernel = self.kernel(FILE, if gated { of_gated } else { plain })?;
        let shared = stages * (stage_bytes(most_rows, columns) + BARRIERS_BYTES) + scale_bytes(most_rows);
        let geometry = grid([units.min(properties.multiprocessors), 1, 1], THREADS, shared);
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, geometry, &arguments) }
    }
}

/// Rows of a unit.
fn most_rows(rows: usize) -> usize {
    if rows <= 64 { 64 } else { 128 }
}

/// Bytes of a stage.
fn stage_bytes(rows: usize, columns: usize) -> usize {
    PIECE * (rows * 2 + columns)
}

/// The possible divisions of a layer among multiprocessors that run one block at a time, in order
/// of cost.
fn partitions(
    properties: &Properties,
    rows: usize,
    [inputs, all_columns]: [usize; 2],
    most_parts: usize,
    layout: Fp8Scales,
) -> Vec<Wide> {
    // In twentieths of the time to load a byte of weights from memory, as counted for an H100: a
    // byte from the L2 cache, a product of 128 rows with a weight, and the fixed cost of a unit.
    const BYTE: usize = 20;
    const CACHED: usize = 11;
    const PRODUCT: usize = 17;
    const UNIT: usize = 8_192 * BYTE;
    let tile = most_rows(rows);
    let row_blocks = rows.div_ceil(tile);
    let cost = |wide: &Wide| {
        let Wide { columns, share, parts, .. } = *wide;
        let units = all_columns.div_ceil(columns) * parts * row_blocks;
        let from_memory = BYTE * columns / row_blocks;
        let input = from_memory.max(CACHED * (columns + 2 * tile)).max(PRODUCT * columns * tile / 128);
        // Parts are written and read again.
        let sums = if parts > 1 { 8 * BYTE * parts * rows * all_columns / properties.multiprocessors } else { 0 };
        units.div_ceil(properties.multiprocessors) * (share * input + UNIT) + sums
    };
    let fits = |columns: usize| columns == COLUMNS || layout == Fp8Scales::Channels;
    // Ties go to the first: rows are read less often.
    let tiles = NAMES.into_iter().rev().filter(|names| names.0 == tile && fits(names.1)).map(|names| (tile, names.1));
    by_cost(tiles, shares(inputs, most_parts, WeightType::Fp8.piece()), cost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::linear::tests::h200;

    #[test]
    fn layers_of_llama_keep_most_multiprocessors_of_an_h200_busy() {
        // The last number is the minimum share in percent. Five parts of queries, keys and values
        // would keep more multiprocessors busy than two, but parts are written and read again.
        let layers = [(4096, 6144, 8, 72), (4096, 4096, 8, 96), (4096, 28672, 1, 84), (14336, 4096, 8, 96)];
        for rows in [64, 128] {
            for (inputs, columns, most_parts, least) in layers {
                for layout in [Fp8Scales::Channels, Fp8Scales::Blocks] {
                    let wide = partitions(&h200(), rows, [inputs, columns], most_parts, layout)[0];
                    let units = columns.div_ceil(wide.columns) * wide.parts;
                    let places = units.div_ceil(132) * 132;
                    assert!(units * 100 >= places * least, "{rows} rows, {inputs} → {columns}, {layout:?}: {wide:?}");
                }
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
}
