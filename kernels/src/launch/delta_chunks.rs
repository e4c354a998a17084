//! Gated delta nets in chunks, after the convolution: `cuda/delta_triangles.cu` and
//! `cuda/delta_chunks.cu`.
//!
//! Chunks of prompts lie at absolute multiples of [`DELTA_CHUNK`] positions. A tree, or a chain
//! that may be rejected, is one chunk, in which a row follows its ancestors only. The sums differ
//! from those of the recurrence ([`Kernels::delta_rows`]), so batch-invariant mode has no chunks.

use super::{
    DeltaInputs, DeltaOrder, DeltaPass, DeltaStates, DeltaWeights, Groups, Kernels, address, check_ints,
    delta::{options, ranges, refused_delta},
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

/// Rows of a chunk of a prompt, and most rows of a tree that is one.
pub const DELTA_CHUNK: usize = 64;
/// Rows of chunks for which there are kernels.
const CHUNK_SIZES: [usize; 3] = [16, 32, DELTA_CHUNK];
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
    /// The position of each row of a prompt, int32.
    pub position: Slice<'a>,
}

/// Rows from which on a chunk takes less time than the recurrence, however few requests there are.
/// Measured: `docs/notes/performance/qwen35-gpt-oss.md`.
const CHUNK_PAYS: usize = 6;

/// How the rows of a pass are divided into chunks.
#[derive(Clone, Copy, Debug)]
struct Division<'a> {
    /// Rows of a chunk: one of [`CHUNK_SIZES`].
    rows: usize,
    /// Most chunks of a group.
    most: usize,
    groups: usize,
    /// First rows of groups, or else their size.
    first: Slice<'a>,
    each: usize,
    /// The nodes before those of trees.
    parent: Slice<'a>,
    /// Whether states become those after the last rows.
    writes: bool,
}

/// Bytes of the buffers of [`DeltaChunks`], in their order, for this many rows in as many groups.
pub fn delta_chunk_bytes(element: Element, sizes: &DeltaSizes, rows: usize, groups: usize) -> [usize; 2] {
    let heads = places(rows, groups) * sizes.value_heads;
    let square = DELTA_CHUNK * DELTA_CHUNK;
    [heads * MATRICES * square * element.bytes(), heads * FACTORS * DELTA_CHUNK * size_of::<f32>()]
}

/// Whether there are kernels for chunks of these sizes on a device.
pub fn has_delta_chunks(element: Element, sizes: &DeltaSizes, properties: &Properties) -> bool {
    let fits = shared_bytes(sizes, DELTA_CHUNK).into_iter().all(|bytes| bytes <= properties.shared_bytes);
    element != Element::F32 && refused_delta(sizes).is_none() && sizes.key_dim <= MOST_KEY_DIM && fits
}

/// Additional files for chunks of these sizes.
pub fn delta_chunk_files(element: Element, sizes: &DeltaSizes) -> Vec<(KernelFile, Vec<String>)> {
    let of_size = |rows| [TRIANGLES, CHUNKS].map(|file| (file, chunk_options(element, sizes, rows)));
    CHUNK_SIZES.into_iter().flat_map(of_size).collect()
}

