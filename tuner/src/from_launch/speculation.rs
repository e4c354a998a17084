//! The speculation of a launch.

use launch::Launch;
use schemas::{engines::Engine, flags::Key, tree::TreeShape};

use super::Draft;
use crate::system::server::vllm_method;

/// Algorithms whose shapes a sweep varies.
const VARIED: [&str; 3] = ["EAGLE", "EAGLE3", "NEXTN"];

/// The draft, and the launch's own shape.
#[derive(Debug)]
pub struct Speculation {
    pub draft: Draft,
    pub own: Option<TreeShape>,
}

/// The speculation of a launch, or with the given draft.
pub fn of(launch: &Launch, given: Option<&Draft>) -> Result<Speculation, String> {
    let own = match launch.engine {
        Engine::Vllm => of_vllm(launch),
        Engine::Sglang | Engine::Slime | Engine::Spectune => of_flags(launch),
    };
    if let Some(draft) = given {
        let own = own.filter(|own| own.draft.algorithm == draft.algorithm).and_then(|own| own.own);
        return Ok(Speculation { draft: draft.clone(), own });
    }
    let Some(own) = own else {
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
    Some(Speculation { draft: Draft { path, algorithm }, own })
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
    Some(Speculation { draft, own })
}
