//! vLLM's adaptive verification: how many drafts of all requests are verified.
//!
//! The drafts with the largest probabilities are verified, whichever request they belong to. Their
//! number maximises expected tokens / time. The host chooses it before it knows the probabilities
//! of the drafts, from those of the step before; a new request counts as certain. The device then
//! splits it by those of this step.
//!
//! Times are two tables ([`CostTables`]): drafting by the number of requests, verification by the
//! number of tokens. vLLM times dummy steps at start: each captured size and some larger ones, as
//! that many requests of one token (up to the maximum of requests) whose contexts have
//! `PROFILE_CONTEXT` tokens. The tables are a step function of these sizes up to the largest
//! captured one, and lines between the points beyond it.
//!
//! The rule is that of 0.33, whose decisions are the same since 0.28; `decisions.rs` compares it
//! with decisions of the engine's own class. Its online fit of confidences is not simulated (they
//! are fitted to the trace), nor is its limit of logits in a step, which is above 2,000 rows.

use std::collections::HashMap;

use engine::{likeliest, replay::trace::Nodes};
use schemas::tree::TreeShape;

use super::{Policy, RoundChoice, View, calibration::Calibration};
use crate::forecast::costs::StepCosts;

/// The context at which vLLM times its steps, by default.
const PROFILE_CONTEXT: f64 = 8192.0;
/// The largest number of tokens that vLLM captures by default, on devices before Blackwell.
const LARGEST_CAPTURED: usize = 512;
/// The least time of a verification in ms.
const LEAST_VERIFY_MS: f64 = 1e-6;

/// Times of a step in ms.
#[derive(Clone, Debug, PartialEq)]
pub struct CostTables {
    /// Drafting, by the number of requests.
    pub draft_ms: Vec<f64>,
    /// Verification, by the number of tokens, those of prompts included.
    pub verify_ms: Vec<f64>,
}

/// Points of a curve: (size, ms), ascending by size.
pub type CostCurve = Vec<(usize, f64)>;

impl CostTables {
    /// Tables up to numbers of requests and of tokens. `captured` is the largest captured number of
    /// tokens, 0 without graphs. `None` if a curve has no point.
    pub fn new(
        draft: &[(usize, f64)],
        verify: &[(usize, f64)],
        most_requests: usize,
        most_tokens: usize,
        captured: usize,
    ) -> Option<Self> {
        let draft_ms = table(most_requests, draft, captured)?.into_iter().map(|ms| ms.max(0.0));
        let verify_ms = table(most_tokens, verify, captured)?.into_iter().map(|ms| ms.max(LEAST_VERIFY_MS));
        Some(Self { draft_ms: draft_ms.collect(), verify_ms: verify_ms.collect() })
    }

    /// The tables that vLLM would measure on a machine with these costs, for chains of a number of
    /// drafts. `captured` are the captured numbers of tokens, ascending; `None` without any, which
    /// vLLM refuses.
    pub fn timed(
        costs: &StepCosts,
        drafts: usize,
        captured: &[usize],
        most_requests: usize,
        most_tokens: usize,
    ) -> Option<Self> {
        let most_tokens = most_tokens.max(most_requests.saturating_mul(drafts + 1));
        let captured: Vec<usize> = captured.iter().copied().filter(|size| *size <= most_tokens).collect();
        let largest = *captured.last()?;
        let requests = |size: usize| size.min(most_requests);
        let verify = |size: &usize| {
            let cached = requests(*size) as f64 * PROFILE_CONTEXT / 1e6;
            let of_requests = costs.request_ms * requests(*size) as f64 + costs.context_ms * cached;
            (*size, costs.verify(*size as f64) + of_requests)
        };
        let draft = |size: &usize| {
            let requests = requests(*size);
            (requests, costs.draft(TreeShape::chain(drafts), requests, PROFILE_CONTEXT))
        };
        // Drafting is timed in graphs alone.
        let mut drafting: CostCurve = captured.iter().map(draft).collect();
        drafting.dedup_by_key(|(requests, _)| *requests);
        let verifying: CostCurve = profiled_sizes(&captured, most_tokens).iter().map(verify).collect();
        Self::new(&drafting, &verifying, most_requests, most_tokens, largest)
    }
}

