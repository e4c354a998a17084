//! `cuda/linear.cu`.

use super::{Kernels, Rows, address, check_ints, grid, int};
use crate::device::{Arg, DeviceError, Element, KernelFile, Slice};

pub(super) const FILE: KernelFile = KernelFile { name: "linear.cu", text: include_str!("../../cuda/linear.cu") };
pub(super) const FLOAT_FILE: KernelFile =
    KernelFile { name: "linear_float.cu", text: include_str!("../../cuda/linear_float.cu") };

/// Rows that one block of the widest kernel takes.
pub const MOST_ROWS_A_BLOCK: usize = 64;

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
        let (name, rows_a_block, outputs_a_block) = match (self.element, rows) {
            (Element::F32, _) => ("linear_float", 8, 8),
            (_, ..=8) => ("linear_8", 8, 16),
            (_, ..=16) => ("linear_16", 16, 16),
            (_, ..=32) => ("linear_32", 32, 16),
            _ => ("linear_64", MOST_ROWS_A_BLOCK, 16),
        };
        let kernel = self.kernel(if self.element == Element::F32 { FLOAT_FILE } else { FILE }, name)?;
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
        let blocks = [outputs.div_ceil(outputs_a_block), rows.div_ceil(rows_a_block), 1];
        // SAFETY: lengths are checked above; rows of `source` are the caller's layout kernels', which stay within.
        unsafe { self.device.launch(&kernel, grid(blocks, 256, 0), &arguments) }
    }
}
