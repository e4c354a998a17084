//! Mixtures of experts: `cuda/route.cu`, `cuda/experts.cu` and `cuda/experts_float.cu`.
//!
//! Work is organised in pairs of a row and one of its experts. The router's blocks share a row's
//! experts, and the last block chooses. Pairs are then grouped into tiles of one expert each. Only
//! device memory holds the number of tiles, so grids are as large as the number of rows may
//! require, and blocks without a tile exit.
//!
//! A row's experts are summed in ascending order of expert, never in order of completion, and a
//! product's summation order does not depend on its tile. Batch-invariant mode uses the kernels for
//! few rows at every size. Shared experts are further experts of weight 1.

use std::str::FromStr;

use super::{
    Added, Kernels, Parts, QuantiseRows, QuantiseTo, RowForm, RowScales, Rows, WeightScales, WeightType, address,
    check_ints, grid, int, mxfp4_scale_bytes,
};
use crate::{
    device::{Arg, DeviceError, Element, Geometry, KernelFile, Slice, Split},
    reference::{GateActivation, MXFP4_BLOCK, Router, Scoring},
};

pub(super) const ROUTE_FILE: KernelFile =
    KernelFile { name: "route.cu", text: include_str!("../../cuda/route.cu"), split: Split::Shared };
pub(super) const FILE: KernelFile =
    KernelFile { name: "experts.cu", text: include_str!("../../cuda/experts.cu"), split: Split::Shared };
pub(super) const FLOAT_FILE: KernelFile =
    KernelFile { name: "experts_float.cu", text: include_str!("../../cuda/experts_float.cu"), split: Split::Shared };

/// Compiler option of experts with biases or another activation than SiLU.
const BIASED: &str = "-DBIASED";

/// Maximum number of experts of a layer, including shared ones.
pub const MOST_EXPERTS: usize = 512;
/// Maximum number of experts of a row, including shared ones.
pub const MOST_CHOSEN: usize = 32;
/// Integers at the head of a tile's record.
const RECORD_HEAD: usize = 4;
/// Experts of a block of the router.
const ROUTE_EXPERTS: usize = 16;
/// Maximum number of rows for which [`ExpertKernels::Narrow`] is taken, and pairs of their tiles.
const MOST_NARROW_ROWS: usize = 2;
/// Maximum number of warps of a block.
const MOST_WARPS: usize = 32;
/// Maximum number of rows of [`ExpertKernels::Few`], whose experts each write a float row.
const MOST_FEW_ROWS: usize = 512;
/// Maximum number of rows of [`ExpertKernels::Many`].
const MOST_MANY_ROWS: usize = 8192;

/// The experts of a layer and how a row finds its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertsShape {
    /// Routed experts.
    pub routed: usize,
    /// Experts after them that every row passes, with weight 1 or that of their gate.
    pub shared: usize,
    /// Whether shared experts have a gate: the sigmoid of one more logit is their weight.
    pub gated: bool,
    /// How routed ones are chosen.
    pub router: Router,
    /// Whether logits are rounded to the element type.
    pub rounds_logits: bool,
    /// Width of rows.
    pub hidden: usize,
    /// Outputs of gate and up of an expert.
    pub intermediate: usize,
    /// The type of the experts' weights.
    pub weights: WeightType,
    /// How an expert joins gate and up.
    pub activation: GateActivation,
    /// Whether router and experts have biases.
    pub biased: bool,
}

/// The kernels that compute the experts of some rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertKernels {
    /// Float products without tensor cores.
    Float,
    /// Tiles of 2 pairs, in blocks of fewer outputs than those of [`Few`](Self::Few), since few
    /// tiles have too few of the other blocks to keep a device busy. Where weights are expanded,
    /// warps share the inputs ([`NarrowBlock`]), and the order of sums is another one.
    Narrow,
    /// Tiles of this many pairs (8, 16 or 32), of which each expert's output is added up in float.
    Few(usize),
    /// Tiles of this many pairs (64 or 128), of which each expert's output is rounded to the
    /// element type.
    Many(usize),
}

/// A block of [`ExpertKernels::Narrow`]: `-DNARROW_GATED` and `-DNARROW_DOWN` of `cuda/experts.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NarrowBlock {
    /// Warps with different outputs, 16 each (gate and up counted separately).
    pub warps: usize,
    /// Groups of as many warps with the same outputs, among which 128 inputs at a time (64 of plain
    /// weights) are dealt out.
    pub shares: usize,
    /// Stages of the ring of each group.
    pub stages: usize,
}

