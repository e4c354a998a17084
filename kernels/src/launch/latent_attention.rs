//! Latent attention: `cuda/latent_attention.cu`, `cuda/latent_wide.cu` (Hopper), and attention of
//! `cuda/latent_float.cu`.
//!
//! Each row of a pass is computed separately, because the heads of one row fill the tiles of the
//! tensor cores. A row reads its list of cache rows, so the kernels serve both modes; only the
//! number of splits differs.

use super::{Kernels, LatentDims, VisibleRows, address, grid, int, linear_wide::has_warp_groups};
use crate::device::{Arg, DeviceError, Element, KernelFile, Properties, Slice, Split};

const FILE: KernelFile = KernelFile {
    name: "latent_attention.cu",
    text: include_str!("../../cuda/latent_attention.cu"),
    split: Split::Shared,
};
const WIDE_FILE: KernelFile =
    KernelFile { name: "latent_wide.cu", text: include_str!("../../cuda/latent_wide.cu"), split: Split::Shared };
pub(super) const FLOAT_FILE: KernelFile =
    KernelFile { name: "latent_float.cu", text: include_str!("../../cuda/latent_float.cu"), split: Split::Shared };

/// Operands of [`Kernels::latent_attention`].
#[derive(Clone, Copy, Debug)]
pub struct LatentAttention<'a> {
    /// `[rows, heads, rank]`: weighted means of latent vectors.
    pub out: Slice<'a>,
    /// `[rows, heads, rank + rotated]`.
    pub query: Slice<'a>,
    /// `[cache rows, rank + rotated]`.
    pub cache: Slice<'a>,
    /// The cache rows that each row sees.
    pub visible: VisibleRows<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Sizes.
    pub dims: LatentDims,
    /// Factor on the scores.
    pub scale: f32,
    /// Float workspace of [`latent_workspace`](Kernels::latent_workspace) bytes for `max_splits`
    /// splits.
    pub partial: Slice<'a>,
    /// Maximum number of splits of a long list of keys. The result's bits depend on it.
    pub max_splits: usize,
    /// Whether bits may depend on the number of rows: then only as many splits, at most
    /// `max_splits`, as keep the device busy.
    pub by_rows: bool,
}

/// An attention kernel and its geometry.
struct LatentKernel {
    file: KernelFile,
    options: Vec<String>,
    name: &'static str,
    /// Heads of a block.
    heads: usize,
    threads: u32,
    /// Bytes of dynamic shared memory.
    shared: usize,
}

/// The source files of attention for these sizes, each with its options.
pub(super) fn sources(element: Element, dims: &LatentDims, properties: &Properties) -> Vec<(KernelFile, Vec<String>)> {
    let options = options(element, dims);
    if element == Element::F32 {
        return vec![(FLOAT_FILE, options)];
    }
    let by_groups = suits_wide(element, dims, properties).then(|| (WIDE_FILE, options.clone()));
    // It also merges the splits of the other kernel.
    let by_warps = (FILE, [options, vec![format!("-DKEYS={}", keys(dims, properties))]].concat());
    by_groups.into_iter().chain([by_warps]).collect()
}

pub(super) fn options(element: Element, dims: &LatentDims) -> Vec<String> {
    vec![element.option(), format!("-DRANK={}", dims.rank), format!("-DROTATED={}", dims.rotated)]
}

/// Keys of a piece: as many as fit into shared memory next to the queries of the largest blocks.
fn keys(dims: &LatentDims, properties: &Properties) -> usize {
    if shared(64, 64, dims) <= properties.shared_bytes { 64 } else { 32 }
}

/// Bytes of dynamic shared memory of a block of `latent_attention.cu` for this many heads.
fn shared(heads: usize, keys: usize, dims: &LatentDims) -> usize {
    let row = (dims.width() * 2).next_multiple_of(128);
    let warps = if heads == 64 { 8 } else { 4 };
    let key_warps = (warps / (heads / 16)).min(keys / 16);
    (heads + 2 * keys) * row + heads * 128 + (2 * key_warps + 2) * heads * 4
}

/// The same for a block of `latent_wide.cu`.
fn shared_by_groups(dims: &LatentDims) -> usize {
    let square = 64 * 128;
    3 * dims.width().div_ceil(64) * square + square + 5 * 64 * 4
}

/// Whether to use the warp-group kernel, whose products take 64 heads.
fn suits_wide(element: Element, dims: &LatentDims, properties: &Properties) -> bool {
    has_warp_groups(element, properties)
        && dims.heads > 32
        && dims.rank.is_multiple_of(256)
        && shared_by_groups(dims) <= properties.shared_bytes
}

