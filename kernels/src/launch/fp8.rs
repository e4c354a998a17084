//! `cuda/fp8.cu`, and the arguments of all kernels that read FP8 weights (`cuda/weights.cuh`).

use rayon::prelude::*;

use super::{Kernels, address, int, line};
use crate::{
    device::{Arg, DeviceError, Element, KernelFile, Properties, Slice, Split, matmul::row_scales},
    reference::{FP8_BLOCK, Fp8Rows, Fp8Scales},
};

pub(super) const FILE: KernelFile =
    KernelFile { name: "fp8.cu", text: include_str!("../../cuda/fp8.cu"), split: Split::Cache };

/// Inputs per 16 bytes of FP8 weights.
const CHUNK: usize = 16;

/// The type of the weights of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WeightType {
    /// The element type of everything else.
    #[default]
    Plain,
    /// FP8 with scales.
    Fp8,
    /// MXFP4, of experts alone; see [`mxfp4_order`](super::mxfp4_order).
    Mxfp4,
}

/// Float scales of FP8 weights.
#[derive(Clone, Copy, Debug)]
pub struct WeightScales<'a> {
    /// The scales, row by row.
    pub at: Slice<'a>,
    /// Which weights share a scale.
    pub layout: Fp8Scales,
}

/// How quantised rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowForm {
    /// FP8 numbers as values of the element type, in plain order: for kernels that multiply in it.
    Values,
    /// One byte per number, in the order of FP8 weights ([`fp8_order`]), rows without gaps: for
    /// kernels that multiply FP8 numbers.
    Numbers,
}

/// The scales of quantised rows.
#[derive(Clone, Copy, Debug)]
pub struct RowScales<'a> {
    /// Float: `[rows]`, or for blocks `[⌈inputs / 128⌉, stride]`, where the stride is the rows
    /// rounded up to a multiple of 4.
    pub at: Slice<'a>,
    /// Which numbers share a scale.
    pub layout: Fp8Rows,
    /// How the rows are stored.
    pub form: RowForm,
}

impl WeightType {
    /// FP8 if there are scales of some layout, else plain.
    pub fn from_scales(layout: Option<Fp8Scales>) -> Self {
        layout.map_or(Self::Plain, |_| Self::Fp8)
    }

    /// Inputs of a stage of a ring: its rows of weights have 128 bytes, and 64 in MXFP4.
    pub(super) fn piece(self) -> usize {
        match self {
            Self::Plain => 64,
            Self::Fp8 | Self::Mxfp4 => 128,
        }
    }

    /// Bytes of this many weights, without scales.
    pub(super) fn bytes(self, element: Element, count: usize) -> usize {
        match self {
            Self::Plain => count * element.bytes(),
            Self::Fp8 => count,
            Self::Mxfp4 => count / 2,
        }
    }

    /// Compiler options of a file, given those for plain weights.
    pub(super) fn options(self, mut plain: Vec<String>) -> Vec<String> {
        plain.extend(match self {
            Self::Plain => None,
            Self::Fp8 => Some("-DW_FP8".into()),
            Self::Mxfp4 => Some("-DW_MXFP4".into()),
        });
        plain
    }
}

impl<'a> WeightScales<'a> {
    /// The last arguments of kernels, for weights `[rows, inputs]`.
    pub(super) fn arguments(scales: Option<Self>, inputs: usize) -> Vec<Arg> {
        let of = |Self { at, layout }: Self| {
            let shift = if layout == Fp8Scales::Blocks { FP8_BLOCK.trailing_zeros() as usize } else { 0 };
            vec![address(at), int(shift), int(layout.columns(inputs))]
        };
        scales.map_or_else(Vec::new, of)
    }

    /// Checks that there are enough scales for weights `[rows, inputs]`.
    pub(super) fn check(self, rows: usize, inputs: usize) -> Result<(), DeviceError> {
        if !inputs.is_multiple_of(CHUNK) {
            return Err(DeviceError::Shape(format!(
                "weights in FP8 of {inputs} inputs, which is not a multiple of {CHUNK}"
            )));
        }
        self.at.check(self.layout.count(rows, inputs) * 4)
    }
}

impl RowForm {
    /// That of rows for products in FP8 on a device: numbers, if it multiplies these.
    pub fn for_device(properties: &Properties) -> Self {
        if properties.multiplies_fp8() { Self::Numbers } else { Self::Values }
    }
}

impl RowScales<'_> {
    /// Elements from the scales of a block of inputs to those of the next; 0 if a row has one
    /// scale.
    pub(super) fn stride(self, rows: usize) -> usize {
        if has_blocks(self.layout) { rows.next_multiple_of(4) } else { 0 }
    }
}

/// Whether a row has a scale for each block of its inputs.
pub(super) fn has_blocks(layout: Fp8Rows) -> bool {
    layout == Fp8Rows::RowBlocks
}

/// Permutes FP8 numbers into the order in which the kernels read them; rows are multiples of 16.
pub fn fp8_order(numbers: &mut [u8]) {
    // Pieces that are worth a thread each.
    numbers.par_chunks_mut(1 << 16).flat_map_iter(|piece| piece.as_chunks_mut::<CHUNK>().0).for_each(|chunk| {
        let from = *chunk;
        for (word, to) in chunk.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *to = [from[2 * word + 8], from[2 * word], from[2 * word + 9], from[2 * word + 1]];
        }
    });
}

impl Kernels {
    /// Bytes of the scales of quantised rows.
    pub fn row_scales_bytes(layout: Fp8Rows, rows: usize, inputs: usize) -> usize {
        row_scales(layout, rows, inputs) * 4
    }

    /// Dequantises FP8 weights `[rows, inputs]`, in the order of the kernels, to the element type.
    ///
    /// # Errors
    /// When a buffer is too short, the element type is float, or the device fails.
    pub fn dequantise(
        &self,
        out: Slice<'_>,
        weights: Slice<'_>,
        scales: WeightScales<'_>,
        [rows, inputs]: [usize; 2],
    ) -> Result<(), DeviceError> {
        if self.element == Element::F32 {
            return Err(DeviceError::Shape("FP8 weights with float32".into()));
        }
        out.check(rows * inputs * self.element.bytes())?;
        weights.check(rows * inputs)?;
        scales.check(rows, inputs)?;
        let kernel = self.kernel(FILE, "dequantise")?;
        let arguments = [
            &[address(out), address(weights), int(rows), int(inputs)][..],
            &WeightScales::arguments(Some(scales), inputs),
        ];
        let blocks = (rows * inputs / CHUNK).div_ceil(256).clamp(1, self.device.properties().multiprocessors * 8);
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, line(blocks, 256), &arguments.concat()) }
    }

    /// Fills memory with uniformly random FP8 numbers.
    ///
    /// # Errors
    /// When the device fails.
    pub fn fill_random_fp8(&self, out: Slice<'_>, seed: u64) -> Result<(), DeviceError> {
        let kernel = self.kernel(FILE, "fill_random_fp8")?;
        let arguments = [address(out), Arg::Long(out.bytes() as u64), Arg::Long(seed)];
        let blocks = out.bytes().div_ceil(256).clamp(1, self.device.properties().multiprocessors * 16);
        // SAFETY: the kernel writes as many bytes as the slice holds.
        unsafe { self.device.launch(&kernel, line(blocks, 256), &arguments) }
    }
}
