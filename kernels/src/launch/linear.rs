//! `cuda/linear.cu`.

use super::{Kernels, Rows, address, check_ints, grid, int};
use crate::device::{Arg, DeviceError, Element, KernelFile, Slice};

pub(super) const FILE: KernelFile = KernelFile { name: "linear.cu", text: include_str!("../../cuda/linear.cu") };
pub(super) const FLOAT_FILE: KernelFile =
    KernelFile { name: "linear_float.cu", text: include_str!("../../cuda/linear_float.cu") };

/// Rows that one block of the widest kernel takes.
pub const MOST_ROWS_A_BLOCK: usize = 32;
/// The widest kernel, and its outputs a block.
const WIDE: &str = "linear_wide";
const OUTPUTS_A_WIDE_BLOCK: usize = 64;
/// Layers of at most so many outputs have too few blocks to keep memory busy without asking ahead.
const FEW_OUTPUTS: usize = 8192;

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
}

impl Kernels {
    /// `y = x · weightᵀ + bias`, each row in an order that does not depend on the others.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn linear(&self, linear: Linear<'_>) -> Result<(), DeviceError> {
        let Linear { y, y_stride, y_is_float, x, source, weight, bias, rows, inputs, outputs } = linear;
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
        let (name, rows_a_block) = match (rows, outputs <= FEW_OUTPUTS) {
            _ if float => ("linear_float", 8),
            (..=8, true) => ("linear_8_ahead", 8),
            (..=8, false) => ("linear_8", 8),
            (..=16, true) => ("linear_16_ahead", 16),
            (..=16, false) => ("linear_16", 16),
            (_, _) => (WIDE, MOST_ROWS_A_BLOCK),
        };
        let wide = name == WIDE;
        if wide && x.at.bytes() / element > u32::MAX as usize {
            return Err(DeviceError::Shape(format!(
                "{inputs} → {outputs} of {rows} rows: more than 2³² elements of input"
            )));
        }
        let (outputs_a_block, threads) = if float { (8, 256) } else { (16, 512) };
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
        let row_blocks = rows.div_ceil(rows_a_block);
        let blocks = match wide {
            true => [row_blocks, outputs.div_ceil(OUTPUTS_A_WIDE_BLOCK), 1],
            false => [outputs.div_ceil(outputs_a_block), row_blocks, 1],
        };
        // SAFETY: lengths are checked above; rows of `source` are the caller's layout kernels', which stay within.
        unsafe { self.device.launch(&kernel, grid(blocks, threads, 0), &arguments) }
    }
}
