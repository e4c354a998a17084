//! Matrices in FP8: one-byte e4m3 numbers (4 bits of exponent, 3 of mantissa, no infinities), each
//! multiplied by a scale.
//!
//! Source of the number format: "FP8 Formats for Deep Learning", arXiv 2209.05433; of block scales:
//! DeepSeek-V3's report, arXiv 2412.19437, §3.3.

use std::{borrow::Cow, ops::Range, sync::LazyLock};

use rayon::prelude::*;

use super::Matrix;

/// Rows and columns of a block that shares a scale.
pub const FP8_BLOCK: usize = 128;
/// The largest number of the format.
pub const FP8_LARGEST: f32 = 448.0;

/// Which numbers of a matrix share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp8Scales {
    /// One scale per row: `[outputs, 1]`.
    Channels,
    /// One scale per block of 128 rows and 128 columns: `[⌈outputs / 128⌉, ⌈inputs / 128⌉]`; the
    /// last blocks may be smaller.
    Blocks,
    /// One scale per 128 columns of a row: `[outputs, ⌈inputs / 128⌉]`. Used for block scales when
    /// matrices are concatenated whose rows do not start at a multiple of 128.
    RowBlocks,
}

impl Fp8Scales {
    /// Rows of scales of a matrix with this many outputs.
    pub fn rows(self, outputs: usize) -> usize {
        match self {
            Self::Blocks => outputs.div_ceil(FP8_BLOCK),
            Self::Channels | Self::RowBlocks => outputs,
        }
    }

    /// Scales per row of a matrix with this many inputs.
    pub fn columns(self, inputs: usize) -> usize {
        match self {
            Self::Channels => 1,
            Self::Blocks | Self::RowBlocks => inputs.div_ceil(FP8_BLOCK),
        }
    }

    /// Number of scales of a matrix.
    pub fn count(self, outputs: usize, inputs: usize) -> usize {
        self.rows(outputs) * self.columns(inputs)
    }

    /// The index of a number's scale.
    pub fn place(self, inputs: usize, row: usize, column: usize) -> usize {
        let row = if self == Self::Blocks { row / FP8_BLOCK } else { row };
        let column = if self == Self::Channels { 0 } else { column / FP8_BLOCK };
        row * self.columns(inputs) + column
    }
}

/// A weight matrix in FP8, one row per output.
#[derive(Clone, Debug, PartialEq)]
pub struct Fp8Matrix<'a> {
    outputs: usize,
    inputs: usize,
    numbers: Cow<'a, [u8]>,
    layout: Fp8Scales,
    scales: Vec<f32>,
}

impl<'a> Fp8Matrix<'a> {
    /// A matrix of numbers `[outputs, inputs]` and scales in a layout.
    ///
    /// # Panics
    /// When the number of numbers or scales does not match.
    pub fn new(
        [outputs, inputs]: [usize; 2],
        numbers: impl Into<Cow<'a, [u8]>>,
        layout: Fp8Scales,
        scales: Vec<f32>,
    ) -> Self {
        let numbers = numbers.into();
        assert_eq!(numbers.len(), outputs * inputs, "a matrix of {outputs} × {inputs}");
        assert_eq!(scales.len(), layout.count(outputs, inputs), "scales of {layout:?} of {outputs} × {inputs}");
        Self { outputs, inputs, numbers, layout, scales }
    }

    /// Number of rows.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Number of columns.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The numbers, one byte each, row by row.
    pub fn numbers(&self) -> &[u8] {
        &self.numbers
    }

    /// The layout of the scales.
    pub fn layout(&self) -> Fp8Scales {
        self.layout
    }

    /// The scales, row by row.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// The values `[outputs, inputs]`: each number times its scale, rounded once to float32.
    pub fn values(&self) -> Vec<f32> {
        let Self { inputs, layout, .. } = *self;
        let mut values = vec![0.0; self.numbers.len()];
        if values.is_empty() {
            return values;
        }
        values.par_chunks_mut(inputs).zip(self.numbers.par_chunks(inputs)).enumerate().for_each(|(row, (to, from))| {
            for (column, (to, from)) in to.iter_mut().zip(from).enumerate() {
                *to = from_e4m3(*from) * self.scales[layout.place(inputs, row, column)];
            }
        });
        values
    }

    /// The matrix as float32.
    pub fn matrix(&self) -> Matrix {
        Matrix::new(self.outputs, self.inputs, self.values())
    }