/// The numbers of tokens that vLLM 0.33 captures by default, ascending: a grid, and whole chains of
/// as many requests.
pub fn default_captured(drafts: usize, most_requests: usize, most_tokens: usize) -> Vec<usize> {
    let of_request = drafts + 1;
    let ceiling = most_requests.saturating_mul(2 * of_request).min(LARGEST_CAPTURED).min(most_tokens);
    let grid = |most: usize| {
        let few = [1, 2, 4].into_iter().chain((8..256).step_by(8));
        few.chain((256..=LARGEST_CAPTURED).step_by(16)).filter(move |size| *size <= most)
    };
    let chains = grid(most_requests).chain([most_requests]).map(|requests| requests.saturating_mul(of_request));
    let mut sizes: Vec<usize> = grid(ceiling).chain(chains.filter(|size| *size <= ceiling)).collect();
    if most_tokens <= ceiling {
        sizes.push(most_tokens);
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The numbers of tokens whose steps vLLM times, ascending: captured ones, and larger ones up to
/// the most tokens of a step.
pub fn profiled_sizes(captured: &[usize], most_tokens: usize) -> Vec<usize> {
    let mut sizes = captured.to_vec();
    if let Some(largest) = captured.last().copied().filter(|size| *size > 0) {
        sizes.push((largest + largest / 2).min(most_tokens));
        let mut size = largest;
        while size < most_tokens {
            size = size.saturating_mul(2).min(most_tokens);
            sizes.push(size);
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The time at each size up to a limit.
fn table(limit: usize, curve: &[(usize, f64)], captured: usize) -> Option<Vec<f64>> {
    let mut most = f64::NEG_INFINITY;
    let rising = curve.iter().map(|(size, ms)| {
        most = most.max(*ms);
        (*size as f64, most)
    });
    let points: Vec<(f64, f64)> = rising.collect();
    let last = *points.last()?;
    let above = &points[curve.partition_point(|(size, _)| *size <= captured)..];
    let at = |size: usize| {
        let x = size as f64;
        if let [.., before, _] = points.as_slice()
            && x > last.0
        {
            return last.1 + (last.1 - before.1) / (last.0 - before.0) * (x - last.0);
        }
        if captured > 0 && size > captured && !above.is_empty() {
            return between(above, x);
        }
        // Padded to the next point.
        points[points.partition_point(|(point, _)| *point < x).min(points.len() - 1)].1
    };
    Some((0..=limit).map(at).collect())
}

/// The line between the points around a place, and the outer points' values beyond them.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|(point, _)| *point <= x);
    match (after.checked_sub(1).map(|at| points[at]), points.get(after)) {
        (Some((x0, y0)), Some((x1, y1))) => (y1 - y0) / (x1 - x0) * (x - x0) + y0,
        (Some((_, y)), None) | (None, Some(&(_, y))) => y,
        (None, None) => f64::NAN,
    }
}

/// What is scheduled in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduledStep {
    /// Requests, those in prefill included.
    pub requests: usize,
    /// Tokens other than drafts: one for each request that decodes, and those of prompts.
    pub other_tokens: usize,
    /// Requests that yield a token: those that decode, and those whose prompt ends.
    pub sampling: usize,
    /// The most drafts that may be verified.
    pub most_drafts: usize,
}

/// The number of drafts that maximises expected tokens / time, the smallest of equal ones.
/// `values` are the probabilities of all scheduled drafts.
pub fn draft_budget(tables: &CostTables, step: ScheduledStep, mut values: Vec<f64>) -> usize {
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    values.truncate(step.most_drafts);
    let at = |table: &[f64], place: usize| table[place.min(table.len() - 1)];
    let drafting = at(&tables.draft_ms, step.requests);
    let mut sum = 0.0;
    let mut best = (f64::NEG_INFINITY, 0);
    for drafts in 0..=values.len() {
        if drafts > 0 {
            sum += values[drafts - 1];
        }
        let rate = (step.sampling as f64 + sum) / (drafting + at(&tables.verify_ms, step.other_tokens + drafts));
        if rate > best.0 {
            best = (rate, drafts);
        }
    }
    best.1
}

/// The policy.
#[derive(Clone, Debug)]
pub struct AdaptiveVerification {
    drafts: usize,
    tables: CostTables,
    calibration: Calibration,
    /// The probabilities of each request's drafts in its last round.
    known: HashMap<usize, Vec<f64>>,
}

impl AdaptiveVerification {
    /// Chains of a number of drafts.
    pub fn new(drafts: usize, tables: CostTables, calibration: Calibration) -> Self {
        Self { drafts, tables, calibration, known: HashMap::new() }
    }

    /// The number of drafts that are verified of these requests, each with its number of drafts.
    pub fn budget(&self, step: ScheduledStep, requests: impl IntoIterator<Item = (usize, usize)>) -> usize {
        let mut values = Vec::new();
        for (request, drafts) in requests {
            match self.known.get(&request) {
                Some(known) => values.extend(known.iter().copied().take(drafts)),
                None => values.extend(std::iter::repeat_n(1.0, drafts)),
            }
        }
        draft_budget(&self.tables, step, values)
    }

    /// The probabilities of the drafts that a request verifies in this step, which the next step's
    /// number follows from.
    pub fn saw(&mut self, request: usize, values: Vec<f64>) {
        self.known.insert(request, values);
    }
}

impl Policy for AdaptiveVerification {
    fn choose(&mut self, view: &View<'_>) -> RoundChoice {
        let step = ScheduledStep {
            requests: view.batch + view.prefilling,
            other_tokens: view.batch + view.prefilled,
            sampling: view.batch + view.completing,
            most_drafts: usize::MAX,
        };
        let drafts = self.budget(step, view.requests.iter().map(|request| (*request, self.drafts)));
        RoundChoice::Rows { limit: TreeShape::chain(self.drafts), drafts }
    }

    fn allocate(&mut self, view: &View<'_>, nodes: &[&Nodes], drafts: usize) -> Vec<Vec<usize>> {
        let limit = TreeShape::chain(self.drafts);
        let offered: Vec<_> = nodes.iter().map(|nodes| self.calibration.kept_values(nodes, limit)).collect();
        for (request, offered) in view.requests.iter().zip(&offered) {
            self.saw(*request, offered.iter().map(|(_, value)| *value).collect());
        }
        likeliest(&offered, drafts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::policy::calibration::tests::chain;

    /// 10 ms, and 0.5 ms for each token, in steps of some tokens.
    fn tables(step: usize) -> CostTables {
        let verify: CostCurve = (1..=64).map(|at| (at * step, 10.0 + 0.5 * (at * step) as f64)).collect();
        CostTables::new(&[(64, 1.0)], &verify, 64, 64, 64).expect("points")
    }

    const VIEW: View<'static> =
        View { requests: &[7, 9], batch: 2, padded: 2, context: 0.0, prefilling: 0, completing: 0, prefilled: 0 };

    fn rows(drafts: usize) -> RoundChoice {
        RoundChoice::Rows { limit: TreeShape::chain(3), drafts }
    }

    #[test]
    fn rows_go_to_the_most_probable_drafts_of_all_requests() {
        let nodes = [chain([-0.1, -0.2, -0.3]), chain([-1.0, -1.1, -3.0])];
        let nodes: Vec<&Nodes> = nodes.iter().collect();
        let mut policy = AdaptiveVerification::new(3, tables(1), Calibration::NONE);
        assert_eq!(policy.allocate(&VIEW, &nodes, 4), [vec![0, 1, 2], vec![0]]);
        assert_eq!(policy.allocate(&VIEW, &nodes, 5), [vec![0, 1, 2], vec![0, 1]]);
        assert!(policy.allocate(&VIEW, &nodes, 0).iter().all(Vec::is_empty));
    }

    /// Decisions by hand. A step of these two requests takes 12 ms, and 0.5 ms for each draft.
    #[test]
    fn the_number_of_rows_maximises_tokens_per_time_with_last_rounds_confidences() {
        let mut policy = AdaptiveVerification::new(3, tables(1), Calibration::NONE);
        // New requests are certain of all drafts: each row adds a token, (2 + n)/(12 + 0.5 n)
        // rises to n = 6.
        assert_eq!(policy.choose(&VIEW), rows(6));
        let nodes = [chain([-0.1, -0.2, -0.3]), chain([-1.0, -1.1, -3.0])];
        policy.allocate(&VIEW, &nodes.iter().collect::<Vec<_>>(), 6);
        // 0.905 0.819 0.741 0.368 0.333 0.050. A row pays while its value is above 0.5 × the rate,
        // which is at most 5.166 / 14.5 = 0.356: 0.178. So five rows, not the last one.
        assert_eq!(policy.choose(&VIEW), rows(5));
        // Captured sizes of 4 tokens make rows up to the next one free: eight rows are six drafts.
        policy.tables = tables(4);
        assert_eq!(policy.choose(&VIEW), rows(6));
        // Another request has no value yet, and counts as certain.
        policy.tables = tables(1);
        assert_eq!(policy.choose(&View { requests: &[11, 9], ..VIEW }), rows(5));
        // Of requests that yield more anyway, a draft of 0.2 does not pay: 3/17 < 3.2/17.5, and
        // 12/17 > 12.2/17.5.
        let budget = |sampling, most_drafts| {
            let step = ScheduledStep { requests: 3, other_tokens: 12, sampling, most_drafts };
            draft_budget(&policy.tables, step, vec![0.2])
        };
        assert_eq!([budget(3, 9), budget(3, 0), budget(12, 9)], [1, 0, 0]);
    }

    #[test]
    fn tables_are_steps_of_captured_sizes_and_lines_beyond_them() {
        let verify = [(2, 5.0), (4, 4.0), (8, 9.0), (16, 12.0), (32, 20.0)];
        let tables = CostTables::new(&[(4, 1.0), (8, 3.0)], &verify, 12, 48, 8).expect("points");
        let at = |sizes: &[usize]| sizes.iter().map(|size| tables.verify_ms[*size]).collect::<Vec<_>>();
        // A size that is faster than a smaller one counts as the smaller one.
        assert_eq!(at(&[0, 2, 3, 4, 5, 8]), [5.0, 5.0, 5.0, 5.0, 9.0, 9.0]);
        // Between points above 8 alone: not between 9 and 12.
        assert_eq!(at(&[9, 16, 24, 32, 48]), [12.0, 12.0, 16.0, 20.0, 28.0]);
        assert_eq!([0, 4, 5, 8, 12].map(|size| tables.draft_ms[size]), [1.0, 1.0, 3.0, 3.0, 5.0]);
        assert_eq!(CostTables::new(&[], &verify, 1, 1, 0), None);
    }

    #[test]
    fn captured_sizes_are_a_grid_and_whole_chains() {
        let sizes = default_captured(4, 3, 8192);
        assert_eq!(sizes, [1, 2, 4, 5, 8, 10, 15, 16, 24]);
        let sizes = default_captured(6, 256, 8192);
        assert_eq!(sizes[..8], [1, 2, 4, 7, 8, 14, 16, 24]);
        assert_eq!(sizes[sizes.len() - 4..], [480, 496, 504, 512]);
        assert_eq!(default_captured(6, 256, 20), [1, 2, 4, 7, 8, 14, 16, 20]);
    }

    #[test]
    fn tables_of_a_machine_are_those_of_requests_with_one_token() {
        let costs = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name");
        let tables = CostTables::timed(&costs, 3, &[4, 8, 16], 8, 64).expect("captured sizes");
        let verify = |tokens: usize, requests: f64| {
            costs.verify(tokens as f64) + requests * (costs.request_ms + costs.context_ms * 0.008192)
        };
        let draft = |requests| costs.draft(TreeShape::chain(3), requests, 8192.0);
        assert_eq!(
            [3, 8, 9, 64].map(|size| tables.verify_ms[size]),
            [verify(4, 4.0), verify(8, 8.0), verify(16, 8.0), verify(64, 8.0)]
        );
        assert_eq!([4, 5, 8].map(|size| tables.draft_ms[size]), [draft(4), draft(8), draft(8)]);
        assert_eq!((tables.draft_ms.len(), tables.verify_ms.len()), (9, 65));
        assert_eq!(CostTables::timed(&costs, 3, &[], 8, 64), None);
    }
}
