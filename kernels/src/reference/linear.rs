//! `y = x · Wᵀ + b`: rows of activations against rows of weights.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::dot::dots;

/// Number of products below which one thread is faster than two.
const WORTH_A_THREAD: usize = 1 << 17;
/// Rows per thread from which each thread should read all weights instead of all rows.
const MANY_ROWS: usize = 16;
/// Outputs that are computed together, so that their weights are read once for all rows.
const OUTPUTS: usize = 2;

/// A weight matrix, one row per output, as checkpoints store it.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    outputs: usize,
    inputs: usize,
    data: Vec<f32>,
}

impl Matrix {
    /// A matrix of `outputs` rows and `inputs` columns.
    ///
    /// # Panics
    /// When the length of `data` is not `outputs × inputs`.
    pub fn new(outputs: usize, inputs: usize, data: Vec<f32>) -> Self {
        assert_eq!(data.len(), outputs * inputs, "a matrix of {outputs} × {inputs}");
        Self { outputs, inputs, data }
    }

    /// Number of rows: the width of the output.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Number of columns: the width of the input.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// One row of weights.
    pub fn row(&self, output: usize) -> &[f32] {
        &self.data[output * self.inputs..(output + 1) * self.inputs]
    }

    /// All rows, contiguous.
    pub fn data(&self) -> &[f32] {
        &self.data
    }
}

/// `x` is `[rows, inputs]`; the result is `[rows, outputs]`, plus `bias` (of length `outputs`) if
/// given.
///
/// The sum of an output element runs over the inputs in the order of the `dot` module, regardless
/// of the number of rows: tiles only decide what is computed together.
pub fn linear(x: &[f32], weight: &Matrix, bias: Option<&[f32]>) -> Vec<f32> {
    let Matrix { outputs, inputs, .. } = *weight;
    assert_eq!(x.len() % inputs.max(1), 0, "rows of {inputs} activations");
    let rows = x.len().checked_div(inputs).unwrap_or_default();
    let mut y = vec![0.0; rows * outputs];
    if y.is_empty() {
        return y;
    }
    let arch = Arch::new();
    if rows * outputs * inputs < WORTH_A_THREAD {
        arch.dispatch(OutputRange { x, weight, first: 0, rows, y: &mut y, strides: (outputs, 1) });
    } else if rows >= MANY_ROWS * rayon::current_num_threads() {
        let share = rows.div_ceil(rayon::current_num_threads()).next_multiple_of(4);
        y.par_chunks_mut(share * outputs).zip(x.par_chunks(share * inputs)).for_each(|(y, x)| {
            arch.dispatch(OutputRange { x, weight, first: 0, rows: y.len() / outputs, y, strides: (outputs, 1) });
        });
    } else if rows == 1 {
        let share = share(outputs);
        y.par_chunks_mut(share).enumerate().for_each(|(at, y)| {
            arch.dispatch(OutputRange { x, weight, first: at * share, rows, y, strides: (0, 1) });
        });
    } else {
        // Each thread writes a run of outputs, so that weights are read once; rows are assembled
        // afterwards.
        let share = share(outputs);
        let mut transposed = vec![0.0; y.len()];
        transposed.par_chunks_mut(share * rows).enumerate().for_each(|(at, y)| {
            arch.dispatch(OutputRange { x, weight, first: at * share, rows, y, strides: (1, rows) });
        });
        transpose(&transposed, outputs, rows, &mut y);
    }
    if let Some(bias) = bias {
        assert_eq!(bias.len(), outputs, "one bias an output");
        for row in y.chunks_exact_mut(outputs) {
            row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
    }
    y
}

/// Outputs that a thread takes at a time: a few shares per thread, so that the wait for the last
/// one is short.
fn share(outputs: usize) -> usize {
    outputs.div_ceil(4 * rayon::current_num_threads()).next_multiple_of(OUTPUTS)
}

/// A run of outputs, for all rows.
struct OutputRange<'a> {
    x: &'a [f32],
    weight: &'a Matrix,
    /// The first output of the run.
    first: usize,
    rows: usize,
    y: &'a mut [f32],
    /// Elements of `y` from one row to the next, and from one output to the next.
    strides: (usize, usize),
}

