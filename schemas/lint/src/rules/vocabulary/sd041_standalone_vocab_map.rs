//! # SD041: standalone-vocab-map
//!
//! Target and draft assign different ids to their tokens.
//!
//! ## What it does
//!
//! Compares the vocabularies of the two tokenizer.json files, including added tokens, if a
//! STANDALONE draft has the target's `vocab_size`. Both files must be available.
//!
//! ## Why is this bad?
//!
//! The draft proposes ids. If an id means another token to the target, the proposal is noise.
//!
//! ## What SGLang does
//!
//! `ValueError: … the two tokenizers have different token-to-id mappings even though their vocab
//! sizes match`. With `--skip-tokenizer-init` it does not check.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm STANDALONE --speculative-draft-model-path draft \
//!   --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "vocab_size": 512, "torch_dtype": "bfloat16"}
//! ```
//! ```target-tokenizer
//! {"model": {"vocab": {"a": 0, "b": 1}}}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLM"], "vocab_size": 512, "torch_dtype": "bfloat16"}
//! ```
//! ```draft-tokenizer
//! {"model": {"vocab": {"a": 1, "b": 0}}}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm STANDALONE --speculative-draft-model-path draft \
//!   --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "vocab_size": 512, "torch_dtype": "bfloat16"}
//! ```
//! ```target-tokenizer
//! {"model": {"vocab": {"a": 0, "b": 1}}}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLM"], "vocab_size": 512, "torch_dtype": "bfloat16"}
//! ```
//! ```draft-tokenizer
//! {"model": {"vocab": {"b": 1, "a": 0}}}
//! ```
//!
//! ## Versions
//!
//! Checked since a version after 0.5.12.post1, 0.5.15.post1 at the latest; older ones run and
//! accept little.
//!
//! ## Source
//!
//! sglang `speculative/standalone_worker_v2.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD041",
    name: "standalone-vocab-map",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Standalone)?;
    let (target, draft) = (context.target_config()?.vocab_size?, context.draft_config()?.vocab_size?);
    // Unequal sizes are reported by SD040; another tokenizer may replace the target's.
    if target != draft || context.launch.has(Key::TokenizerPath) || context.launch.has(Key::SkipTokenizerInit) {
        return None;
    }
    let (target, draft) = (context.target?.tokenizer?, context.draft?.tokenizer?);
    if target.digest == draft.digest {
        return None;
    }
    let edge = Edge::new(V0_5_12, V0_5_15);
    let message = "the tokenizers of target and draft give the same tokens different ids";
    let finding = Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "another vocabulary")
        .related(context.span(Key::ModelPath), "the target's vocabulary")
        .note(format!("the target's tokenizer has {} tokens, the draft's {}", target.tokens, draft.tokens));
    let finding = match edge.side(context.version()) {
        Side::Before => finding.note("this version does not check it: drafts are noise to the target"),
        Side::Between | Side::After => finding.sglang_says(
            "ValueError: … two tokenizers have different token-to-id mappings even though their vocab sizes match",
        ),
    };
    Some(
        finding
            .maybe_note(edge.doubt(context.version()))
            .by_version()
            .help("use a smaller model of the target's own family, with the same tokenizer.json"),
    )
}
