//! Rows of activations in FP8, as products of two 8-bit factors read them.
//!
//! A product of quantised rows with a matrix in FP8 is, for an output element,
//!
//! > y = Σ over blocks of 128 inputs of (row's scale · weight's scale · Σ number(x) · number(w))
//! > + bias
//!
//! with sums in float32. A number times its scale is rounded once to float32, which is far below
//! the error of a number, so the definition multiplies [`QuantisedRows::values`] with the matrix's
//! values by [`linear`](super::linear): in one fixed order of sums, whatever the number of rows.
//! Kernels multiply the numbers, exactly, and apply scales to sums.
//!
//! Scales are those of the engines that serve such checkpoints. SGLang 0.5.16 and vLLM 0.26 round x
//! / scale to nearest, ties to even, after clamping it to ±448, with
//! - a scale of the checkpoint (`input_scale`), the largest of the layers that read the same rows:
//!   `static_quant_fp8`, `static_scaled_fp8_quant`;
//! - largest / 448 of a row: `sgl_per_token_quant_fp8` without a least value,
//!   `dynamic_per_token_scaled_fp8_quant` with at least 1 / (448 · 512);
//! - max(largest, 1e-10) / 448 of a row's 128 columns: `per_token_group_quant_fp8` of both. On GPUs
//!   whose library wants powers of two (`scale_ue8m0`, Blackwell with DeepGEMM) both round these
//!   scales up to one; on Hopper they do not.
//!
//! Here all dynamic scales are max(largest, 1e-10) / 448, and are not rounded to powers of two.

use rayon::prelude::*;

use super::{FP8_BLOCK, FP8_LARGEST, from_e4m3, to_e4m3};

/// The least size of the largest of the values that share a dynamic scale: a scale and its
/// reciprocal are then finite.
pub const FP8_LEAST_AMAX: f32 = 1e-10;

/// Which activations share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp8Rows {
    /// All: a static scale, which the checkpoint contains.
    Tensor,
    /// Those of a row: one dynamic scale per row.
    Row,
    /// Those of a row and a block of 128 columns: `⌈inputs / 128⌉` dynamic scales per row.
    RowBlocks,
}

impl Fp8Rows {
    /// Scales per row of this many inputs.
    pub fn columns(self, inputs: usize) -> usize {
        match self {
            Self::Tensor | Self::Row => 1,
            Self::RowBlocks => inputs.div_ceil(FP8_BLOCK),
        }
    }
}

/// Rows of activations in FP8.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantisedRows {
    inputs: usize,
    layout: Fp8Rows,
    numbers: Vec<u8>,
    scales: Vec<f32>,
}

impl QuantisedRows {
    /// The numbers in e4m3, `[rows, inputs]`.
    pub fn numbers(&self) -> &[u8] {
        &self.numbers
    }

    /// The scales, `[rows, columns]` with [`Fp8Rows::columns`]; a static scale is repeated for each
    /// row.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// The values `[rows, inputs]`: each number times its scale, rounded once to float32.
    pub fn values(&self) -> Vec<f32> {
        let columns = self.layout.columns(self.inputs);
        let mut values = vec![0.0; self.numbers.len()];
        // Chunks of no inputs would panic.
        if values.is_empty() {
            return values;
        }
        let rows = values.par_chunks_mut(self.inputs).zip(self.numbers.par_chunks(self.inputs));
        rows.zip(self.scales.par_chunks(columns)).for_each(|((to, from), scales)| {
            for (column, (to, from)) in to.iter_mut().zip(from).enumerate() {
                *to = from_e4m3(*from) * scales[if columns == 1 { 0 } else { column / FP8_BLOCK }];
            }
        });
        values
    }
}

/// Quantises rows `[rows, inputs]`. `fixed` is the scale of [`Fp8Rows::Tensor`] and is not read
/// otherwise.
///
/// A value that is not finite stays so: an infinity makes its whole row (or block) NaN.
///
/// # Panics
/// When the number of values is not a multiple of `inputs`.
pub fn quantise_rows(values: &[f32], inputs: usize, layout: Fp8Rows, fixed: f32) -> QuantisedRows {
    assert_eq!(values.len() % inputs.max(1), 0, "rows of {inputs} activations");
    let columns = layout.columns(inputs);
    let mut numbers = vec![0; values.len()];
    let mut scales = vec![fixed; values.len().checked_div(inputs).unwrap_or_default() * columns];
    if !values.is_empty() {
        let share = if columns == 1 { inputs } else { FP8_BLOCK };
        let rows = numbers.par_chunks_mut(inputs).zip(values.par_chunks(inputs));
        rows.zip(scales.par_chunks_mut(columns)).for_each(|((numbers, values), scales)| {
            for ((to, from), scale) in numbers.chunks_mut(share).zip(values.chunks(share)).zip(scales) {
                if layout != Fp8Rows::Tensor {
                    *scale = dynamic_scale(from);
                }
                let factor = 1.0 / *scale;
                to.iter_mut().zip(from).for_each(|(to, from)| *to = to_e4m3(from * factor));
            }
        });
    }
    QuantisedRows { inputs, layout, numbers, scales }
}