impl WithSimd for OutputRange<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let count = self.y.len() / self.rows;
        let mut at = 0;
        // A single row is limited by memory: with more outputs, more loads are in flight.
        while self.rows == 1 && at + 2 * OUTPUTS <= count {
            self.tile::<S, 1, { 2 * OUTPUTS }>(simd, 0, at);
            at += 2 * OUTPUTS;
        }
        while at + OUTPUTS <= count {
            self.outputs(simd, at);
            at += OUTPUTS;
        }
        while at < count {
            (0..self.rows).for_each(|row| self.tile::<S, 1, 1>(simd, row, at));
            at += 1;
        }
    }
}

impl OutputRange<'_> {
    /// All rows of [`OUTPUTS`] outputs. The compiler keeps four by two running sums in sixteen
    /// registers.
    #[inline(always)]
    fn outputs<S: Simd>(&mut self, simd: S, at: usize) {
        let mut row = 0;
        while row + 4 <= self.rows {
            self.tile::<S, 4, OUTPUTS>(simd, row, at);
            row += 4;
        }
        match self.rows - row {
            1 => self.tile::<S, 1, OUTPUTS>(simd, row, at),
            2 => self.tile::<S, 2, OUTPUTS>(simd, row, at),
            3 => self.tile::<S, 3, OUTPUTS>(simd, row, at),
            _ => {}
        }
    }

    /// Some rows by some outputs, with all running sums in registers.
    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize, const OUTPUTS: usize>(&mut self, simd: S, row: usize, at: usize) {
        let inputs = self.weight.inputs;
        let x: [&[f32]; ROWS] =
            std::array::from_fn(|place| &self.x[(row + place) * inputs..(row + place + 1) * inputs]);
        let weights: [&[f32]; OUTPUTS] = std::array::from_fn(|place| self.weight.row(self.first + at + place));
        for (place_row, products) in dots(simd, x, weights).into_iter().enumerate() {
            for (place, product) in products.into_iter().enumerate() {
                self.y[(row + place_row) * self.strides.0 + (at + place) * self.strides.1] = product;
            }
        }
    }
}

/// Transposes `[rows, columns]` to `[columns, rows]`, in squares that fit the L1 cache.
fn transpose(values: &[f32], rows: usize, columns: usize, transposed: &mut [f32]) {
    const SQUARE: usize = 16;
    for first in (0..rows).step_by(SQUARE) {
        let until = rows.min(first + SQUARE);
        for column in 0..columns {
            for row in first..until {
                transposed[column * rows + row] = values[row * columns + column];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32).map(|at| ((at.wrapping_mul(2_654_435_761) ^ seed) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
    }

    fn naive(x: &[f32], weight: &Matrix, row: usize, output: usize) -> f64 {
        let x = &x[row * weight.inputs..(row + 1) * weight.inputs];
        x.iter().zip(weight.row(output)).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn it_is_the_product_and_rows_do_not_see_each_other(
            rows in 1_usize..11, inputs in 1_usize..70, outputs in 1_usize..30, seed: u32,
        ) {
            let (x, weight) = (numbers(rows * inputs, seed), Matrix::new(outputs, inputs, numbers(outputs * inputs, !seed)));
            let together = linear(&x, &weight, None);
            for row in 0..rows {
                let alone = linear(&x[row * inputs..(row + 1) * inputs], &weight, None);
                prop_assert_eq!(&together[row * outputs..(row + 1) * outputs], &alone[..]);
                for (output, found) in alone.iter().enumerate() {
                    prop_assert!((f64::from(*found) - naive(&x, &weight, row, output)).abs() < 1e-4);
                }
            }
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let weight = Matrix::new(511, 256, numbers(511 * 256, 3));
        let bias = numbers(511, 5);
        let pools = [1, 2, 3].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build());
        // With few rows, threads share the outputs; with many, the rows.
        for rows in [1, 9, 70] {
            let x = numbers(rows * 256, 7);
            let [one, two, three] = pools
                .each_ref()
                .map(|pool| pool.as_ref().expect("a pool").install(|| linear(&x, &weight, Some(&bias))));
            assert!(one == two && one == three, "{rows} rows");
        }
    }
}
