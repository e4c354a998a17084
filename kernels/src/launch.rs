//! Safe launchers of the CUDA kernels, one file for each source in `kernels/cuda`. They check
//! lengths and choose the grid.
//!
//! The comments in a kernel's source define what it computes.
//!
//! # Reading before the predecessor has finished
//!
//! A kernel may be launched before its predecessor has finished (programmatic dependent launch). By
//! default every kernel calls `wait_for_predecessor` before it touches memory. A kernel may read
//! earlier only what no kernel writes, counting from the last kernel that released its successor
//! *after* its own wait (`await_predecessor`, then `release_successor`). Kernels finish in order,
//! so everything older than that kernel has been written.
//!
//! - Grouped attention reads ahead: prefixes, pages, own-row lists, and keys and values older than
//!   the pass ([`Sees`]).
//! - Most attention kernels release late, so the next layer's attention may read ahead starting at
//!   its qkv layer. This holds whether it applies the rotation itself or follows
//!   `rotate_and_write`, which then releases at once.
//! - In the first layer of a pass ([`Ahead`]), and before attention that releases at once
//!   (`attention_alone`, `attention_few`), `rotate_and_write` releases late instead. Attention that
//!   applies the rotation itself does not read ahead there.
//! - `delta_convolve` releases late, so verify of gated delta nets reads slots, gates and states
//!   while it runs. Only the convolved rows, and what it writes itself, wait for it.
//! - Early reads bypass the L1 cache (`load_fresh`, `copy_async_16`), which may hold older
//!   contents. Queries, and what the pass itself writes to the cache, are read after the wait.
//! - The kernels that draft and accept (`tree.cu`, `accept.cu`) read the pool, beams and trees
//!   before the wait (older than the last pass), and slots, lengths and pages (older than the
//!   round). A round is a graph or starts with a copy, and either waits for all earlier kernels.
//!
//! # Small kernels
//!
//! For a small kernel, instruction fetch dominates: after a large layer its code comes from memory.
//! Small kernels therefore unroll only loads that must be in flight together, and declare in
//! `__launch_bounds__` how many blocks should fit on a multiprocessor. Otherwise the compiler saves
//! registers for more blocks and serialises the loads.

mod accept;
mod ahead;
mod attention;
mod attention_tiles;
mod block;
mod block_rows;
mod delta;
mod delta_chunks;
mod delta_convolve;
mod elementwise;
mod experts;
mod fp8;
mod host_trees;
mod inner;
mod join;
mod latent;
mod latent_attention;
mod latent_prompt;
mod linear;
mod linear_few;
mod linear_group;
mod linear_products;
mod linear_wide;
mod linear_wide_fp8;
mod look_up;
mod mxfp4;
mod own_rows;
mod pending;
mod quantise;
mod ranks;
mod rotary;
mod sampling;
mod select;
mod state;
mod training;
mod tree;
mod windows;

pub use accept::{AcceptInputs, AcceptOutputs, AcceptWalk, CachePlanes, Moves, Played, VerifiedNodes, WalkState};
pub use attention::{Attention, HEAD_DIMS, VisibleRows};
pub use attention_tiles::{Ahead, Groups, Sees};
pub use block::{
    BlockGrowth, BlockLayout, BlockView, FirstLevel, LevelRows, MOST_BLOCK_ROWS, RankedLevels, ViewPages, most_parents,
};
pub use block_rows::{ContextRows, MarkovOrder, MarkovStates, MarkovTokens};
pub use delta::{
    DeltaInputs, DeltaOrder, DeltaPass, DeltaPaths, DeltaStates, DeltaSteps, DeltaWeights, delta_files, refused_delta,
};
pub use delta_chunks::{DELTA_CHUNK, DeltaChunks, delta_chunk_bytes, delta_chunk_files, has_delta_chunks};
pub use elementwise::{Added, JoinNormed, RmsNorm, Rotation};
pub use experts::{
    ExpertBiases, ExpertKernels, ExpertProducts, Experts, ExpertsBytes, ExpertsShape, ExpertsWeights, ExpertsWork,
    MOST_CHOSEN, MOST_EXPERTS, NarrowBlock,
};
pub use fp8::{RowForm, RowScales, WeightScales, WeightType, fp8_order};
pub use host_trees::{GivenTrees, HostTrees, PlayedTrees};
pub use inner::{ChosenRows, ListedNodes, Picked};
pub use join::LookedUpChains;
pub use latent::{LatentDims, LatentQueries, LatentRows, LatentValues};
pub use latent_attention::LatentAttention;
pub use latent_prompt::{GatheredLatents, LatentPrompt};
pub(crate) use linear::squares_stride;
pub use linear::{Linear, Parts, Unscaled};
pub use linear_few::Stream;
pub use linear_wide::Wide;
pub use look_up::{
    LOOK_UP_RANGES, LOOK_UP_WORDS, LookUpBatch, LookUpOutput, LookUps, MOST_LOOKED_UP, MOST_TEXT, SlotTexts,
};
pub use mxfp4::{MOST_MXFP4_EXPONENT, mxfp4_order, mxfp4_scale_bytes, mxfp4_scales};
pub use own_rows::OwnRows;
pub use pending::{PendingRows, PendingTokens};
pub use quantise::{NormOutputs, QuantiseRows, QuantiseTo};
pub use ranks::Gathered;
pub use rotary::RotaryRows;
pub use sampling::SamplingState;
pub use select::{Logits, LogprobRows, MOST_SELECTED, NOT_FINITE, TopK};
pub use training::{AdamStep, training_files};
pub use tree::{
    Drafting, MOST_NODES, MOST_PLACES, MOST_TOPK, Outputs, PassRows, Proposals, Sequences, TreeNodes, VerifyRows,
};
pub use windows::{WindowOf, WindowedRows};

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::device::{Arg, Device, DeviceError, Element, Geometry, Kernel, KernelFile, Properties, Slice};

