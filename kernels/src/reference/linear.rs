//! `y = x · Wᵀ + b`: rows of activations against rows of weights.

use pulp::Arch;
use rayon::prelude::*;

use super::dot::{LANES, accumulate, fold};

/// Products below which one thread is faster than two.
const WORTH_A_THREAD: usize = 1 << 17;
/// Rows of activations that one pass over a block of weights serves.
const ROW_BLOCK: usize = 4;
/// Rows of weights in a block.
const OUTPUT_BLOCK: usize = 2;

/// A weight matrix, one row an output, as checkpoints store it.
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
    /// When `data` has another length than `outputs × inputs`.
    pub fn new(outputs: usize, inputs: usize, data: Vec<f32>) -> Self {
        assert_eq!(data.len(), outputs * inputs, "a matrix of {outputs} × {inputs}");
        Self { outputs, inputs, data }
    }

    /// Rows: the width of the output.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns: the width of the input.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// One row.
    pub fn row(&self, output: usize) -> &[f32] {
        &self.data[output * self.inputs..(output + 1) * self.inputs]
    }

    /// All rows, one after the other.
    pub fn data(&self) -> &[f32] {
        &self.data
    }
}

/// `x` is `[rows, inputs]`; the result is `[rows, outputs]`, with `bias` (of length `outputs`) added where given.
///
/// The sum of an output element runs over the inputs in the order of the `dot` module whatever the number of rows:
/// blocks only decide what is computed next to each other.
pub fn linear(x: &[f32], weight: &Matrix, bias: Option<&[f32]>) -> Vec<f32> {
    let Matrix { outputs, inputs, .. } = *weight;
    assert_eq!(x.len() % inputs.max(1), 0, "rows of {inputs} activations");
    let rows = x.len().checked_div(inputs).unwrap_or_default();
    let mut transposed = vec![0.0; outputs * rows];
    if rows == 0 || outputs == 0 {
        return transposed;
    }
    let arch = Arch::new();
    let fill = |first: usize, part: &mut [f32]| arch.dispatch(|| outputs_of(x, weight, first, rows, part));
    if rows * outputs * inputs < WORTH_A_THREAD {
        fill(0, &mut transposed);
    } else {
        let share = outputs.div_ceil(4 * rayon::current_num_threads()).next_multiple_of(OUTPUT_BLOCK);
        transposed.par_chunks_mut(share * rows).enumerate().for_each(|(at, part)| fill(at * share, part));
    }
    let mut y = if rows == 1 { transposed } else { transpose(&transposed, outputs, rows) };
    if let Some(bias) = bias {
        assert_eq!(bias.len(), outputs, "one bias an output");
        for row in y.chunks_exact_mut(outputs) {
            row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
    }
    y
}

/// Fills `part`, which is `[some outputs from first on, rows]`.
#[inline(always)]
fn outputs_of(x: &[f32], weight: &Matrix, first: usize, rows: usize, part: &mut [f32]) {
    for (block, part) in part.chunks_mut(OUTPUT_BLOCK * rows).enumerate() {
        let output = first + block * OUTPUT_BLOCK;
        if part.len() == OUTPUT_BLOCK * rows {
            block_of::<OUTPUT_BLOCK>(x, weight, output, rows, part);
        } else {
            block_of::<1>(x, weight, output, rows, part);
        }
    }
}

#[inline(always)]
fn block_of<const OUTPUTS: usize>(x: &[f32], weight: &Matrix, output: usize, rows: usize, part: &mut [f32]) {
    let weights: [&[f32]; OUTPUTS] = std::array::from_fn(|at| weight.row(output + at));
    let mut row = 0;
    while row + ROW_BLOCK <= rows {
        tile::<ROW_BLOCK, OUTPUTS>(x, weights, weight.inputs, row, rows, part);
        row += ROW_BLOCK;
    }
    while row < rows {
        tile::<1, OUTPUTS>(x, weights, weight.inputs, row, rows, part);
        row += 1;
    }
}

#[inline(always)]
fn tile<const ROWS: usize, const OUTPUTS: usize>(
    x: &[f32],
    weights: [&[f32]; OUTPUTS],
    inputs: usize,
    row: usize,
    rows: usize,
    part: &mut [f32],
) {
    let activations: [&[f32]; ROWS] = std::array::from_fn(|at| &x[(row + at) * inputs..(row + at + 1) * inputs]);
    let mut sums = [[[0.0; LANES]; OUTPUTS]; ROWS];
    let whole = inputs - inputs % LANES;
    let mut at = 0;
    while at < whole {
        let weights: [&[f32; LANES]; OUTPUTS] = std::array::from_fn(|output| lanes(weights[output], at));
        for (activations, sums) in activations.iter().zip(&mut sums) {
            let activation = lanes(activations, at);
            for (weight, sums) in weights.iter().zip(sums.iter_mut()) {
                for lane in 0..LANES {
                    sums[lane] = activation[lane].mul_add(weight[lane], sums[lane]);
                }
            }
        }
        at += LANES;
    }
    for (at_row, sums) in sums.iter_mut().enumerate() {
        for (at_output, sums) in sums.iter_mut().enumerate() {
            accumulate(sums, &activations[at_row][whole..], &weights[at_output][whole..]);
            part[at_output * rows + row + at_row] = fold(sums);
        }
    }
}

#[inline(always)]
fn lanes(values: &[f32], at: usize) -> &[f32; LANES] {
    values[at..at + LANES].first_chunk().expect("a slice of LANES values has a chunk of LANES")
}

fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut transposed = vec![0.0; values.len()];
    for (row, values) in values.chunks_exact(columns).enumerate() {
        for (column, value) in values.iter().enumerate() {
            transposed[column * rows + row] = *value;
        }
    }
    transposed
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
                for output in 0..outputs {
                    prop_assert!((f64::from(alone[output]) - naive(&x, &weight, row, output)).abs() < 1e-4);
                }
            }
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let (x, weight) = (numbers(9 * 256, 7), Matrix::new(511, 256, numbers(511 * 256, 3)));
        let bias = numbers(511, 5);
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
        assert_eq!(one.install(|| linear(&x, &weight, Some(&bias))), linear(&x, &weight, Some(&bias)));
    }
}
