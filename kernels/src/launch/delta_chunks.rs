//! Prompts of gated delta nets in chunks, after the convolution: `cuda/delta_triangles.cu` and
//! `cuda/delta_chunks.cu`.
//!
//! Chunks lie at absolute multiples of [`DELTA_CHUNK`] positions. Their sums differ from those of
//! the recurrence ([`Kernels::delta_rows`]), so batch-invariant mode does not use them.

use super::{
    DeltaInputs, DeltaPass, DeltaStates, DeltaWeights, Groups, Kernels, address, check_ints,
    delta::{options, refused_delta},
    grid, int,
};
use crate::{
    device::{Arg, DeviceError, Element, KernelFile, Properties, Slice, Split},
    reference::DeltaSizes,
};

const TRIANGLES: KernelFile = KernelFile {
    name: "delta_triangles.cu",
    text: include_str!("../../cuda/delta_triangles.cu"),
    split: Split::Shared,
};
const CHUNKS: KernelFile =
    KernelFile { name: "delta_chunks.cu", text: include_str!("../../cuda/delta_chunks.cu"), split: Split::Shared };

/// Rows of a chunk.
pub const DELTA_CHUNK: usize = 64;
/// Matrices and vectors of factors of a chunk and value head.
const MATRICES: usize = 3;
const FACTORS: usize = 4;
/// Columns of values of a warp.
const WARP_COLUMNS: usize = 16;
/// The most elements of a key for which a state fits into registers.
const MOST_KEY_DIM: usize = 128;

/// What the kernels of a layer's chunks hand on to each other.
#[derive(Clone, Copy, Debug)]
pub struct DeltaChunks<'a> {
    /// `[chunks, value heads, MATRICES, DELTA_CHUNK, DELTA_CHUNK]`.
    pub matrices: Slice<'a>,
    /// Float `[chunks, value heads, FACTORS, DELTA_CHUNK]`.
    pub factors: Slice<'a>,
    /// The position of each row of the pass, int32.
    pub position: Slice<'a>,
}

/// Bytes of the buffers of [`DeltaChunks`], in their order, for this many rows in as many groups.
pub fn delta_chunk_bytes(element: Element, sizes: &DeltaSizes, rows: usize, groups: usize) -> [usize; 2] {
    let heads = places(rows, groups) * sizes.value_heads;
    let square = DELTA_CHUNK * DELTA_CHUNK;
    [heads * MATRICES * square * element.bytes(), heads * FACTORS * DELTA_CHUNK * size_of::<f32>()]
}

/// Whether there are kernels for chunks of these sizes on a device.
pub fn has_delta_chunks(element: Element, sizes: &DeltaSizes, properties: &Properties) -> bool {
    let fits = shared_bytes(sizes).into_iter().all(|bytes| bytes <= properties.shared_bytes);
    element != Element::F32 && refused_delta(sizes).is_none() && sizes.key_dim <= MOST_KEY_DIM && fits
}

/// Additional files for chunks of these sizes.
pub fn delta_chunk_files(element: Element, sizes: &DeltaSizes) -> Vec<(KernelFile, Vec<String>)> {
    [TRIANGLES, CHUNKS].map(|file| (file, options(element, sizes))).to_vec()
}

/// The largest number of places of chunks in a pass: those of `rows_of` in `delta_chunks.cuh`.
fn places(rows: usize, groups: usize) -> usize {
    rows / DELTA_CHUNK + 2 * groups
}

/// Columns of values of a block.
fn block_columns(sizes: &DeltaSizes) -> usize {
    if sizes.value_dim.is_multiple_of(64) { 64 } else { 32 }
}

/// Bytes of shared memory of a block of `delta_triangles`, and of `delta_chunks`.
fn shared_bytes(sizes: &DeltaSizes) -> [usize; 2] {
    let keys = 2 * DELTA_CHUNK * (sizes.key_dim + 8) * 2;
    let system = DELTA_CHUNK * (DELTA_CHUNK + 4 + 5) * 4;
    let matrices = MATRICES * DELTA_CHUNK * (DELTA_CHUNK + 8) * 2;
    let values = DELTA_CHUNK * (block_columns(sizes) + 8) * 2;
    [keys + system, keys + matrices + values + FACTORS * DELTA_CHUNK * 4]
}

impl Kernels {
    /// Runs the rows of prompts through a layer, from the states of their slots, which become those
    /// after the last rows; `out` is `[rows, value heads · value dim]`. The order of `pass` must be
    /// a chain that writes, its groups ranges.
    ///
    /// # Errors
    /// When a buffer is too short, there are no kernels for the sizes, or the device fails.
    pub fn delta_chunks(
        &self,
        out: Slice<'_>,
        pass: DeltaPass<'_>,
        chunks: DeltaChunks<'_>,
        weights: DeltaWeights<'_>,
        states: DeltaStates<'_>,
    ) -> Result<(), DeviceError> {
        let DeltaPass { sizes, layer, inputs, groups, row_slot, .. } = pass;
        let Groups::Ranges { first, count, largest } = groups else {
            return Err(DeviceError::Shape("chunks of a delta net need ranges of rows".into()));
        };
        let DeltaInputs { gates, convolved, rows, .. } = inputs;
        if !has_delta_chunks(self.element, &sizes, self.device.properties()) {
            return Err(DeviceError::Shape(format!("there are no chunks of {sizes:?}")));
        }
        let DeltaChunks { matrices, factors, position } = chunks;
        let bytes = delta_chunk_bytes(self.element, &sizes, rows, count);
        [matrices, factors].into_iter().zip(bytes).try_for_each(|(at, bytes)| at.check(bytes))?;
        out.check(rows * sizes.value_width() * self.element.bytes())?;
        self.check_delta_layers(gates, 0, rows, 2 * sizes.value_heads, 1)?;
        check_ints(position, rows)?;
        self.delta_convolve(pass, weights, states)?;
        let slots = [address(row_slot), int(states.dummy), address(first)];
        let heads = [int(sizes.key_heads), int(sizes.value_heads)];
        let [triangles_bytes, chunk_bytes] = shared_bytes(&sizes);

        let triangles = [
            address(matrices),
            address(factors),
            address(convolved),
            address(gates.at),
            Arg::Long(gates.stride as u64),
            address(weights.rates),
            address(weights.offsets),
            int(layer),
        ];
        let arguments = [&triangles[..], &heads, &[address(position)], &slots].concat();
        // A group may begin within a chunk.
        let blocks = [sizes.value_heads, largest.div_ceil(DELTA_CHUNK) + 1, count];
        let kernel = self.device.kernel(TRIANGLES, &options(self.element, &sizes), "delta_triangles")?;
        // SAFETY: lengths are checked above; slots and groups come from the caller's rows and are
        // within bounds, and places of chunks are below those that the buffers have.
        unsafe { self.device.launch(&kernel, grid(blocks, 128, triangles_bytes), &arguments)? };

        let own = [
            address(out),
            address(convolved),
            address(matrices),
            address(factors),
            address(states.matrices),
            int(states.layers),
            int(layer),
        ];
        let arguments = [&own[..], &heads, &[address(position)], &slots].concat();
        let columns = block_columns(&sizes);
        let threads = (columns / WARP_COLUMNS * 32) as u32;
        let kernel = self.device.kernel(CHUNKS, &options(self.element, &sizes), "delta_chunks")?;
        let blocks = [sizes.value_heads * sizes.value_dim / columns, count, 1];
        // SAFETY: as above; each block writes the outputs and the state of its own columns.
        unsafe { self.device.launch(&kernel, grid(blocks, threads, chunk_bytes), &arguments) }
    }
}