/// All kernel files for an element type and some head sizes on a device, each with its compiler
/// options.
pub fn files(element: Element, head_dims: &[usize], properties: &Properties) -> Vec<(KernelFile, Vec<String>)> {
    let linear = if element == Element::F32 { linear::FLOAT_FILE } else { linear::FILE };
    let mut files = vec![(elementwise::FILE, vec![element.option()]), (linear, linear::options(element, properties))];
    if element != Element::F32 {
        files.push((linear_few::FILE, linear::options(element, properties)));
    }
    if linear_wide::has_warp_groups(element, properties) {
        files.push((linear_group::FILE, linear::options(element, properties)));
        files.push((linear_wide::FILE, vec![element.option()]));
    }
    // These are independent of the element type.
    files.extend(
        [
            select::FILE,
            sampling::FILE,
            tree::FILE,
            accept::FILE,
            inner::FILE,
            join::FILE,
            pending::FILE,
            ahead::FILE,
            state::FILE,
            own_rows::FILE,
        ]
        .map(|file| (file, Vec::new())),
    );
    for head_dim in head_dims {
        let options = vec![element.option(), format!("-DHEAD_DIM={head_dim}")];
        if element != Element::F32 {
            files.push((attention_tiles::FILE, options.clone()));
        }
        if element != Element::F32 && *head_dim <= attention_tiles::MOST_OF_FEW {
            files.push((attention_tiles::FEW_FILE, options.clone()));
            files.push((attention_tiles::ALONE_FILE, options.clone()));
        }
        if attention_tiles::WIDE_HEAD_DIMS.contains(head_dim) && linear_wide::has_warp_groups(element, properties) {
            files.push((attention_tiles::WIDE_FILE, options.clone()));
        }
        files.push((attention::FILE, options));
    }
    files
}

/// Additional files for attention with sinks or windows: those of [`files`] for its head sizes.
pub fn sink_files(element: Element, head_dims: &[usize], properties: &Properties) -> Vec<(KernelFile, Vec<String>)> {
    let attention =
        files(element, head_dims, properties).into_iter().filter(|(file, _)| file.name.starts_with("attention"));
    attention.map(|(file, options)| (file, [options, vec![attention::SINKS.into()]].concat())).collect()
}

/// Additional files for look-ups in the texts of slots.
pub fn look_up_files() -> Vec<(KernelFile, Vec<String>)> {
    vec![(look_up::FILE, Vec::new())]
}

/// Additional files for layers with a window whose cache has pages of its own.
pub fn window_files() -> Vec<(KernelFile, Vec<String>)> {
    vec![(windows::FILE, Vec::new())]
}

