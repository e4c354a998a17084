//! # SD042: eagle-vocab
//!
//! The draft head was trained for a different vocabulary than the target's.
//!
//! ## What it does
//!
//! Compares `vocab_size` of target and draft under EAGLE and EAGLE3.
//!
//! ## Why is this bad?
//!
//! Embedding and output head are the target's, but the draft head's own code still uses its own
//! size. A larger draft vocabulary contains tokens that the target does not have; a smaller one
//! indicates that the head belongs to another model.
//!
//! ## What SGLang does
//!
//! Nothing checks it: logits are cut to the draft's size, or tokens are outside the embedding (an
//! illegal memory access).
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path Qwen/Qwen2.5-72B-Instruct --speculative-algorithm EAGLE --max-running-requests 8 \
//!   --speculative-draft-model-path my/eagle-qwen2.5-0.5b --tp 8
//! ```
//! ```target
//! {"architectures": ["Qwen2ForCausalLM"], "vocab_size": 152064, "hidden_size": 8192, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["Qwen2ForCausalLMEagle"], "vocab_size": 151936, "hidden_size": 8192, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path Qwen/Qwen2.5-72B-Instruct --speculative-algorithm EAGLE --max-running-requests 8 \
//!   --speculative-draft-model-path my/eagle-qwen2.5-72b --tp 8
//! ```
//! ```target
//! {"architectures": ["Qwen2ForCausalLM"], "vocab_size": 152064, "hidden_size": 8192, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["Qwen2ForCausalLMEagle"], "vocab_size": 152064, "hidden_size": 8192, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! All versions read. For an EAGLE-3 head with a smaller vocabulary it is a warning: its own map
//! decides which tokens it proposes.
//!
//! ## Source
//!
//! sglang `models/llama_eagle.py`, `models/llama_eagle3.py` (followed in the code, not run).

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD042",
    name: "eagle-vocab",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let algorithm = context.algorithm()?;
    if !matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3) {
        return None;
    }
    let (target, draft) = (context.target_config()?.vocab_size?, context.draft_config()?.vocab_size?);
    if target == draft {
        return None;
    }
    let message = format!("the draft was trained for a vocabulary of {draft} tokens, but the target has {target}");
    let finding = Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, format!("{draft} tokens"))
        .related(context.span(Key::ModelPath), format!("{target} tokens"))
        .note("nothing is checked at startup: logits are cut short, or tokens lie outside the embedding")
        .on_facts("target", context.target)
        .on_facts("draft", context.draft)
        .help("use a head that was trained for this target");
    let own_map = algorithm == Algorithm::Eagle3 && draft < target;
    Some(if own_map { finding.at_most(Severity::Warning) } else { finding })
}
