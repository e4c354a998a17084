//! Latent attention, projections: `cuda/latent.cu`, `cuda/latent_heads.cu`, and the products of
//! `cuda/latent_float.cu`.
//!
//! Latent attention is absorbed (see [`reference::latent`](crate::reference)); prompts may also
//! expand keys and values, with sums in a different order (`latent_prompt.rs`).

use super::{
    Kernels, Parts, RotaryRows, Rows, address, check_ints, elementwise::check_parts, grid, int, latent_attention, line,
};
use crate::device::{Arg, DeviceError, Element, Kernel, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "latent.cu", text: include_str!("../../cuda/latent.cu"), split: Split::Shared };
pub(super) const HEADS_FILE: KernelFile =
    KernelFile { name: "latent_heads.cu", text: include_str!("../../cuda/latent_heads.cu"), split: Split::Shared };

/// Outputs per block of `latent_heads.cu`, and of `latent_float.cu`.
const OUTPUTS: usize = 64;
const OUTPUTS_OF_FLOAT: usize = 128;

/// Sizes of latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentDims {
    /// Query heads.
    pub heads: usize,
    /// Values of a query head without rotary embedding.
    pub nope: usize,
    /// Values of a query head with rotary embedding, and of the key that all heads share.
    pub rotated: usize,
    /// Size of the latent vector.
    pub rank: usize,
    /// Values of a head's output.
    pub value: usize,
    /// Whether rotated pairs are neighbours, instead of half of the rotated values apart.
    pub interleaved: bool,
}

/// Operands of [`Kernels::write_latents`].
#[derive(Clone, Copy, Debug)]
pub struct LatentRows<'a> {
    /// `[rows, first + rank + rotated]`: values that lead to queries, the latent vector, the key.
    pub x: Rows<'a>,
    /// The source instead of `x`, if a linear layer has left it in parts.
    pub parts: Option<Parts<'a>>,
    /// Number of values that lead to queries.
    pub first: usize,
    /// Their norm, `[first]`; `None`: they are copied.
    pub query_norm: Option<Slice<'a>>,
    /// Receives them, `[rows, first]`.
    pub queries: Slice<'a>,
    /// The norm of the latent vector, `[rank]`.
    pub norm: Slice<'a>,
    /// Epsilon of both norms.
    pub epsilon: f32,
    /// `[cache rows, rank + rotated]`.
    pub cache: Slice<'a>,
    /// Cache row of each row, int32; below 0 for none.
    pub write: Slice<'a>,
    /// The rotation of each row.
    pub rotary: RotaryRows<'a>,
    /// Rows.
    pub rows: usize,
    /// Sizes.
    pub dims: LatentDims,
}

/// Operands of [`Kernels::latent_queries`].
#[derive(Clone, Copy, Debug)]
pub struct LatentQueries<'a> {
    /// `[rows, heads, rank + rotated]`.
    pub out: Slice<'a>,
    /// `[rows, heads, nope + rotated]`.
    pub x: Slice<'a>,
    /// `[heads, rank, nope]`.
    pub absorb: Slice<'a>,
    /// The rotation of each row.
    pub rotary: RotaryRows<'a>,
    /// Rows.
    pub rows: usize,
    /// Sizes.
    pub dims: LatentDims,
}

/// Operands of [`Kernels::latent_values`].
#[derive(Clone, Copy, Debug)]
pub struct LatentValues<'a> {
    /// `[rows, heads, value]`.
    pub out: Slice<'a>,
    /// `[rows, heads, rank]`.
    pub x: Slice<'a>,
    /// `[heads, value, rank]`.
    pub expand: Slice<'a>,
    /// Rows.
    pub rows: usize,
    /// Sizes.
    pub dims: LatentDims,
}

impl LatentDims {
    /// Values of a cache row.
    pub fn width(&self) -> usize {
        self.rank + self.rotated
    }

    /// Values of all heads of a query, before absorption.
    pub fn query_width(&self) -> usize {
        self.heads * (self.nope + self.rotated)
    }

    /// The reason why no kernel supports the sizes, or `None` if one does.
    pub fn refused(&self) -> Option<String> {
        let Self { heads, nope, rotated, rank, value, .. } = *self;
        let fits = heads > 0
            && rank.is_multiple_of(64)
            && rotated.is_multiple_of(16)
            && nope.is_multiple_of(32)
            && value.is_multiple_of(16)
            && [nope, rotated, value].iter().all(|size| *size > 0)
            && (64..=512).contains(&rank)
            && rotated <= 64;
        (!fits).then(|| {
            format!(
                "latent attention of rank {rank} with {nope} + {rotated} values of a query and {value} of an output; the GPU has \
                 kernels for ranks of up to 512 in 64s, up to 64 rotated values in 16s, others in 32s and outputs in \
                 16s"
            )
        })
    }
}

impl Kernels {
    fn check_dims(&self, dims: &LatentDims) -> Result<(), DeviceError> {
        dims.refused().map_or(Ok(()), |reason| Err(DeviceError::Shape(reason)))
    }

