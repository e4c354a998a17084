//! # SD105: deepseek-v4-algorithms
//!
//! DeepSeek V4 runs with EAGLE and DSPARK only, under exactly these names.
//!
//! ## What it does
//!
//! Looks at the algorithm for a DeepSeek V4 target. NEXTN is rejected too: the model checks the
//! name before it is resolved to EAGLE.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `AssertionError: Only EAGLE and DSPARK speculative algorithms are supported for DeepSeek V4` (up
//! to 0.5.15: EAGLE only).
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --attention-backend fa3
//! ```
//! ```target
//! {"architectures": ["DeepseekV4ForCausalLM"], "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV4ForCausalLM"], "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Versions
//!
//! Since the model was added (0.5.12); read in all versions from 0.5.13 to 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/deepseek_v4_hook.py`, `arg_groups/pipeline.py`; issue #38236.

use schemas::{
    algorithm::Algorithm,
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD105",
    name: "deepseek-v4-algorithms",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let algorithm = context.algorithm()?;
    let class = context.target_config()?.architecture().filter(|class| class.starts_with("DeepseekV4"))?;
    let key = Key::SpeculativeAlgorithm;
    let written = context.launch.text(key)?.value.to_ascii_uppercase();
    // EAGLE3 is rejected because hidden states are missing, which is another finding.
    if matches!(algorithm, Algorithm::Eagle | Algorithm::Dspark | Algorithm::Eagle3) && written != "NEXTN" {
        return None;
    }
    Some(
        Finding::new(context.value_place(key), format!("{class} does not run with {written}"), "not here")
            .sglang_says("AssertionError: Only EAGLE and DSPARK speculative algorithms are supported for DeepSeek V4")
            .related(context.span(Key::ModelPath), class)
            .on_facts("target", context.target)
            .help(format!("write `{}`", context.line(key, "EAGLE")))
            .fix(Safety::Unsafe, "write EAGLE", context.set(key, "EAGLE")),
    )
}
