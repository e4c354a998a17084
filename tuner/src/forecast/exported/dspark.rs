//! What SGLang budgets the rows of DSPARK heads by.

use schemas::tree::TreeShape;

use crate::forecast::{costs::StepCosts, drafts::Drafts, plan::SimulationPlan, times::StepTimes};

/// The costs of steps, and what they are the costs of.
#[derive(Clone, Debug, PartialEq)]
pub struct DsparkCosts {
    /// Drafts of a block.
    pub block: usize,
    /// The mean context of the load, in tokens.
    pub context: f64,
    /// The contents of SGLang's file.
    pub table: String,
}

/// The table of step costs for the head of a plan. `given` are the trees that the user names.
///
/// # Errors
/// In words, when the draft is not known to be a DSPARK head, its block is not known, or the times
/// are not those of such a block for any number of rows.
pub fn costs(plan: &SimulationPlan, given: &[TreeShape]) -> Result<DsparkCosts, String> {
    let chain = block(&plan.drafts, given)?;
    let StepTimes::Sum(costs) = &plan.times else {
        return Err("fitted times know only the rows of whole blocks, and the table is for any number of rows: give \
                    the costs of a machine with --times"
            .into());
    };
    // A head without a row for the anchor has one row more than drafts.
    let rows = [chain.num_steps, chain.num_draft_tokens];
    match costs.draft.block {
        Some(block) if rows.contains(&block) => {}
        Some(block) => {
            return Err(format!(
                "the times are those of a block of {block} rows, and the head drafts {} tokens: give --times of its block",
                chain.num_steps
            ));
        }
        None => {
            return Err(format!(
                "the times are those of a draft that runs a pass for each step ({}), and DSPARK drafts a block in one: give \
                 --times of a block head",
                costs.source
            ));
        }
    }
    let context = plan.mean_context();
    let table = table(costs, chain, plan.setup.max_running_requests, context);
    Ok(DsparkCosts { block: chain.num_steps, context, table })
}

/// The chain of the head's block: the one that the user names, else the one of the traces.
fn block(drafts: &Drafts, given: &[TreeShape]) -> Result<TreeShape, String> {
    match drafts.algorithm() {
        Some(name) if name.eq_ignore_ascii_case("DSPARK") => {}
        Some(other) => return Err(format!("SGLang budgets the rows of DSPARK heads only, and the draft is {other}")),
        None => {
            return Err("whose accept lengths these are is not known: add --speculative-algorithm DSPARK if a DSPARK \
                        head has them"
                .into());
        }
    }
    let mut chains = if given.is_empty() { drafts.limits() } else { given.to_vec() };
    chains.retain(|shape| !shape.is_off() && shape.topk == 1 && shape.row_budget.is_none());
    chains.sort_unstable();
    chains.dedup();
    match chains.as_slice() {
        [chain] => Ok(*chain),
        [] => Err("the block of the head is not known: give its chain with --shapes, such as 7,1,8".into()),
        several => {
            let several: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(format!("a head has one block: give its chain with --shapes, one of {}", several.join(" and ")))
        }
    }
}

/// SGLang's table of step costs for DSPARK (`--speculative-dspark-sps-table-path`), in its additive
/// form: a constant, a sum for requests and one for verified rows, each interpolated between
/// points. `chain` is the block of the head, of which a step verifies up to `num_draft_tokens` rows
/// of each request; `context` the mean context in tokens, which SGLang's form does not know.
///
/// Read in `speculative/dspark_components/dspark_sps.py`.
fn table(costs: &StepCosts, chain: TreeShape, most_requests: usize, context: f64) -> String {
    let rows = most_requests.saturating_mul(chain.num_draft_tokens);
    let requests = powers_of_two(most_requests);
    // One row costs this much; what further rows cost is the other term.
    let first = costs.verify(1.0);
    let of_requests = |batch: &usize| costs.round(chain, *batch, 1, context, 0) - first;
    let within = costs.verify_ms.iter().map(|[rows, _]| *rows as usize).filter(|at| (2..rows).contains(at));
    let mut probes: Vec<usize> = [1, rows].into_iter().chain(within).collect();
    probes.sort_unstable();
    probes.dedup();
    let seconds = |ms: f64| ms / 1e3;
    let table = serde_json::json!({
        "bias_seconds": seconds(first),
        "bs_probes": requests,
        "alpha_seconds": requests.iter().map(of_requests).map(seconds).collect::<Vec<f64>>(),
        "m_probes": probes,
        "theta_seconds": probes.iter().map(|rows| seconds(costs.verify(*rows as f64) - first)).collect::<Vec<f64>>(),
    });
    format!("{table}\n")
}