/// Memory of a layer's experts, for some rows; see [`Kernels::experts_bytes`].
#[derive(Clone, Copy, Debug)]
pub struct ExpertsWork<'a> {
    /// Float `[rows, logits]`.
    pub logits: Slice<'a>,
    /// int32, zeros: which blocks of the router have come.
    pub counters: Slice<'a>,
    /// int32 `[rows, chosen]`.
    pub expert: Slice<'a>,
    /// Float `[rows, chosen]`.
    pub weight: Slice<'a>,
    /// Records of tiles, after their number.
    pub tiles: Slice<'a>,
    /// `[pairs, intermediate]`.
    pub gated: Slice<'a>,
    /// What experts yield: float `[chosen, rows, hidden]`, weighted; or `[pairs, hidden]`, yet to
    /// be.
    pub outputs: Slice<'a>,
}

/// Bytes of each part of [`ExpertsWork`], in its order.
pub type ExpertsBytes = [usize; 7];

/// Weights of a layer of experts.
#[derive(Clone, Copy, Debug)]
pub struct ExpertsWeights<'a> {
    /// `[logits, hidden]`: routed experts, then the gate of shared ones.
    pub router: Slice<'a>,
    /// Float `[routed]`.
    pub correction: Option<Slice<'a>>,
    /// `[experts, 2 · intermediate, hidden]`, gate first; routed experts, then shared ones.
    pub gate_up: Slice<'a>,
    /// `[experts, hidden, intermediate]`.
    pub down: Slice<'a>,
    /// Those of `gate_up` and of `down`, as of matrices with the rows of all experts, if these are
    /// in FP8.
    pub scales: Option<[WeightScales<'a>; 2]>,
    /// Those of each expert as [`mxfp4_scales`](super::mxfp4_scales) has them, if these are in
    /// MXFP4.
    pub mxfp4_scales: Option<[Slice<'a>; 2]>,
    /// Biases, if the shape has any.
    pub biases: Option<ExpertBiases<'a>>,
}

/// Biases of a layer of experts, in the element type.
#[derive(Clone, Copy, Debug)]
pub struct ExpertBiases<'a> {
    /// `[routed]`.
    pub router: Slice<'a>,
    /// `[experts, 2 · intermediate]`, gate first.
    pub gate_up: Slice<'a>,
    /// `[experts, hidden]`.
    pub down: Slice<'a>,
}

/// Rows of experts in FP8: normed rows as gate and up read them (the router reads them as they
/// are), and joined ones of each pair as down reads them.
#[derive(Clone, Copy, Debug)]
pub struct ExpertProducts<'a> {
    /// Receive them, `[rows, hidden]` and `[pairs, intermediate]`.
    pub quantised: [Slice<'a>; 2],
    /// Where their scales go, and how they are quantised; both in one form.
    pub to: [QuantiseTo<'a>; 2],
    /// Whether the first of both have been quantised already.
    pub is_ready: bool,
}

/// Operands of [`Kernels::experts`].
#[derive(Clone, Copy, Debug)]
pub struct Experts<'a> {
    /// What the layer is.
    pub shape: ExpertsShape,
    /// Its weights.
    pub weights: ExpertsWeights<'a>,
    /// Normed rows.
    pub x: Rows<'a>,
    /// How many.
    pub rows: usize,
    /// Memory on the way.
    pub work: ExpertsWork<'a>,
    /// How rows are quantised, for products of experts in FP8.
    pub products: Option<ExpertProducts<'a>>,
    /// What computes them.
    pub by: ExpertKernels,
    /// Whether what they yield is added up at once, and not left in parts.
    pub whole: bool,
}

impl ExpertsShape {
    /// All experts.
    pub fn experts(&self) -> usize {
        self.routed + self.shared
    }

    /// Logits of a row.
    pub fn logits(&self) -> usize {
        self.routed + usize::from(self.gated)
    }

    /// Experts of a row.
    pub fn chosen(&self) -> usize {
        self.router.top_k + self.shared
    }

    /// Whether its kernels are those of `cuda/clamped.cuh`'s option.
    fn has_form(&self) -> bool {
        self.biased || self.activation != GateActivation::Silu
    }

