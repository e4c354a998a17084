//! What is known of the models of a launch whose files are not available.

use launch::Launch;
use schemas::{
    flags::Key,
    model::{
        ModelFacts,
        published::{find, head_by_name, variant_of},
    },
};

/// Target and draft of a launch, if the table contains them. Of a target with the name of a
/// variant, and of a head with the name of one, the class is known. If the launch names no target
/// (slime's is often named in another file), it is assumed to be the one that the draft was trained
/// for.
pub fn facts_of(launch: &Launch) -> (Option<ModelFacts>, Option<ModelFacts>) {
    let row = |key| launch.text(key).and_then(|name| Some((name.value, find(name.value)?)));
    let draft = row(Key::SpeculativeDraftModelPath);
    let by_name = || variant_of(launch.text(Key::ModelPath)?.value);
    let target = row(Key::ModelPath).map(|(name, row)| row.facts(name)).or_else(by_name).or_else(|| {
        let (_, draft) = draft.filter(|_| !launch.has(Key::ModelPath))?;
        let name = draft.draft_for.first()?;
        let mut facts = find(name)?.facts(name);
        facts.origin = format!("{}; assumed because the draft was trained for it", facts.origin);
        Some(facts)
    });
    let head = || head_by_name(launch.text(Key::SpeculativeDraftModelPath)?.value);
    (target, draft.map(|(name, row)| row.facts(name)).or_else(head))
}

#[cfg(test)]
mod tests {
    use launch::{Options, parse};
    use schemas::{model::DraftKind, text::Source};

    use super::*;

    #[test]
    fn the_target_of_a_launch_that_names_none_is_what_its_draft_is_for() {
        let text = "SGLANG_ARGS=( --sglang-speculative-algorithm EAGLE3 \
                    --sglang-speculative-draft-model-path /root/sglang-EAGLE3-LLaMA3.1-Instruct-8B )";
        let parsed = parse(&Source::new("x", text), &Options::default());
        let (target, draft) = facts_of(parsed.launches.first().expect("a launch"));
        assert_eq!(target.map(|facts| facts.name).as_deref(), Some("meta-llama/Llama-3.1-8B-Instruct"));
        let draft = draft.expect("known");
        assert_eq!(draft.config.weights_dtype(), Some("float16"));
        assert_eq!(draft.config.derived_context_length(), 2048);
        assert_eq!(draft.draft_kind(), Some(DraftKind::Eagle3));
    }
}
