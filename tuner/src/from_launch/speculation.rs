//! The speculation of a launch.

use std::{collections::BTreeMap, path::Path};

use engine::{
    options::nodes_of,
    spec::{TextSpec, TrieRule},
};
use launch::Launch;
use schemas::{
    algorithm::parse_algorithm,
    chain_tables,
    drafting::{algorithm_of_vllm, algorithms, sglang_flags, vllm_method},
    engines::{Engine, NEWEST_SGLANG},
    flags::Key,
    tree::{NodeSource, TreeShape},
};
use serde_json::Value;

use super::LaunchDraft;

/// Keys of vLLM's configuration that the sweep sets.
const SET_BY_SWEEP: [&str; 4] = ["method", "model", "num_speculative_tokens", chain_tables::VLLM_SCHEDULE];

/// The draft, and the launch's own shape.
#[derive(Debug)]
pub struct LaunchSpeculation {
    pub draft: LaunchDraft,
    pub own: Option<TreeShape>,
    /// Further keys of vLLM's configuration.
    pub keys: BTreeMap<String, Value>,
}

/// The speculation of a launch, or with the given draft.
pub fn launch_speculation(launch: &Launch, given: Option<&LaunchDraft>) -> Result<LaunchSpeculation, String> {
    let own = match launch.engine {
        Engine::Vllm => from_vllm(launch),
        Engine::Sglang | Engine::Slime | Engine::Spectune => from_flags(launch),
    };
    if let Some(draft) = given {
        if let Some(reason) = unfit(launch.engine, draft) {
            return Err(reason);
        }
        // The numbers of a shape mean something else for another algorithm.
        let own = own.filter(|own| own.draft.algorithm == draft.algorithm);
        let (own, keys) = own.map(|own| (own.own, own.keys)).unwrap_or_default();
        return Ok(LaunchSpeculation { draft: draft.clone(), own, keys });
    }
    let Some(own) = own else {
        if launch.has(Key::SpeculativeAlgorithm) || launch.argument("speculative-config").is_some() {
            return Err("how the launch speculates is not known here: give --set NAME=VALUE for the variable that holds it, or \
                        write it into a copy"
                .into());
        }
        return Err(
            "the launch does not speculate, so there is nothing to vary: give a draft for its target with --draft \
                    DIR, or --algorithm NEXTN if the target has MTP layers of its own"
                .into(),
        );
    };
    if !is_varied(launch.engine, &own.draft.algorithm) {
        return Err(format!(
            "what {} drafts with {} is not varied: measure the launch as it is with `spectune tune --url URL --launch \
             FILE`, or give another draft with --draft DIR",
            launch.engine, own.draft.algorithm
        ));
    }
    Ok(own)
}

/// Why an engine does not draft with what the user gives; `None` if it does.
fn unfit(engine: Engine, draft: &LaunchDraft) -> Option<String> {
    let algorithm = draft.algorithm.as_str();
    if !is_varied(engine, algorithm) {
        let names: Vec<&str> = algorithms().filter(|name| is_varied(engine, name)).collect();
        return Some(format!("{engine} is not varied with {algorithm}: --algorithm takes one of {}", names.join(", ")));
    }
    let needs = vllm_method(algorithm).is_some_and(|method| method.needs_draft);
    (needs && draft.path.is_empty()).then(|| {
        format!("{algorithm} needs a draft: give its folder with --draft DIR, or the id of one in the local cache")
    })
}

/// Whether the sweep knows how an engine is told a shape of an algorithm.
fn is_varied(engine: Engine, algorithm: &str) -> bool {
    if engine == Engine::Vllm {
        return vllm_method(algorithm).is_some();
    }
    let is_known = parse_algorithm(algorithm, NEWEST_SGLANG)
        .is_some_and(|(known, _)| known.drafts_trees() || NodeSource::from_algorithm(known) != NodeSource::Beams);
    is_known && sglang_flags(algorithm, TreeShape::chain(1)).is_some()
}

/// What a draft makes of a shape; the block of a head that is not on this machine may have any
/// size.
pub fn nodes(draft: &LaunchDraft) -> NodeSource {
    match NodeSource::named(&draft.algorithm) {
        NodeSource::Block(unknown) => nodes_of(Path::new(&draft.path)).unwrap_or(NodeSource::Block(unknown)),
        known => known,
    }
}

