//! # NR11: draft-for-another-base
//!
//! By its name the draft was trained for another generation of the target.
//!
//! ## What it does
//!
//! Compares the generation in the names of target and draft (Llama 2, 3, 3.1, 3.2, 3.3; Qwen 2, 2.5, 3).
//! A draft of STANDALONE is a whole model and reads no hidden states: it may be of another generation.
//!
//! ## Why is this bad?
//!
//! A head learns the hidden states of one model. On another of the same shape it runs, and few of its tokens are accepted.
//!
//! ## What SGLang does
//!
//! It runs; nothing compares the two.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --context-length 2048 --dtype bfloat16 --max-running-requests 16 \
//!   --speculative-algorithm EAGLE --speculative-draft-model-path lmsys/sglang-EAGLE-LLaMA3-Instruct-8B \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path meta-llama/Meta-Llama-3-8B-Instruct --context-length 2048 --dtype bfloat16 --max-running-requests 16 \
//!   --speculative-algorithm EAGLE --speculative-draft-model-path lmsys/sglang-EAGLE-LLaMA3-Instruct-8B \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --context-length 2048 --dtype bfloat16 --max-running-requests 16 \
//!   --speculative-algorithm STANDALONE --speculative-draft-model-path meta-llama/Llama-3.2-1B-Instruct \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All versions.
//!
//! ## Source
//!
//! sglang PR #9388, issues #6296, #3824.

use crate::{
    diagnostic::Severity,
    flags::Key,
    resolve::Algorithm,
    rules::{Applies, Check, Context, Finding, Rule},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "NR11",
    name: "draft-for-another-base",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    file: include_str!("nr11_draft_for_another_base.rs"),
    check: Check::One(check),
};

const FAMILIES: [&str; 2] = ["llama", "qwen"];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm().filter(|algorithm| *algorithm != Algorithm::Standalone)?;
    let target = context.launch.text(Key::ModelPath)?;
    let draft = context.launch.text(Key::SpeculativeDraftModelPath)?;
    let (family, own) = generation(target.value)?;
    let (other, made_for) = generation(draft.value)?;
    if family != other || own == made_for {
        return None;
    }
    let message = format!("by its name the draft is for {other} {made_for}, and the target is {family} {own}");
    Some(
        Finding::new(draft.span, message, format!("for {other} {made_for}"))
            .related(Some(target.span), format!("{family} {own}"))
            .note("only the names were compared")
            .help("take the head that was trained for this target"),
    )
}

/// Family and generation in the last part of a path, such as llama and 3.1.
fn generation(path: &str) -> Option<(&'static str, String)> {
    let name = path.trim_end_matches('/').rsplit('/').next()?.to_ascii_lowercase();
    FAMILIES.iter().find_map(|family| {
        let rest = &name[name.find(family)? + family.len()..];
        let rest = rest.strip_prefix(['-', '_']).unwrap_or(rest);
        let number: String = rest.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
        // The size of a model (7b) is no generation.
        let sized = rest[number.len()..].starts_with('b');
        let number = number.trim_matches('.').to_owned();
        (!number.is_empty() && !sized).then_some((*family, number))
    })
}
