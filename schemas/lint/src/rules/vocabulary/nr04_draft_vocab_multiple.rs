//! # NR04: draft-vocab-multiple
//!
//! A draft vocabulary that is not a multiple of 64 does not fit the graphs' buffer.
//!
//! ## What it does
//!
//! Looks at the EAGLE-3 head's `draft_vocab_size`, on versions around 0.5.2, with CUDA graphs.
//!
//! ## Why is this bad?
//!
//! The server crashes while it captures its graphs.
//!
//! ## What SGLang does
//!
//! The head's rows are padded to a multiple of 64 but the buffer of logits is not, so their sizes
//! differ.
//!
//! ## Example
//!
//! ```launch bad version:0.5.2
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32001, "vocab_size": 128256}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.2
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000, "vocab_size": 128256}
//! ```
//!
//! ## Versions
//!
//! Reported for about 0.5.2; a warning between 0.5.2 and 0.5.6, not reported from there on.
//!
//! ## Source
//!
//! sglang issue #10106.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR04",
    name: "draft-vocab-multiple",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Rows are padded to a multiple of this number.
const UNIT: usize = 64;
const EDGE: Edge = Edge::new(V0_5_2, V0_5_6);

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let size = context.draft_config()?.draft_vocab_size.filter(|size| !size.is_multiple_of(UNIT))?;
    let version = context.version();
    let side = EDGE.side(version);
    if side == Side::After || version < V0_4_10 || context.launch.has(Key::DisableCudaGraph) {
        return None;
    }
    let message = format!("a draft vocabulary of {size} is not a multiple of {UNIT}: the graphs' buffer does not fit");
    let finding = Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, format!("{size} tokens"))
        .on_facts("draft", context.draft)
        .maybe_note(EDGE.doubt(version))
        .by_version()
        .help(format!("use sglang 0.5.6 or later, or add `{}`", context.flag(Key::DisableCudaGraph)));
    Some(if side == Side::Between { finding.at_most(Severity::Warning) } else { finding })
}
