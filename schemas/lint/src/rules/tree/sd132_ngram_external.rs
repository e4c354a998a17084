//! # SD132: ngram-external
//!
//! The external corpus of NGRAM has no room in the tree.
//!
//! ## What it does
//!
//! Looks at `--speculative-ngram-external-corpus-path` under NGRAM: its budget must be between 1
//! and the number of draft tokens − 1, and the maximum number of tokens in the corpus above 0.
//!
//! ## Why is this bad?
//!
//! The server does not start. The budget is 0 by default, so a launch with only a corpus never
//! starts.
//!
//! ## What SGLang does
//!
//! `ValueError: --speculative-ngram-external-sam-budget must be positive when
//! --speculative-ngram-external-corpus-path is set.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-ngram-external-corpus-path corpus.jsonl
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-ngram-external-corpus-path corpus.jsonl --speculative-ngram-external-sam-budget 12
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-ngram-external-corpus-path corpus.jsonl --speculative-ngram-external-sam-budget 4
//! ```
//!
//! ## Versions
//!
//! Since the flags were added, in 0.5.12.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`; in 0.5.12 `server_args.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD132",
    name: "ngram-external",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Ngram)?;
    let corpus = context.span(Key::SpeculativeNgramExternalCorpusPath)?;
    let (budget, limit) = (Key::SpeculativeNgramExternalSamBudget, Key::SpeculativeNgramExternalCorpusMaxTokens);
    let advice = |key, value: &str| format!("{} `{}`", context.add_or_write(key), context.line(key, value));
    let given = context.launch.integer(budget);
    if context.is_absent(budget) || given.as_ref().is_some_and(|given| given.value <= 0) {
        let place = given.map_or(corpus, |given| given.span);
        return Some(
            Finding::new(place, "the external corpus may propose no token", "its budget is 0")
                .related(Some(corpus), "the corpus")
                .sglang_says(
                    "--speculative-ngram-external-sam-budget must be positive when \
                     --speculative-ngram-external-corpus-path is set.",
                )
                .help(advice(budget, "4")),
        );
    }
    if let Some(limit_given) = context.launch.integer(limit).filter(|limit| limit.value <= 0) {
        return Some(
            Finding::new(limit_given.span, "the external corpus may have no token", "not positive")
                .related(Some(corpus), "the corpus")
                .sglang_says(
                    "--speculative-ngram-external-corpus-max-tokens must be positive when \
                     --speculative-ngram-external-corpus-path is set.",
                )
                .help(advice(limit, "10000000")),
        );
    }
    let given = context.launch.count(budget)?;
    let most = context.resolved.num_draft_tokens.as_ref()?.value.saturating_sub(1);
    (given.value > most).then(|| {
        let message =
            format!("the external corpus may propose {} tokens, and the tree has room for {most}", given.value);
        Finding::new(given.span, message, "too many")
            .related(context.span(Key::SpeculativeNumDraftTokens), "the root is one of them")
            .sglang_says(format!(
                "speculative_ngram_external_sam_budget must be less than or equal to speculative_num_draft_tokens - 1 \
                 ({most})."
            ))
            .help(format!("write a budget up to {most}, or raise `{}`", context.flag(Key::SpeculativeNumDraftTokens)))
    })
}