/// Additional files for a cache in FP8: of heads of these sizes, with sinks or windows or without.
pub fn fp8_cache_files(
    element: Element,
    plain: &[usize],
    with_sinks: &[usize],
    properties: &Properties,
) -> Vec<(KernelFile, Vec<String>)> {
    let of_fp8 = |option: &[&str], (file, mut options): (KernelFile, Vec<String>)| {
        options.extend([attention::CACHE_FP8].iter().chain(option).map(|option| String::from(*option)));
        (file, options)
    };
    // Warp groups have no kernels for it.
    let attention = |head_dims: &[usize]| {
        let all = files(element, head_dims, properties).into_iter();
        all.filter(|(file, _)| file.name.starts_with("attention") && file.name != attention_tiles::WIDE_FILE.name)
    };
    let plain = attention(plain).map(|file| of_fp8(&[], file));
    let sinks = attention(with_sinks).map(|file| of_fp8(&[attention::SINKS], file));
    let rotation = of_fp8(&[], (elementwise::FILE, vec![element.option()]));
    plain.chain(sinks).chain([rotation]).collect()
}

/// Additional files for a model that several devices share.
pub fn rank_files(element: Element) -> Vec<(KernelFile, Vec<String>)> {
    vec![(ranks::FILE, vec![element.option()])]
}

/// Additional files for a block head.
pub fn block_files(element: Element) -> Vec<(KernelFile, Vec<String>)> {
    vec![(block::FILE, Vec::new()), (block_rows::FILE, vec![element.option()])]
}

/// Additional files for layers of experts.
pub fn expert_files(element: Element) -> Vec<(KernelFile, Vec<String>)> {
    let computing = match element {
        Element::F32 => (experts::FLOAT_FILE, vec![element.option()]),
        _ => (experts::FILE, experts::options(vec![element.option()], WeightType::Plain, None, None, false)),
    };
    vec![(experts::ROUTE_FILE, vec![element.option()]), computing]
}

/// Additional files for layers of latent attention of these sizes.
pub fn latent_files(element: Element, sizes: &[LatentDims], properties: &Properties) -> Vec<(KernelFile, Vec<String>)> {
    let mut files = vec![(latent::FILE, vec![element.option()])];
    if element != Element::F32 {
        files.push((latent::HEADS_FILE, vec![element.option()]));
    }
    files.extend(sizes.iter().flat_map(|dims| latent_attention::sources(element, dims, properties)));
    files.extend(sizes.iter().flat_map(|dims| latent_prompt::sources(element, dims, properties)));
    files
}

/// The files of layers that stream weights in FP8.
const STREAMING: [KernelFile; 3] = [linear::FILE, linear_few::FILE, linear::PAIRS_FILE];

/// Additional files for FP8 weights: of linear layers, and of experts if `with_experts`.
pub fn fp8_files(element: Element, properties: &Properties, with_experts: bool) -> Vec<(KernelFile, Vec<String>)> {
    if element == Element::F32 {
        return Vec::new();
    }
    let linear = STREAMING.map(|file| (file, linear::options(element, properties)));
    let of_experts = || (experts::FILE, experts::options(vec![element.option()], WeightType::Fp8, None, None, false));
    let experts = with_experts.then(of_experts);
    let of_fp8 = |(file, options)| (file, WeightType::Fp8.options(options));
    let wide =
        linear_wide::has_warp_groups(element, properties).then(|| (linear_wide_fp8::FILE, vec![element.option()]));
    let dequantise = (fp8::FILE, vec![element.option()]);
    linear.into_iter().map(of_fp8).chain(experts).chain([dequantise]).chain(wide).collect()
}

/// Additional files for products in FP8, beyond [`fp8_files`]: of linear layers, and of experts if
/// `with_experts`.
pub fn product_files(element: Element, properties: &Properties, with_experts: bool) -> Vec<(KernelFile, Vec<String>)> {
    if element == Element::F32 {
        return Vec::new();
    }
    let wide =
        linear_wide::has_warp_groups(element, properties).then(|| (linear_products::FILE, vec![element.option()]));
    let of_experts = || {
        let form = Some(RowForm::for_device(properties));
        (experts::FILE, experts::options(vec![element.option()], WeightType::Fp8, None, form, false))
    };
    let experts = with_experts.then(of_experts);
    let group = linear_wide::has_warp_groups(element, properties).then_some(linear_group::FILE);
    let linear = STREAMING.into_iter().filter(|_| properties.multiplies_fp8()).chain(group);
    let linear = linear.map(|file| (file, linear::number_options(linear::options(element, properties))));
    std::iter::once((quantise::FILE, vec![element.option()])).chain(wide).chain(experts).chain(linear).collect()
}

/// Additional files for layers of experts in MXFP4, with biases.
pub fn mxfp4_files(element: Element) -> Vec<(KernelFile, Vec<String>)> {
    vec![match element {
        Element::F32 => (experts::FLOAT_FILE, experts::float_options(vec![element.option()], WeightType::Mxfp4, true)),
        _ => (experts::FILE, experts::options(vec![element.option()], WeightType::Mxfp4, None, None, true)),
    }]
}

