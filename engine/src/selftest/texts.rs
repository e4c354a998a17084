//! Drafts that are looked up in texts: whatever the host drafts, the device verifies it without
//! changing the output, and in float32 as the CPU does.

use super::{Check, SelftestExtent, alone, difference, models::Pair, models::RandomModels, options, request, sampled};
use super::{EngineConfiguration, adjusted::penalised};
use crate::{
    Completion, DeviceChoice, Engine, EngineError, EngineOptions, Request, SamplingParams, ShapePolicy,
    spec::{Occurrence, PromptLookup, SuffixRule, TextSpec, TrieRule},
};

/// Every rule. Random output seldom repeats many tokens, so one is enough for a prompt look-up.
const RULES: [TextSpec; 3] = [
    TextSpec::PromptLookup(PromptLookup { min: 1, max: 3, occurrence: Occurrence::LatestFilled }),
    TextSpec::Suffix(SuffixRule::DEFAULT),
    TextSpec::Trie(TrieRule::DEFAULT),
];

/// Fewer tokens than this repeat too little.
const LEAST_TOKENS: usize = 12;

/// Checks all rules in float32, on devices that verify drafts of the host.
///
/// # Errors
/// When a model cannot be loaded, or the device fails.
pub fn check_texts(
    models: &RandomModels,
    choice: DeviceChoice,
    ranks: usize,
    plan: SelftestExtent,
    report: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    let page_size = plan.page_sizes.last().copied().unwrap_or(1);
    let batch = plan.batches.iter().copied().find(|batch| *batch > 1).unwrap_or(2);
    let requests: Vec<Request> = (0..batch)
        .map(|at| {
            let sampling = vec![SamplingParams::default(), sampled(), penalised()].swap_remove(at % 3);
            request(at, &sampling, plan.tokens.max(LEAST_TOKENS))
        })
        .collect();
    for rule in RULES {
        let load = |choice, ranks| {
            let setting = EngineConfiguration::new(choice, ranks, "float32", Pair::Eagle3, page_size);
            Engine::load(EngineOptions {
                draft_model_path: None,
                algorithm: Some(rule.algorithm().to_owned()),
                text_rule: Some(rule),
                policy: ShapePolicy::fixed(rule.default_shape()),
                ..options(models, setting, plan)
            })
        };
        let mut engine = load(choice, ranks)?;
        let is_cpu = engine.device().device == "cpu";
        let ranks_of = if ranks > 1 { format!(", {ranks} ranks") } else { String::new() };
        let label = format!("{}, float32, page size {page_size}{ranks_of}", rule.algorithm());
        let found = engine.run(requests.clone())?;
        let failure = match is_cpu {
            true => None,
            false => found_on_cpu(&found, &load(DeviceChoice::Cpu, 1)?.run(requests.clone())?),
        };
        let none = found.iter().all(|one| one.proposed_drafts == 0).then(|| "nothing was found in any text".to_owned());
        if !is_cpu {
            report(Check { name: format!("{label}: rounds accept what they accept on the CPU"), failure });
        }
        let alone = alone(&mut engine, &requests)?;
        report(Check {
            name: format!("{label}: output of batch {batch} does not depend on the drafts that the host looks up"),
            failure: none.or_else(|| difference(&alone, &found)),
        });
    }
    Ok(())
}

/// The first request whose rounds differ from those of the CPU.
fn found_on_cpu(found: &[Completion], cpu: &[Completion]) -> Option<String> {
    let of = |one: &Completion| (one.output_ids.clone(), one.accept_histogram.clone(), one.proposed_drafts);
    let at = found.iter().zip(cpu).position(|(found, cpu)| of(found) != of(cpu))?;
    Some(format!("request {at}: {:?}, on the CPU {:?}", of(&found[at]), of(&cpu[at])))
}
