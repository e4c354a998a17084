//! Round times of an engine that is a black box: a sum of a few non-negative costs, fitted to few
//! measured points.
//!
//! The time of a round is modelled as a fixed cost, a second one if it speculates, a third if the
//! tree branches, and a cost for each verified row, each draft step, each row of a draft step and
//! each token that it yields (the last includes the prompts that are prefilled between rounds). The
//! fixed costs are the engine's work on the host; with a small model they dominate (SGLang 0.5.16
//! on an H200: 1.3 ms per round, 3.4 for speculation, 1 for branches, and nothing for a draft
//! step). The model does not see that an engine's kernels change with the number of rows: the
//! leave-one-out error shows by how much it misses.

use std::collections::BTreeMap;

use schemas::tree::TreeShape;

use super::cholesky::Cholesky;

/// A measured configuration at a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The tree shape.
    pub shape: TreeShape,
    /// Number of running requests.
    pub batch: usize,
    /// Tokens per round of one request.
    pub accept_length: f64,
    /// Wall time of a round in ms, including everything between rounds.
    pub round_ms: f64,
}

/// Costs in ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdditiveModel {
    costs: [f64; TERMS],
}

/// Number of costs in the model.
pub const TERMS: usize = 7;
/// Ridge regularisation, relative to the diagonal: keeps costs finite that the points do not
/// determine.
const RIDGE: f64 = 1e-9;

impl AdditiveModel {
    /// Fits the costs to the points by relative errors. `None` without points.
    ///
    /// The best non-negative costs are the least-squares solution over the costs that are above
    /// zero. With seven costs, all subsets are tried.
    pub fn fit(points: &[Observation]) -> Option<Self> {
        // Relative errors: each row is divided by the measured time.
        let rows: Vec<[f64; TERMS]> = points
            .iter()
            .filter(|point| point.round_ms > 0.0 && point.round_ms.is_finite())
            .map(|point| terms(point.shape, point.batch, point.accept_length).map(|term| term / point.round_ms))
            .collect();
        let error = |costs: &[f64; TERMS]| rows.iter().map(|row| (dot(row, costs) - 1.0).powi(2)).sum::<f64>();
        // All subsets are tried: with so few terms that is exact, and no cost becomes negative.
        let fits = (1..1_usize << TERMS).filter_map(|chosen| solve(&rows, chosen));
        let best = fits.min_by(|a, b| error(a).total_cmp(&error(b)));
        best.filter(|_| !rows.is_empty()).map(|costs| Self { costs })
    }

    /// The predicted time of a round in ms.
    pub fn round_ms(&self, shape: TreeShape, batch: usize, accept_length: f64) -> f64 {
        dot(&terms(shape, batch, accept_length), &self.costs)
    }

