//! `cuda/latent_attention.cu`, and attention of `cuda/latent_float.cu`.

use super::{Kernels, LatentDims, address, check_ints, grid, int};
use crate::device::{Arg, DeviceError, Element, KernelFile, Properties, Slice, Split};

const FILE: KernelFile = KernelFile {
    name: "latent_attention.cu",
    text: include_str!("../../cuda/latent_attention.cu"),
    split: Split::Shared,
};
const FLOAT_FILE: KernelFile =
    KernelFile { name: "latent_float.cu", text: include_str!("../../cuda/latent_float.cu"), split: Split::Shared };

/// Rows for which few heads a block pay: they leave a device of so many multiprocessors busy with blocks of 64 heads once these have
/// this many splits.
const SPLITS_OF_FEW: usize = 32;

/// Operands of [`Kernels::latent_attention`].
#[derive(Clone, Copy, Debug)]
pub struct LatentAttention<'a> {
    /// `[rows, heads, rank]`: means of latent vectors.
    pub out: Slice<'a>,
    /// `[rows, heads, rank + rotated]`.
    pub query: Slice<'a>,
    /// `[cache rows, rank + rotated]`.
    pub cache: Slice<'a>,
    /// int32 `[slots, table_width]`.
    pub page_table: Slice<'a>,
    /// Pages that a slot can have.
    pub table_width: usize,
    /// Cache rows a page.
    pub page_size: usize,
    /// int32 `[rows]`: whose positions a row sees.
    pub row_slot: Slice<'a>,
    /// int32 `[rows]`: how many of them.
    pub row_prefix: Slice<'a>,
    /// int32 `[rows]`: how many further cache rows.
    pub row_own_count: Slice<'a>,
    /// int32 `[rows, own_stride]`: which.
    pub row_own: Slice<'a>,
    /// Room for them.
    pub own_stride: usize,
    /// Rows.
    pub rows: usize,
    /// Sizes.
    pub dims: LatentDims,
    /// Factor on the scores.
    pub scale: f32,
    /// Float workspace of [`latent_workspace`](Kernels::latent_workspace) bytes for so many splits.
    pub partial: Slice<'a>,
    /// Parts into which a long list of keys is split. The result's bits depend on it.
    pub max_splits: usize,
    /// Whether bits may depend on the number of rows: then there are as many splits, at most `max_splits`, as keep the device busy.
    pub by_rows: bool,
}

/// The source of attention for such sizes, with its options.
pub(super) fn file(element: Element, dims: &LatentDims, properties: &Properties) -> (KernelFile, Vec<String>) {
    let mut options = vec![element.option(), format!("-DRANK={}", dims.rank), format!("-DROTATED={}", dims.rotated)];
    if element == Element::F32 {
        return (FLOAT_FILE, options);
    }
    options.push(format!("-DKEYS={}", keys(dims, properties)));
    (FILE, options)
}

/// Keys of a piece: as many as there is shared memory for beside the queries of the largest blocks.
fn keys(dims: &LatentDims, properties: &Properties) -> usize {
    if shared(64, 64, dims) <= properties.shared_bytes { 64 } else { 32 }
}

/// Bytes of dynamic shared memory of a block for so many heads.
fn shared(heads: usize, keys: usize, dims: &LatentDims) -> usize {
    let row = (dims.width() * 2).next_multiple_of(128);
    let warps = if heads == 64 { 8 } else { 4 };
    let key_warps = (warps / (heads / 16)).min(keys / 16);
    (heads + 2 * keys) * row + heads * 128 + (2 * key_warps + 2) * heads * 4
}

/// The kernel of the largest blocks, for at most so many heads, for which there is shared memory; and their heads. Least of all
/// suits every device that the kernels are compiled for.
fn tile(dims: &LatentDims, most: usize, properties: &Properties) -> (&'static str, usize) {
    let keys = keys(dims, properties);
    let fits = |tile: usize| tile <= most.next_power_of_two() && shared(tile, keys, dims) <= properties.shared_bytes;
    [("latent_attention_64", 64), ("latent_attention_32", 32)]
        .into_iter()
        .find(|(_, tile)| fits(*tile))
        .unwrap_or(("latent_attention_16", 16))
}

