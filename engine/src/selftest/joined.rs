//! Look-ups beside a draft: whatever they find, the output stays that of plain decoding, and in
//! float32 rounds accept what they accept on the CPU.

use super::{
    Check, EngineConfiguration, SelftestExtent, adjusted::penalised, alone, difference, models, models::RandomModels,
    options, request, sampled,
};
use crate::{
    Completion, DeviceChoice, Engine, EngineError, EngineOptions, Request, SamplingParams, ShapePolicy,
    spec::{PromptLookup, SuffixRule, TextSpec},
};

/// The rules that can be a second source.
const RULES: [TextSpec; 2] = [TextSpec::PromptLookup(PromptLookup::SECOND), TextSpec::Suffix(SuffixRule::DEFAULT)];

/// A chain, which branches where look-ups differ, and a tree.
const SHAPES: [&str; 2] = ["4,1,5", "3,2,6"];

/// Fewer tokens than this repeat too little.
const LEAST_TOKENS: usize = 12;

/// Checks a draft with look-ups beside it, by each rule.
///
/// # Errors
/// When a model cannot be loaded, or the device fails.
pub fn check_joined(
    models: &RandomModels,
    setting: EngineConfiguration,
    plan: SelftestExtent,
    label: &str,
    report: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    RULES.into_iter().try_for_each(|rule| check_rule(models, setting, plan, (rule, label), report))
}

fn check_rule(
    models: &RandomModels,
    setting: EngineConfiguration,
    plan: SelftestExtent,
    (rule, label): (TextSpec, &str),
    report: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    let label = format!("{label}, {} beside it", rule.algorithm());
    let batch = plan.batches.iter().copied().find(|batch| *batch > 1).unwrap_or(2);
    let requests: Vec<Request> = (0..batch).map(|at| repetitive(at, plan.tokens.max(LEAST_TOKENS))).collect();
    let load = |setting: EngineConfiguration| {
        Engine::load(EngineOptions { second_source: Some(rule), ..options(models, setting, plan) })
    };
    let mut engine = load(setting)?;
    let compares = setting.dtype == "float32" && engine.device().device != "cpu";
    // With pages of one size prompts end in the same steps: outputs of others are looked up as far
    // as they are.
    let cpu = EngineConfiguration::new(DeviceChoice::Cpu, 1, setting.dtype, setting.pair, setting.page_size);
    let mut cpu = compares.then(|| load(cpu)).transpose()?;
    let plain = alone(&mut engine, &requests)?;
    if let Some(cpu) = &mut cpu {
        // Suffixes are looked up in what ran before, too, so both engines run the same.
        alone(cpu, &requests)?;
    }
    let (mut changed, mut unlike_cpu) = (None, None);
    for shape in SHAPES.iter().filter_map(|shape| shape.parse().ok()) {
        engine.set_policy(ShapePolicy::fixed(shape))?;
        let found = engine.run(requests.clone())?;
        let say = |difference: String| format!("shape {shape}, {difference}");
        changed = changed.or_else(|| difference(&plain, &found).map(say));
        if let Some(cpu) = &mut cpu {
            cpu.set_policy(ShapePolicy::fixed(shape))?;
            unlike_cpu = unlike_cpu.or(other_rounds(&found, &cpu.run(requests.clone())?).map(say));
        }
    }
    report(Check {
        name: format!("{label}: output of batch {batch} does not depend on what is found"),
        failure: changed,
    });
    if compares {
        report(Check { name: format!("{label}: rounds accept what they accept on the CPU"), failure: unlike_cpu });
    }
    Ok(())
}

/// A request whose prompt repeats itself, so that look-ups find something from the start.
fn repetitive(at: usize, tokens: usize) -> Request {
    let sampling = vec![SamplingParams::default(), sampled(), penalised()].swap_remove(at % 3);
    let period = 4 + at % 5;
    let input_ids = (0..17 + at).map(|place| (place % period * 3 % models::VOCABULARY) as u32).collect();
    Request { input_ids, ..request(at, &sampling, tokens) }
}

/// The first request whose rounds differ from those of the CPU.
pub fn other_rounds(found: &[Completion], cpu: &[Completion]) -> Option<String> {
    let of = |one: &Completion| (one.output_ids.clone(), one.accept_histogram.clone());
    let at = found.iter().zip(cpu).position(|(found, cpu)| of(found) != of(cpu))?;
    Some(format!("request {at}: {:?}, on the CPU {:?}", of(&found[at]), of(&cpu[at])))
}
