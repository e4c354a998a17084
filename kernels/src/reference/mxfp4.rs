//! Matrices in MXFP4: numbers of four bits (e2m1), each block of 32 of a row with a power of two as
//! scale.
//!
//! Source of the format: "OCP Microscaling Formats (MX) Specification", version 1.0, §5.

use std::{borrow::Cow, ops::Range};

use rayon::prelude::*;

use super::Matrix;

/// Columns of a row that share a scale.
pub const MXFP4_BLOCK: usize = 32;

/// The number of each code: one bit of sign, two of exponent, one of mantissa.
const NUMBERS: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// A weight matrix in MXFP4, one row per output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mxfp4Matrix<'a> {
    outputs: usize,
    inputs: usize,
    numbers: Cow<'a, [u8]>,
    scales: Cow<'a, [u8]>,
}

impl<'a> Mxfp4Matrix<'a> {
    /// A matrix of numbers `[outputs, inputs / 2]`, two per byte with the even column in the low
    /// bits, and scales `[outputs, inputs / 32]`, each an exponent of two plus 127.
    ///
    /// # Panics
    /// When the number of inputs is not a multiple of 32, or the number of bytes does not match.
    pub fn new(
        [outputs, inputs]: [usize; 2],
        numbers: impl Into<Cow<'a, [u8]>>,
        scales: impl Into<Cow<'a, [u8]>>,
    ) -> Self {
        let (numbers, scales) = (numbers.into(), scales.into());
        assert!(inputs.is_multiple_of(MXFP4_BLOCK), "{inputs} inputs are not whole blocks");
        assert_eq!(numbers.len(), outputs * inputs / 2, "a matrix of {outputs} × {inputs}");
        assert_eq!(scales.len(), outputs * inputs / MXFP4_BLOCK, "scales of {outputs} × {inputs}");
        Self { outputs, inputs, numbers, scales }
    }

    /// The numbers, two per byte, row by row.
    pub fn numbers(&self) -> &[u8] {
        &self.numbers
    }

    /// The exponents of the scales plus 127, row by row.
    pub fn scales(&self) -> &[u8] {
        &self.scales
    }

    /// Part of the rows and of the columns; these begin and end at blocks.
    ///
    /// # Panics
    /// When they do not, or are beyond the matrix.
    pub fn cut(&self, rows: Range<usize>, columns: Range<usize>) -> Mxfp4Matrix<'static> {
        assert!(
            [columns.start, columns.end].iter().all(|at| at.is_multiple_of(MXFP4_BLOCK)),
            "{columns:?} cuts a block"
        );
        let part = |bytes: &[u8], unit: usize| -> Vec<u8> {
            let own = columns.start / unit..columns.end / unit;
            // Chunks of no columns would panic.
            let all = bytes.chunks_exact((self.inputs / unit).max(1));
            all.skip(rows.start).take(rows.len()).flat_map(|row| &row[own.clone()]).copied().collect()
        };
        let (numbers, scales) = (part(&self.numbers, 2), part(&self.scales, MXFP4_BLOCK));
        Mxfp4Matrix::new([rows.len(), columns.len()], numbers, scales)
    }

    /// The values `[outputs, inputs]`, which float32 holds exactly.
    pub fn values(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.outputs * self.inputs];
        let blocks = values.par_chunks_mut(MXFP4_BLOCK).zip(self.numbers.par_chunks(MXFP4_BLOCK / 2));
        blocks.zip(&*self.scales).for_each(|((to, from), exponent)| {
            let scale = 2.0_f32.powi(i32::from(*exponent) - 127);
            for (pair, byte) in to.as_chunks_mut::<2>().0.iter_mut().zip(from) {
                *pair = [byte & 15, byte >> 4].map(|code| NUMBERS[usize::from(code)] * scale);
            }
        });
        values
    }

    /// The matrix as float32.
    pub fn matrix(&self) -> Matrix {
        Matrix::new(self.outputs, self.inputs, self.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_even_column_is_in_the_low_bits_and_a_block_shares_its_scale() {
        // Row 0: codes 0 to 15 twice, with scale 1; row 1: code 2 (1.0) everywhere, with scale
        // 2^-3.
        let first = (0..16).map(|at: u8| (2 * at % 16) | (((2 * at + 1) % 16) << 4));
        let numbers: Vec<u8> = first.chain([0x22; 16]).collect();
        let values = Mxfp4Matrix::new([2, 32], numbers, vec![127, 124]).values();
        assert_eq!(values[..16], NUMBERS);
        assert_eq!(values[16..32], NUMBERS);
        assert_eq!(values[32..], [0.125; 32]);
    }

    #[test]
    fn a_part_has_its_values() {
        let numbers: Vec<u8> = (0..3 * 64_u32).map(|at| (at * 37 % 251) as u8).collect();
        let scales: Vec<u8> = (0..12).map(|at| 120 + at).collect();
        let whole = Mxfp4Matrix::new([3, 128], numbers, scales);
        let part = whole.cut(1..3, 32..96);
        let expected: Vec<f32> = whole.values().chunks(128).skip(1).flat_map(|row| row[32..96].to_vec()).collect();
        assert_eq!(part.values(), expected);
    }
}
