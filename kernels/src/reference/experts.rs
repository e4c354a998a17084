//! Feed-forward layers of routed experts.

use super::{
    Fp8Rows,
    activation::GateActivation,
    fp8_rows::quantise_rows,
    linear::{Matrix, linear},
    route::Routes,
};

/// One gated feed-forward layer: `down(activation(gate(x), up(x)))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Expert {
    /// `[intermediate, hidden]`.
    pub gate: Matrix,
    /// `[intermediate, hidden]`.
    pub up: Matrix,
    /// `[hidden, intermediate]`.
    pub down: Matrix,
    /// Biases of gate, up and down, as long as their outputs.
    pub biases: Option<[Vec<f32>; 3]>,
    /// How gate and up are joined.
    pub activation: GateActivation,
    /// How the inputs of the down layer are quantised, with their static scale, if it multiplies in
    /// FP8.
    pub middle: Option<(Fp8Rows, f32)>,
}

impl Expert {
    /// An expert without biases, with SiLU.
    pub fn new(gate: Matrix, up: Matrix, down: Matrix) -> Self {
        Self { gate, up, down, biases: None, activation: GateActivation::Silu, middle: None }
    }

    /// `x` and the result are `[rows, hidden]`.
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        let bias = |of: usize| self.biases.as_ref().map(|biases| &*biases[of]);
        let gated = self.activation.apply(&linear(x, &self.gate, bias(0)), &linear(x, &self.up, bias(1)));
        match self.middle {
            None => linear(&gated, &self.down, bias(2)),
            Some((layout, fixed)) => {
                let quantised = quantise_rows(&gated, self.down.inputs(), layout, fixed);
                linear(&quantised.values(), &self.down, bias(2))
            }
        }
    }
}

/// The weighted sum of the outputs of each row's experts. `x` and the result are `[rows, hidden]`.
///
/// The sum of a row starts at zero and runs in ascending order of expert ids: it depends neither on
/// other rows nor on the order in which experts finish. A weight is applied to the expert's output,
/// after its last product.
///
/// # Panics
/// When a route names a missing expert, or `x` has a different number of rows.
pub fn experts(x: &[f32], routes: &Routes, experts: &[Expert]) -> Vec<f32> {
    let rows = routes.rows();
    let hidden = x.len().checked_div(rows).unwrap_or_default();
    assert_eq!(x.len(), rows * hidden, "a row of activations for each row of routes");
    let mut places = vec![Vec::new(); experts.len()];
    for row in 0..rows {
        routes.row(row).for_each(|(expert, weight)| places[expert as usize].push((row, weight)));
    }
    let mut y = vec![0.0; x.len()];
    for (expert, places) in experts.iter().zip(&places).filter(|(_, places)| !places.is_empty()) {
        // All rows of an expert together, so that its weights are read once.
        let own: Vec<f32> = places.iter().flat_map(|(row, _)| &x[row * hidden..(row + 1) * hidden]).copied().collect();
        let outputs = expert.forward(&own);
        for ((row, weight), output) in places.iter().zip(outputs.chunks_exact(hidden)) {
            let sum = &mut y[row * hidden..(row + 1) * hidden];
            sum.iter_mut().zip(output).for_each(|(sum, output)| *sum += weight * output);
        }
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIDDEN: usize = 12;

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32).map(|at| ((at.wrapping_mul(2_654_435_761) ^ seed) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
    }

    fn some_experts(count: u32, intermediate: usize) -> Vec<Expert> {
        let matrix = |outputs, inputs, seed| Matrix::new(outputs, inputs, numbers(outputs * inputs, seed));
        let expert = |seed: u32| {
            let gate = matrix(intermediate, HIDDEN, 7 + seed);
            let up = matrix(intermediate, HIDDEN, 1000 + seed);
            Expert::new(gate, up, matrix(HIDDEN, intermediate, 77_000 + seed))
        };
        (0..count).map(expert).collect()
    }

    #[test]
    fn a_row_is_the_sum_of_its_experts_whoever_runs_next_to_it() {
        let all = some_experts(5, 9);
        let x = numbers(3 * HIDDEN, 3);
        let routes =
            Routes { top_k: 2, experts: vec![1, 4, 0, 1, 1, 3], weights: vec![0.25, 0.75, 1.0, -0.5, 0.5, 0.0] };
        let y = experts(&x, &routes, &all);
        for row in 0..3 {
            let range = row * HIDDEN..(row + 1) * HIDDEN;
            let chosen: Vec<(u32, f32)> = routes.row(row).collect();
            let mut expected = vec![0.0; HIDDEN];
            for (expert, weight) in &chosen {
                let output = all[*expert as usize].forward(&x[range.clone()]);
                expected.iter_mut().zip(output).for_each(|(sum, output)| *sum += weight * output);
            }
            assert_eq!(y[range.clone()], expected, "row {row}");
            let (ids, weights) = chosen.into_iter().unzip();
            let alone = experts(&x[range], &Routes { top_k: 2, experts: ids, weights }, &all);
            assert_eq!(alone, expected, "row {row} alone");
        }
    }

    #[test]
    fn no_rows_are_no_output() {
        let routes = Routes { top_k: 2, experts: Vec::new(), weights: Vec::new() };
        assert!(experts(&[], &routes, &some_experts(2, 3)).is_empty());
    }
}
