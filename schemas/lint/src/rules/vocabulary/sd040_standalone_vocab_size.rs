//! # SD040: standalone-vocab-size
//!
//! The draft model's vocabulary size differs from the target's.
//!
//! ## What it does
//!
//! Compares `vocab_size` of target and draft under `--speculative-algorithm STANDALONE`.
//!
//! ## Why is this bad?
//!
//! The draft's tokens are used as the target's without conversion. With another vocabulary they
//! mean something else, or nothing.
//!
//! ## What SGLang does
//!
//! From 0.5.15 on: `ValueError: STANDALONE speculative decoding requires the draft model to share
//! the same vocabulary as the target model, but got target vocab_size=… and draft vocab_size=…`. Up
//! to 0.5.12 it runs: wrong text, or an illegal memory access. Sizes that differ by padding only
//! (Qwen2.5: 151936 and 152064) are rejected as well from 0.5.15 on; before, they ran, and SGLang's
//! own documentation shows such a pair, so for those versions this is a warning.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path google/gemma-2-9b --speculative-algorithm STANDALONE \
//!   --speculative-draft-model-path bigcode/tiny_starcoder_py --dtype bfloat16 --max-running-requests 8
//! ```
//! ```target
//! {"architectures": ["Gemma2ForCausalLM"], "vocab_size": 256000, "max_position_embeddings": 8192}
//! ```
//! ```draft
//! {"architectures": ["GPTBigCodeForCausalLM"], "vocab_size": 49152, "max_position_embeddings": 8192}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm STANDALONE \
//!   --speculative-draft-model-path meta-llama/Llama-3.2-1B-Instruct --max-running-requests 8
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! An error at start from 0.5.15 on (PR #23838), silent before.
//!
//! ## Source
//!
//! sglang issue #24051, PR #23838, `speculative/standalone_worker_v2.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD040",
    name: "standalone-vocab-size",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Standalone)?;
    let (target, draft) = (context.target_config()?.vocab_size?, context.draft_config()?.vocab_size?);
    if target == draft {
        return None;
    }
    let edge = Edge::new(V0_5_12, V0_5_15);
    let message = format!("the draft has {draft} tokens and the target {target}: STANDALONE needs one vocabulary");
    let finding = Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, format!("{draft} tokens"))
        .related(context.span(Key::ModelPath), format!("{target} tokens"));
    let finding = match edge.side(context.version()) {
        Side::Before => finding.note("this version does not check it: wrong text, or an illegal memory access"),
        Side::Between | Side::After => finding.sglang_says(format!(
            "ValueError: STANDALONE speculative decoding requires the draft model to share the same vocabulary as the \
             target model, but got target vocab_size={target} and draft vocab_size={draft}"
        )),
    };
    // Within one family, ids beyond the shorter vocabulary are padding, which neither model
    // produces.
    let padded = edge.side(context.version()) != Side::After && differs_by_padding(context, target, draft);
    let finding = if padded {
        finding.at_most(Severity::Warning).note("the sizes differ by padding only, which this version runs")
    } else {
        finding
    };
    Some(
        finding
            .maybe_note(edge.doubt(context.version()))
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .by_version()
            .help("use a smaller model of the target's own family whose `vocab_size` is the same"),
    )
}

/// Maximum difference, in rows, between the padded vocabularies of one family.
const PADDING: usize = 1024;

/// Whether two vocabularies are of one family but padded differently: models of one class, with
/// sizes close to each other and multiples of 64.
fn differs_by_padding(context: &Context<'_>, target: usize, draft: usize) -> bool {
    let class =
        |facts: Option<&schemas::model::ModelConfig>| facts.and_then(|config| config.architecture()).map(str::to_owned);
    let one_family = class(context.target_config()).is_some_and(|own| class(context.draft_config()) == Some(own));
    one_family && target.abs_diff(draft) <= PADDING && target.is_multiple_of(64) && draft.is_multiple_of(64)
}
