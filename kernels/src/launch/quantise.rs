//! Rows in FP8, for products in FP8: `cuda/quantise.cu`.

use super::{
    Kernels, RmsNorm, RowForm, RowScales, Rows, Unscaled, address, fp8::has_blocks, grid, int, line,
    linear::squares_stride,
};
use crate::{
    device::{Arg, DeviceError, Element, Geometry, KernelFile, Slice, Split},
    reference::Fp8Rows,
};

pub(super) const FILE: KernelFile =
    KernelFile { name: "quantise.cu", text: include_str!("../../cuda/quantise.cu"), split: Split::Shared };

/// Elements per thread.
const NUMBERS: usize = 16;
/// Maximum number of threads of a block of the norms, and of the other kernels.
const NORM_THREADS: usize = 512;
const MOST_THREADS: usize = 1024;
/// Bytes that each warp of a cluster leaves for the others.
const MET_BYTES: usize = 8;
/// Blocks of a cluster that shares a row, their threads at most, and the maximum number of rows for
/// which these are used: with more, there are enough rows for all multiprocessors.
const SHARERS: usize = 8;
const MOST_CLUSTER_THREADS: usize = 256;
const MOST_CLUSTER_ROWS: usize = 64;

/// Where quantised rows go, and how.
#[derive(Clone, Copy, Debug)]
pub struct QuantiseTo<'a> {
    /// Receives the scales, [`row_scales_bytes`](Kernels::row_scales_bytes).
    pub scales: Slice<'a>,
    /// Float `[1]`: the scale of all rows, for a layout with a fixed one.
    pub fixed: Option<Slice<'a>>,
    /// Which numbers share a scale.
    pub layout: Fp8Rows,
    /// How the rows are stored.
    pub form: RowForm,
}

/// Operands of [`Kernels::quantise_rows`].
#[derive(Clone, Copy, Debug)]
pub struct QuantiseRows<'a, 'b> {
    /// Receives the rows, `[rows, inputs]` without gaps.
    pub out: Slice<'a>,
    /// Their scales and form.
    pub to: QuantiseTo<'b>,
    /// The rows; if `gated`, each is gate and up of a feed-forward block, of `inputs` elements
    /// each.
    pub x: Rows<'a>,
    /// The pending scale of the rows, if they are not gated.
    pub unscaled: Option<Unscaled<'a>>,
    /// Whether `silu(gate) · up` is quantised.
    pub gated: bool,
    /// Number of rows.
    pub rows: usize,
    /// Width of the result, a multiple of 16.
    pub inputs: usize,
}

impl Kernels {
    /// Quantises rows to FP8.
    ///
    /// # Errors
    /// When a buffer is too short, the element type is float, the width is not a multiple of 16,
    /// gated rows are unscaled, or the device fails.
    pub fn quantise_rows<'b>(&self, operands: QuantiseRows<'_, 'b>) -> Result<RowScales<'b>, DeviceError> {
        let QuantiseRows { out, to, x, unscaled, gated, rows, inputs } = operands;
        self.check_rows(x, rows, if gated { 2 * inputs } else { inputs })?;
        if let Some(Unscaled { squares, count, .. }) = unscaled {
            squares.check(rows * squares_stride(count) * 4)?;
            if gated {
                return Err(DeviceError::Shape("gated rows that are not scaled yet".into()));
            }
        }
        let cluster = self.cluster(rows, inputs).filter(|_| !gated);
        let name = match (gated, has_blocks(to.layout), cluster.is_some()) {
            (false, false, true) => "quantise_rows_cluster",
            (false, false, false) => "quantise_rows",
            (false, true, true) => "quantise_blocks_cluster",
            (false, true, false) => "quantise_blocks",
            (true, false, _) => "quantise_gated_rows",
            (true, true, _) => "quantise_gated_blocks",
        };
        let (squares, count, epsilon) =
            unscaled.map_or((Slice::NONE, 0, 0.0), |unscaled| (unscaled.squares, unscaled.count, unscaled.epsilon));
        let own = [address(x.at), int(x.stride), address(squares), int(count), Arg::Float(epsilon), int(inputs)];
        let geometry = cluster.unwrap_or_else(|| line(rows, threads(inputs, MOST_THREADS)));
        self.launch_quantise((name, geometry), (out, to), &own, [rows, inputs])
    }