    /// The prediction in ms of each point by a fit without all points of its shape: the error to
    /// expect for a shape that was never started. `None` with fewer than three shapes; and for
    /// points without speculation, which are always measured, and whose costs cannot be inferred
    /// from trees.
    pub fn left_out_ms(points: &[Observation]) -> Option<Vec<Option<f64>>> {
        let mut shapes: Vec<TreeShape> = points.iter().map(|point| point.shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        if shapes.len() < 3 {
            return None;
        }
        let without = |shape: &TreeShape| {
            let rest: Vec<Observation> = points.iter().filter(|point| point.shape != *shape).copied().collect();
            Some((*shape, Self::fit(&rest)?))
        };
        let models: BTreeMap<TreeShape, Self> =
            // Without the rounds that do not speculate, nothing separates the costs of a round from
            // the others.
            shapes.iter().filter(|shape| !shape.is_off()).filter_map(without).collect();
        let predicted = |point: &Observation| {
            Some(models.get(&point.shape)?.round_ms(point.shape, point.batch, point.accept_length))
        };
        Some(points.iter().map(predicted).collect())
    }

    /// The relative errors of [`left_out_ms`](Self::left_out_ms), ascending.
    pub fn errors(points: &[Observation]) -> Vec<f64> {
        let left_out = Self::left_out_ms(points).unwrap_or_default();
        let error = |(predicted, point): (Option<f64>, &Observation)| Some((predicted? / point.round_ms - 1.0).abs());
        let mut errors: Vec<f64> = left_out.into_iter().zip(points).filter_map(error).collect();
        errors.sort_by(f64::total_cmp);
        errors
    }

    /// Each cost with its name, in ms.
    pub fn parameters(&self) -> [(&'static str, f64); TERMS] {
        let names = [
            "a round",
            "speculation in a round",
            "a tree that branches",
            "a verified row",
            "a draft step",
            "a row of a draft step",
            "a token, prompts included",
        ];
        std::array::from_fn(|at| (names[at], self.costs[at]))
    }
}

/// The least-squares costs of the chosen terms (bits), the others zero; `None` if one is negative,
/// or the points do not determine them.
fn solve(rows: &[[f64; TERMS]], chosen: usize) -> Option<[f64; TERMS]> {
    let at: Vec<usize> = (0..TERMS).filter(|at| chosen >> at & 1 == 1).collect();
    let product = |one: usize, other: usize| rows.iter().map(|row| row[one] * row[other]).sum::<f64>();
    let matrix = Cholesky::new(at.len(), |row, column| {
        // A few measured shapes may leave two terms proportional; the ridge keeps the matrix
        // regular.
        product(at[row], at[column]) * if row == column { 1.0 + RIDGE } else { 1.0 }
    })?;
    let right: Vec<f64> = at.iter().map(|at| rows.iter().map(|row| row[*at]).sum()).collect();
    let mut costs = [0.0; TERMS];
    for (at, cost) in at.into_iter().zip(matrix.solve(&right)) {
        costs[at] = cost;
    }
    costs.iter().all(|cost| *cost >= 0.0).then_some(costs)
}

/// How often each cost occurs in a round of a batch.
pub fn terms(shape: TreeShape, batch: usize, accept_length: f64) -> [f64; TERMS] {
    let TreeShape { num_steps, topk, .. } = shape;
    let rows = shape.verified_rows(batch) as f64;
    let (batch, steps) = (batch as f64, num_steps as f64);
    let one_if = |is_so: bool| f64::from(u8::from(is_so));
    [1.0, one_if(num_steps > 0), one_if(topk > 1), rows, steps, steps * batch * topk as f64, batch * accept_length]
}

fn dot(one: &[f64; TERMS], other: &[f64; TERMS]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: [f64; TERMS] = [8.0, 2.0, 1.0, 0.02, 0.6, 0.01, 0.05];

    fn observation(shape: &str, batch: usize, accept_length: f64) -> Observation {
        let shape = shape.parse().expect("a shape");
        Observation { shape, batch, accept_length, round_ms: dot(&terms(shape, batch, accept_length), &COSTS) }
    }

    fn points() -> Vec<Observation> {
        let shapes = [("0,1,1", 1.0), ("3,1,4", 2.2), ("5,4,16", 2.9), ("2,4,8", 2.0)];
        shapes.iter().flat_map(|(shape, length)| [1, 8, 32].map(|batch| observation(shape, batch, *length))).collect()
    }

    #[test]
    fn what_is_a_sum_of_costs_is_found_from_four_shapes() {
        let model = AdditiveModel::fit(&points()).expect("points");
        for (shape, batch, length) in [("8,1,9", 4, 2.8), ("2,8,8", 32, 2.1), ("7,4,32", 8, 3.1)] {
            let expected = observation(shape, batch, length);
            let found = model.round_ms(expected.shape, batch, length);
            assert!(
                (found / expected.round_ms - 1.0).abs() < 0.02,
                "{shape} at {batch}: {found} for {}",
                expected.round_ms
            );
        }
    }

    #[test]
    fn costs_are_never_below_zero() {
        // Faster with more rows, which no sum of costs can represent.
        let mut points = points();
        points.iter_mut().filter(|point| point.batch == 32).for_each(|point| point.round_ms = 1.0);
        let model = AdditiveModel::fit(&points).expect("points");
        assert!(model.parameters().iter().all(|(_, cost)| *cost >= 0.0), "{:?}", model.parameters());
        assert_eq!(AdditiveModel::fit(&[]), None);
    }

    #[test]
    fn a_shape_is_left_out_with_all_its_points() {
        assert_eq!(AdditiveModel::left_out_ms(&points()[..6]), None, "two shapes say nothing of a third");
        let mut points = points();
        points.extend([1, 8, 32].map(|batch| observation("8,1,9", batch, 2.8)));
        // A point that is twice as slow as the others imply is visible in the errors.
        points[4].round_ms *= 2.0;
        let errors = AdditiveModel::errors(&points);
        assert!(errors.last().is_some_and(|largest| *largest > 0.3), "{errors:?}");
        assert_eq!(errors.len(), points.len() - 3, "no speculation is not predicted");
    }
}
