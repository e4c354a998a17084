//! Budgets of verified rows: whatever they leave out, the output stays that of plain decoding, and
//! in float32 the rounds of a request alone accept what they accept on the CPU. Of several requests
//! they need not: with a round in flight, requests that have ended still share the rows.

use super::{
    Check, EngineConfiguration, SelftestExtent, adjusted::penalised, alone, difference, joined::other_rounds,
    models::RandomModels, options, request, sampled,
};
use crate::{DeviceChoice, Engine, EngineError, Request, SamplingParams, ShapePolicy};

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
    let load = |setting: EngineConfiguration| Engine::load(options(models, setting, plan));
    let mut engine = load(setting)?;
    let compares = setting.dtype == "float32" && engine.device().device != "cpu";
    let cpu = EngineConfiguration::new(DeviceChoice::Cpu, 1, setting.dtype, setting.pair, setting.page_size);
    let mut cpu = compares.then(|| load(cpu)).transpose()?;
    let samplings = [SamplingParams::default(), sampled(), penalised()];
    let (mut changed, mut unlike_cpu) = (None, None);
    let several = plan.batches.iter().copied().find(|batch| *batch > 1).unwrap_or(2);
    for batch in [1, several] {
        let one = |at: usize| request(at, &samplings[at % samplings.len()], plan.tokens);
        let requests: Vec<Request> = (0..batch).map(one).collect();
        let plain = alone(&mut engine, &requests)?;
        for shape in SHAPES.iter().filter_map(|shape| shape.parse().ok()) {
            engine.set_policy(ShapePolicy::fixed(shape))?;
            let found = engine.run(requests.clone())?;
            let say = |difference: String| format!("shape {shape}, batch {batch}, {difference}");
            changed = changed.or_else(|| difference(&plain, &found).map(say));
            if let Some(cpu) = cpu.as_mut().filter(|_| batch == 1) {
                cpu.set_policy(ShapePolicy::fixed(shape))?;
                unlike_cpu = unlike_cpu.or(other_rounds(&found, &cpu.run(requests.clone())?).map(say));
            }
        }
    }
    report(Check { name: format!("{label}: output does not depend on a budget of rows"), failure: changed });
    if compares {
        let name = format!("{label}: within a budget of rows, a request alone accepts what it accepts on the CPU");
        report(Check { name, failure: unlike_cpu });
    }
    Ok(())
}
