//! Rows in FP8, for products in FP8: `cuda/quantise.cu`.

use super::{
    Kernels, RmsNorm, RowForm, RowScales, Rows, Unscaled, address, elementwise::NO_ROWS, fp8::has_blocks, grid, int,
    line, linear::squares_stride,
};
use crate::{
    device::{Arg, DeviceError, Element, Geometry, KernelFile, Slice, Split},
    reference::{DeltaSizes, Fp8Rows},
};

pub(super) const FILE: KernelFile =
    KernelFile { name: "quantise.cu", text: include_str!("../../cuda/quantise.cu"), split: Split::Shared };

/// Elements per thread; of norms, so that all parts of them can be on the way at once.
const NUMBERS: usize = 16;
const NORMED: usize = 4;
/// Maximum number of threads of a block of the norms, and of the other kernels.
const NORM_THREADS: usize = 512;
const MOST_THREADS: usize = 1024;
/// Bytes that a warp leaves for the others about the elements that it has at a time.
const MET_BYTES: usize = 8;
/// Threads of a block of `gate_blocks`, and of a warp.
const GATE_THREADS: usize = 128;
const WARP: usize = 32;
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

impl<'a> QuantiseTo<'a> {
    /// The scales of rows that have been quantised so.
    pub fn row_scales(self) -> RowScales<'a> {
        let Self { scales: at, layout, form, .. } = self;
        RowScales { at, layout, form }
    }
}

/// What a norm that quantises yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOutputs {
    /// Rows in FP8 alone.
    Quantised,
    /// Also those that [`rms_norm`](Kernels::rms_norm) yields, for other readers.
    Both,
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
        let cluster = self.cluster(rows, inputs.div_ceil(SHARERS * NUMBERS), MOST_CLUSTER_THREADS).filter(|_| !gated);
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
        let geometry = cluster.unwrap_or_else(|| line(rows, threads(inputs)));
        self.launch_quantise((name, geometry), (out, to), &own, [rows, inputs])
    }

    /// As [`rms_norm`](Self::rms_norm), with its result, rounded to the element type, quantised:
    /// `out` receives the rows without gaps, and `norm.out` the result itself if `outputs` says so.
    ///
    /// # Errors
    /// As `rms_norm` and [`quantise_rows`](Self::quantise_rows).
    pub fn rms_norm_quantised<'a>(
        &self,
        norm: RmsNorm<'_>,
        (out, to): (Slice<'_>, QuantiseTo<'a>),
        outputs: NormOutputs,
    ) -> Result<RowScales<'a>, DeviceError> {
        let RmsNorm { source, rows, width, epsilon, .. } = norm;
        let (shared, _) = self.norm_arguments(norm)?;
        let cluster = self.cluster_of_norms(rows, width);
        let name = match (has_blocks(to.layout), cluster.is_some()) {
            (false, true) => "norm_rows_cluster",
            (false, false) => "norm_rows",
            (true, true) => "norm_blocks_cluster",
            (true, false) => "norm_blocks",
        };
        let geometry = cluster.unwrap_or_else(|| {
            let warps = width.div_ceil(WARP * NORMED);
            grid([rows, 1, 1], (warps * WARP).min(NORM_THREADS) as u32, warps * MET_BYTES)
        });
        let normed = if outputs == NormOutputs::Both { norm.out } else { NO_ROWS };
        let own = [address(source.unwrap_or(Slice::NONE)), int(width), Arg::Float(epsilon)];
        let arguments = [&[address(normed.at), int(normed.stride)], &shared[2..], &own].concat();
        self.launch_quantise((name, geometry), (out, to), &arguments, [rows, width])
    }

    /// As [`delta_gate`](Self::delta_gate), with its result, rounded to the element type, quantised
    /// to `out` instead of in place. Sums of squares have another order.
    ///
    /// # Errors
    /// As `delta_gate` and [`quantise_rows`](Self::quantise_rows); and when
    /// [`gates_in_fp8`](Self::gates_in_fp8) says that there is no such kernel.
    pub fn delta_gate_quantised<'a>(
        &self,
        sizes: &DeltaSizes,
        x: Slice<'_>,
        gate: Rows<'_>,
        (norm, epsilon): (Slice<'_>, f32),
        (out, to): (Slice<'_>, QuantiseTo<'a>),
        rows: usize,
    ) -> Result<RowScales<'a>, DeviceError> {
        let (width, bytes) = (sizes.value_width(), self.element.bytes());
        if !Self::gates_in_fp8(sizes, to.layout) {
            let (layout, dim) = (to.layout, sizes.value_dim);
            return Err(DeviceError::Shape(format!("gates of heads of {dim} elements to rows with {layout:?} scales")));
        }
        x.check(rows * width * bytes)?;
        self.check_rows(gate, rows, width)?;
        norm.check(sizes.value_dim * bytes)?;
        let own = [
            address(x),
            address(gate.at),
            int(gate.stride),
            address(norm),
            int(sizes.value_dim),
            int(width),
            Arg::Float(epsilon),
        ];
        let geometry = grid([width.div_ceil(GATE_THREADS * NUMBERS), rows, 1], GATE_THREADS as u32, 0);
        self.launch_quantise(("gate_blocks", geometry), (out, to), &own, [rows, width])
    }

    /// Whether [`delta_gate_quantised`](Self::delta_gate_quantised) has a kernel: a whole row's
    /// scale would need a block for each row.
    pub fn gates_in_fp8(sizes: &DeltaSizes, layout: Fp8Rows) -> bool {
        let dim = sizes.value_dim;
        has_blocks(layout) && dim.is_power_of_two() && (NUMBERS..=NUMBERS * WARP).contains(&dim)
    }

    /// The geometry of norms whose clusters share a row, as [`cluster`](Self::cluster).
    pub(super) fn cluster_of_norms(&self, rows: usize, width: usize) -> Option<Geometry> {
        self.cluster(rows, width.div_ceil(SHARERS * NORMED), NORM_THREADS)
    }

    /// The geometry of kernels whose clusters share a row, if they are better for these rows.
    fn cluster(&self, rows: usize, threads: usize, most: usize) -> Option<Geometry> {
        let threads = threads.next_multiple_of(WARP);
        let suits = rows <= MOST_CLUSTER_ROWS && threads <= most && self.device.properties().most_cluster >= SHARERS;
        suits.then(|| grid([SHARERS * rows, 1, 1], threads as u32, threads / WARP * MET_BYTES).in_clusters(SHARERS))
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
        let of_rows = [
            address(out),
            Arg::Int((form == RowForm::Values).into()),
            address(scales),
            address(fixed.unwrap_or(Slice::NONE)),
        ];
        let kernel = self.kernel(FILE, name)?;
        // SAFETY: lengths are checked above and by the callers.
        unsafe { self.device.launch(&kernel, geometry, &[&of_rows, own].concat())? };
        Ok(to.row_scales())
    }
}

/// Threads of a block that has a row: one per [`NUMBERS`] elements, in whole warps.
fn threads(inputs: usize) -> u32 {
    (inputs / NUMBERS).next_multiple_of(WARP).clamp(WARP, MOST_THREADS) as u32
}
