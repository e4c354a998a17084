//! # VL22: draft-block
//!
//! The number of draft tokens does not fit the block that the draft was trained for.
//!
//! ## What it does
//!
//! Compares `num_speculative_tokens` with the block of a DFlash or DSpark draft, if its config or
//! its published name gives it (`…-b16`, `…_block7`).
//!
//! ## Why is this bad?
//!
//! Block drafts propose a whole block in one pass. Positions beyond the block were never trained,
//! and their tokens are rejected; for a draft within DeepSeek V4's own checkpoint, whose recipes
//! ask for more, it is information. In 0.26 and 0.27 fewer tokens than the block of a DeepSeek V4
//! checkpoint are an error.
//!
//! ## What vLLM does
//!
//! It runs, and the tokens beyond the block only cost time. 0.26 and 0.27: `ValueError: DSpark
//! requires num_speculative_tokens >= dspark_block_size (5); got 3. Smaller values produce
//! incorrect output.`
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "dflash", "model": "z-lab/Qwen3-8B-DFlash-b16", "num_speculative_tokens": 24}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "dflash", "model": "z-lab/Qwen3-8B-DFlash-b16", "num_speculative_tokens": 15}'
//! ```
//!
//! ## Versions
//!
//! All versions with these methods; the error in 0.26 and 0.27 (PR #47419, issue #50012).
//!
//! ## Source
//!
//! vLLM `config/speculative.py` of 0.26.0, 0.27.1 and 0.33.0.

use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL22",
    name: "draft-block",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The versions that reject fewer tokens than the block of a bundled draft.
const STRICT: std::ops::Range<EngineVersion> = EngineVersion::new(0, 26, 0)..EngineVersion::new(0, 28, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let method = method_of(&config).filter(|method| matches!(*method, "dflash" | "dspark"))?;
    let tokens = usize::try_from(config.num_speculative_tokens?).ok()?;
    let bundled = method == "dspark" && !config.may_give("model");
    let block = if bundled {
        context.target_config()?.dspark_block_size?
    } else {
        let draft = context.draft_config();
        let stated = draft.and_then(|draft| draft.block_size.or(draft.dspark_block_size));
        stated.or_else(|| block_of_name(config.model.as_deref()?))?
    };
    // The first position of a DFlash block is the token that already exists.
    let most = if method == "dflash" { block.saturating_sub(1) } else { block };
    let place = context.launch.vllm_key_place("num_speculative_tokens").unwrap_or(config.span);
    let pair = |tokens: usize| context.config_pair("num_speculative_tokens", &format!("{tokens}"));
    if bundled && tokens < block && STRICT.contains(&context.version()) {
        return Some(
            Finding::new(place, format!("this version refuses {tokens} tokens of a block of {block}"), "too few")
                .related(context.span(Key::ModelPath), format!("a block of {block}"))
                .vllm_says(format!(
                    "ValueError: … num_speculative_tokens … dspark_block_size ({block}); got {tokens}. Smaller \
                     values produce incorrect output."
                ))
                .by_version()
                .on_facts("target", context.target)
                .help(format!("write `{}`, or use vllm 0.28 or later", pair(block))),
        );
    }
    (tokens > most).then(|| {
        let finding = Finding::new(
            place,
            format!("the draft's block has {most} tokens, but {tokens} are requested"),
            "beyond the block",
        )
        .at_most(Severity::Warning)
        .on_facts("draft", context.draft)
        .help(format!("write `{}` or less", pair(most)));
        // DeepSeek's recipes ask for 7 tokens of a bundled block of 5.
        if bundled { finding.at_most(Severity::Info) } else { finding }
    })
}

/// The block size in a published name: `Qwen3-8B-DFlash-b16`, `dspark_qwen3_8b_block7`.
fn block_of_name(name: &str) -> Option<usize> {
    let parts = name.rsplit('/').next()?.split(['-', '_']);
    parts.filter_map(|part| part.strip_prefix("block").or_else(|| part.strip_prefix('b'))?.parse().ok()).next_back()
}
