//! Look-ups beside a draft: whatever they find, the output stays that of plain decoding, and in
//! float32 rounds accept what they accept on the CPU.

use super::{
    Check, EngineConfiguration, SelftestExtent, adjusted::penalised, comparison::CpuComparison, models,
    models::RandomModels, options, request, sampled,
};
use crate::{
    Engine, EngineError, EngineOptions, Request, SamplingParams,
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
    let mut comparison = CpuComparison::load(setting, |setting| {
        Engine::load(EngineOptions { second_source: Some(rule), ..options(models, setting, plan) })
    })?;
    let plain = comparison.plain(&requests)?;
    for shape in SHAPES.iter().filter_map(|shape| shape.parse().ok()) {
        comparison.run(shape, &requests, &plain, true)?;
    }
    let output = format!("{label}: output of batch {batch} does not depend on what is found");
    comparison.report([output, format!("{label}: rounds accept what they accept on the CPU")], report);
    Ok(())
}

/// A request whose prompt repeats itself, so that look-ups find something from the start.
fn repetitive(at: usize, tokens: usize) -> Request {
    let sampling = vec![SamplingParams::default(), sampled(), penalised()].swap_remove(at % 3);
    let period = 4 + at % 5;
    let input_ids = (0..17 + at).map(|place| (place % period * 3 % models::VOCABULARY) as u32).collect();
    Request { input_ids, ..request(at, &sampling, tokens) }
}
