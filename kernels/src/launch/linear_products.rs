//! Linear layers of 17 and more rows with weights and rows in FP8 on Hopper:
//! `cuda/linear_products.cu`.

use super::{
    Kernels, Linear, RowForm, RowScales, WeightScales, WeightType, Wide, address,
    fp8::has_blocks,
    grid, int,
    linear::shares,
    linear_wide::{BARRIERS_BYTES, MOST_STAGES, by_cost, has_warp_groups},
};
use crate::{
    device::{Arg, DeviceError, DeviceMatrix, KernelFile, Properties, Slice, Split, Tile},
    reference::{Fp8Rows, Fp8Scales},
};

pub(super) const FILE: KernelFile = KernelFile {
    name: "linear_products.cu",
    text: include_str!("../../cuda/linear_products.cu"),
    split: Split::Shared,
};

/// Minimum number of rows: with fewer, streaming kernels are faster, since a product has 64 rows
/// anyway.
const LEAST_ROWS: usize = 17;
/// Threads of a block.
const THREADS: u32 = 384;
/// Inputs of a stage, which are as many bytes of a row.
const PIECE: usize = 128;

/// Rows and columns of a unit, and the kernels with such units: plain and gated, and both with
/// scales of blocks.
const NAMES: [(usize, usize, [&str; 4]); 11] = [
    (32, 64, ["products_32_64", "products_32_64_gated", "products_32_64_blocks", "products_32_64_gated_blocks"]),
    (32, 128, ["products_32_128", "products_32_128_gated", "products_32_128_blocks", "products_32_128_gated_blocks"]),
    (32, 192, ["products_32_192", "products_32_192_gated", "products_32_192_blocks", "products_32_192_gated_blocks"]),
    (32, 224, ["products_32_224", "products_32_224_gated", "products_32_224_blocks", "products_32_224_gated_blocks"]),
    (64, 64, ["products_64_64", "products_64_64_gated", "products_64_64_blocks", "products_64_64_gated_blocks"]),
    (64, 128, ["products_64_128", "products_64_128_gated", "products_64_128_blocks", "products_64_128_gated_blocks"]),
    (64, 192, ["products_64_192", "products_64_192_gated", "products_64_192_blocks", "products_64_192_gated_blocks"]),
    (64, 224, ["products_64_224", "products_64_224_gated", "products_64_224_blocks", "products_64_224_gated_blocks"]),
    (
        128,
        128,
        ["products_128_128", "products_128_128_gated", "products_128_128_blocks", "products_128_128_gated_blocks"],
    ),
    (
        128,
        192,
        ["products_128_192", "products_128_192_gated", "products_128_192_blocks", "products_128_192_gated_blocks"],
    ),
    (
        128,
        224,
        ["products_128_224", "products_128_224_gated", "products_128_224_blocks", "products_128_224_gated_blocks"],
    ),
];

impl Kernels {
    /// As [`wide`](Self::wide), for rows and weights in FP8 with scales of these layouts: from 17
    /// rows on, with inputs and columns that are multiples of 16. The rows are
    /// [`RowForm::Numbers`].
    pub fn wide_products(
        &self,
        rows: usize,
        [inputs, columns]: [usize; 2],
        most_parts: usize,
        (weights, of_rows): (Fp8Scales, Fp8Rows),
    ) -> Vec<Wide> {
        let properties = self.device.properties();
        let multiples = inputs.is_multiple_of(16) && columns.is_multiple_of(16);
        if !has_warp_groups(self.element, properties) || !multiples || rows < LEAST_ROWS {
            return Vec::new();
        }
        partitions(properties, rows, [inputs, columns], most_parts, scales_blocks(weights, of_rows))
    }

    /// Launches a layer with a division of [`wide_products`](Self::wide_products).
    pub(super) fn launch_products(
        &self,
        linear: Linear<'_>,
        (weights, of_rows): (WeightScales<'_>, RowScales<'_>),
        wide: Wide,
        gated: bool,
    ) -> Result<(), DeviceError> {
        let Linear { rows, inputs, outputs, .. } = linear;
        let Wide { rows: tile, columns, share, parts } = wide;
        let all_columns = if gated { 2 * outputs } else { outputs };
        let layouts = (weights.layout, of_rows.layout);
        let known = self.wide_products(rows, [inputs, all_columns], parts, layouts).contains(&wide);
        let kernel = NAMES.into_iter().find(|names| known && (names.0, names.1) == (tile, columns));
        let Some((_, _, names)) = kernel.filter(|_| of_rows.form == RowForm::Numbers) else {
            let name = self.element.name();
            return Err(DeviceError::Shape(format!(
                "no products in FP8 have {rows} rows of {name} as {of_rows:?}, {inputs} → {outputs}, as {wide:?}"
            )));
        };
        if !weights.at.address().is_multiple_of(8) {
            return Err(DeviceError::Shape("scales of weights do not begin at a multiple of 8 bytes".into()));
        }
        self.check_linear(linear, parts, all_columns)?;
        let by_blocks = scales_blocks(weights.layout, of_rows.layout);
        let properties = self.device.properties();
        let bytes = stage_bytes(tile, columns, by_blocks);
        let units = all_columns.div_ceil(columns) * parts * rows.div_ceil(tile);
        // A block of one unit needs no more stages than steps: the rest of shared memory is left to
        // blocks of attention.
        let most = if units <= properties.multiprocessors { share.div_ceil(PIECE) } else { MOST_STAGES };
        let stages = stages(properties.shared_bytes, bytes).min(most);
        // Contiguous columns of a warp group: gate and up are separate.
        let run = if gated { columns / 2 } else { columns } / if tile > 64 { 1 } else { 2 };
        let arguments = [
            &self.product_arguments(linear, of_rows, [tile, run], all_columns)?[..],
            &[int(share), int(parts), int(stages)],
            &WeightScales::arguments(Some(weights), inputs),
        ]
        .concat();
        let kernel = self.kernel(FILE, names[usize::from(gated) + 2 * usize::from(by_blocks)])?;
        let geometry = grid([units.min(properties.multiprocessors), 1, 1], THREADS, stages * bytes + BEHIND_BYTES);
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, geometry, &arguments) }
    }

    /// The first arguments of the kernels: tiles of rows and of weights have these rows.
    fn product_arguments(
        &self,
        linear: Linear<'_>,
        of_rows: RowScales<'_>,
        [tile, run]: [usize; 2],
        weight_rows: usize,
    ) -> Result<Vec<Arg>, DeviceError> {
        let Linear { y, y_is_float, x, weight, bias, rows, inputs, outputs, needed, .. } = linear;
        // In pairs of bytes.
        let pairs = |at, rows| DeviceMatrix { at, rows, columns: inputs / 2, stride: inputs / 2 };
        Ok(vec![
            address(y),
            Arg::Int(y_is_float.into()),
            Arg::Tiles(self.device.tiles(pairs(x.at, rows), Tile::Rows(tile))?),
            Arg::Tiles(self.device.tiles(pairs(weight, weight_rows), Tile::Rows(run))?),
            address(bias.unwrap_or(Slice::NONE)),
            int(rows),
            int(inputs),
            int(outputs),
            address(of_rows.at),
            int(of_rows.stride(rows)),
            address(needed.unwrap_or(Slice::NONE)),
        ])
    }
}

