//! Budgets of verified rows over all requests: the drafts with the largest probabilities are
//! verified, whichever request they belong to.
//!
//! The number of drafts maximises expected tokens / time, as in vLLM's
//! [adaptive verification](super::verification), but with any tree, a grid of numbers of rows, the
//! context of the batch, and more candidates: fixed trees, and no speculation. The host chooses it
//! before the draft runs, from the probabilities of the round before; a new request counts as
//! certain. The device then splits it by those of this round. A draft is never less probable than
//! its children, so the best drafts always contain their parents.

use std::collections::HashMap;

use engine::{likeliest, replay::trace::Nodes};
use schemas::tree::TreeShape;

use super::{Policy, RoundChoice, View, calibration::Calibration};
use crate::forecast::costs::StepCosts;

/// Rounds without speculation before it is tried again; doubled each time, up to [`LONGEST_PAUSE`].
const PAUSE: usize = 16;
const LONGEST_PAUSE: usize = 1024;
/// Verified rows for each request among which a budget chooses.
const GRID: [f64; 11] = [1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0];

/// A budget.
#[derive(Clone, Debug)]
pub struct Budget {
    limit: TreeShape,
    costs: StepCosts,
    calibration: Calibration,
    /// Trees with their accept lengths that are candidates of every round.
    fixed: Vec<(TreeShape, f64)>,
    /// The probabilities of each request's drafts in its last round, descending.
    known: HashMap<usize, Vec<f64>>,
    /// Rounds without speculation that are left, and the length of the next pause.
    pause: (usize, usize),
}

impl Budget {
    /// A budget over trees up to a limit. `fixed` are trees with their accept lengths that are
    /// candidates of every round.
    pub fn new(limit: TreeShape, costs: StepCosts, calibration: Calibration, fixed: Vec<(TreeShape, f64)>) -> Self {
        Self { limit, costs, calibration, fixed, known: HashMap::new(), pause: (0, PAUSE) }
    }

    /// The known probabilities of all requests of a view, descending.
    fn expected(&self, view: &View<'_>) -> Vec<f64> {
        let most = self.limit.drafts();
        let certain = vec![1.0; self.limit.num_steps.min(most)];
        let of = |request: &usize| self.known.get(request).unwrap_or(&certain).iter().copied();
        let mut values: Vec<f64> = view.requests.iter().flat_map(of).collect();
        values.sort_unstable_by(|a, b| b.total_cmp(a));
        values
    }

    /// The time of a round that verifies this many drafts.
    fn time(&self, view: &View<'_>, drafts: usize) -> f64 {
        let rows = view.batch + drafts;
        self.costs.round(self.limit, view.padded, rows, view.filling().tokens_per_place(), view.prefilled)
    }
}

impl Policy for Budget {
    fn choose(&mut self, view: &View<'_>) -> RoundChoice {
        if self.pause.0 > 0 {
            self.pause.0 -= 1;
            return RoundChoice::Shape(TreeShape::OFF);
        }
        let expected = self.expected(view);
        let requests = view.requests.len() as f64;
        let mut sums = vec![requests];
        for value in &expected {
            sums.push(sums[sums.len() - 1] + value);
        }
        let rows = |times: &f64| ((view.batch as f64 * times).round() as usize).saturating_sub(view.batch);
        let numbers = GRID.iter().map(rows).chain([1, expected.len()]).filter(|drafts| *drafts < sums.len());
        let rate = |drafts: &usize| sums[*drafts] / self.time(view, *drafts);
        let best = numbers.map(|drafts| (rate(&drafts), drafts)).max_by(|a, b| {
            // Of equal rates, the fewest drafts.
            a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))
        });
        let (rate, drafts) = best.unwrap_or((0.0, 0));
        let choice = RoundChoice::Rows { limit: self.limit, drafts };
        let of_shape = |shape: TreeShape, length: f64| {
            let rows = view.batch * shape.num_draft_tokens;
            requests * length
                / self.costs.round(shape, view.padded, rows, view.filling().tokens_per_place(), view.prefilled)
        };
        let fixed = self.fixed.iter().map(|(shape, length)| (of_shape(*shape, *length), *shape));
        let (of_fixed, shape) = fixed.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, TreeShape::OFF));
        if of_shape(TreeShape::OFF, 1.0) > rate.max(of_fixed) {
            self.pause = (self.pause.1, (2 * self.pause.1).min(LONGEST_PAUSE));
            return RoundChoice::Shape(TreeShape::OFF);
        }
        self.pause.1 = PAUSE;
        if of_fixed > rate { RoundChoice::Shape(shape) } else { choice }
    }

    fn allocate(&mut self, view: &View<'_>, nodes: &[&Nodes], drafts: usize) -> Vec<Vec<usize>> {
        let limit = self.limit;
        let offered: Vec<_> = nodes.iter().map(|nodes| self.calibration.kept_values(nodes, limit)).collect();
        for (request, offered) in view.requests.iter().zip(&offered) {
            let mut known: Vec<f64> = offered.iter().map(|(_, value)| *value).collect();
            known.sort_unstable_by(|a, b| b.total_cmp(a));
            self.known.insert(*request, known);
        }
        likeliest(&offered, drafts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::policy::calibration::tests::chain;

    fn costs(row_ms: f64) -> StepCosts {
        let costs = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name");
        StepCosts { verify_ms: vec![[1.0, 10.0 + row_ms], [2.0, 10.0 + 2.0 * row_ms]], request_ms: 0.0, ..costs }
    }

    #[test]
    fn a_budget_pauses_where_no_speculation_is_faster_and_tries_again() {
        let view =
            View { requests: &[1], batch: 1, padded: 1, context: 0.0, prefilling: 0, completing: 0, prefilled: 0 };
        let mut budget = Budget::new(TreeShape::chain(3), costs(8.0), Calibration::NONE, Vec::new());
        let nodes = chain([-2.0, -3.0, -4.0]);
        assert!(matches!(budget.choose(&view), RoundChoice::Rows { .. }));
        budget.allocate(&view, &[&nodes], 3);
        for pause in [16, 32] {
            for _ in 0..=pause {
                assert_eq!(budget.choose(&view), RoundChoice::Shape(TreeShape::OFF));
            }
        }
        let fixed = vec![(TreeShape::chain(1), 1.9)];
        let mut budget = Budget::new(TreeShape::chain(3), costs(0.1), Calibration::NONE, fixed);
        budget.allocate(&view, &[&nodes], 3);
        assert_eq!(budget.choose(&view), RoundChoice::Shape(TreeShape::chain(1)));
    }
}