    /// Why the kernels do not compute it, if so.
    pub fn refused(&self) -> Option<String> {
        if self.experts() > MOST_EXPERTS || self.chosen() > MOST_CHOSEN {
            let (experts, chosen) = (self.experts(), self.chosen());
            return Some(format!(
                "{experts} experts, {chosen} per row; the GPU's kernels support up to {MOST_EXPERTS} and \
                 {MOST_CHOSEN}"
            ));
        }
        if !self.router.fits(self.routed) {
            return Some(format!("{:?} does not fit {} experts", self.router, self.routed));
        }
        let unit = match self.weights {
            WeightType::Plain => 8,
            WeightType::Fp8 => 16,
            WeightType::Mxfp4 => MXFP4_BLOCK,
        };
        let width = [self.hidden, self.intermediate].into_iter().find(|width| !width.is_multiple_of(unit))?;
        Some(format!("experts of width {width}, which is not a multiple of {unit}"))
    }
}

impl FromStr for NarrowBlock {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<usize>> = text.split(',').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[warps, shares, stages]) if (1..=MOST_WARPS).contains(&(warps * shares)) && stages > 1 => {
                Ok(Self::new((warps, shares, stages)))
            }
            _ => Err(format!(
                "{text:?} is not WARPS,SHARES,STAGES of a block, of up to {MOST_WARPS} warps and with two stages or more"
            )),
        }
    }
}

impl NarrowBlock {
    /// Those that compute gate and up, and down, of weights of a type.
    pub const fn for_weights(weights: WeightType) -> [Self; 2] {
        let [gated, down] = match weights {
            WeightType::Plain => [(2, 1, 8), (2, 1, 8)],
            // Numbers that have to be expanded need warps for it; others, bytes in flight.
            WeightType::Fp8 => [(2, 4, 2), (2, 4, 2)],
            WeightType::Mxfp4 => [(1, 4, 4), (1, 4, 4)],
        };
        [Self::new(gated), Self::new(down)]
    }

    const fn new((warps, shares, stages): (usize, usize, usize)) -> Self {
        Self { warps, shares, stages }
    }

    /// A compiler option with them.
    fn option(self, name: &str) -> String {
        format!("-D{name}={},{},{}", self.warps, self.shares, self.stages)
    }
}

/// Compiler options of `experts.cu`, given those for all files of an element type: for some
/// weights, for rows in FP8 in some form, and with biases or another activation than SiLU.
pub(super) fn options(
    plain: Vec<String>,
    weights: WeightType,
    narrow: Option<[NarrowBlock; 2]>,
    form: Option<RowForm>,
    biased: bool,
) -> Vec<String> {
    let [gated, down] = narrow.unwrap_or(NarrowBlock::for_weights(weights));
    let mut options = weights.options(plain);
    options.extend([gated.option("NARROW_GATED"), down.option("NARROW_DOWN")]);
    let of_rows: &[&str] = match form {
        None => &[],
        Some(RowForm::Values) => &["-DROWS_FP8"],
        Some(RowForm::Numbers) => &["-DROWS_FP8", "-DX_FP8"],
    };
    options.extend(of_rows.iter().copied().chain(biased.then_some(BIASED)).map(String::from));
    options
}

/// Compiler options of `experts_float.cu`, likewise.
pub(super) fn float_options(plain: Vec<String>, weights: WeightType, biased: bool) -> Vec<String> {
    let mut options = weights.options(plain);
    options.extend(biased.then(|| BIASED.into()));
    options
}

impl ExpertKernels {
    /// Pairs of a tile.
    fn tile(self) -> usize {
        match self {
            Self::Float => 1,
            Self::Narrow => MOST_NARROW_ROWS,
            Self::Few(tile) | Self::Many(tile) => tile,
        }
    }

    /// Rows that are computed together, at most.
    pub fn most_rows(self) -> usize {
        match self {
            Self::Float | Self::Narrow | Self::Few(_) => MOST_FEW_ROWS,
            Self::Many(_) => MOST_MANY_ROWS,
        }
    }

    /// Tiles of this many rows, at most: whole ones, and one that is not for each expert that has
    /// rows.
    fn most_tiles(self, shape: &ExpertsShape, rows: usize) -> usize {
        let pairs = rows * shape.chosen();
        pairs.min(shape.experts() + pairs / self.tile())
    }