/// The chain of a head's own block; `None` if the head is not on this machine.
fn own_block(draft: &LaunchDraft) -> Option<TreeShape> {
    match nodes_of(Path::new(&draft.path))? {
        NodeSource::Block(block) => Some(block.chain()),
        NodeSource::Beams | NodeSource::Text(_) => None,
    }
}

fn from_flags(launch: &Launch) -> Option<LaunchSpeculation> {
    let algorithm = launch.text(Key::SpeculativeAlgorithm)?.value.to_ascii_uppercase();
    let path = launch.text(Key::SpeculativeDraftModelPath).map(|path| path.value.to_owned()).unwrap_or_default();
    let draft = LaunchDraft { path, algorithm };
    let own = shape_of_flags(launch, &draft);
    Some(LaunchSpeculation { draft, own, keys: BTreeMap::new() })
}

/// The shape that the flags of SGLang mean; `None` if it is not known.
fn shape_of_flags(launch: &Launch, draft: &LaunchDraft) -> Option<TreeShape> {
    if launch.has(Key::SpeculativeRowBudget) {
        // A tree that is verified in part is none of those that servers are measured with.
        return None;
    }
    let number = |key| launch.count(key).map(|count| count.value);
    let rows = number(Key::SpeculativeNumDraftTokens);
    match NodeSource::named(&draft.algorithm) {
        NodeSource::Beams => {
            let topk = number(Key::SpeculativeEagleTopk).unwrap_or(1);
            let steps = number(Key::SpeculativeNumSteps)?;
            // SGLang replaces the number of draft tokens of a chain by this one.
            let nodes = if topk == 1 { steps + 1 } else { rows? };
            TreeShape::new(steps, topk, nodes).ok()
        }
        NodeSource::Block(block) => {
            let size = if block.sized_by_drafts {
                // DSPARK counts the drafts of a block, DFLASH also the row of the last token.
                number(Key::SpeculativeDsparkBlockSize).map(|drafts| drafts + 1)
            } else {
                number(Key::SpeculativeDflashBlockSize)
            };
            let chain = |rows: usize| TreeShape::chain(rows.saturating_sub(1));
            rows.or(size).map(chain).or_else(|| own_block(draft)).filter(|shape| !shape.is_off())
        }
        NodeSource::Text(text) => {
            let rule = TextSpec::named(&draft.algorithm).filter(|_| text.branches)?;
            let breadth = number(Key::SpeculativeNgramMaxBfsBreadth).unwrap_or(TrieRule::BREADTH);
            let shape = rule.shape_with_rows(rows.unwrap_or(TrieRule::ROWS), breadth);
            rule.nodes().check(shape).is_ok().then_some(shape)
        }
    }
}

fn from_vllm(launch: &Launch) -> Option<LaunchSpeculation> {
    let speculation = launch.vllm_speculation()?;
    let method = speculation.method.clone()?;
    let algorithm = algorithm_of_vllm(&method).unwrap_or(&method);
    let draft = LaunchDraft { path: speculation.model.unwrap_or_default(), algorithm: algorithm.to_owned() };
    let steps = speculation.num_speculative_tokens.and_then(|count| usize::try_from(count).ok());
    let own = match steps {
        Some(steps) => Some(steps).filter(|steps| (1..=TreeShape::LARGEST).contains(steps)).map(TreeShape::chain),
        // Its own number of drafts.
        None if algorithm == "SUFFIX" => TextSpec::named(algorithm).map(|rule| rule.default_shape()),
        None => own_block(&draft),
    };
    let keys = speculation.keys.iter().filter(|(name, _)| !SET_BY_SWEEP.contains(&name.as_str()));
    let keys =
        // In vLLM's configuration null means the default, as if the key were missing.
        keys.filter_map(|(name, key)| Some((name.clone(), key.value.clone()?))).filter(|(_, value)| !value.is_null());
    let mut keys: BTreeMap<String, Value> = keys.collect();
    // A method of single models (`deepseek_mtp`), the only one that older versions take.
    if vllm_method(algorithm).is_some_and(|one| one.name != method) {
        keys.insert("method".into(), method.into());
    }
    Some(LaunchSpeculation { draft, own, keys })
}
