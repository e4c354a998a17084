//! Embedding, norms, rotation and other row-wise kernels: `cuda/elementwise.cu`.

use super::{
    Kernels, Parts, RotaryRows, Rows, Unscaled, address,
    attention::{cache_arguments, cache_options},
    check_ints, grid, int, line,
    linear::{MOST_ROWS_TO_SCALE, squares_stride},
    linear_wide,
};
use crate::{
    device::{Arg, DeviceError, Element, Geometry, KernelFile, Slice, Split},
    reference::CacheScales,
};

pub(super) const FILE: KernelFile =
    KernelFile { name: "elementwise.cu", text: include_str!("../../cuda/elementwise.cu"), split: Split::Shared };

/// Elements of a row per block of `norm_unscaled`.
const UNSCALED_PIECE: usize = 512;
/// Elements per block of `few_to_stream`, the smallest piece with a separate sum of squares.
const LEAST_PIECE: usize = 16;

/// Row width from which it pays to leave the scale to the next layer; measured with 2,048 and
/// 4,096.
const LEAST_UNSCALED: usize = 2048;

/// Row width from which blocks share rows of a norm; measured with 2,048 (0.7% of a round slower),
/// 2,880 (2.3% faster) and 4,096 (equal).
const LEAST_SHARED: usize = 2560;

/// Omitted rows.
pub(super) const NO_ROWS: Rows<'static> = Rows { at: Slice::NONE, stride: 0 };