impl Kernels {
    /// Bytes of workspace for some rows in so many splits each.
    pub fn latent_workspace(rows: usize, dims: &LatentDims, splits: usize) -> usize {
        if splits > 1 { rows * dims.heads * splits * (dims.rank + 4) * 4 } else { 0 }
    }

    /// Softmax attention of all heads of each row over the latent vectors that it sees.
    ///
    /// # Errors
    /// When a buffer is too short, the sizes are none that there are kernels for, or the device fails.
    pub fn latent_attention(&self, attention: LatentAttention<'_>) -> Result<(), DeviceError> {
        let LatentAttention { out, query, cache, rows, dims, scale, partial, max_splits, by_rows, .. } = attention;
        if let Some(reason) = dims.refused() {
            return Err(DeviceError::Shape(reason));
        }
        let (element, heads) = (self.element.bytes(), dims.heads);
        out.check(rows * heads * dims.rank * element)?;
        query.check(rows * heads * dims.width() * element)?;
        for ints in [attention.row_slot, attention.row_prefix, attention.row_own_count] {
            check_ints(ints, rows)?;
        }
        check_ints(attention.row_own, rows * attention.own_stride)?;
        let properties = self.device.properties();
        let (file, options) = file(self.element, &dims, properties);
        // Weights are powers of 2.
        let scale = Arg::Float(scale * std::f32::consts::LOG2_E);
        let mut arguments = vec![
            address(out),
            address(query),
            address(cache),
            address(attention.page_table),
            int(attention.table_width),
            int(attention.page_size),
            address(attention.row_slot),
            address(attention.row_prefix),
            address(attention.row_own_count),
            address(attention.row_own),
            int(attention.own_stride),
        ];
        if self.element == Element::F32 {
            arguments.push(scale);
            let kernel = self.device.kernel(file, &options, "latent_attention")?;
            // SAFETY: lengths are checked above; cache rows come from the page table and the layout kernels, which stay within.
            return unsafe { self.device.launch(&kernel, grid([heads, rows, 1], 128, 0), &arguments) };
        }
        let few = by_rows && rows * heads.div_ceil(64) * SPLITS_OF_FEW <= properties.multiprocessors;
        let most = heads.next_multiple_of(16).min(if few { 32 } else { 64 });
        let (name, tile) = tile(&dims, most, properties);
        let tiles = heads.div_ceil(tile);
        let splits = if by_rows {
            let room = partial.bytes() / Self::latent_workspace(rows, &dims, 2).div_ceil(2).max(1);
            (properties.multiprocessors / (rows * tiles).max(1)).min(max_splits).min(room).max(1)
        } else {
            max_splits.max(1)
        };
        partial.check(Self::latent_workspace(rows, &dims, splits))?;
        arguments.extend([int(heads), scale, address(partial), int(splits)]);
        let kernel = self.device.kernel(file, &options, name)?;
        let geometry = grid(
            [tiles, rows, splits],
            if tile == 64 { 256 } else { 128 },
            shared(tile, keys(&dims, properties), &dims),
        );
        // SAFETY: as above.
        unsafe { self.device.launch(&kernel, geometry, &arguments)? };
        if splits == 1 {
            return Ok(());
        }
        let kernel = self.device.kernel(file, &options, "latent_merge")?;
        let arguments = [
            address(out),
            address(attention.row_prefix),
            address(attention.row_own_count),
            address(partial),
            int(splits),
        ];
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
        assert!(shared(64, 64, &dims) <= 227 << 10, "Hopper and Blackwell");
        assert!(shared(64, 32, &dims) <= 163 << 10, "Ampere");
        assert!(shared(16, 32, &dims) <= 99 << 10, "cards for desks");
    }
}