    fn bytes(self, shape: &ExpertsShape, rows: usize, element: usize) -> ExpertsBytes {
        let rows = rows.min(self.most_rows());
        let pairs = rows * shape.chosen();
        let records = self.most_tiles(shape, rows) * (RECORD_HEAD + 2 * self.tile());
        let output = if matches!(self, Self::Many(_)) { element } else { 4 };
        [
            rows * shape.logits() * 4,
            rows * 4,
            pairs * 4,
            pairs * 4,
            16 + records * 4,
            pairs * shape.intermediate * element,
            pairs * shape.hidden * output,
        ]
    }
}

impl Kernels {
    /// The fastest kernels for the experts of this many rows; with `one_order`, the fastest whose
    /// summation order is the same for all numbers of rows.
    pub fn expert_kernels(&self, shape: &ExpertsShape, rows: usize, one_order: bool) -> ExpertKernels {
        if self.element == Element::F32 {
            return ExpertKernels::Float;
        }
        // Two rows in FP8 are faster in tiles of 8 pairs.
        let narrow_rows = if shape.weights == WeightType::Fp8 { 1 } else { MOST_NARROW_ROWS };
        if rows <= narrow_rows && !one_order {
            return ExpertKernels::Narrow;
        }
        // Pairs of an expert, on average: measured with `examples/experts_time.rs`, see
        // docs/notes/performance/experts.md.
        let mean = rows.min(MOST_FEW_ROWS) * shape.router.top_k / shape.routed;
        match mean {
            0..=3 => ExpertKernels::Few(8),
            4..=15 => ExpertKernels::Few(16),
            _ if one_order || (rows <= MOST_FEW_ROWS && mean < 32) => ExpertKernels::Few(32),
            // Smaller than plain weights', see `experts.cu`.
            _ if shape.weights != WeightType::Plain || rows * shape.router.top_k < 64 * shape.routed => {
                ExpertKernels::Many(64)
            }
            _ => ExpertKernels::Many(128),
        }
    }

    /// Compiles the kernels of a layer before their first use, as [`Device::load`] does.
    ///
    /// # Errors
    /// When the compiler fails.
    ///
    /// [`Device::load`]: crate::device::Device::load
    pub fn load_experts(&self, shape: &ExpertsShape, form: Option<RowForm>) -> Result<(), DeviceError> {
        self.device.load(FILE, &self.expert_options(shape, form))
    }

    /// Bytes of the memory that experts take for up to this many rows.
    pub fn experts_bytes(element: Element, shape: &ExpertsShape, rows: usize, one_order: bool) -> ExpertsBytes {
        use ExpertKernels::{Few, Float, Many, Narrow};
        let ways: &[ExpertKernels] = match (element, one_order) {
            (Element::F32, _) => &[Float],
            (_, true) => &[Few(8), Few(16), Few(32)],
            (_, false) => &[Narrow, Few(8), Few(16), Few(32), Many(64), Many(128)],
        };
        let all = ways.iter().map(|way| way.bytes(shape, rows, element.bytes()));
        all.fold([0; 7], |most, bytes| std::array::from_fn(|at| most[at].max(bytes[at])))
    }

    /// Routes rows and computes their experts: what is to be added to the residual stream, in `out`
    /// or yet in parts.
    ///
    /// # Errors
    /// When a buffer is too short, there are more rows than these kernels take together, the shape
    /// is beyond their limits, or the device fails.
    pub fn experts<'a>(&self, experts: Experts<'a>, out: Rows<'a>) -> Result<Added<'a>, DeviceError> {
        self.route(experts)?;
        self.experts_gated(experts)?;
        let Experts { shape, rows, work, .. } = experts;
        self.experts_down(experts)?;
        let (hidden, chosen) = (shape.hidden, shape.chosen());
        let weighted = !matches!(experts.by, ExpertKernels::Many(_));
        // The norm after the layer adds up that many parts while it reads them.
        if weighted && chosen <= Self::MOST_ADDENDS && !experts.whole {
            return Ok(Added::Parts(Parts { at: work.outputs, count: chosen }));
        }
        self.check_rows(out, rows, hidden)?;
        let kernel = self.kernel(ROUTE_FILE, "sum_experts")?;
        let (parts, plain) = if weighted { (work.outputs, Slice::NONE) } else { (Slice::NONE, work.outputs) };
        let arguments = [
            address(out.at),
            int(out.stride),
            address(parts),
            address(plain),
            address(work.weight),
            int(chosen),
            int(hidden),
        ];
        // SAFETY: lengths are checked above and by `check_experts`.
        unsafe { self.device.launch(&kernel, grid([hidden.div_ceil(1024), rows, 1], 256, 0), &arguments)? };
        Ok(Added::Rows(out))
    }

