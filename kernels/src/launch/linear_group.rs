//! Linear layers of 5 to 32 rows on Hopper: `cuda/linear_group.cu`.

use super::{
    Kernels, Linear, Parts, WeightScales, WeightType, grid, int,
    linear::{BLOCKS, LinearPartition, PIECE, WIDE_LAYER, options, partition, ring_bytes_per_block},
    linear_wide::{BARRIERS_BYTES, MOST_STAGES, has_warp_groups, scale_bytes},
};
use crate::device::{DeviceError, KernelFile, Properties, Split, Tile};

pub(super) const FILE: KernelFile =
    KernelFile { name: "linear_group.cu", text: include_str!("../../cuda/linear_group.cu"), split: Split::Shared };

/// Minimum rows, and inputs and outputs of a layer, for which these kernels are faster.
const LEAST_ROWS: usize = 5;
const LEAST_WIDTH: usize = 2048;
/// Number of rows from which blocks of a narrow layer have a multiprocessor each, with a ring in
/// all its shared memory: two blocks would read rows twice for few outputs. Measured with 16 and
/// with 32 rows.
const LEAST_ROWS_ALONE: usize = 17;
/// Cycles between early loads of two stages of a narrow layer, with two blocks on a multiprocessor
/// and with one. Measured on an H200 with layers of 2,048: the shortest rounds among 0, 350, 500,
/// 750 and 1,000, and among 350 and 600.
const PAUSE: usize = 500;
const PAUSE_ALONE: usize = 600;
/// The same for wide layers in FP8, before which small kernels quantise rows: they wait for their
/// loads behind all that a ring requests at once. Measured on an H200 with 1 and 8 rows: rounds of
/// Qwen3.5-27B are 1% shorter with 700 and 2 to 3% with 1,500 than with 0, of Llama-3.1-8B 1 to 3%
/// with 700.
const PAUSE_NUMBERS: usize = 1000;
/// Minimum number of stages with which copies are under way while one is used.
const LEAST_STAGES: usize = 4;
/// Threads of a block, and outputs of the threads that multiply.
const THREADS: u32 = 320;
const OUTPUTS: usize = 128;

/// Rows of a block, and the kernels with such blocks: plain and gated.
const NAMES: [(usize, [&str; 2]); 4] = [
    (8, ["group_8", "group_8_gated"]),
    (16, ["group_16", "group_16_gated"]),
    (24, ["group_24", "group_24_gated"]),
    (32, ["group_32", "group_32_gated"]),
];

impl Kernels {
    /// Whether [`linear_group`](Self::linear_group) supports a layer and is the fastest of our
    /// kernels: 5 to 32 rows on Hopper, with two-byte types, and 1 to 32 in FP8, if inputs and sums
    /// (two per output of gated layers) are at least 2,048.
    pub fn suits_group(&self, rows: usize, inputs: usize, sums: usize, weights: WeightType) -> bool {
        let least = if weights == WeightType::Plain { LEAST_ROWS } else { 1 };
        self.has_group(rows, inputs, sums) && rows >= least && self.is_wide(inputs.min(sums), LEAST_WIDTH)
    }

    /// Number of parts in which [`linear_group`](Self::linear_group) leaves the sums of a layer, if
    /// it may leave several.
    pub fn parts_of_group(&self, rows: usize, inputs: usize, outputs: usize, weights: WeightType) -> usize {
        self.deal_of_group(rows, [inputs, outputs], Self::MOST_PARTS, weights).1.parts
    }

    /// How a layer is divided, and the number of its blocks that share a multiprocessor.
    fn deal_of_group(
        &self,
        rows: usize,
        sizes: [usize; 2],
        most_parts: usize,
        weights: WeightType,
    ) -> (usize, LinearPartition) {
        deal(self.device.properties(), rows, sizes, most_parts, weights)
    }

    /// Whether there is such a kernel for this many sums (two per output of a gated layer).
    pub(crate) fn has_group(&self, rows: usize, inputs: usize, sums: usize) -> bool {
        has_warp_groups(self.element, self.device.properties())
            && inputs.is_multiple_of(8)
            && sums.is_multiple_of(16)
            && kernel_for(rows).is_some()
    }