/// Bytes behind the stages: a barrier, and what aligns it.
const BEHIND_BYTES: usize = 16;

/// Whether sums of 128 inputs have their own scales.
fn scales_blocks(weights: Fp8Scales, of_rows: Fp8Rows) -> bool {
    weights != Fp8Scales::Channels || has_blocks(of_rows)
}

/// Bytes of a stage with its barriers and scales.
fn stage_bytes(rows: usize, columns: usize, by_blocks: bool) -> usize {
    (rows + columns) * (PIECE + if by_blocks { 4 } else { 0 }) + BARRIERS_BYTES
}

/// Stages of the ring of a block that has a multiprocessor to itself.
fn stages(shared_bytes: usize, stage_bytes: usize) -> usize {
    ((shared_bytes - BEHIND_BYTES) / stage_bytes).min(MOST_STAGES)
}

/// The possible divisions of a layer among multiprocessors that run one block at a time, in order
/// of cost.
fn partitions(
    properties: &Properties,
    rows: usize,
    [inputs, all_columns]: [usize; 2],
    most_parts: usize,
    by_blocks: bool,
) -> Vec<Wide> {
    // In twentieths of the time to load a byte of weights from memory, as counted for an H200: a
    // byte from the L2 cache, a product of 64 rows with a weight, with its addition, and the fixed
    // cost of a unit.
    const BYTE: usize = 20;
    const CACHED: usize = 13;
    const UNIT: usize = 16_384 * BYTE;
    let product = if by_blocks { 9 } else { 7 };
    let cost = |wide: &Wide| {
        let Wide { rows: tile, columns, share, parts } = *wide;
        let row_blocks = rows.div_ceil(tile);
        let units = all_columns.div_ceil(columns) * parts * row_blocks;
        let from_memory = BYTE * columns / row_blocks;
        let input = from_memory.max(CACHED * (columns + tile)).max(product * columns * tile.div_ceil(64));
        // Parts are written and read again.
        let sums = if parts > 1 { 8 * BYTE * parts * rows * all_columns / properties.multiprocessors } else { 0 };
        units.div_ceil(properties.multiprocessors) * (share * input + UNIT) + sums
    };
    let fits = |tile: usize| match tile {
        32 => rows <= 32,
        64 => rows > 32,
        _ => rows > 64,
    };
    // Ties go to the first: rows are read less often.
    let tiles = NAMES.into_iter().rev().filter(|names| fits(names.0)).map(|names| (names.0, names.1));
    by_cost(tiles, shares(inputs, most_parts, WeightType::Fp8.piece()), cost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::linear::tests::h200;

    #[test]
    fn layers_of_llama_keep_most_multiprocessors_of_an_h200_busy() {
        // The last number is the minimum share in percent.
        let layers = [(4096, 6144, 8, 72), (4096, 4096, 8, 84), (4096, 28672, 1, 84), (14336, 4096, 8, 84)];
        for rows in [32, 64, 128] {
            for (inputs, columns, most_parts, least) in layers {
                for by_blocks in [false, true] {
                    let wide = partitions(&h200(), rows, [inputs, columns], most_parts, by_blocks)[0];
                    let units = columns.div_ceil(wide.columns) * wide.parts * rows.div_ceil(wide.rows);
                    let places = units.div_ceil(132) * 132;
                    assert!(units * 100 >= places * least, "{rows} rows, {inputs} → {columns}: {wide:?}");
                }
            }
        }
    }

    #[test]
    fn copies_are_under_way_while_a_stage_is_used() {
        for (rows, columns, _) in NAMES {
            for by_blocks in [false, true] {
                let bytes = stage_bytes(rows, columns, by_blocks);
                let stages = stages(232_448, bytes);
                assert!(stages >= 4, "{rows} rows, {columns} columns");
                assert!(stages * bytes + BEHIND_BYTES <= 232_448, "{rows} rows, {columns} columns");
            }
        }
    }
}
