//! # SD147: block-of-head
//!
//! The number of draft tokens does not fit the block that the draft was trained with.
//!
//! ## What it does
//!
//! Compares `--speculative-num-draft-tokens` or the algorithm's block size with `block_size` of the
//! draft's config: DFLASH verifies as many tokens as a block has, DSPARK one more.
//!
//! ## Why is this bad?
//!
//! The positions of a block see each other, so a shorter block is not the start of a longer one:
//! another length changes every drafted token, and the draft was trained for one length. DSPARK
//! does not start if only the number of draft tokens is given and is another one.
//!
//! ## What SGLang does
//!
//! DFLASH: `DFLASH block size mismatch: using speculative_num_draft_tokens=8 but draft config
//! block_size=16.` DSPARK: `ValueError: DSpark speculative_num_draft_tokens must equal gamma + 1 (=
//! 8 for gamma=7)`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-draft-tokens 8
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "torch_dtype": "bfloat16", "block_size": 16}
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DSPARK --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-draft-tokens 7
//! ```
//! ```draft
//! {"architectures": ["DSparkDraftModel"], "torch_dtype": "bfloat16", "block_size": 7, "markov_rank": 256,
//!  "markov_head_type": "vanilla", "mask_token_id": 151669}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DSPARK --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-draft-tokens 8
//! ```
//! ```draft
//! {"architectures": ["DSparkDraftModel"], "torch_dtype": "bfloat16", "block_size": 7, "markov_rank": 256,
//!  "markov_head_type": "vanilla", "mask_token_id": 151669}
//! ```
//!
//! ## Versions
//!
//! Since the algorithms were added; read in 0.5.16 to 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/dflash_worker_v2.py`, `arg_groups/speculative_hook.py`.

use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    flags::Key,
    text::{Located, Span},
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD147",
    name: "block-of-head",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let algorithm = context.algorithm()?;
    let (key, more) = match algorithm {
        Algorithm::Dflash => (Key::SpeculativeDflashBlockSize, 0),
        Algorithm::Dspark => (Key::SpeculativeDsparkBlockSize, 1),
        _ => return None,
    };
    let block = context.draft_config()?.block_size.filter(|block| *block > 0)?;
    let (given, tokens) = (context.launch.count(key), context.launch.count(Key::SpeculativeNumDraftTokens));
    let own: Located<usize> = given.or_else(|| Some(Located::new(tokens?.value.checked_sub(more)?, tokens?.span)))?;
    if own.value == block || (given.is_none() && context.launch.has(key)) {
        return None;
    }
    let is_refused = algorithm == Algorithm::Dspark && given.is_none();
    let finding = if is_refused { refused(own, block) } else { mismatched(algorithm, own, block) };
    let advice = match given {
        Some(_) => context.line(key, &block.to_string()),
        None => context.line(Key::SpeculativeNumDraftTokens, &block.saturating_add(more).to_string()),
    };
    Some(
        finding
            .related(draft(context), format!("a block of {block}"))
            .on_facts("draft", context.draft)
            .help(format!("write `{advice}`, or take it out to follow the draft's config")),
    )
}

fn refused(own: Located<usize>, block: usize) -> Finding {
    let (tokens, needed) = (own.value.saturating_add(1), block.saturating_add(1));
    let message = format!("the draft's block of {block} is {needed} draft tokens, not {tokens}");
    Finding::new(own.span, message, format!("has to be {needed}")).sglang_says(format!(
        "ValueError: DSpark speculative_num_draft_tokens must equal gamma + 1 (= {needed} for gamma={block}), but got \
         speculative_num_draft_tokens={tokens}."
    ))
}

fn mismatched(algorithm: Algorithm, own: Located<usize>, block: usize) -> Finding {
    let message = format!("a block of {} for a draft that was trained with blocks of {block}", own.value);
    let finding = Finding::new(own.span, message, "another block").at_most(Severity::Warning);
    match algorithm {
        Algorithm::Dflash => finding.sglang_says(format!(
            "DFLASH block size mismatch: using speculative_num_draft_tokens={} but draft config block_size={block}.",
            own.value
        )),
        _ => finding,
    }
}

fn draft(context: &Context<'_>) -> Option<Span> {
    context.span(Key::SpeculativeDraftModelPath)
}