/// The scale that maps the largest of values to the format's largest number.
fn dynamic_scale(values: &[f32]) -> f32 {
    values.iter().fold(FP8_LEAST_AMAX, |largest, value| largest.max(value.abs())) / FP8_LARGEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{Fp8Matrix, Matrix, linear};

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32).map(|at| ((at.wrapping_mul(2_654_435_761) ^ seed) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
    }

    #[test]
    fn the_largest_of_those_that_share_a_scale_keeps_its_value() {
        let (rows, inputs) = (3, 200);
        let mut values = numbers(rows * inputs, 7);
        values[5] = -3.5;
        values[190] = 0.25;
        values[inputs..2 * inputs].fill(0.0);
        let by_row = quantise_rows(&values, inputs, Fp8Rows::Row, 1.0);
        assert_eq!(by_row.scales()[0], 3.5 / 448.0);
        assert_eq!((by_row.numbers()[5], by_row.values()[5]), (0xfe, -3.5));
        assert_eq!(by_row.values()[inputs..2 * inputs], vec![0.0; inputs], "a row of zeros");
        let by_block = quantise_rows(&values, inputs, Fp8Rows::RowBlocks, 1.0);
        let tail = values[128..inputs].iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        assert_eq!((by_block.scales().len(), by_block.scales()[0]), (6, 3.5 / 448.0));
        assert_eq!(by_block.scales()[1], tail / 448.0);
        for (value, found) in values.iter().zip(by_block.values()) {
            assert!((value - found).abs() <= value.abs() / 16.0 + 3.5 * 2.0_f32.powi(-19), "{value} became {found}");
        }
    }

    #[test]
    fn a_static_scale_clamps_and_what_is_not_finite_stays_so() {
        let rows = quantise_rows(&[1.0, -1e6, 0.5, f32::NAN], 2, Fp8Rows::Tensor, 0.25);
        assert_eq!(rows.scales(), [0.25, 0.25]);
        assert_eq!(rows.values()[..3], [1.0, -448.0 * 0.25, 0.5]);
        assert!(rows.values()[3].is_nan());
        assert!(quantise_rows(&[f32::INFINITY, 1.0], 2, Fp8Rows::Row, 1.0).values()[0].is_nan());
        assert!(quantise_rows(&[], 4, Fp8Rows::RowBlocks, 1.0).values().is_empty());
    }

    /// The definition agrees with sums of products of numbers, scaled afterwards.
    #[test]
    fn a_product_of_values_is_the_scaled_product_of_numbers() {
        let (rows, inputs, outputs) = (2, 300, 5);
        let weight = Fp8Matrix::quantised(outputs, inputs, &numbers(outputs * inputs, 3));
        for layout in [Fp8Rows::Tensor, Fp8Rows::Row, Fp8Rows::RowBlocks] {
            let x = quantise_rows(&numbers(rows * inputs, 11), inputs, layout, 1.0 / 256.0);
            let found = linear(&x.values(), &Matrix::new(outputs, inputs, weight.values()), None);
            let columns = layout.columns(inputs);
            for (at, found) in found.iter().enumerate() {
                let (row, output) = (at / outputs, at % outputs);
                let product = |input: usize| {
                    let (x_number, w) = (x.numbers()[row * inputs + input], weight.numbers()[output * inputs + input]);
                    let scale = x.scales()[row * columns + if columns == 1 { 0 } else { input / FP8_BLOCK }];
                    f64::from(from_e4m3(x_number)) * f64::from(from_e4m3(w)) * f64::from(scale)
                };
                let sum: f64 = (0..inputs).map(product).sum::<f64>() * f64::from(weight.scales()[output]);
                assert!((f64::from(*found) - sum).abs() < 1e-5, "{layout:?}, {row}, {output}: {found} and {sum}");
            }
        }
    }
}
