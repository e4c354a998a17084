//! `cuda/linear.cu`.

use super::{Kernels, Rows, address, check_ints, grid, int};
use crate::device::{Arg, DeviceError, Element, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "linear.cu", text: include_str!("../../cuda/linear.cu"), split: Split::Cache };
pub(super) const FLOAT_FILE: KernelFile =
    KernelFile { name: "linear_float.cu", text: include_str!("../../cuda/linear_float.cu"), split: Split::Cache };

/// Layers of at most so many outputs have too few blocks to keep memory busy without asking ahead.
const FEW_OUTPUTS: usize = 8192;

/// How the outputs of a layer are dealt to blocks: a matter of speed, the results are the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinearBlocks {
    /// 16 outputs a block for up to 16 rows, wide ones above: more blocks, better for few outputs and few rows.
    Narrow,
    /// 32 outputs a block for up to 16 rows, 64 above: fewer reads of the input.
    Wide,
}

/// Operands of [`Kernels::linear`].
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// The result: of the element type, or float.
    pub y: Slice<'a>,
    /// Elements from one row of the result to the next.
    pub y_stride: usize,
    /// Whether the result is float whatever the element type.
    pub y_is_float: bool,
    /// The input.
    pub x: Rows<'a>,
    /// Which row of `x` each row reads, int32.
    pub source: Option<Slice<'a>>,
    /// `[outputs, inputs]`.
    pub weight: Slice<'a>,
    /// `[outputs]`.
    pub bias: Option<Slice<'a>>,
    /// Rows.
    pub rows: usize,
    /// Width of the input.
    pub inputs: usize,
    /// Width of the result.
    pub outputs: usize,
    /// Which kernel runs.
    pub blocks: LinearBlocks,
}

impl Kernels {
    /// `y = x · weightᵀ + bias`, each row in an order that does not depend on the others.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn linear(&self, linear: Linear<'_>) -> Result<(), DeviceError> {
        self.launch_linear(linear, false)
    }

    /// `y = silu(x · gateᵀ) · (x · upᵀ)`: the weight is `[2 · outputs, inputs]`, gate first, the bias likewise. The bits are
    /// those of [`linear`](Self::linear) and [`silu_gate`](Self::silu_gate), without the launch and the buffer between them.
    ///
    /// # Errors
    /// When the element type is float, which has no such kernel; otherwise as `linear`.
    pub fn linear_gated(&self, linear: Linear<'_>) -> Result<(), DeviceError> {
        if self.element == Element::F32 {
            return Err(DeviceError::Shape("there is no gated linear layer of float32".into()));
        }
        self.launch_linear(linear, true)
    }

    fn launch_linear(&self, linear: Linear<'_>, gated: bool) -> Result<(), DeviceError> {
        let Linear { y, y_stride, y_is_float, x, source, weight, bias, rows, inputs, outputs, blocks } = linear;
        self.check_rows(x, if source.is_some() { 1 } else { rows }, inputs)?;
        if let Some(source) = source {
            check_ints(source, rows)?;
        }
        let element = self.element.bytes();
        let sums = if gated { 2 * outputs } else { outputs };
        weight.check(sums * inputs * element)?;
        if let Some(bias) = bias {
            bias.check(sums * element)?;
        }
        y.check(((rows - 1) * y_stride + outputs) * if y_is_float { 4 } else { element })?;
        let float = self.element == Element::F32;
        let narrow = blocks == LinearBlocks::Narrow;
        let few = outputs <= FEW_OUTPUTS;
        let (name, rows_a_block, sums_a_block) = match (rows, gated) {
            _ if float => ("linear_float", 8, 8),
            (..=8, false) if narrow && few => ("linear_8_ahead", 8, 16),
            (..=8, false) if narrow => ("linear_8", 8, 16),
            (..=8, true) if narrow => ("linear_8_gated", 8, 16),
            (..=8, false) => ("linear_8_wide", 8, 32),
            (..=8, true) => ("linear_8_wide_gated", 8, 32),
            (9..=16, false) if narrow && few => ("linear_16_ahead", 16, 16),
            (9..=16, false) if narrow => ("linear_16", 16, 16),
            (9..=16, true) if narrow => ("linear_16_gated", 16, 16),
            (9..=16, false) => ("linear_16_wide", 16, 32),
            (9..=16, true) => ("linear_16_wide_gated", 16, 32),
            (_, false) => ("linear_32_wide", 32, 64),
            (_, true) => ("linear_32_wide_gated", 32, 64),
        };
        let (row_blocks, output_blocks) = (rows.div_ceil(rows_a_block), sums.div_ceil(sums_a_block));
        let wide = sums_a_block > 16;
        if wide && x.at.bytes() / element > u32::MAX as usize {
            return Err(DeviceError::Shape(format!("{inputs} → {outputs}: more than 2³² elements of input")));
        }
        let blocks = if wide { [row_blocks, output_blocks, 1] } else { [output_blocks, row_blocks, 1] };
        let threads = if float { 256 } else { 512 };
        let kernel = self.kernel(if float { FLOAT_FILE } else { FILE }, name)?;
        let arguments = [
            address(y),
            Arg::Int(y_is_float.into()),
            int(y_stride),
            address(x.at),
            int(x.stride),
            address(source.unwrap_or(Slice::NONE)),
            address(weight),
            address(bias.unwrap_or(Slice::NONE)),
            int(rows),
            int(inputs),
            int(outputs),
        ];
        // SAFETY: lengths are checked above; rows of `source` are the caller's layout kernels', which stay within.
        unsafe { self.device.launch(&kernel, grid(blocks, threads, 0), &arguments) }
    }
}
