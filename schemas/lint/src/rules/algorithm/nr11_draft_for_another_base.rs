//! # NR11: draft-for-another-base
//!
//! By its name the draft was trained for another generation of the target.
//!
//! ## What it does
//!
//! Compares the generation in the names of target and draft (Llama 2, 3, 3.1, 3.2, 3.3; Qwen 2,
//! 2.5, 3, 3.5), written with a dot, a dash or nothing between the digits, and the size (8B, 14B;
//! of gpt-oss too) where the draft's config is not known, and of published models with one config
//! the training (DeepSeek V3, V3-0324 and V3.1, R1 and R1-0528, MiniMax M2 to M2.7): for heads of
//! EAGLE, blocks (DFLASH, DSPARK) and Medusa in either engine. A draft of STANDALONE
//! (`draft_model`) is a whole model and reads no hidden states: it may be of another generation.
//!
//! ## Why is this bad?
//!
//! A head learns the hidden states of one model. It runs on another model of the same shape, but
//! few of its tokens are accepted.
//!
//! ## What SGLang does
//!
//! It runs; nothing compares the two, in either engine.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --context-length 2048 --dtype bfloat16 --max-running-requests 16 \
//!   --speculative-algorithm EAGLE --speculative-draft-model-path lmsys/sglang-EAGLE-LLaMA3-Instruct-8B \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch bad version:0.5.16
//! sglang serve --model-path Qwen/Qwen3-14B --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path AngelSlim/Qwen3-8B_eagle3 --attention-backend fa3 --speculative-num-steps 3 \
//!   --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch bad
//! vllm serve Qwen/Qwen3-14B --speculative-config '{"method": "dflash", "model": "z-lab/Qwen3-8B-DFlash-b16", "num_speculative_tokens": 15}'
//! ```
//!
//! ```launch bad version:0.24.0
//! vllm serve openai/gpt-oss-20b --speculative-config '{"method": "eagle3", "model": "nvidia/gpt-oss-120b-Eagle3", "num_speculative_tokens": 3}'
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path MiniMaxAI/MiniMax-M2.7 --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path thoughtworks/MiniMax-M2.5-Eagle3 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
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

use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    engines::Engine,
    flags::Key,
    model::published::{find, id_of},
    text::Located,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR11",
    name: "draft-for-another-base",
    severity: Severity::Warning,
    applies: Applies::All,
    check: RuleCheck::One(check),
};

/// Methods of vLLM whose drafts read the target's hidden states.
const OF_VLLM: [&str; 5] = ["dflash", "dspark", "eagle", "eagle3", "medusa"];

/// Families, and their generations as written without a dot; `qwen32` may be a size.
const FAMILIES: [(&str, &[&str]); 2] =
    [("llama", &["31", "32", "33"]), ("qwen", &["15", "25", "35", "36", "37", "38"])];

fn check(context: &Context<'_>) -> Option<Finding> {
    // A whole model is no head at all, which is another finding.
    (reads_states(context) && !context.drafts_with_whole_model()).then_some(())?;
    let target = context.launch.text(Key::ModelPath)?;
    let draft = context.draft_name()?;
    if let Some(finding) = another_training(target, draft) {
        return Some(finding);
    }
    if is_sized(target.value) && is_sized(draft.value) {
        return another_size(context, target, draft);
    }
    let (family, own) = generation(target.value)?;
    let (other, made_for) = generation(draft.value)?;
    // Names of different families are too free to compare: a draft may be a small model of another
    // one.
    if family != other {
        return None;
    }
    if own == made_for {
        return another_size(context, target, draft);
    }
    let message = format!("judging by its name, the draft is for {other} {made_for}, but the target is {family} {own}");
    Some(
        Finding::new(draft.span, message, format!("for {other} {made_for}"))
            .related(Some(target.span), format!("{family} {own}"))
            .note("only the names were compared")
            .help("use the head that was trained for this target"),
    )
}

/// Whether the draft of a launch is a head that reads the target's hidden states.
fn reads_states(context: &Context<'_>) -> bool {
    if context.launch.engine == Engine::Vllm {
        let config = context.launch.vllm_speculation();
        return config.is_some_and(|config| config.method_in_use().is_some_and(|method| OF_VLLM.contains(&method)));
    }
    let reads = |algorithm: Algorithm| {
        algorithm.drafts_trees() && algorithm != Algorithm::Standalone
            || matches!(algorithm, Algorithm::Dflash | Algorithm::Dspark)
    };
    context.algorithm().is_some_and(reads)
}

/// A published head for other weights with the target's config.
fn another_training(target: Located<&str>, draft: Located<&str>) -> Option<Finding> {
    let (own, head) = (id_of(target.value)?, find(draft.value)?);
    let made_for = head.draft_for.first()?;
    let is_same_row = find(own)?.name == find(made_for)?.name;
    if head.is_for(own) || !is_same_row {
        return None;
    }
    let message = format!("the draft was published for {made_for}, which is another training than {own}");
    Some(
        Finding::new(draft.span, message, format!("for {made_for}"))
            .related(Some(target.span), own)
            .note("only the names were compared")
            .help("use a head that was trained for this target"),
    )
}

