//! The speculation of a launch.

use std::collections::BTreeMap;

use launch::Launch;
use schemas::{chain_tables, engines::Engine, flags::Key, tree::TreeShape};
use serde_json::Value;

use super::Draft;
use crate::system::server::vllm_method;

/// Algorithms whose shapes a sweep varies.
const VARIED: [&str; 4] = ["EAGLE", "EAGLE3", "NEXTN", "STANDALONE"];
/// Keys of vLLM's configuration that the sweep sets.
const SET_BY_SWEEP: [&str; 4] = ["method", "model", "num_speculative_tokens", chain_tables::VLLM_SCHEDULE];

/// The draft, and the launch's own shape.
#[derive(Debug)]
pub struct Speculation {
    pub draft: Draft,
    pub own: Option<TreeShape>,
    /// Further keys of vLLM's configuration.
    pub keys: BTreeMap<String, Value>,
}

/// The speculation of a launch, or with the given draft.
pub fn of(launch: &Launch, given: Option<&Draft>) -> Result<Speculation, String> {
    let own = match launch.engine {
        Engine::Vllm => of_vllm(launch),
        Engine::Sglang | Engine::Slime | Engine::Spectune => of_flags(launch),
    };
    if let Some(draft) = given {
        let own = own.filter(|own| own.draft.algorithm == draft.algorithm);
        let (own, keys) = own.map(|own| (own.own, own.keys)).unwrap_or_default();
        return Ok(Speculation { draft: draft.clone(), own, keys });
    }
    let Some(own) = own else {
        if launch.has(Key::SpeculativeAlgorithm) || launch.vllm_flag("--speculative-config").is_some() {
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
    if !VARIED.contains(&own.draft.algorithm.as_str()) {
        return Err(format!(
            "{} is not varied yet (only {}): measure the launch as it is with `spectune tune --url URL --launch FILE`, or \
             give another draft with --draft DIR",
            own.draft.algorithm,
            VARIED.join(", ")
        ));
    }
    Ok(own)
}

fn of_flags(launch: &Launch) -> Option<Speculation> {
    let algorithm = launch.text(Key::SpeculativeAlgorithm)?.value.to_ascii_uppercase();
    let path = launch.text(Key::SpeculativeDraftModelPath).map(|path| path.value.to_owned()).unwrap_or_default();
    let number = |key| launch.count(key).map(|count| count.value);
    let steps = number(Key::SpeculativeNumSteps);
    let topk = number(Key::SpeculativeEagleTopk).unwrap_or(1);
    let own = steps.and_then(|steps| {
        let nodes = if topk == 1 { Some(steps + 1) } else { number(Key::SpeculativeNumDraftTokens) };
        TreeShape::new(steps, topk, nodes?).ok()
    });
    Some(Speculation { draft: Draft { path, algorithm }, own, keys: BTreeMap::new() })
}

fn of_vllm(launch: &Launch) -> Option<Speculation> {
    let speculation = launch.vllm_speculation()?;
    let method = speculation.method.clone()?;
    let algorithm = match VARIED.iter().find(|algorithm| vllm_method(algorithm) == Some(&method)) {
        Some(algorithm) => algorithm,
        None if method.ends_with("_mtp") => "NEXTN",
        None => method.as_str(),
    };
    let draft = Draft { path: speculation.model.unwrap_or_default(), algorithm: algorithm.to_owned() };
    let steps = speculation.num_speculative_tokens.and_then(|count| usize::try_from(count).ok());
    let own = steps.filter(|steps| (1..=TreeShape::LARGEST).contains(steps)).map(TreeShape::chain);
    let keys = speculation.keys.iter().filter(|(name, _)| !SET_BY_SWEEP.contains(&name.as_str()));
    let keys =
        keys.filter_map(|(name, key)| Some((name.clone(), key.value.clone()?))).filter(|(_, value)| !value.is_null());
    let keys = keys.collect();
    Some(Speculation { draft, own, keys })
}