/// An addend of the residual stream.
#[derive(Clone, Copy, Debug)]
pub enum Added<'a> {
    /// Rows.
    Rows(Rows<'a>),
    /// The parts of a linear layer: their sum, rounded to the element type.
    Parts(Parts<'a>),
}

/// Operands of [`Kernels::rms_norm`].
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<'a> {
    /// The normed rows.
    pub out: Rows<'a>,
    /// The residual stream; `add` is added in place.
    pub stream: Rows<'a>,
    /// Added to the stream first.
    pub add: Option<Added<'a>>,
    /// `[width]`.
    pub weight: Slice<'a>,
    /// Optional copy of the input of the norm (the sum, if anything is added).
    pub keep: Option<Rows<'a>>,
    /// The row of the stream that each row reads, int32; only without `add`.
    pub source: Option<Slice<'a>>,
    /// Number of rows that are written.
    pub rows: usize,
    /// Elements of a row.
    pub width: usize,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// Operands of [`Kernels::join_normed`].
#[derive(Clone, Copy, Debug)]
pub struct JoinNormed<'a> {
    /// `[rows, 2 · width]`: normed embeddings and features next to each other.
    pub joined: Slice<'a>,
    /// `[vocabulary, width]`.
    pub table: Slice<'a>,
    /// Rows of the table.
    pub vocabulary: usize,
    /// int32 `[rows]`.
    pub token: Slice<'a>,
    /// `[width]`, norm of embeddings.
    pub token_norm: Slice<'a>,
    /// Features.
    pub features: Rows<'a>,
    /// The row of the features for each row, int32 `[rows]`.
    pub source: Option<Slice<'a>>,
    /// `[width]`, norm of features.
    pub feature_norm: Slice<'a>,
    /// Receives the features too, contiguous `[rows, width]`.
    pub stream: Rows<'a>,
    /// Whether it receives them normed.
    pub stream_is_normed: bool,
    /// Positions of the rows, int32 `[rows]`, if the embedding of the row at position 0 is zero
    /// (MiMo's MTP layer).
    pub zero_first: Option<Slice<'a>>,
    /// Rows.
    pub rows: usize,
    /// Elements of an embedding and of a feature.
    pub width: usize,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// Operands of [`Kernels::rotate_and_write`].
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// `[rows, (heads + 2 · kv_heads) · head_dim]`: queries, keys, values.
    pub qkv: Slice<'a>,
    /// The source if a linear layer has left `qkv` in parts: then only queries are written to
    /// `qkv`.
    pub parts: Option<Parts<'a>>,
    /// The rotation of each row.
    pub rotary: RotaryRows<'a>,
    /// Cache row of each row, int32; below 0 for none.
    pub write: Slice<'a>,
    /// `[cache rows, kv_heads, head_dim]`.
    pub keys: Slice<'a>,
    /// `[cache rows, kv_heads, head_dim]`.
    pub values: Slice<'a>,
    /// The scales of keys and values if they are in FP8; `None` if they are elements.
    pub fp8: Option<CacheScales>,
    /// Per-head norms of queries and keys, `[head_dim]` each, with their epsilon.
    pub norms: Option<(Slice<'a>, Slice<'a>, f32)>,
    /// Rows.
    pub rows: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

impl Kernels {
    /// Rows of an embedding `[vocabulary, width]` for int32 tokens.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn embed(
        &self,
        out: Rows<'_>,
        table: Slice<'_>,
        tokens: Slice<'_>,
        rows: usize,
        width: usize,
        vocabulary: usize,
    ) -> Result<(), DeviceError> {
        self.check_rows(out, rows, width)?;
        table.check(vocabulary * width * self.element.bytes())?;
        check_ints(tokens, rows)?;
        let kernel = self.kernel(FILE, "embed")?;
        let arguments =
            [address(out.at), int(out.stride), address(table), address(tokens), int(width), int(vocabulary)];
        // SAFETY: lengths are checked above; the kernel clamps tokens to the vocabulary.
        unsafe { self.device.launch(&kernel, line(rows, 256), &arguments) }
    }

    /// Residual and RMS norm.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn rms_norm(&self, norm: RmsNorm<'_>) -> Result<(), DeviceError> {
        let name = |parts: usize| match parts {
            0 => "rms_norm",
            1..=2 => "rms_norm_two",
            _ => "rms_norm_parts",
        };
        self.launch_norm(norm, line(norm.rows, self.norm_threads(norm.width)), name)
    }

    /// As [`rms_norm`](Self::rms_norm), but several blocks share each of few wide rows, whose sums
    /// of squares have another order.
    ///
    /// # Errors
    /// As there.
    pub fn rms_norm_shared(&self, norm: RmsNorm<'_>) -> Result<(), DeviceError> {
        match self.cluster_of_norms(norm.rows, norm.width).filter(|_| norm.width >= LEAST_SHARED) {
            Some(geometry) => self.launch_norm(norm, geometry, |_| "rms_norm_cluster"),
            None => self.rms_norm(norm),
        }
    }

    /// Launches the kernel for an addend in this many parts.
    fn launch_norm(
        &self,
        norm: RmsNorm<'_>,
        geometry: Geometry,
        name: impl Fn(usize) -> &'static str,
    ) -> Result<(), DeviceError> {
        let RmsNorm { source, width, epsilon, .. } = norm;
        let (shared, parts) = self.norm_arguments(norm)?;
        let kernel = self.kernel(FILE, name(parts))?;
        let own = [address(source.unwrap_or(Slice::NONE)), int(width), Arg::Float(epsilon)];
        // SAFETY: lengths are checked above; rows of `source` come from the caller's layout kernels
        // and are within bounds.
        unsafe { self.device.launch(&kernel, geometry, &[&shared[..], &own].concat()) }
    }

    /// Whether these rows are better left unscaled by
    /// [`rms_norm_unscaled`](Self::rms_norm_unscaled), for a layer computed by [`wide`](Self::wide)
    /// (`by_wide`) or another kernel: with fewer rows the norm takes no longer, and more keep the
    /// device busy. Values without the scale may exceed the range of float16.
    pub fn suits_unscaled(&self, rows: usize, width: usize, by_wide: bool) -> bool {
        let most = if by_wide { linear_wide::MOST_ROWS } else { MOST_ROWS_TO_SCALE };
        self.element == Element::BF16 && self.is_wide(width, LEAST_UNSCALED) && (5..=most).contains(&rows)
    }

    /// Maximum number of bytes of the sums of squares of rows.
    pub fn squares_bytes(rows: usize, width: usize) -> usize {
        rows.min(linear_wide::MOST_ROWS) * squares_stride(width.div_ceil(LEAST_PIECE)) * 4
    }

    /// Residual and RMS norm of up to 128 consecutive rows, without the scale: the next linear
    /// layer computes that from `squares`. The output is not bounded like normed rows, so not for
    /// float16.
    ///
    /// # Errors
    /// When a buffer is too short, there are more rows, `source` is given, or the device fails.
    pub fn rms_norm_unscaled<'a>(&self, norm: RmsNorm<'_>, squares: Slice<'a>) -> Result<Unscaled<'a>, DeviceError> {
        let RmsNorm { source, rows, width, epsilon, .. } = norm;
        if source.is_some() || rows > linear_wide::MOST_ROWS {
            return Err(DeviceError::Shape(format!(
                "a norm without scale supports up to {} consecutive rows",
                linear_wide::MOST_ROWS
            )));
        }
        let (shared, _) = self.norm_arguments(norm)?;
        let count = width.div_ceil(UNSCALED_PIECE);
        squares.check(rows * squares_stride(count) * 4)?;
        let arguments = [&shared[..], &[address(squares), int(width)]].concat();
        let kernel = self.kernel(FILE, "norm_unscaled")?;
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, grid([count, rows, 1], UNSCALED_PIECE as u32 / 4, 0), &arguments)? };
        Ok(Unscaled { squares, count, epsilon })
    }

    /// The input of an EAGLE-3 layer: normed embeddings and features next to each other.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn join_normed(&self, join: JoinNormed<'_>) -> Result<(), DeviceError> {
        let JoinNormed { joined, table, vocabulary, token, token_norm, features, source, feature_norm, .. } = join;
        let JoinNormed { stream, stream_is_normed, zero_first, rows, width, epsilon, .. } = join;
        self.check_rows(Rows { at: joined, stride: 2 * width }, rows, 2 * width)?;
        self.check_rows(stream, rows, width)?;
        table.check(vocabulary * width * self.element.bytes())?;
        check_ints(token, rows)?;
        self.check_rows(features, if source.is_some() { 1 } else { rows }, width)?;
        for ints in [source, zero_first].into_iter().flatten() {
            check_ints(ints, rows)?;
        }
        for norm in [token_norm, feature_norm] {
            norm.check(width * self.element.bytes())?;
        }
        if stream.stride != width {
            return Err(DeviceError::Shape(format!("{} elements between rows of {width}", stream.stride - width)));
        }
        let kernel = self.kernel(FILE, "join_normed")?;
        let arguments = [
            address(joined),
            address(table),
            address(token),
            int(vocabulary),
            address(token_norm),
            address(features.at),
            int(features.stride),
            address(source.unwrap_or(Slice::NONE)),
            address(feature_norm),
            address(stream.at),
            Arg::Int(stream_is_normed.into()),
            address(zero_first.unwrap_or(Slice::NONE)),
            int(width),
            Arg::Float(epsilon),
        ];
        let threads = self.norm_threads(width);
        // SAFETY: lengths are checked above; the kernel clamps tokens to the vocabulary; rows of
        // `source` are the caller's layout kernels', which stay within.
        unsafe { self.device.launch(&kernel, grid([rows, 2, 1], threads, 0), &arguments) }
    }

    /// One thread per vector of a row, in whole warps, at most as many as leave enough registers
    /// for each.
    fn norm_threads(&self, width: usize) -> u32 {
        (width / self.vector()).next_multiple_of(32).clamp(32, 512) as u32
    }

    /// Checks the operands of a norm. Returns the first arguments of its kernels, and the number of
    /// parts of the addend (0: it is whole).
    pub(super) fn norm_arguments(&self, norm: RmsNorm<'_>) -> Result<([Arg; 11], usize), DeviceError> {
        let RmsNorm { out, stream, add, weight, keep, source, rows, width, .. } = norm;
        self.check_rows(out, rows, width)?;
        match source {
            Some(source) => check_ints(source, rows)?,
            None => self.check_rows(stream, rows, width)?,
        }
        let (add, parts, count) = self.check_added(add, rows, width)?;
        if let Some(keep) = keep {
            self.check_rows(keep, rows, width)?;
        }
        weight.check(width * self.element.bytes())?;
        let keep = keep.unwrap_or(NO_ROWS);
        let arguments = [
            address(out.at),
            int(out.stride),
            address(stream.at),
            int(stream.stride),
            address(add.at),
            int(add.stride),
            address(parts),
            int(count),
            address(weight),
            address(keep.at),
            int(keep.stride),
        ];
        Ok((arguments, count))
    }

    /// Rows, address and number of parts of an addend.
    fn check_added<'a>(
        &self,
        add: Option<Added<'a>>,
        rows: usize,
        width: usize,
    ) -> Result<(Rows<'a>, Slice<'a>, usize), DeviceError> {
        match add {
            Some(Added::Rows(add)) => self.check_rows(add, rows, width).map(|()| (add, Slice::NONE, 0)),
            Some(Added::Parts(parts)) => check_parts(Some(parts), rows, width).map(|(at, count)| (NO_ROWS, at, count)),
            None => Ok((NO_ROWS, Slice::NONE, 0)),
        }
    }

    /// Adds rows to the residual stream, and stores a copy of the sum; both are optional.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn add_rows(
        &self,
        stream: Rows<'_>,
        add: Option<Added<'_>>,
        keep: Option<Rows<'_>>,
        rows: usize,
        width: usize,
    ) -> Result<(), DeviceError> {
        for part in [Some(stream), keep].into_iter().flatten() {
            self.check_rows(part, rows, width)?;
        }
        let (add, parts, count) = self.check_added(add, rows, width)?;
        let keep = keep.unwrap_or(NO_ROWS);
        let kernel = self.kernel(FILE, "add_rows")?;
        let arguments = [
            address(stream.at),
            int(stream.stride),
            address(add.at),
            int(add.stride),
            address(parts),
            int(count),
            address(keep.at),
            int(keep.stride),
            int(width),
        ];
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, line(rows, block(width / 4)), &arguments) }
    }

    /// `out[target[r]] = from[source[r]]`; without `source` or `target`, row r itself. A negative
    /// source leaves the row unchanged.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn gather_rows(
        &self,
        out: Rows<'_>,
        target: Option<Slice<'_>>,
        from: Rows<'_>,
        source: Option<Slice<'_>>,
        rows: usize,
        width: usize,
    ) -> Result<(), DeviceError> {
        self.check_rows(out, if target.is_some() { 1 } else { rows }, width)?;
        self.check_rows(from, if source.is_some() { 1 } else { rows }, width)?;
        for map in [target, source].into_iter().flatten() {
            check_ints(map, rows)?;
        }
        let kernel = self.kernel(FILE, "gather_rows")?;
        let arguments = [
            address(out.at),
            int(out.stride),
            address(target.unwrap_or(Slice::NONE)),
            address(from.at),
            int(from.stride),
            address(source.unwrap_or(Slice::NONE)),
            int(width),
        ];
        let pieces = (width / self.vector()).div_ceil(256);
        // SAFETY: lengths are checked above; the maps come from the caller's layout kernels and are
        // within bounds.
        unsafe { self.device.launch(&kernel, grid([rows, pieces, 1], 256, 0), &arguments) }
    }

    /// Gated activation of `[rows, 2 · width]`, gate first, to `[rows, width]`.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn silu_gate(&self, out: Slice<'_>, gate_up: Slice<'_>, rows: usize, width: usize) -> Result<(), DeviceError> {
        self.check_rows(Rows { at: out, stride: width }, rows, width)?;
        self.check_rows(Rows { at: gate_up, stride: 2 * width }, rows, 2 * width)?;
        let kernel = self.kernel(FILE, "silu_gate")?;
        let pieces = (width / self.vector()).div_ceil(256);
        // SAFETY: lengths are checked above.
        unsafe {
            let arguments = [address(out), address(gate_up), int(width)];
            self.device.launch(&kernel, grid([pieces, rows, 1], 256, 0), &arguments)
        }
    }

    /// Multiplies rows by the sigmoids of gates.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn sigmoid_gate(&self, x: Rows<'_>, gate: Rows<'_>, rows: usize, width: usize) -> Result<(), DeviceError> {
        self.check_rows(x, rows, width)?;
        self.check_rows(gate, rows, width)?;
        let kernel = self.kernel(FILE, "sigmoid_gate")?;
        let pieces = (width / self.vector()).div_ceil(256);
        let arguments = [address(x.at), int(x.stride), address(gate.at), int(gate.stride), int(width)];
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, grid([pieces, rows, 1], 256, 0), &arguments) }
    }

    /// Adds a bias `[width]` to each row.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn add_bias(&self, x: Rows<'_>, bias: Slice<'_>, rows: usize, width: usize) -> Result<(), DeviceError> {
        self.check_rows(x, rows, width)?;
        bias.check(width * self.element.bytes())?;
        let kernel = self.kernel(FILE, "add_bias")?;
        let pieces = (width / self.vector()).div_ceil(256);
        // SAFETY: lengths are checked above.
        unsafe {
            let arguments = [address(x.at), int(x.stride), address(bias), int(width)];
            self.device.launch(&kernel, grid([pieces, rows, 1], 256, 0), &arguments)
        }
    }

    /// Sums the parts of a linear layer, to `[rows, width]` of the element type or float.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn add_parts(
        &self,
        out: Slice<'_>,
        out_is_float: bool,
        parts: Parts<'_>,
        rows: usize,
        width: usize,
    ) -> Result<(), DeviceError> {
        self.check_rows(Rows { at: out, stride: width }, rows, width)?;
        out.check(rows * width * if out_is_float { 4 } else { self.element.bytes() })?;
        let (parts, count) = check_parts(Some(parts), rows, width)?;
        let kernel = self.kernel(FILE, "add_parts")?;
        let pieces = (width / 4).div_ceil(256);
        // SAFETY: lengths are checked above.
        unsafe {
            let arguments =
                [address(out), Arg::Int(out_is_float.into()), int(width), address(parts), int(count), int(width)];
            self.device.launch(&kernel, grid([pieces, rows, 1], 256, 0), &arguments)
        }
    }

    /// Rotary embedding of queries in place, and of keys into the cache with the values.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn rotate_and_write(&self, rotation: Rotation<'_>) -> Result<(), DeviceError> {
        self.rotate(rotation, true)
    }

    /// The same; releases the next kernel late, as [`Ahead`](super::Ahead) requires, or at once.
    pub(super) fn rotate(&self, rotation: Rotation<'_>, releases_late: bool) -> Result<(), DeviceError> {
        let Rotation { qkv, parts, keys, values, fp8, rows, heads, kv_heads, head_dim, .. } = rotation;
        let [parts_at, count, table, positions, position, write, query_norm, key_norm, epsilon] =
            self.rotation_arguments(rotation)?;
        // Heads per warp of four warps: a head in parts takes the registers of several.
        let (name, heads_a_warp) =
            if parts.is_some() { ("rotate_and_write_parts", 1) } else { ("rotate_and_write", 4) };
        let kernel = self.device.kernel(FILE, &cache_options(fp8, self.options.clone()), name)?;
        let mut arguments = vec![
            address(qkv),
            parts_at,
            count,
            table,
            positions,
            position,
            write,
            address(keys),
            address(values),
            query_norm,
            key_norm,
            epsilon,
            int(heads),
            int(kv_heads),
            int(head_dim),
            Arg::Int(releases_late.into()),
        ];
        arguments.extend(cache_arguments(fp8));
        let blocks = [(heads + 2 * kv_heads).div_ceil(4 * heads_a_warp), rows, 1];
        // SAFETY: lengths are checked in `rotation_arguments`; cache rows are the caller's layout
        // kernels', which stay within the cache.
        unsafe { self.device.launch(&kernel, grid(blocks, 128, 0), &arguments) }
    }

    /// The arguments of a kernel that rotates, between those for rows and cache: parts and their
    /// number, table and its rows, positions, cache rows, norms and their epsilon.
    ///
    /// # Errors
    /// When a buffer is too short.
    pub(super) fn rotation_arguments(&self, rotation: Rotation<'_>) -> Result<[Arg; 9], DeviceError> {
        let Rotation { qkv, parts, rotary, write, norms, .. } = rotation;
        let Rotation { rows, heads, kv_heads, head_dim, .. } = rotation;
        let width = (heads + 2 * kv_heads) * head_dim;
        self.check_rows(Rows { at: qkv, stride: width }, rows, width)?;
        let (parts, count) = check_parts(parts, rows, width)?;
        rotary.check(rows, head_dim)?;
        check_ints(write, rows)?;
        let element = self.element.bytes();
        let (query_norm, key_norm, epsilon) = norms.unwrap_or((Slice::NONE, Slice::NONE, 0.0));
        if norms.is_some() {
            query_norm.check(head_dim * element)?;
            key_norm.check(head_dim * element)?;
        }
        let [table, positions, position] = rotary.arguments();
        Ok([
            address(parts),
            int(count),
            table,
            positions,
            position,
            address(write),
            address(query_norm),
            address(key_norm),
            Arg::Float(epsilon),
        ])
    }

    /// Fills a buffer with values uniformly distributed in ±`bound`: weights of a shape without a
    /// checkpoint.
    ///
    /// # Errors
    /// When the device fails.
    pub fn fill_random(&self, out: Slice<'_>, bound: f32, seed: u64) -> Result<(), DeviceError> {
        let count = out.bytes() / self.element.bytes();
        let kernel = self.kernel(FILE, "fill_random")?;
        let arguments = [address(out), Arg::Long(count as u64), Arg::Float(bound), Arg::Long(seed)];
        let blocks = count.div_ceil(256).clamp(1, self.device.properties().multiprocessors * 16);
        // SAFETY: the kernel writes as many elements as the slice holds.
        unsafe { self.device.launch(&kernel, line(blocks, 256), &arguments) }
    }
}

/// Address and number of parts, or 0 and 0.
pub(super) fn check_parts<'a>(
    parts: Option<Parts<'a>>,
    rows: usize,
    width: usize,
) -> Result<(Slice<'a>, usize), DeviceError> {
    let Some(Parts { at, count }) = parts else { return Ok((Slice::NONE, 0)) };
    if count > Kernels::MOST_ADDENDS {
        return Err(DeviceError::Shape(format!("{count} parts of rows; the kernels add up {}", Kernels::MOST_ADDENDS)));
    }
    at.check(count * rows * width * 4)?;
    Ok((at, count))
}

/// Threads for a row of this many accesses: whole warps, at most 256.
fn block(accesses: usize) -> u32 {
    accesses.next_multiple_of(32).clamp(32, 256) as u32
}
