//! # SD057: eagle31-norms
//!
//! The head has norms that older versions silently drop.
//!
//! ## What it does
//!
//! Looks for `norm_before_fc`, `fc_norm` (or its older name `use_aux_norm`) and `norm_output` in
//! the draft's config, in versions whose class of the head has no such norm, and for `fc_norm` and
//! `norm_output` within `eagle_config`, where they are not read.
//!
//! ## Why is this bad?
//!
//! A head of EAGLE-3.1 was trained with these norms. Without them its proposals are poor, and no
//! message says why.
//!
//! ## What SGLang does
//!
//! Weights with unknown names are skipped, so the norms are not run.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "fc_norm": true}
//! ```
//!
//! ```launch bad version:0.5.16
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {"norm_before_fc": true}}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.12
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "fc_norm": true}
//! ```
//!
//! ## Versions
//!
//! Heads of Llama's class have `fc_norm` and `norm_output` since 0.5.12 and `norm_before_fc` since
//! 0.5.17; those of Kimi's class (`Eagle3DeepseekV2ForCausalLM`) have the first two since 0.5.13.
//! Read in the wheels of these versions and of the ones before them.
//!
//! ## Source
//!
//! sglang PR #32334, `models/llama_eagle3.py`, `models/kimi_k25_eagle3.py`.

use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    flags::Key,
    model::{EagleConfig, ModelConfig},
    version::EngineVersion,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD057",
    name: "eagle31-norms",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// A norm that a head may have.
struct HeadNorm {
    name: &'static str,
    /// Whether the head has it, according to the top level of its config.
    in_config: fn(&ModelConfig) -> Option<bool>,
    /// The same within `eagle_config`.
    nested: fn(&EagleConfig) -> Option<bool>,
    /// Whether SGLang reads it there.
    is_read_nested: bool,
    /// The first version with it for a head of Llama's class, and for one of Kimi's.
    since: [Option<EngineVersion>; 2],
}

const NORMS: [HeadNorm; 3] = [
    HeadNorm {
        name: "norm_before_fc",
        in_config: |draft| draft.norm_before_fc,
        nested: |config| config.norm_before_fc,
        is_read_nested: true,
        since: [Some(V0_5_17), None],
    },
    HeadNorm {
        name: "fc_norm",
        in_config: |draft| draft.fc_norm.or(draft.use_aux_norm),
        nested: |config| config.fc_norm,
        is_read_nested: false,
        since: [Some(V0_5_12_0), Some(V0_5_13)],
    },
    HeadNorm {
        name: "norm_output",
        in_config: |draft| draft.norm_output,
        nested: |config| config.norm_output,
        is_read_nested: false,
        since: [Some(V0_5_12_0), Some(V0_5_13)],
    },
];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let draft = context.draft_config()?;
    let version = context.version();
    let is_kimi = draft.architecture().is_some_and(|class| class.starts_with("Eagle3DeepseekV2"));
    NORMS.iter().find_map(|norm| {
        let name = norm.name;
        let nested = draft.eagle_config.as_ref().and_then(norm.nested);
        let top = (norm.in_config)(draft);
        let is_nested = nested.is_some() && (norm.is_read_nested || top != Some(true));
        let is_there = if is_nested { nested } else { top };
        let since = norm.since[usize::from(is_kimi)].filter(|_| !is_nested || norm.is_read_nested);
        if is_there != Some(true) || since.is_some_and(|since| context.may_have(since)) {
            return None;
        }
        let help = match since {
            Some(since) => format!("use sglang {since} or later, or an EAGLE-3 head without it"),
            None if is_nested && norm.since[usize::from(is_kimi)].is_some() => {
                format!("write `{name}` at the top level of the head's config.json, where sglang reads it")
            }
            None => "use an EAGLE-3 head without it".to_owned(),
        };
        let message = format!("the head was trained with {name}, which sglang {version} drops");
        let finding =
            Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, format!("{name} is true"));
        Some(finding.on_facts("draft", context.draft).by_version().help(help))
    })
}

#[cfg(test)]
mod tests {
    use crate::rules::examples::found_in;

    /// What SD057 says of a head with these fields.
    fn says(fields: &str, class: &str, version: &str) -> Option<String> {
        let draft = format!(r#"{{"architectures": ["{class}"], {fields}}}"#);
        let launch =
            "sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft";
        found_in(launch, version, "", &draft).into_iter().find(|one| one.code == "SD057").map(|one| one.message)
    }

    #[test]
    fn each_norm_is_dropped_until_the_class_of_the_head_has_it() {
        let (llama, kimi) = ("LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM");
        for (fields, class, before, after) in [
            (r#""fc_norm": true"#, llama, "0.5.11", Some("0.5.12")),
            (r#""use_aux_norm": true"#, llama, "0.5.11", Some("0.5.12")),
            (r#""norm_output": true"#, llama, "0.5.11", Some("0.5.12")),
            (r#""norm_before_fc": true"#, llama, "0.5.16", Some("0.5.17")),
            (r#""eagle_config": {"norm_before_fc": true}"#, llama, "0.5.16", Some("0.5.17")),
            (r#""eagle_config": {"fc_norm": true}"#, llama, "0.5.23", None),
            (r#""fc_norm": true"#, kimi, "0.5.12", Some("0.5.13")),
            (r#""norm_before_fc": true"#, kimi, "0.5.23", None),
        ] {
            assert!(says(fields, class, before).is_some(), "{fields} {before}");
            if let Some(after) = after {
                assert_eq!(says(fields, class, after), None, "{fields} {after}");
            }
        }
        assert_eq!(says(r#""norm_before_fc": true, "eagle_config": {"norm_before_fc": false}"#, llama, "0.5.9"), None);
    }
}