    /// The experts of each row, their weights, and the tiles of each expert.
    fn route(&self, experts: Experts<'_>) -> Result<(), DeviceError> {
        self.check_experts(experts)?;
        let Experts { shape, weights, x, rows, work, by, .. } = experts;
        let Router { scoring, top_k: _, groups, top_k_groups, renormalize, scale, uniform } = shape.router;
        let (name, together) = match rows {
            0..=8 => ("route_rows_1", 1),
            9..=64 => ("route_rows_4", 4),
            _ => ("route_rows_16", 16),
        };
        let (count, records) = (work.tiles.range(0..4), work.tiles.range(16..work.tiles.bytes()));
        let arguments = [
            address(x.at),
            int(x.stride),
            address(weights.router),
            int(rows),
            int(shape.hidden),
            Arg::Int(shape.rounds_logits.into()),
            address(work.logits),
            address(work.counters),
            address(work.expert),
            address(work.weight),
            address(records),
            address(count),
            int(by.tile()),
            address(weights.biases.map_or(Slice::NONE, |biases| biases.router)),
            address(weights.correction.unwrap_or(Slice::NONE)),
            int(shape.experts()),
            int(shape.chosen()),
            int(shape.shared),
            Arg::Int((scoring == Scoring::Sigmoid).into()),
            int(groups),
            int(top_k_groups),
            Arg::Int(renormalize.is_some().into()),
            Arg::Float(renormalize.unwrap_or_default()),
            Arg::Float(scale),
            Arg::Int(shape.gated.into()),
            Arg::Int(uniform.into()),
        ];
        let kernel = self.kernel(ROUTE_FILE, name)?;
        let blocks = [shape.logits().div_ceil(ROUTE_EXPERTS), rows.div_ceil(together), 1];
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, grid(blocks, 256, 0), &arguments)? };
        if rows == 1 || by == ExpertKernels::Float {
            return Ok(());
        }
        let kernel = self.kernel(ROUTE_FILE, "group_pairs")?;
        let arguments = [
            address(work.expert),
            address(work.weight),
            int(rows * shape.chosen()),
            int(shape.experts()),
            int(by.tile()),
            address(records),
            address(count),
        ];
        // SAFETY: lengths are checked above; experts are those that the router has written, all
        // below their number.
        unsafe { self.device.launch(&kernel, grid([shape.experts(), 1, 1], 256, 0), &arguments) }
    }

    /// Gate and up of each pair, joined.
    fn experts_gated(&self, experts: Experts<'_>) -> Result<(), DeviceError> {
        let Experts { shape, weights, x, rows, work, .. } = experts;
        let sizes = [shape.hidden, shape.intermediate];
        let (x, scales) = self.quantised(experts, x, [rows, shape.hidden], true)?;
        self.launch_experts(experts, [work.gated, weights.gate_up], (x, scales), sizes, true)
    }

    /// What each pair's expert yields.
    fn experts_down(&self, experts: Experts<'_>) -> Result<(), DeviceError> {
        let Experts { shape, weights, rows, work, .. } = experts;
        let sizes = [shape.intermediate, shape.hidden];
        let gated = Rows { at: work.gated, stride: shape.intermediate };
        let (x, scales) = self.quantised(experts, gated, [rows * shape.chosen(), shape.intermediate], false)?;
        self.launch_experts(experts, [work.outputs, weights.down], (x, scales), sizes, false)
    }

    /// The input of a product, quantised if that is of FP8 numbers, with the scales of its rows and
    /// their stride.
    fn quantised<'a>(
        &self,
        experts: Experts<'a>,
        x: Rows<'a>,
        [rows, inputs]: [usize; 2],
        gated: bool,
    ) -> Result<(Rows<'a>, Option<(RowScales<'a>, usize)>), DeviceError> {
        let Some(ExpertProducts { quantised, to, is_ready }) = experts.products else { return Ok((x, None)) };
        let at = usize::from(!gated);
        let scales = if gated && is_ready {
            to[0].row_scales()
        } else {
            let to = to[at];
            self.quantise_rows(QuantiseRows { out: quantised[at], to, x, unscaled: None, gated: false, rows, inputs })?
        };
        Ok((Rows { at: quantised[at], stride: inputs }, Some((scales, scales.stride(rows)))))
    }

    fn launch_experts(
        &self,
        experts: Experts<'_>,
        [y, w]: [Slice<'_>; 2],
        (x, row_scales): (Rows<'_>, Option<(RowScales<'_>, usize)>),
        [inputs, outputs]: [usize; 2],
        gated: bool,
    ) -> Result<(), DeviceError> {
        let Experts { shape, rows, work, by, .. } = experts;
        let chosen = shape.chosen();
        let (count, records) = (work.tiles.range(0..4), work.tiles.range(16..work.tiles.bytes()));
        let begin = [address(y), address(x.at), int(x.stride), address(w)];
        let end = [int(chosen), int(inputs), int(outputs)];
        let tiles = [address(records), address(count)];
        let scales = experts.weights.scales.map(|[gate_up, down]| if gated { gate_up } else { down });
        let mut of_weights = WeightScales::arguments(scales, inputs);
        of_weights
            .extend(experts.weights.mxfp4_scales.map(|[gate_up, down]| address(if gated { gate_up } else { down })));
        let form = row_scales.map(|(scales, _)| scales.form);
        if let Some((scales, stride)) = row_scales {
            of_weights.extend([address(scales.at), int(stride)]);
        }
        if shape.has_form() {
            let bias = |biases: ExpertBiases<'_>| address(if gated { biases.gate_up } else { biases.down });
            of_weights.push(experts.weights.biases.map_or(address(Slice::NONE), bias));
            of_weights.extend(
                match shape.activation {
                    GateActivation::Silu => [0.0, 0.0],
                    GateActivation::Clamped { alpha, limit } => [alpha, limit],
                }
                .map(Arg::Float),
            );
        }
        let most_tiles = by.most_tiles(&shape, rows);
        let (kernel, geometry, arguments) = match by {
            ExpertKernels::Float => {
                let name = if gated { "experts_gated_float" } else { "experts_down_float" };
                let weighted = [address(work.expert), address(work.weight), int(rows)];
                let more = if gated { &weighted[..1] } else { &weighted[..] };
                let geometry = grid([outputs.div_ceil(8), rows * chosen, 1], 256, 0);
                let options = float_options(self.options.clone(), shape.weights, shape.has_form());
                let kernel = self.device.kernel(FLOAT_FILE, &options, name)?;
                (kernel, geometry, [&begin[..], more, &end, &of_weights].concat())
            }
            ExpertKernels::Narrow | ExpertKernels::Few(_) | ExpertKernels::Many(_) => {
                let (name, geometry) = self.tiled(&shape, (by, gated), form, [outputs, most_tiles]);
                let options = self.expert_options(&shape, form);
                let arguments = [&begin[..], &tiles, &[int(rows)], &end, &of_weights].concat();
                (self.device.kernel(FILE, &options, name)?, geometry, arguments)
            }
        };
        // SAFETY: lengths are checked by `check_experts`; tiles are those that `route` has written
        // for as many pairs.
        unsafe { self.device.launch(&kernel, geometry, &arguments) }
    }

    /// Compiler options of the kernels with tiles.
    fn expert_options(&self, shape: &ExpertsShape, form: Option<RowForm>) -> Vec<String> {
        options(self.options.clone(), shape.weights, self.narrow, form, shape.has_form())
    }

    /// The kernel with tiles that computes a layer of this many outputs, and its geometry.
    fn tiled(
        &self,
        shape: &ExpertsShape,
        (by, gated): (ExpertKernels, bool),
        form: Option<RowForm>,
        [outputs, most_tiles]: [usize; 2],
    ) -> (&'static str, Geometry) {
        let (tile, numbers) = (by.tile(), form == Some(RowForm::Numbers));
        let name = match (tile, gated) {
            (MOST_NARROW_ROWS, true) => "experts_gated_narrow",
            (MOST_NARROW_ROWS, false) => "experts_down_narrow",
            (8, true) => "experts_gated_8",
            (8, false) => "experts_down_8",
            (16, true) => "experts_gated_16",
            (16, false) => "experts_down_16",
            (32, true) => "experts_gated_32",
            (32, false) => "experts_down_32",
            (64, true) => "experts_gated_64",
            (64, false) => "experts_down_64",
            (_, true) => "experts_gated_128",
            (_, false) => "experts_down_128",
        };
        let [of_gated, of_down] = self.narrow.unwrap_or(NarrowBlock::for_weights(shape.weights));
        let NarrowBlock { warps, shares, stages } = match (tile, shape.weights) {
            (MOST_NARROW_ROWS, _) => {
                if gated {
                    of_gated
                } else {
                    of_down
                }
            }
            (16 | 128, _) | (64, WeightType::Fp8 | WeightType::Mxfp4) if !numbers => NarrowBlock::new((8, 1, 3)),
            _ => NarrowBlock::new((8, 1, 4)),
        };
        // Of a stage: 16 rows of weights of each warp, in MXFP4 their scales, and rows of x of as
        // many inputs.
        let row = if shape.weights == WeightType::Mxfp4 { 64 + 4 } else { 128 };
        let (block_outputs, element) = (16 * warps, if numbers { 1 } else { 2 });
        let shared = shares * stages * (block_outputs * row + tile * shape.weights.piece() * element);
        let blocks = outputs.div_ceil(if gated { block_outputs / 2 } else { block_outputs });
        (name, grid([blocks, most_tiles, 1], 32 * (warps * shares) as u32, shared))
    }

    fn check_experts(&self, experts: Experts<'_>) -> Result<(), DeviceError> {
        let Experts { shape, weights, x, rows, work, products, by, .. } = experts;
        let tiles = match by {
            ExpertKernels::Float => self.element == Element::F32 && shape.weights != WeightType::Fp8,
            ExpertKernels::Many(128) if shape.weights != WeightType::Plain => false,
            ExpertKernels::Narrow => self.element != Element::F32,
            ExpertKernels::Few(tile) => self.element != Element::F32 && [8, 16, 32].contains(&tile),
            ExpertKernels::Many(tile) => self.element != Element::F32 && [64, 128].contains(&tile),
        };
        if let Some(reason) = shape.refused() {
            return Err(DeviceError::Shape(reason));
        }
        if !tiles || rows == 0 || rows > by.most_rows() {
            let name = self.element.name();
            return Err(DeviceError::Shape(format!("experts of {rows} rows of {name} are not computed by {by:?}")));
        }
        let computed = |ExpertProducts { to: [first, second], .. }: ExpertProducts<'_>| {
            let has_numbers = first.form == RowForm::Numbers;
            let form = first.form == second.form && (!has_numbers || self.device.properties().multiplies_fp8());
            form && shape.weights == WeightType::Fp8
        };
        if products.is_some_and(|products| !computed(products)) {
            return Err(DeviceError::Shape(
                "rows in FP8 of experts are for weights in FP8, both in one form, and numbers for devices that \
                 multiply these"
                    .into(),
            ));
        }
        self.check_rows(x, rows, shape.hidden)?;
        let element = self.element.bytes();
        weights.router.check(shape.logits() * shape.hidden * element)?;
        if let Some(correction) = weights.correction {
            check_ints(correction, shape.routed)?;
        }
        let matrix = shape.weights.bytes(self.element, shape.experts() * shape.intermediate * shape.hidden);
        let (both, hidden) = (shape.experts() * 2 * shape.intermediate, shape.experts() * shape.hidden);
        match (weights.scales, weights.mxfp4_scales, shape.weights) {
            (None, None, WeightType::Plain) => {}
            (Some([gate_up, down]), None, WeightType::Fp8) => {
                gate_up.check(both, shape.hidden)?;
                down.check(hidden, shape.intermediate)?;
            }
            (None, Some([gate_up, down]), WeightType::Mxfp4) => {
                gate_up.check(mxfp4_scale_bytes(both, shape.hidden))?;
                down.check(mxfp4_scale_bytes(hidden, shape.intermediate))?;
            }
            _ => return Err(DeviceError::Shape("experts in FP8 or MXFP4 have scales of their own kind".into())),
        }
        match weights.biases {
            None if !shape.biased => {}
            Some(ExpertBiases { router, gate_up, down }) if shape.biased => {
                router.check(shape.routed * element)?;
                gate_up.check(both * element)?;
                down.check(hidden * element)?;
            }
            _ => return Err(DeviceError::Shape("only experts whose shape says so have biases".into())),
        }
        weights.gate_up.check(2 * matrix)?;
        weights.down.check(matrix)?;
        let ExpertsWork { logits, counters, expert, weight, tiles, gated, outputs } = work;
        let parts = [logits, counters, expert, weight, tiles, gated, outputs];
        parts.into_iter().zip(by.bytes(&shape, rows, element)).try_for_each(|(part, bytes)| part.check(bytes))
    }
}
