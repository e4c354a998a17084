//! Attention of prompts over expanded keys and values of latent attention: `cuda/latent_expand.cu`
//! and `cuda/latent_prompt.cu` (Hopper).
//!
//! Absorbed attention computes 3.4 times the products of expanded attention with DeepSeek-V3's
//! sizes, which pays if few rows see the positions that would have to be expanded. The order of
//! sums differs, so batch-invariant mode does not use expansion.

use super::{Kernels, LatentDims, RotaryRows, address, check_ints, grid, int, line, linear_wide::has_warp_groups};
use crate::device::{Arg, DeviceError, Element, KernelFile, Properties, Slice, Split};

pub(super) const EXPAND_FILE: KernelFile =
    KernelFile { name: "latent_expand.cu", text: include_str!("../../cuda/latent_expand.cu"), split: Split::Shared };
const FILE: KernelFile =
    KernelFile { name: "latent_prompt.cu", text: include_str!("../../cuda/latent_prompt.cu"), split: Split::Shared };

/// Rows of a block, and keys of a tile.
const ROWS: usize = 128;
const KEYS: usize = 96;

/// Operands of [`Kernels::gather_latents`].
#[derive(Clone, Copy, Debug)]
pub struct GatheredLatents<'a> {
    /// Receives the latent vectors: `[padded, rank]`.
    pub latents: Slice<'a>,
    /// Receives the keys that all heads share: `[padded, rotated]`.
    pub turned: Slice<'a>,
    /// `[cache rows, rank + rotated]`.
    pub cache: Slice<'a>,
    /// int32: the pages of a slot.
    pub pages: Slice<'a>,
    /// Cache rows per page.
    pub page_size: usize,
    /// Number of positions, from the first on.
    pub count: usize,
    /// Number of rows that are written: zeros from `count` on.
    pub padded: usize,
    /// Sizes.
    pub dims: LatentDims,
}

/// Operands of [`Kernels::latent_prompt`].
#[derive(Clone, Copy, Debug)]
pub struct LatentPrompt<'a> {
    /// `[rows, dims.heads, value]`; only the `heads` heads from `first_head` on are written.
    pub out: Slice<'a>,
    /// `[rows, dims.heads, nope + rotated]`, rotated.
    pub query: Slice<'a>,
    /// `[positions, heads, nope]`.
    pub keys: Slice<'a>,
    /// `[positions, heads, value]`.
    pub values: Slice<'a>,
    /// `[positions, rotated]`.
    pub turned: Slice<'a>,
    /// The first head of `keys` and `values`.
    pub first_head: usize,
    /// Number of heads.
    pub heads: usize,
    /// The position of the first row. A row sees all positions before it, and itself.
    pub start: usize,
    /// Number of rows.
    pub rows: usize,
    /// Sizes.
    pub dims: LatentDims,
    /// Factor on the scores.
    pub scale: f32,
}

/// The source files for these sizes, each with its options.
pub(super) fn sources(element: Element, dims: &LatentDims, properties: &Properties) -> Vec<(KernelFile, Vec<String>)> {
    if !Kernels::expands_latents(element, dims, properties) {
        return Vec::new();
    }
    vec![(EXPAND_FILE, vec![element.option()]), (FILE, options(element, dims))]
}

fn options(element: Element, dims: &LatentDims) -> Vec<String> {
    let sizes = [("NOPE", dims.nope), ("ROTATED", dims.rotated), ("VALUE", dims.value), ("KEYS", KEYS)];
    [element.option()].into_iter().chain(sizes.map(|(name, size)| format!("-D{name}={size}"))).collect()
}

/// Bytes of dynamic shared memory of a block.
fn shared(dims: &LatentDims) -> usize {
    let squares = (dims.nope + dims.rotated).div_ceil(64) + dims.value / 64;
    2 * squares * KEYS * 128
}

impl Kernels {
    /// Whether there are kernels for attention over expanded keys and values.
    pub fn expands_latents(element: Element, dims: &LatentDims, properties: &Properties) -> bool {
        has_warp_groups(element, properties)
            && dims.refused().is_none()
            && [64, 128].contains(&dims.value)
            // Queries are in registers.
            && dims.nope + dims.rotated <= 192
            && shared(dims) <= properties.shared_bytes
    }

    /// Transposes the absorbed weights of keys, `[heads, rank, nope]`, to the layout of a linear
    /// layer, `[heads, nope, rank]`.
    ///
    /// # Errors
    /// When a buffer is too short, no kernel supports the sizes, or the device fails.
    pub fn turn_latent_weights(&self, to: Slice<'_>, absorb: Slice<'_>, dims: LatentDims) -> Result<(), DeviceError> {
        self.check_expands(&dims)?;
        let LatentDims { heads, nope, rank, .. } = dims;
        for weights in [to, absorb] {
            weights.check(heads * nope * rank * self.element.bytes())?;
        }
        let kernel = self.kernel(EXPAND_FILE, "latent_turn_weights")?;
        let arguments = [address(to), address(absorb), int(rank), int(nope)];
        // SAFETY: lengths are checked above; ranks and heads' own values are multiples of 32.
        unsafe { self.device.launch(&kernel, grid([rank / 32, nope / 32, heads], 256, 0), &arguments) }
    }