/// 1, 2, 4, … and the last.
fn powers_of_two(last: usize) -> Vec<usize> {
    let mut all: Vec<usize> =
        std::iter::successors(Some(1), |one: &usize| one.checked_mul(2)).take_while(|one| *one < last).collect();
    all.push(last.max(1));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::{
        Setup,
        load::{Load, SendPattern},
        plan::AdaptiveLaunch,
        rollout::{OutputLengths, Rollout},
    };

    /// A plan of four running requests with prompts of 100 and outputs of 20 tokens.
    fn plan(algorithm: Option<&str>, times: impl Into<StepTimes>) -> SimulationPlan {
        let requests = Rollout {
            prompts: 8,
            samples: 1,
            prompt_tokens: 100,
            lengths: OutputLengths::Recorded(vec![20]),
            ..Rollout::default()
        };
        SimulationPlan {
            drafts: Drafts::golden(&[1.7, 2.2]).expect("lengths").with_algorithm(algorithm.map(ToOwned::to_owned)),
            times: times.into(),
            shapes: vec![TreeShape::chain(1), TreeShape::chain(2)],
            limits: Vec::new(),
            load: Load { requests, sent: SendPattern::Closed(4) },
            setup: Setup {
                capture_sizes: vec![1, 2, 4],
                max_running_requests: 4,
                memory: None,
                prefill_budget: 8192,
                prefill_chunk: 8192,
                rounds_behind: 1,
                mixed_prefill: false,
            },
            contexts: Vec::new(),
            draws: 1,
            policies: Vec::new(),
            adaptive: AdaptiveLaunch::default(),
        }
    }

    #[test]
    fn a_table_needs_a_dspark_head_its_block_and_times_of_that_block() {
        let machine = |name: &str| StepCosts::named(name).expect("a machine");
        let block = machine("llama-3.1-8b-block8-h200");
        let chains = |steps: &[usize]| steps.iter().map(|steps| TreeShape::chain(*steps)).collect::<Vec<_>>();
        for rows in [7, 8] {
            let found = costs(&plan(Some("dspark"), block.clone()), &chains(&[rows])).expect("a block");
            assert_eq!((found.block, found.context), (rows, 110.0));
            assert!(found.table.contains("bias_seconds"));
        }
        let refused = |algorithm, times: StepCosts, given: &[usize], words: &str| {
            let error = costs(&plan(algorithm, times), &chains(given)).expect_err(words);
            assert!(error.contains(words), "{error}");
        };
        refused(Some("EAGLE3"), block.clone(), &[7], "the draft is EAGLE3");
        refused(Some("DFLASH"), block.clone(), &[7], "the draft is DFLASH");
        refused(None, block.clone(), &[7], "--speculative-algorithm DSPARK");
        refused(Some("DSPARK"), block.clone(), &[], "give its chain with --shapes");
        refused(Some("DSPARK"), block.clone(), &[0], "give its chain with --shapes");
        refused(Some("DSPARK"), block.clone(), &[7, 3], "one of 3,1,4 and 7,1,8");
        refused(Some("DSPARK"), block, &[16], "a block of 8 rows");
        refused(Some("DSPARK"), machine("llama-3.1-8b-eagle3-h200"), &[7], "a pass for each step");
    }

    /// What SGLang makes of a table: `bias + α(requests) + θ(requests + budget)`, each clamped to
    /// its points and linear between them.
    fn step_ms(table: &serde_json::Value, requests: usize, rows: usize) -> f64 {
        let numbers = |name: &str| -> Vec<f64> {
            table[name].as_array().expect("a list").iter().map(|one| one.as_f64().expect("a number")).collect()
        };
        let at = |probes: &str, values: &str, x: f64| {
            let (xs, ys) = (numbers(probes), numbers(values));
            assert!(xs.is_sorted_by(|a, b| a < b) && xs.len() == ys.len(), "{xs:?}");
            match xs.iter().position(|probe| *probe >= x) {
                None => ys[ys.len() - 1],
                Some(0) => ys[0],
                Some(hi) => ys[hi - 1] + (x - xs[hi - 1]) / (xs[hi] - xs[hi - 1]) * (ys[hi] - ys[hi - 1]),
            }
        };
        let bias = table["bias_seconds"].as_f64().expect("a number");
        assert!(bias > 0.0);
        let (alpha, theta) =
            (at("bs_probes", "alpha_seconds", requests as f64), at("m_probes", "theta_seconds", rows as f64));
        1e3 * (bias + alpha + theta)
    }

    #[test]
    fn sglangs_table_of_step_costs_gives_the_times_of_the_sum() {
        let costs = StepCosts::named("llama-3.1-8b-block8-h200").expect("a machine");
        let chain = TreeShape::chain(7);
        let text = table(&costs, chain, 48, 3000.0);
        let table: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for (requests, rows) in [(1, 1), (1, 8), (4, 10), (48, 48), (48, 200), (32, 256), (48, 48 * 8)] {
            let (found, expected) = (step_ms(&table, requests, rows), costs.round(chain, requests, rows, 3000.0, 0));
            assert!((found - expected).abs() < 1e-9, "{requests} requests, {rows} rows: {found} and {expected}");
        }
    }
}