    /// As [`rms_norm`](Self::rms_norm), with its result, rounded to the element type, quantised:
    /// the address of `norm.out` receives the rows without gaps.
    ///
    /// # Errors
    /// As `rms_norm` and [`quantise_rows`](Self::quantise_rows).
    pub fn rms_norm_quantised<'a>(&self, norm: RmsNorm<'_>, to: QuantiseTo<'a>) -> Result<RowScales<'a>, DeviceError> {
        let RmsNorm { out, source, rows, width, epsilon, .. } = norm;
        // `out` is checked for what it receives; the rest as for the norm.
        let stream = if source.is_some() { out } else { norm.stream };
        let (shared, parts) = self.norm_arguments(RmsNorm { out: stream, ..norm })?;
        let cluster = self.cluster(rows, width);
        let name = match (has_blocks(to.layout), cluster.is_some(), parts) {
            (false, true, _) => "norm_rows_cluster",
            (false, false, 0) => "norm_rows",
            (false, false, _) => "norm_rows_parts",
            (true, true, _) => "norm_blocks_cluster",
            (true, false, 0) => "norm_blocks",
            (true, false, _) => "norm_blocks_parts",
        };
        let geometry = cluster.unwrap_or_else(|| line(rows, threads(width, NORM_THREADS)));
        let own = [address(source.unwrap_or(Slice::NONE)), int(width), Arg::Float(epsilon)];
        let arguments = [&shared[2..], &own].concat();
        self.launch_quantise((name, geometry), (out.at, to), &arguments, [rows, width])
    }

    /// The geometry of kernels whose clusters share a row, if they are better for these rows.
    fn cluster(&self, rows: usize, width: usize) -> Option<Geometry> {
        let threads = width.div_ceil(SHARERS * NUMBERS).next_multiple_of(32);
        let suits = rows <= MOST_CLUSTER_ROWS
            && threads <= MOST_CLUSTER_THREADS
            && self.device.properties().most_cluster >= SHARERS;
        suits.then(|| grid([SHARERS * rows, 1, 1], threads as u32, threads / 32 * MET_BYTES).in_clusters(SHARERS))
    }

    /// Launches a kernel.
    fn launch_quantise<'a>(
        &self,
        (name, geometry): (&'static str, Geometry),
        (out, to): (Slice<'_>, QuantiseTo<'a>),
        own: &[Arg],
        [rows, inputs]: [usize; 2],
    ) -> Result<RowScales<'a>, DeviceError> {
        let QuantiseTo { scales, fixed, layout, form } = to;
        if self.element == Element::F32 || !inputs.is_multiple_of(NUMBERS) {
            let element = self.element.name();
            return Err(DeviceError::Shape(format!("rows in FP8 of {inputs} inputs of {element}")));
        }
        let bytes = if form == RowForm::Values { self.element.bytes() } else { 1 };
        out.check(rows * inputs * bytes)?;
        if !out.address().is_multiple_of(16) {
            return Err(DeviceError::Shape("quantised rows do not begin at a multiple of 16 bytes".into()));
        }
        scales.check(Self::row_scales_bytes(layout, rows, inputs))?;
        match (fixed, layout == Fp8Rows::Tensor) {
            (Some(fixed), true) => fixed.check(4)?,
            (None, false) => {}
            _ => return Err(DeviceError::Shape(format!("rows in FP8 with {layout:?} scales and {fixed:?}"))),
        }
        let to = [
            address(out),
            Arg::Int((form == RowForm::Values).into()),
            address(scales),
            address(fixed.unwrap_or(Slice::NONE)),
        ];
        let kernel = self.kernel(FILE, name)?;
        // SAFETY: lengths are checked above and by the callers.
        unsafe { self.device.launch(&kernel, geometry, &[&to, own].concat())? };
        Ok(RowScales { at: scales, layout, form })
    }
}

/// Threads of a block that has a row: one per [`NUMBERS`] elements, in whole warps.
fn threads(inputs: usize, most: usize) -> u32 {
    (inputs / NUMBERS).next_multiple_of(32).clamp(32, most) as u32
}