    /// `y = x · weightᵀ + bias` in a separate summation order. In one part `y` is the result; in
    /// several, at most `most_parts`, it is float `[parts, rows, outputs]`, and they are returned
    /// for the next kernel to sum.
    ///
    /// # Errors
    /// When a buffer is too short, no such kernel supports the layer, or the device fails.
    pub fn linear_group<'a>(&self, linear: Linear<'a>, most_parts: usize) -> Result<Option<Parts<'a>>, DeviceError> {
        let Linear { y, y_is_float, rows, inputs, outputs, .. } = linear;
        let deal = self.deal_of_group(rows, [inputs, outputs], most_parts, linear.weights());
        let (_, partition) = deal;
        let linear = Linear { y_is_float: y_is_float || partition.parts > 1, ..linear };
        self.launch_group(linear, deal, false)?;
        let parts = || Parts { at: y.range(0..partition.parts * rows * outputs * 4), count: partition.parts };
        Ok((partition.parts > 1).then(parts))
    }

    /// `y = silu(x · gateᵀ) · (x · upᵀ)`: the weight is `[2 · outputs, inputs]`, gate first, the
    /// bias likewise.
    ///
    /// # Errors
    /// As [`linear_group`](Self::linear_group).
    pub fn linear_group_gated(&self, linear: Linear<'_>) -> Result<(), DeviceError> {
        let sizes = [linear.inputs, 2 * linear.outputs];
        let deal = self.deal_of_group(linear.rows, sizes, 1, linear.weights());
        self.launch_group(linear, deal, true)
    }

    fn launch_group(
        &self,
        linear: Linear<'_>,
        (resident, partition): (usize, LinearPartition),
        gated: bool,
    ) -> Result<(), DeviceError> {
        if linear.has_numbers() != linear.scales.is_some() {
            return Err(DeviceError::Shape(
                "warp groups of few rows multiply FP8 numbers with each other alone".into(),
            ));
        }
        let Linear { rows, inputs, outputs, .. } = linear;
        let LinearPartition { warps, share, parts } = partition;
        let sums = if gated { 2 * outputs } else { outputs };
        let kernel = kernel_for(rows).filter(|_| self.has_group(rows, inputs, sums));
        let Some((most_rows, [plain, of_gated])) = kernel else {
            let name = self.element.name();
            return Err(DeviceError::Shape(format!(
                "no linear layer of warp groups has {rows} rows of {name}, {inputs} → {outputs}"
            )));
        };
        self.check_linear(linear, parts, sums)?;
        let (tile, piece) = (16 * warps, linear.weights().piece());
        let weight_tile = if gated { Tile::OfHalves(tile) } else { Tile::Rows(tile) };
        let arguments = self.tile_arguments(linear, most_rows, sums, weight_tile)?;
        let pause = match self.pause(inputs.min(sums), if resident == 1 { PAUSE_ALONE } else { PAUSE }) {
            0 if linear.has_numbers() => PAUSE_NUMBERS,
            pause => pause,
        };
        // No more stages than a block has steps: the rest of shared memory is left to blocks of
        // attention.
        let stages =
            stages(self.device.properties().shared_bytes, resident, most_rows, tile).min(share.div_ceil(piece));
        let of_weights = WeightScales::arguments(linear.scales, inputs);
        let arguments = [&arguments[..], &[int(share), int(tile), int(pause), int(stages)], &of_weights].concat();
        let options = linear.options(options(self.element, self.device.properties()));
        let kernel = self.device.kernel(FILE, &options, if gated { of_gated } else { plain })?;
        let geometry = grid([sums.div_ceil(tile), parts, 1], THREADS, block_bytes(stages, most_rows, tile));
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, geometry, &arguments) }
    }
}

