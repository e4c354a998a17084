//! What SGLang's models hand out to drafts, by version: `sglang_hooks.tsv`, generated from wheels
//! by `scripts/read_hooks.py`.

use std::sync::OnceLock;

use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Context, Finding, class_table::ClassTable};

/// What a draft needs of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// States of some layers, for heads of EAGLE-3.
    Eagle3States,
    /// The same for drafts of blocks.
    DflashStates,
    /// The same for DSpark.
    DsparkStates,
    /// Its embedding, for heads that share it.
    Embedding,
}

/// The hooks, in the order of the columns.
const HOOKS: [Hook; 4] = [Hook::Eagle3States, Hook::DflashStates, Hook::DsparkStates, Hook::Embedding];

/// A hook that a version lacks.
pub(super) struct Lacking {
    /// The first version that has it.
    pub(super) since: Option<EngineVersion>,
}

/// Of each class that lacks a hook in some version: the first version read that has the class, and
/// for each hook the first from which on all have it, if the newest does.
fn table() -> &'static ClassTable<{ 1 + HOOKS.len() }> {
    static TABLE: OnceLock<ClassTable<{ 1 + HOOKS.len() }>> = OnceLock::new();
    TABLE.get_or_init(|| ClassTable::from_text(include_str!("sglang_hooks.tsv")))
}

/// Whether a version has the architecture without the hook. Outside the versions that were read
/// nothing is known.
pub(super) fn lacks(architecture: &str, hook: Hook, version: EngineVersion) -> Option<Lacking> {
    let [known_since, hooks @ ..] = table().class(architecture)?;
    let since = hooks[HOOKS.iter().position(|known| *known == hook)?];
    table().next_read(version)?;
    (known_since? <= version && since.is_none_or(|since| version < since)).then_some(Lacking { since })
}

/// The finding that a target's class lacks a hook in the launch's version. `what` it does not hand
/// out, and the `method` that it lacks.
pub(super) fn not_handed_out(
    context: &Context<'_>,
    hook: Hook,
    what: &str,
    method: &str,
    instead: &str,
) -> Option<Finding> {
    let class = context.target_config()?.architecture()?;
    let lacking = lacks(class, hook, context.version())?;
    // Another implementation of the model, or one that a plugin brings.
    let is_other =
        context.argument("model-impl").is_some() || !context.launch.lacks_variable("SGLANG_EXTERNAL_MODEL_PACKAGE");
    if is_other {
        return None;
    }
    let place = context.value_place(Key::SpeculativeAlgorithm);
    let algorithm = context.algorithm()?.name();
    let message = format!("{algorithm} cannot run on {class}: the class hands out no {what}");
    let finding = Finding::new(place, message, "not with this target")
        .related(context.span(Key::ModelPath), class)
        .sglang_says(format!("AttributeError: '{class}' object has no attribute '{method}'"))
        .on_facts("target", context.target)
        .by_version();
    Some(match lacking.since {
        Some(since) => finding.at_most(Severity::Warning).help(format!("use sglang {since} or later; or {instead}")),
        None => finding.help(instead),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        let text = include_str!("sglang_hooks.tsv");
        table().check(text, 40, 1..1 + HOOKS.len());
        let classes = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split('\t').next());
        classes.for_each(|class| assert!(table().class(class).is_some_and(|[known, ..]| known.is_some()), "{class}"));
    }

    #[test]
    fn classes_gain_hooks() {
        let lacks = |name: &str, hook, version: &str| lacks(name, hook, version.parse().expect("a version")).is_some();
        assert!(lacks("MiniMaxM2ForCausalLM", Hook::Eagle3States, "0.5.5"));
        assert!(!lacks("MiniMaxM2ForCausalLM", Hook::Eagle3States, "0.5.5.post1"));
        assert!(lacks("MiniMaxM2ForCausalLM", Hook::Embedding, "0.5.5.post1"));
        assert!(lacks("DeepseekV4ForCausalLM", Hook::Eagle3States, "0.5.23"));
        assert!(!lacks("DeepseekV4ForCausalLM", Hook::DsparkStates, "0.5.23"));
        // Before the class, and after what was read.
        assert!(!lacks("MiniMaxM2ForCausalLM", Hook::Eagle3States, "0.5.3"));
        assert!(!lacks("DeepseekV4ForCausalLM", Hook::Eagle3States, "0.6.0"));
        assert!(!lacks("LlamaForCausalLM", Hook::Eagle3States, "0.4.10"));
    }
}