/// A version of the kernels that compute linear layers: the hash of their source.
pub fn linear_version() -> String {
    let source = [
        linear::FILE,
        linear_few::FILE,
        linear::PAIRS_FILE,
        linear_group::FILE,
        linear_wide::FILE,
        linear_wide_fp8::FILE,
        linear_products::FILE,
        linear::FLOAT_FILE,
    ]
    .map(KernelFile::whole)
    .concat();
    blake3::hash(source.as_bytes()).to_hex().to_string()
}

/// The kernels for one element type on one device.
#[derive(Clone, Debug)]
pub struct Kernels {
    device: Device,
    element: Element,
    options: Vec<String>,
    /// Blocks of experts of few rows, if not those of the weights' type.
    narrow: Option<[NarrowBlock; 2]>,
    /// Results of [`clusters_at_once`](Self::clusters_at_once), by number of blocks.
    clusters: Arc<Mutex<HashMap<usize, usize>>>,
}

/// Rows in a buffer, `stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The first row.
    pub at: Slice<'a>,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl Kernels {
    /// Kernels for this element type of activations, weights and caches.
    pub fn new(device: Device, element: Element) -> Self {
        Self { device, element, options: vec![element.option()], narrow: None, clusters: Arc::default() }
    }

    /// The same with other blocks of experts of few rows, for gate and up and for down.
    pub fn with_narrow(self, blocks: [NarrowBlock; 2]) -> Self {
        Self { narrow: Some(blocks), ..self }
    }

    /// The same on another device of the same kind; both share measured cluster counts, so that
    /// they launch the same.
    pub fn on(&self, device: Device) -> Self {
        Self { device, ..self.clone() }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The element type.
    pub fn element(&self) -> Element {
        self.element
    }

    /// Number of clusters of `blocks` blocks that run at the same time, with one block per
    /// multiprocessor.
    fn clusters_at_once(&self, blocks: usize) -> Result<usize, DeviceError> {
        let Properties { multiprocessors, shared_bytes, .. } = *self.device.properties();
        if blocks == 1 {
            return Ok(multiprocessors);
        }
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = clusters.get(&blocks) {
            return Ok(*known);
        }
        // The count is the same for any kernel that takes all shared memory.
        let kernel = self.device.kernel(state::FILE, &[], "set_state")?;
        let geometry = grid([blocks, 1, 1], 64, shared_bytes).in_clusters(blocks);
        let found = self.device.clusters_at_once(&kernel, geometry)?;
        clusters.insert(blocks, found);
        Ok(found)
    }

    fn kernel(&self, file: KernelFile, name: &'static str) -> Result<Kernel, DeviceError> {
        self.device.kernel(file, &self.options, name)
    }

    /// Elements per 16-byte access.
    fn vector(&self) -> usize {
        16 / self.element.bytes()
    }

    fn check_rows(&self, rows: Rows<'_>, count: usize, width: usize) -> Result<(), DeviceError> {
        if !width.is_multiple_of(self.vector()) || !rows.stride.is_multiple_of(self.vector()) {
            return Err(DeviceError::Shape(format!(
                "rows of {width} elements, {} apart, are not in whole accesses of 16 bytes",
                rows.stride
            )));
        }
        if !rows.at.address().is_multiple_of(16) {
            return Err(DeviceError::Shape("rows do not begin at a multiple of 16 bytes".into()));
        }
        let elements = if count == 0 { 0 } else { (count - 1) * rows.stride + width };
        rows.at.check(elements * self.element.bytes())
    }
}

/// A buffer argument.
fn address(slice: Slice<'_>) -> Arg {
    Arg::Address(slice.address())
}

/// A length or count argument.
fn int(value: usize) -> Arg {
    Arg::Int(i32::try_from(value).unwrap_or(i32::MAX))
}

/// A one-dimensional grid.
fn line(blocks: usize, block: u32) -> Geometry {
    grid([blocks, 1, 1], block, 0)
}

fn grid(blocks: [usize; 3], block: u32, shared: usize) -> Geometry {
    Geometry {
        grid: blocks.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
        block,
        shared: shared as u32,
        cluster: 1,
    }
}

/// Checks that a slice has room for `count` 32-bit integers.
fn check_ints(slice: Slice<'_>, count: usize) -> Result<(), DeviceError> {
    slice.check(count * 4)
}