/// A head for a target of another size. Where the head's own config is known, other rules compare
/// widths.
fn another_size(context: &Context<'_>, target: Located<&str>, draft: Located<&str>) -> Option<Finding> {
    // The draft's own files say more than its name, and other rules compare them.
    if context.draft.is_some_and(|draft| !draft.partial) {
        return None;
    }
    let (own, made_for) = (size(target.value)?, size(draft.value)?);
    let message = format!("judging by its name, the draft is for a target of {made_for}B, but the target has {own}B");
    let finding = Finding::new(draft.span, message, format!("for {made_for}B"))
        .related(Some(target.span), format!("{own}B"))
        .note("only the names were compared")
        .help("use the head that was trained for this target");
    (own != made_for).then_some(finding)
}

/// Whether it is a model of a family that differs in sizes only.
fn is_sized(path: &str) -> bool {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    name.contains("gpt-oss")
}

/// Family and generation in the last part of a path, such as llama and 3.1, however it is written:
/// `3.1`, `3-1`, `31`.
fn generation(path: &str) -> Option<(&'static str, String)> {
    let name = path.trim_end_matches('/').rsplit('/').next()?.to_ascii_lowercase();
    FAMILIES.iter().find_map(|(family, joined)| {
        let rest = &name[name.find(family)? + family.len()..];
        let rest = rest.strip_prefix(['-', '_']).unwrap_or(rest);
        let length = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(length);
        // The size of a model (7b) is not a generation.
        if behind.starts_with('b') {
            return None;
        }
        let number = number.trim_matches('.');
        let number = match (number.len(), minor(behind)) {
            (1, Some(minor)) => format!("{number}.{minor}"),
            // Two digits are a generation only if such a one exists ("qwen25"), and else a size.
            (2, _) if joined.contains(&number) => format!("{}.{}", &number[..1], &number[1..]),
            (2, _) => return None,
            // "3.0" and "3" are one generation.
            _ => number.trim_end_matches(".0").to_owned(),
        };
        (!number.is_empty()).then_some((*family, number))
    })
}

/// The size in the last part of a path, in billions: 14 of `Qwen3-14B`, 30 of `Qwen3-30B-A3B`.
/// `None` if there are several.
fn size(path: &str) -> Option<f64> {
    let name = path.trim_end_matches('/').rsplit('/').next()?.to_ascii_lowercase();
    let parts = name.split(['-', '_']).filter_map(|part| part.strip_suffix('b')?.parse::<f64>().ok());
    let sizes: Vec<f64> = parts.filter(|size| *size > 0.0).collect();
    // Names of mixtures of experts have two sizes ("30b-a3b"), and it is unclear which is meant.
    if let [size] = sizes.as_slice() { Some(*size) } else { None }
}

/// The digit of `-5` or `_5`, unless the following text makes it a size or a date.
fn minor(behind: &str) -> Option<char> {
    let mut letters = behind.strip_prefix(['-', '_'])?.chars();
    let digit = letters.next().filter(char::is_ascii_digit)?;
    // A longer number is a size or a date.
    letters.next().is_none_or(|next| next == '-' || next == '_').then_some(digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_where_there_is_one() {
        for (path, expected) in [
            ("Qwen/Qwen3-14B", Some(14.0)),
            ("AngelSlim/Qwen3-1.7B_eagle3", Some(1.7)),
            ("Qwen/Qwen3-30B-A3B", Some(30.0)),
            ("org/eagle3-1b-for-qwen3-14b", None),
            ("z-lab/Qwen3-8B-DFlash-b16", Some(8.0)),
            ("AngelSlim/Qwen3-a3B_eagle3", None),
            ("Qwen3", None),
        ] {
            assert_eq!(size(path), expected, "{path}");
        }
    }

    #[test]
    fn a_generation_is_read_however_it_is_written() {
        for (path, expected) in [
            ("meta-llama/Llama-3.1-8B-Instruct", Some(("llama", "3.1"))),
            ("eagle3-llama31-8b", Some(("llama", "3.1"))),
            ("eagle3_llama33_70b", Some(("llama", "3.3"))),
            ("yuhuili/EAGLE3-LLaMA3.3-Instruct-70B", Some(("llama", "3.3"))),
            ("meta-llama/Llama-3-2-1B", Some(("llama", "3.2"))),
            ("meta-llama/Meta-Llama-3-8B", Some(("llama", "3"))),
            ("Llama-3.0-8B", Some(("llama", "3"))),
            ("meta-llama/Llama-2-7b-chat-hf", Some(("llama", "2"))),
            ("eagle3-qwen35-9b", Some(("qwen", "3.5"))),
            ("Qwen/Qwen3.5-9B", Some(("qwen", "3.5"))),
            ("qwen3-5-9b", Some(("qwen", "3.5"))),
            ("qwen3_5_9b", Some(("qwen", "3.5"))),
            ("qwen25-7b", Some(("qwen", "2.5"))),
            ("Qwen/Qwen2.5-7B/", Some(("qwen", "2.5"))),
            ("Qwen/Qwen3-4B-Instruct-2507", Some(("qwen", "3"))),
            ("Qwen/Qwen3-0.6B", Some(("qwen", "3"))),
            ("Qwen/Qwen3-30B-A3B", Some(("qwen", "3"))),
            ("Qwen/Qwen3-8B", Some(("qwen", "3"))),
            ("Qwen/Qwen-7B", None),
            ("qwen32-chat", None),
            ("qwen32b", None),
            ("Qwen", None),
            ("mistral-7b", None),
        ] {
            let found = generation(path);
            assert_eq!(found.as_ref().map(|(family, number)| (*family, number.as_str())), expected, "{path}");
        }
    }
}
