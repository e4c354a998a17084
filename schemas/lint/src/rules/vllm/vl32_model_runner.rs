//! # VL32: model-runner
//!
//! The selected model runner does not have this method of speculation.
//!
//! ## What it does
//!
//! Looks at `VLLM_USE_V2_MODEL_RUNNER` in the launch's environment: 1 with a method that only
//! runner V1 has, 0 with one that only V2 has. Without the variable it looks for a method that
//! needs V1 together with a key or a flag that needs V2: context parallelism of prefill, sampling
//! in shards, asynchronous scheduling over pipeline stages.
//!
//! ## Why is this bad?
//!
//! The server does not start. Without the variable vLLM chooses the runner itself.
//!
//! ## What vLLM does
//!
//! `ValueError: Model Runner V2 does not yet support: ngram/ngram_gpu speculative decoding`,
//! `ValueError: Model Runner V1 does not support: dspark speculative decoding`
//!
//! ## Example
//!
//! ```launch bad version:0.28.0
//! VLLM_USE_V2_MODEL_RUNNER=1 vllm serve target --speculative-config '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
//! ```
//!
//! ```launch bad version:0.28.0
//! VLLM_USE_V2_MODEL_RUNNER=1 vllm serve target \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3, "parallel_drafting": true}'
//! ```
//!
//! ```launch bad version:0.33.0
//! VLLM_USE_V2_MODEL_RUNNER=0 vllm serve target --speculative-config '{"method": "dspark", "model": "draft", "num_speculative_tokens": 7}'
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "suffix", "num_speculative_tokens": 8, "enable_adaptive_verification": true}'
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --prefill-context-parallel-size 2 --speculative-config '{"method": "suffix", "num_speculative_tokens": 8}'
//! ```
//!
//! ```launch bad version:0.31.0 also:VL36
//! VLLM_USE_V2_MODEL_RUNNER=0 vllm serve target --pipeline-parallel-size 2 --async-scheduling \
//!   --speculative-config '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.28.0
//! vllm serve target --speculative-config '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
//! ```
//!
//! 0.32 has n-grams in V2:
//!
//! ```launch good version:0.32.0
//! VLLM_USE_V2_MODEL_RUNNER=1 vllm serve target --speculative-config '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
//! ```
//!
//! ## Versions
//!
//! From 0.22 to 0.28 vLLM chooses V2 for dense models and a few architectures, from 0.29 on for all
//! (0.29 to 0.31 not for some on ROCm), and V1 if V2 does not have the method. V2 has `draft_model`
//! since 0.31, `ngram` and `ngram_gpu` since 0.32, `dflash` since 0.24, `dspark` since 0.25. V1 is
//! checked from 0.29 on, for asynchronous scheduling over pipeline stages from 0.31 on, for a
//! quantised LM head of the draft in 0.33. Pipeline stages of `external_launcher` are V1's from
//! 0.24 on.
//!
//! ## Source
//!
//! vLLM `config/vllm.py` of 0.20.2 to 0.33.0.

use launch::{Lack, OLDEST_WITH_RUNNERS, RUNNER_VARIABLE};
use schemas::{
    diagnostic::Severity,
    text::{Located, Span},
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL32",
    name: "model-runner",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation().filter(|config| !config.is_legacy)?;
    if context.version() < OLDEST_WITH_RUNNERS {
        return None;
    }
    match context.launch.variable(RUNNER_VARIABLE) {
        Some(chosen) if chosen.value.trim() == "1" => {
            Some(chosen_without(chosen, "V2", context.launch.lacked_by_v2(&config, context.version())?))
        }
        Some(chosen) if chosen.value.trim() == "0" => {
            Some(chosen_without(chosen, "V1", context.launch.lacked_by_v1(&config, context.version())?))
        }
        None if context.launch.lacks_variable(RUNNER_VARIABLE) => {
            let (old, new) = (
                context.launch.lacked_by_v2(&config, context.version())?,
                context.launch.lacked_by_v1(&config, context.version())?,
            );
            let message = format!("{} needs runner V1, and {} needs V2", old.words, new.words);
            let finding = Finding::new(new.place, message, "not together").related(apart(&old, &new), "needs V1");
            Some(finding.vllm_says(says("V1", &new.words)).by_version().help("take one of the two out"))
        }
        _ => None,
    }
}

fn apart(one: &Lack, other: &Lack) -> Option<Span> {
    (one.place != other.place).then_some(one.place)
}

fn chosen_without(chosen: Located<&str>, runner: &str, lack: Lack) -> Finding {
    Finding::new(chosen.span, format!("runner {runner} does not have {}", lack.words), format!("chooses {runner}"))
        .related(Some(lack.place), "needs the other one")
        .vllm_says(says(runner, &lack.words))
        .by_version()
        .help(format!("take {RUNNER_VARIABLE} out, so that vllm chooses the runner"))
}

fn says(runner: &str, words: &str) -> String {
    let yet = if runner == "V2" { "does not yet support" } else { "does not support" };
    format!("ValueError: Model Runner {runner} {yet}: {words}")
}