    /// Norms the compressed queries and the latent vectors of rows, rotates their keys, and writes
    /// latent vectors and keys to the cache.
    ///
    /// # Errors
    /// When a buffer is too short, no kernel supports the sizes, or the device fails.
    pub fn write_latents(&self, rows: LatentRows<'_>) -> Result<(), DeviceError> {
        let LatentRows { x, parts, first, query_norm, queries, norm, epsilon, cache, write, rotary, rows, dims } = rows;
        self.check_dims(&dims)?;
        let (element, width) = (self.element.bytes(), first + dims.width());
        let (parts, count) = check_parts(parts, rows, width)?;
        if count == 0 {
            self.check_rows(x, rows, width)?;
        }
        queries.check(rows * first * element)?;
        if let Some(norm) = query_norm {
            norm.check(first * element)?;
        }
        norm.check(dims.rank * element)?;
        rotary.check(rows, dims.rotated)?;
        check_ints(write, rows)?;
        let kernel = self.kernel(FILE, "latent_write")?;
        let [table, positions, position] = rotary.arguments();
        let arguments = [
            address(x.at),
            int(x.stride),
            address(parts),
            int(count),
            table,
            positions,
            position,
            address(write),
            address(queries),
            address(query_norm.unwrap_or(Slice::NONE)),
            address(cache),
            address(norm),
            Arg::Float(epsilon),
            int(first),
            int(dims.rank),
            int(dims.rotated),
            int(dims.interleaved.into()),
        ];
        // SAFETY: lengths are checked above; cache rows come from the layout kernels and are within
        // the cache.
        unsafe { self.device.launch(&kernel, line(rows, 256), &arguments) }
    }

    /// The absorbed queries of rows: each head's first values times its matrix, followed by its
    /// rotary part, rotated.
    ///
    /// # Errors
    /// As [`write_latents`](Self::write_latents).
    pub fn latent_queries(&self, queries: LatentQueries<'_>) -> Result<(), DeviceError> {
        let LatentQueries { out, x, absorb, rotary, rows, dims } = queries;
        self.check_dims(&dims)?;
        let LatentDims { heads, nope, rank, .. } = dims;
        let element = self.element.bytes();
        out.check(rows * heads * dims.width() * element)?;
        x.check(rows * dims.query_width() * element)?;
        absorb.check(heads * rank * nope * element)?;
        rotary.check(rows, dims.rotated)?;
        let (kernel, blocks) = self.heads_kernel(
            ["latent_queries_1", "latent_queries_2", "latent_queries_8"],
            "latent_queries",
            &dims,
            rank,
            rows,
        )?;
        let [table, positions, position] = rotary.arguments();
        let arguments = [
            address(x),
            address(absorb),
            address(out),
            table,
            positions,
            position,
            int(rows),
            int(nope),
            int(rank),
            int(dims.rotated),
            int(dims.interleaved.into()),
        ];
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, grid(blocks, 128, 0), &arguments) }
    }

    /// The outputs of heads from weighted means of latent vectors: each head's mean times its
    /// matrix.
    ///
    /// # Errors
    /// As [`write_latents`](Self::write_latents).
    pub fn latent_values(&self, values: LatentValues<'_>) -> Result<(), DeviceError> {
        let LatentValues { out, x, expand, rows, dims } = values;
        self.check_dims(&dims)?;
        let LatentDims { heads, rank, value, .. } = dims;
        let element = self.element.bytes();
        out.check(rows * heads * value * element)?;
        x.check(rows * heads * rank * element)?;
        expand.check(heads * value * rank * element)?;
        let (kernel, blocks) = self.heads_kernel(
            ["latent_values_1", "latent_values_2", "latent_values_8"],
            "latent_values",
            &dims,
            value,
            rows,
        )?;
        let arguments = [address(x), address(expand), address(out), int(rows), int(rank), int(value)];
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, grid(blocks, 128, 0), &arguments) }
    }

    /// The kernel for a product with this many outputs per head, by the number of rows that it
    /// takes at a time, and its blocks.
    fn heads_kernel(
        &self,
        [few, some, many]: [&'static str; 3],
        float: &'static str,
        dims: &LatentDims,
        outputs: usize,
        rows: usize,
    ) -> Result<(Kernel, [usize; 3]), DeviceError> {
        let heads = dims.heads;
        if self.element == Element::F32 {
            let options = latent_attention::options(self.element, dims);
            let kernel = self.device.kernel(latent_attention::FLOAT_FILE, &options, float)?;
            return Ok((kernel, [heads, outputs.div_ceil(OUTPUTS_OF_FLOAT), rows]));
        }
        let (name, eights) = match rows {
            ..=8 => (few, 1),
            9..=16 => (some, 2),
            _ => (many, 8),
        };
        Ok((self.kernel(HEADS_FILE, name)?, [heads, outputs.div_ceil(OUTPUTS), rows.div_ceil(8 * eights)]))
    }
}