fn chunk_options(element: Element, sizes: &DeltaSizes, rows: usize) -> Vec<String> {
    let mut all = options(element, sizes);
    all.push(format!("-DCHUNK={rows}"));
    all
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
fn shared_bytes(sizes: &DeltaSizes, rows: usize) -> [usize; 2] {
    let keys = 2 * rows * (sizes.key_dim + 8) * 2;
    let system = rows * (rows + 4 + 5) * 4 + rows * (8 + 4);
    let columns = block_columns(sizes);
    let matrices = (MATRICES * rows * (rows + 8) * 2).max(sizes.key_dim * (columns + 4) * 4);
    let values = rows * (columns + 8) * 2;
    [keys + system, keys + matrices + values + FACTORS * rows * 4]
}

impl<'a> Division<'a> {
    fn from_pass(pass: DeltaPass<'a>) -> Result<Self, DeviceError> {
        let DeltaPass { inputs, groups, order, .. } = pass;
        let (first, each, count) = ranges(groups, inputs.rows)?;
        let (parent, writes) = match order {
            DeltaOrder::Chain { writes } => (Slice::NONE, writes),
            DeltaOrder::Tree(steps) => (steps.parent, false),
        };
        let division = Self { rows: DELTA_CHUNK, most: 1, groups: count, first, each, parent, writes };
        match groups {
            // A group may begin within a chunk.
            Groups::Ranges { largest, .. } if writes => {
                Ok(Self { most: largest.div_ceil(DELTA_CHUNK) + 1, ..division })
            }
            Groups::Even(_) if !writes => {
                let rows = CHUNK_SIZES.into_iter().find(|rows| each <= *rows);
                let rows = rows.ok_or_else(|| DeviceError::Shape(format!("a chunk of {each} rows")))?;
                Ok(Self { rows, ..division })
            }
            _ => Err(DeviceError::Shape("chunks of a delta net need ranges of prompts, or trees of one size".into())),
        }
    }
}

impl Kernels {
    /// Whether a chunk for each of `groups` trees or chains, which leave states as they are, takes
    /// less time than the recurrence ([`delta_rows`](Self::delta_rows)).
    pub fn prefers_delta_chunks(&self, sizes: &DeltaSizes, order: DeltaOrder<'_>, groups: usize, nodes: usize) -> bool {
        // Trees have no kernel that reads whole lines of memory, which many states are limited by.
        let many = sizes.value_heads * groups >= self.device.properties().multiprocessors;
        match order {
            DeltaOrder::Chain { writes: true } => false,
            DeltaOrder::Chain { writes: false } => (CHUNK_PAYS..=DELTA_CHUNK).contains(&nodes),
            DeltaOrder::Tree(_) => nodes <= DELTA_CHUNK && (many || nodes >= CHUNK_PAYS),
        }
    }

    /// Runs rows through a layer, from the states of their slots; `out` is
    /// `[rows, value heads · value dim]`. Of prompts, chains in ranges that write, the states
    /// become those after the last rows. Trees and chains of one size, at most [`DELTA_CHUNK`],
    /// leave them as they are.
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
        let DeltaPass { sizes, layer, inputs, row_slot, .. } = pass;
        let DeltaInputs { gates, convolved, rows, .. } = inputs;
        let division = Division::from_pass(pass)?;
        if !has_delta_chunks(self.element, &sizes, self.device.properties()) {
            return Err(DeviceError::Shape(format!("there are no chunks of {sizes:?}")));
        }
        let DeltaChunks { matrices, factors, position } = chunks;
        let bytes = delta_chunk_bytes(self.element, &sizes, rows, division.groups);
        [matrices, factors].into_iter().zip(bytes).try_for_each(|(at, bytes)| at.check(bytes))?;
        out.check(rows * sizes.value_width() * self.element.bytes())?;
        self.check_delta_layers(gates, 0, rows, 2 * sizes.value_heads, 1)?;
        if division.writes {
            check_ints(position, rows)?;
        }
        self.delta_convolve(pass, weights, states)?;
        let heads = [int(sizes.key_heads), int(sizes.value_heads)];
        let divided = [address(position), int(division.each)];
        let slots = [address(row_slot), int(states.dummy), address(division.first)];
        let [triangles_bytes, chunk_bytes] = shared_bytes(&sizes, division.rows);
        let options = chunk_options(self.element, &sizes, division.rows);

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
        let arguments = [&triangles[..], &heads, &divided, &[address(division.parent)], &slots].concat();
        let blocks = [sizes.value_heads, division.most, division.groups];
        let kernel = self.device.kernel(TRIANGLES, &options, "delta_triangles")?;
        // SAFETY: lengths are checked above; slots, groups and trees come from the caller's rows
        // and are within bounds, and places of chunks are below those that the buffers have.
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
        let arguments = [&own[..], &heads, &divided, &[Arg::Int(division.writes.into())], &slots].concat();
        let columns = block_columns(&sizes);
        let threads = (columns / WARP_COLUMNS * 32) as u32;
        let kernel = self.device.kernel(CHUNKS, &options, "delta_chunks")?;
        let blocks = [sizes.value_heads * sizes.value_dim / columns, division.groups, 1];
        // SAFETY: as above; each block writes the outputs and the state of its own columns.
        unsafe { self.device.launch(&kernel, grid(blocks, threads, chunk_bytes), &arguments) }
    }
}
