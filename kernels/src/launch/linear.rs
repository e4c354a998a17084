//! `cuda/linear.cu`.

use super::{Kernels, Rows, address, check_ints, grid, int};
use crate::device::{Arg, DeviceError, Element, KernelFile, Slice};

pub(super) const FILE: KernelFile = KernelFile { name: "linear.cu", text: include_str!("../../cuda/linear.cu") };
pub(super) const FLOAT_FILE: KernelFile =
    KernelFile { name: "linear_float.cu", text: include_str!("../../cuda/linear_float.cu") };

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
        let Linear { y, y_stride, y_is_float, x, source, weight, bias, rows, inputs, outputs, blocks } = linear;
        self.check_rows(x, if source.is_some() { 1 } else { rows }, inputs)?;
        if let Some(source) = source {
            check_ints(source, rows)?;
        }
        let element = self.element.bytes();
        weight.check(outputs * inputs * element)?;
        if let Some(bias) = bias {
            bias.check(outputs * element)?;
        }
        y.check(((rows - 1) * y_stride + outputs) * if y_is_float { 4 } else { element })?;
        let float = self.element == Element::F32;
        let narrow = blocks == LinearBlocks::Narrow;
        let (name, rows_a_block, outputs_a_block) = match rows {
            _ if float => ("linear_float", 8, 8),
            ..=8 if narrow && outputs <= FEW_OUTPUTS => ("linear_8_ahead", 8, 16),
            ..=8 if narrow => ("linear_8", 8, 16),
            ..=8 => ("linear_8_wide", 8, 32),
            9..=16 if narrow && outputs <= FEW_OUTPUTS => ("linear_16_ahead", 16, 16),
            9..=16 if narrow => ("linear_16", 16, 16),
            9..=16 => ("linear_16_wide", 16, 32),
            _ => ("linear_32_wide", 32, 64),
        };
        let (row_blocks, output_blocks) = (rows.div_ceil(rows_a_block), outputs.div_ceil(outputs_a_block));
        let wide = outputs_a_block > 16;
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