    /// Copies the first positions of a slot to contiguous memory.
    ///
    /// # Errors
    /// As [`turn_latent_weights`](Self::turn_latent_weights).
    pub fn gather_latents(&self, gathered: GatheredLatents<'_>) -> Result<(), DeviceError> {
        let GatheredLatents { latents, turned, cache, pages, page_size, count, padded, dims } = gathered;
        self.check_expands(&dims)?;
        let element = self.element.bytes();
        latents.check(padded * dims.rank * element)?;
        turned.check(padded * dims.rotated * element)?;
        check_ints(pages, count.div_ceil(page_size))?;
        let kernel = self.kernel(EXPAND_FILE, "latent_gather")?;
        let arguments = [
            address(latents),
            address(turned),
            address(cache),
            address(pages),
            int(page_size),
            int(count),
            int(padded),
            int(dims.rank),
            int(dims.rotated),
        ];
        let blocks = (padded * dims.width() / 8).div_ceil(256);
        // SAFETY: lengths are checked above; cache rows come from the page table, whose pages are
        // within the cache.
        unsafe { self.device.launch(&kernel, line(blocks, 256), &arguments) }
    }

    /// Rotates the rotary parts of queries `[rows, heads, nope + rotated]` in place.
    ///
    /// # Errors
    /// As [`turn_latent_weights`](Self::turn_latent_weights).
    pub fn turn_latent_queries(
        &self,
        queries: Slice<'_>,
        rotary: RotaryRows<'_>,
        rows: usize,
        dims: LatentDims,
    ) -> Result<(), DeviceError> {
        self.check_expands(&dims)?;
        queries.check(rows * dims.query_width() * self.element.bytes())?;
        rotary.check(rows, dims.rotated)?;
        let kernel = self.kernel(EXPAND_FILE, "latent_turn_queries")?;
        let [table, positions, position] = rotary.arguments();
        let arguments = [
            address(queries),
            table,
            positions,
            position,
            int(dims.heads),
            int(dims.nope),
            int(dims.rotated),
            int(dims.interleaved.into()),
        ];
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, line(rows, 256), &arguments) }
    }

    /// Softmax attention of some heads of a chunk of a prompt over their expanded keys and values.
    ///
    /// # Errors
    /// As [`turn_latent_weights`](Self::turn_latent_weights).
    pub fn latent_prompt(&self, prompt: LatentPrompt<'_>) -> Result<(), DeviceError> {
        let LatentPrompt { out, query, keys, values, turned, first_head, heads, start, rows, dims, scale } = prompt;
        self.check_expands(&dims)?;
        if first_head + heads > dims.heads {
            let (last, all) = (first_head + heads, dims.heads);
            return Err(DeviceError::Shape(format!("heads up to {last} of {all}")));
        }
        let (element, width, positions) = (self.element.bytes(), dims.nope + dims.rotated, start + rows);
        out.check(rows * dims.heads * dims.value * element)?;
        query.check(rows * dims.query_width() * element)?;
        keys.check(positions * heads * dims.nope * element)?;
        values.check(positions * heads * dims.value * element)?;
        turned.check(positions * dims.rotated * element)?;
        let from_head =
            |slice: Slice<'_>, values: usize| address(slice.range(first_head * values * element..slice.bytes()));
        let arguments = [
            from_head(out, dims.value),
            int(dims.heads * dims.value),
            from_head(query, width),
            int(dims.query_width()),
            address(keys),
            address(values),
            address(turned),
            int(start),
            int(rows),
            // Weights are powers of 2.
            Arg::Float(scale * std::f32::consts::LOG2_E),
        ];
        let kernel = self.device.kernel(FILE, &options(self.element, &dims), "latent_prompt")?;
        let geometry = grid([heads, rows.div_ceil(ROWS), 1], 256, shared(&dims));
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, geometry, &arguments) }
    }

    fn check_expands(&self, dims: &LatentDims) -> Result<(), DeviceError> {
        if Self::expands_latents(self.element, dims, self.device.properties()) {
            return Ok(());
        }
        let LatentDims { nope, rotated, value, .. } = *dims;
        Err(DeviceError::Shape(format!(
            "expanded keys of {nope} + {rotated} values with values of {value} on this device"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_fits_shared_memory() {
        let dims = LatentDims { heads: 128, nope: 128, rotated: 64, rank: 512, value: 128, interleaved: true };
        assert!(shared(&dims) <= 227 << 10);
    }
}
