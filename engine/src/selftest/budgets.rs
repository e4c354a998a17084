//! Budgets of verified rows: whatever they leave out, the output stays that of plain decoding, and
//! in float32 the rounds of a request alone accept what they accept on the CPU. Of several requests
//! they need not: with a round in flight, requests that have ended still share the rows.

use super::{
    Check, EngineConfiguration, SelftestExtent, adjusted::penalised, comparison::CpuComparison, models::RandomModels,
    options, request, sampled,
};
use crate::{Engine, EngineError, Request, SamplingParams};

/// A chain and trees: with few rows more than roots, most nodes, and more inner nodes than rows.
const SHAPES: [&str; 4] = ["4,1,5~2.5", "3,2,6~3", "3,2,6~5.5", "4,4,20~1.25"];

/// Checks budgets with the draft of a setting, for batches that fill their graph and for others.
///
/// # Errors
/// When a model cannot be loaded, or the device fails.
pub fn check_budgets(
    models: &RandomModels,
    setting: EngineConfiguration,
    plan: SelftestExtent,
    label: &str,
    report: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    let mut comparison = CpuComparison::load(setting, |setting| Engine::load(options(models, setting, plan)))?;
    let samplings = [SamplingParams::default(), sampled(), penalised()];
    let several = plan.batches.iter().copied().find(|batch| *batch > 1).unwrap_or(2);
    for batch in [1, several] {
        let one = |at: usize| request(at, &samplings[at % samplings.len()], plan.tokens);
        let requests: Vec<Request> = (0..batch).map(one).collect();
        let plain = comparison.plain(&requests)?;
        for shape in SHAPES.iter().filter_map(|shape| shape.parse().ok()) {
            comparison.run(shape, &requests, &plain, batch == 1)?;
        }
    }
    let output = format!("{label}: output does not depend on a budget of rows");
    let rounds = format!("{label}: within a budget of rows, a request alone accepts what it accepts on the CPU");
    comparison.report([output, rounds], report);
    Ok(())
}