/// The kernel with the largest blocks that the heads and shared memory allow. The smallest fits
/// every supported device.
fn choose(element: Element, dims: &LatentDims, properties: &Properties) -> LatentKernel {
    if suits_wide(element, dims, properties) {
        let (options, shared) = (options(element, dims), shared_by_groups(dims));
        return LatentKernel { file: WIDE_FILE, options, name: "latent_wide", heads: 64, threads: 256, shared };
    }
    let keys = keys(dims, properties);
    let options = [options(element, dims), vec![format!("-DKEYS={keys}")]].concat();
    let fits = |heads: usize| dims.heads > heads / 2 && shared(heads, keys, dims) <= properties.shared_bytes;
    let (name, heads) = [("latent_attention_64", 64), ("latent_attention_32", 32)]
        .into_iter()
        .find(|(_, heads)| fits(*heads))
        .unwrap_or(("latent_attention_16", 16));
    let threads = if heads == 64 { 256 } else { 128 };
    LatentKernel { file: FILE, options, name, heads, threads, shared: shared(heads, keys, dims) }
}

impl Kernels {
    /// Bytes of workspace for this many rows and splits.
    pub fn latent_workspace(rows: usize, dims: &LatentDims, splits: usize) -> usize {
        if splits > 1 { rows * dims.heads * splits * (dims.rank + 4) * 4 } else { 0 }
    }

    /// Softmax attention of all heads of each row over the latent vectors that it sees.
    ///
    /// # Errors
    /// When a buffer is too short, no kernel supports the sizes, or the device fails.
    pub fn latent_attention(&self, attention: LatentAttention<'_>) -> Result<(), DeviceError> {
        let LatentAttention { out, query, cache, visible, rows, dims, scale, partial, max_splits, by_rows } = attention;
        if let Some(reason) = dims.refused() {
            return Err(DeviceError::Shape(reason));
        }
        let (element, heads) = (self.element.bytes(), dims.heads);
        out.check(rows * heads * dims.rank * element)?;
        query.check(rows * heads * dims.width() * element)?;
        visible.check(rows)?;
        let properties = self.device.properties();
        // Weights are powers of 2.
        let scale = Arg::Float(scale * std::f32::consts::LOG2_E);
        let mut arguments = vec![address(out), address(query), address(cache)];
        arguments.extend(visible.prefix_arguments());
        arguments.extend(visible.own_arguments());
        if self.element == Element::F32 {
            arguments.push(scale);
            let kernel = self.device.kernel(FLOAT_FILE, &options(self.element, &dims), "latent_attention")?;
            // SAFETY: lengths are checked above; cache rows from the page table and the layout
            // kernels are within the cache.
            return unsafe { self.device.launch(&kernel, grid([heads, rows, 1], 128, 0), &arguments) };
        }
        let choice = choose(self.element, &dims, properties);
        let tiles = heads.div_ceil(choice.heads);
        let splits = if by_rows {
            let room = partial.bytes() / Self::latent_workspace(rows, &dims, 2).div_ceil(2).max(1);
            (properties.multiprocessors / (rows * tiles).max(1)).min(max_splits).min(room).max(1)
        } else {
            max_splits.max(1)
        };
        partial.check(Self::latent_workspace(rows, &dims, splits))?;
        arguments.extend([int(heads), scale, address(partial), int(splits)]);
        let kernel = self.device.kernel(choice.file, &choice.options, choice.name)?;
        let geometry = grid([tiles, rows, splits], choice.threads, choice.shared);
        // SAFETY: as above.
        unsafe { self.device.launch(&kernel, geometry, &arguments)? };
        if splits == 1 {
            return Ok(());
        }
        let merging = [options(self.element, &dims), vec![format!("-DKEYS={}", keys(&dims, properties))]].concat();
        let kernel = self.device.kernel(FILE, &merging, "latent_merge")?;
        let arguments =
            [address(out), address(visible.prefix), address(visible.own_count), address(partial), int(splits)];
        // SAFETY: as above.
        unsafe { self.device.launch(&kernel, grid([heads, rows, 1], 128, 0), &arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fit_shared_memory() {
        let dims = LatentDims { heads: 128, nope: 128, rotated: 64, rank: 512, value: 128, interleaved: true };
        assert!(shared(64, 64, &dims).max(shared_by_groups(&dims)) <= 227 << 10, "Hopper and Blackwell");
        assert!(shared(64, 32, &dims) <= 163 << 10, "Ampere");
        assert!(shared(16, 32, &dims) <= 99 << 10, "cards for desks");
    }
}