    /// Quantises values `[outputs, inputs]`, each row with the scale that maps its largest number
    /// to the format's: numbers are rounded to nearest, ties to even. The error of a number is at
    /// most 1/16 of it or, for small numbers, 2⁻¹⁹ of the row's largest.
    ///
    /// # Panics
    /// When the number of values does not match.
    pub fn quantised(outputs: usize, inputs: usize, values: &[f32]) -> Fp8Matrix<'static> {
        assert_eq!(values.len(), outputs * inputs, "a matrix of {outputs} × {inputs}");
        let mut numbers = vec![0; values.len()];
        let mut scales = vec![1.0; outputs];
        if !values.is_empty() {
            let rows = numbers.par_chunks_mut(inputs).zip(values.par_chunks(inputs)).zip(&mut scales);
            rows.for_each(|((to, from), scale)| {
                let largest = from.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
                if largest > 0.0 && largest.is_finite() {
                    // The scale must not underflow to 0; numbers that small are lost anyway.
                    *scale = (largest / FP8_LARGEST).max(f32::MIN_POSITIVE);
                }
                to.iter_mut().zip(from).for_each(|(to, from)| *to = to_e4m3(from / *scale));
            });
        }
        Fp8Matrix { outputs, inputs, numbers: numbers.into(), layout: Fp8Scales::Channels, scales }
    }

    /// Its rows in another order. Block scales stay in place, so rows must stay in their blocks.
    ///
    /// # Panics
    /// When a row does not exist or leaves its block.
    pub fn reordered(&self, order: &[usize]) -> Fp8Matrix<'static> {
        let Self { inputs, layout, .. } = *self;
        let numbers: Vec<u8> = order.iter().flat_map(|row| &self.numbers[row * inputs..][..inputs]).copied().collect();
        let columns = layout.columns(inputs);
        let scales = match layout {
            Fp8Scales::Blocks => {
                assert!(
                    order.iter().enumerate().all(|(to, from)| to / FP8_BLOCK == from / FP8_BLOCK),
                    "rows stay in blocks"
                );
                self.scales.clone()
            }
            _ => order.iter().flat_map(|row| &self.scales[row * columns..][..columns]).copied().collect(),
        };
        Fp8Matrix::new([order.len(), inputs], numbers, layout, scales)
    }

    /// A part of it, which starts at a block boundary if it has block scales.
    ///
    /// # Panics
    /// When the part does not exist or starts inside a block.
    pub fn cut(&self, rows: Range<usize>, columns: Range<usize>) -> Fp8Matrix<'static> {
        let Self { inputs, layout, .. } = *self;
        let of_row = |row: usize| &self.numbers[row * inputs..][columns.clone()];
        let numbers: Vec<u8> = rows.clone().flat_map(of_row).copied().collect();
        let starts =
            |from: usize, has_blocks: bool| assert!(!has_blocks || from.is_multiple_of(FP8_BLOCK), "within a block");
        starts(rows.start, layout == Fp8Scales::Blocks);
        starts(columns.start, layout != Fp8Scales::Channels);
        let all = layout.columns(inputs);
        let first_row = layout.rows(rows.start);
        let first_column = if layout == Fp8Scales::Channels { 0 } else { columns.start / FP8_BLOCK };
        let count = layout.columns(columns.len());
        let scales = (first_row..first_row + layout.rows(rows.len()))
            .flat_map(|row| &self.scales[row * all + first_column..][..count])
            .copied()
            .collect();
        Fp8Matrix::new([rows.len(), columns.len()], numbers, layout, scales)
    }

    /// The same with scales in another layout: block scales expanded to rows, or unchanged.
    ///
    /// # Panics
    /// When the layout has fewer scales.
    #[must_use]
    pub fn with_scales(self, wanted: Fp8Scales) -> Self {
        let Self { outputs, inputs, numbers, layout, scales } = self;
        match (layout, wanted) {
            (Fp8Scales::Blocks, Fp8Scales::RowBlocks) => {
                let columns = layout.columns(inputs);
                let of_row = |row: usize| &scales[row / FP8_BLOCK * columns..][..columns];
                let scales = (0..outputs).flat_map(of_row).copied().collect();
                Self { outputs, inputs, numbers, layout: wanted, scales }
            }
            _ => {
                assert_eq!(layout, wanted, "a layout of fewer scales");
                Self { outputs, inputs, numbers, layout, scales }
            }
        }
    }
}

/// The value of a number of the format.
pub fn from_e4m3(bits: u8) -> f32 {
    static VALUES: LazyLock<[f32; 256]> = LazyLock::new(|| std::array::from_fn(|bits| decoded(bits as u8)));
    VALUES[usize::from(bits)]
}

fn decoded(bits: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let size = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2.0_f32.powi(-9),
        _ => (8.0 + mantissa) * 2.0_f32.powi(exponent - 10),
    };
    if bits & 0x80 == 0 { size } else { -size }
}