/// How a layer is divided, and the number of its blocks that share a multiprocessor.
fn deal(
    properties: &Properties,
    rows: usize,
    [inputs, sums]: [usize; 2],
    most_parts: usize,
    weights: WeightType,
) -> (usize, LinearPartition) {
    let of = |resident| (resident, partition(properties, resident, [inputs, sums], most_parts, weights.piece()));
    let fewer = of(resident(rows, inputs, sums));
    if weights == WeightType::Plain || fewer.0 < BLOCKS {
        return fewer;
    }
    // Layers in FP8 are short: a second wave of blocks that is half empty shows. Not so in three
    // rings of too few stages.
    let more = of(BLOCKS + 1);
    let most_rows = kernel_for(rows).map_or(rows, |(most_rows, _)| most_rows);
    let has_stages = stages(properties.shared_bytes, more.0, most_rows, 16 * more.1.warps) >= LEAST_STAGES;
    let cost = |(resident, partition): (usize, LinearPartition)| resident * partition.cost(properties, resident, sums);
    if has_stages && cost(more) < cost(fewer) { more } else { fewer }
}

/// Blocks of a layer with plain weights that share a multiprocessor.
fn resident(rows: usize, inputs: usize, sums: usize) -> usize {
    if rows >= LEAST_ROWS_ALONE && inputs.min(sums) < WIDE_LAYER { 1 } else { BLOCKS }
}

/// Stages of a ring with `resident` blocks per multiprocessor.
fn stages(shared_bytes: usize, resident: usize, rows: usize, tile: usize) -> usize {
    let ring = ring_bytes_per_block(shared_bytes, resident) - missing_bytes(rows, tile);
    (ring / stage_bytes(rows, tile)).min(MOST_STAGES)
}

/// Bytes of a stage.
fn stage_bytes(rows: usize, tile: usize) -> usize {
    (rows + tile) * PIECE * 2
}

/// Bytes after the last stage that products read for outputs which a block does not have.
fn missing_bytes(rows: usize, tile: usize) -> usize {
    OUTPUTS.saturating_sub(rows + tile) * PIECE * 2
}

/// Bytes of shared memory of a block.
fn block_bytes(stages: usize, rows: usize, tile: usize) -> usize {
    stages * (stage_bytes(rows, tile) + BARRIERS_BYTES) + missing_bytes(rows, tile) + scale_bytes(rows)
}

/// The kernels for this many rows.
fn kernel_for(rows: usize) -> Option<(usize, [&'static str; 2])> {
    NAMES.into_iter().find(|(most, _)| rows <= *most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::linear::tests::h200;

    #[test]
    fn copies_are_under_way_while_a_stage_is_used_and_blocks_fit_next_to_each_other() {
        let shared_bytes = h200().shared_bytes;
        for (rows, _) in NAMES {
            for tile in [64, 80, 96, 112, 128] {
                for resident in [1, BLOCKS, BLOCKS + 1] {
                    let stages = stages(shared_bytes, resident, rows, tile);
                    assert!(stages >= LEAST_STAGES || resident > BLOCKS, "{rows} rows, {tile} outputs");
                    let bytes = block_bytes(stages, rows, tile) + if resident == 1 { 0 } else { 1024 };
                    assert!(resident * bytes <= shared_bytes, "{rows} rows, {tile} outputs, {resident} blocks");
                }
            }
        }
    }

    #[test]
    fn narrow_layers_of_many_rows_have_a_block_for_each_multiprocessor() {
        for (inputs, sums, most_parts) in [(2048, 3072, 8), (2048, 2048, 8), (2048, 16384, 1), (8192, 2048, 8)] {
            let blocks = |rows| {
                let partition = partition(&h200(), resident(rows, inputs, sums), [inputs, sums], most_parts, PIECE);
                sums.div_ceil(16 * partition.warps) * partition.parts
            };
            assert!((96..=132).contains(&blocks(32)), "{inputs} → {sums}: {} blocks", blocks(32));
            assert!((128..=264).contains(&blocks(16)), "{inputs} → {sums}: {} blocks", blocks(16));
        }
        assert_eq!(resident(32, 4096, 4096), BLOCKS);
    }

    #[test]
    fn three_blocks_share_a_multiprocessor_where_two_would_leave_places_empty() {
        let deal = |inputs, sums| deal(&h200(), 8, [inputs, sums], 1, WeightType::Fp8);
        // Gate and up of Qwen3.5-27B, and of Llama-3.1-8B, whose 256 blocks fill 264 places.
        let (resident, partition) = deal(5120, 34_816);
        assert_eq!((resident, partition.warps), (3, 6));
        assert_eq!(deal(4096, 28_672).0, 2);
    }
}
