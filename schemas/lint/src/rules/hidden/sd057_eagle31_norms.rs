//! # SD057: eagle31-norms
//!
//! The head has norms that older versions silently drop.
//!
//! ## What it does
//!
//! Looks for `norm_before_fc`, `fc_norm` and `norm_output` in the draft's config before 0.5.23.
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
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "fc_norm": true}
//! ```
//!
//! ## Versions
//!
//! Supported in 0.5.23, not in 0.5.15.post1; unknown in between.
//!
//! ## Source
//!
//! sglang PR #32334, `models/llama_eagle3.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD057",
    name: "eagle31-norms",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const EDGE: Edge = Edge::new(V0_5_15, V0_5_23);

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let draft = context.draft_config()?;
    let flags =
        [("norm_before_fc", draft.norm_before_fc), ("fc_norm", draft.fc_norm), ("norm_output", draft.norm_output)];
    let (name, _) = flags.into_iter().find(|(_, value)| *value == Some(true))?;
    let version = context.version();
    if EDGE.side(version) == Side::After {
        return None;
    }
    let message = format!("the head was trained with {name}, which sglang {version} drops");
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, format!("{name} is true"))
            .maybe_note(EDGE.doubt(version))
            .on_facts("draft", context.draft)
            .by_version()
            .help("use sglang 0.5.23 or later, or an EAGLE-3 head without it"),
    )
}