/// The nearest number of the format; ties go to the even mantissa, and larger values become the
/// largest number.
pub fn to_e4m3(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let size = value.abs();
    if size.is_nan() {
        return sign | 0x7f;
    }
    if size >= FP8_LARGEST {
        return sign | 0x7e;
    }
    // Spacing of the numbers: 2⁻⁹ for the smallest, and 2^(exponent − 3) above.
    let exponent = ((size.to_bits() >> 23) as i32 - 127).max(-6);
    let steps = (size * 2.0_f32.powi(3 - exponent)).round_ties_even() as i32;
    // Sixteen steps are the first number of the next exponent: the sum carries over.
    sign | ((exponent + 6) * 8 + steps) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_values_of_the_format() {
        for (bits, value) in
            [(0, 0.0), (1, 2.0_f32.powi(-9)), (8, 2.0_f32.powi(-6)), (0x38, 1.0), (0xbc, -1.5), (0x7e, 448.0)]
        {
            assert_eq!(from_e4m3(bits), value, "{bits:#x}");
        }
        assert!(from_e4m3(0x7f).is_nan() && from_e4m3(0xff).is_nan());
    }

    #[test]
    fn each_number_is_its_own_nearest_and_what_lies_between_goes_to_the_nearer() {
        for bits in (0..=255_u8).filter(|bits| bits & 0x7f != 0x7f) {
            assert_eq!(to_e4m3(from_e4m3(bits)), bits);
        }
        for bits in 0..0x7e_u8 {
            let (low, high) = (from_e4m3(bits), from_e4m3(bits + 1));
            let middle = (low + high) / 2.0;
            assert_eq!(to_e4m3(middle), bits + bits % 2, "ties go to the even one");
            assert_eq!(to_e4m3(f32::from_bits(middle.to_bits() - 1)), bits);
            assert_eq!(to_e4m3(-f32::from_bits(middle.to_bits() + 1)), 0x80 | (bits + 1));
        }
        assert_eq!((to_e4m3(1e9), to_e4m3(f32::NEG_INFINITY), to_e4m3(f32::NAN) & 0x7f), (0x7e, 0xfe, 0x7f));
    }

    #[test]
    fn rows_keep_their_scales_wherever_they_go() {
        let (outputs, inputs) = (200, 300);
        let numbers: Vec<u8> = (0..outputs * inputs).map(|at| (at * 37 % 120) as u8).collect();
        let scales: Vec<f32> = (0..2 * 3).map(|at| 0.5 + at as f32).collect();
        let matrix = Fp8Matrix::new([outputs, inputs], numbers, Fp8Scales::Blocks, scales);
        let values = matrix.values();
        assert_eq!(values[150 * inputs + 270], from_e4m3(matrix.numbers()[150 * inputs + 270]) * 5.5);
        let by_rows = matrix.clone().with_scales(Fp8Scales::RowBlocks);
        assert_eq!(by_rows.values(), values);
        let pick = |order: &[usize]| -> Vec<f32> {
            order.iter().flat_map(|row| &values[row * inputs..][..inputs]).copied().collect()
        };
        assert_eq!(by_rows.reordered(&[199, 0, 127, 128]).values(), pick(&[199, 0, 127, 128]));
        let within: Vec<usize> = (0..128).rev().chain((128..200).rev()).collect();
        assert_eq!(matrix.reordered(&within).values(), pick(&within));
        let expected: Vec<f32> = (128..200).flat_map(|row| &values[row * inputs + 128..][..172]).copied().collect();
        assert_eq!(matrix.cut(128..200, 128..300).values(), expected);
        assert_eq!(by_rows.cut(128..200, 128..300).values(), expected);
    }

    #[test]
    fn quantised_rows_are_as_near_as_the_format_allows() {
        let (outputs, inputs) = (3, 50);
        let values: Vec<f32> =
            (0..outputs * inputs).map(|at| (at as f32 * 0.7).sin() * 10.0_f32.powi(at as i32 / 50)).collect();
        let found = Fp8Matrix::quantised(outputs, inputs, &values).values();
        for (row, (found, expected)) in found.chunks(inputs).zip(values.chunks(inputs)).enumerate() {
            let largest = expected.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            for (found, expected) in found.iter().zip(expected) {
                let allowed = (expected.abs() / 16.0).max(largest * 2.0_f32.powi(-18));
                assert!((found - expected).abs() <= allowed, "row {row}: {found} for {expected}");
            }
        }
        assert_eq!(Fp8Matrix::quantised(1, 2, &[0.0, 0.0]).values(), [0.0, 0.0]);
    }
}
