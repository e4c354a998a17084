//! # VL32: model-runner
//!
//! The selected model runner does not have this method of speculation.
//!
//! ## What it does
//!
//! Looks at `VLLM_USE_V2_MODEL_RUNNER` in the launch's environment: 1 with a method that only runner V1 has, 0 with one
//! that only V2 has. Without the variable it looks for a method that needs V1 together with a key that needs V2.
//!
//! ## Why is this bad?
//!
//! The server does not start. Without the variable vLLM chooses the runner itself.
//!
//! ## What vLLM does
//!
//! `ValueError: Model Runner V2 does not yet support: ngram/ngram_gpu speculative decoding`, `ValueError: Model Runner V1
//! does not support: dspark speculative decoding`
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
//! From 0.22 to 0.28 vLLM chooses V2 for dense models and a few architectures, from 0.29 on for all (0.29 to 0.31 not for
//! some on ROCm), and V1 if V2 does not have the method. V2 has `draft_model` since 0.31, `ngram` and `ngram_gpu` since
//! 0.32, `dflash` since 0.24, `dspark` since 0.25. V1 is checked from 0.29 on.
//!
//! ## Source
//!
//! vLLM `config/vllm.py` of 0.20.2 to 0.33.0.

use launch::VllmSpeculation;
use schemas::{
    diagnostic::Severity,
    flags::Key,
    text::{Located, Span},
    version::EngineVersion,
};
use serde_json::Value as Json;

use crate::rules::{Applies, Check, Context, Definition, Finding, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL32",
    name: "model-runner",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: Check::One(check),
};

const VARIABLE: &str = "VLLM_USE_V2_MODEL_RUNNER";

/// The methods of runner V2, with the first version in which it has each.
const IN_V2: [(&str, EngineVersion); 9] = [
    ("eagle", OLDEST),
    ("eagle3", OLDEST),
    ("mtp", OLDEST),
    ("dflash", EngineVersion::new(0, 24, 0)),
    ("dspark", EngineVersion::new(0, 25, 0)),
    ("extract_hidden_states", EngineVersion::new(0, 29, 0)),
    ("draft_model", EngineVersion::new(0, 31, 0)),
    ("ngram", EngineVersion::new(0, 32, 0)),
    ("ngram_gpu", EngineVersion::new(0, 32, 0)),
];

/// Methods that runner V2 never had.
const NEVER_IN_V2: [&str; 4] = ["suffix", "medusa", "mlp_speculator", "custom_class"];

/// The oldest version that was read.
const OLDEST: EngineVersion = EngineVersion::new(0, 20, 2);

/// The first version that names what V1 does not have.
const CHECKS_V1: EngineVersion = EngineVersion::new(0, 29, 0);

/// The first version that names parallel drafting as missing in V2.
const CHECKS_PARALLEL: EngineVersion = EngineVersion::new(0, 22, 1);

/// The version with vocabularies of drafts that differ from the target's.
const CHECKS_VOCABULARY: EngineVersion = EngineVersion::new(0, 32, 0);

/// The versions whose V2 has no EAGLE-3 under pipeline parallelism.
const NO_PIPELINE: std::ops::Range<EngineVersion> = EngineVersion::new(0, 22, 1)..EngineVersion::new(0, 30, 0);

/// A feature that a runner does not have, in vLLM's words, and where it is requested.
struct Lack {
    words: String,
    place: Span,
}

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation().filter(|config| !config.is_legacy)?;
    if context.version() < OLDEST {
        return None;
    }
    match context.launch.variable(VARIABLE) {
        Some(chosen) if chosen.value.trim() == "1" => {
            Some(chosen_without(chosen, "V2", lacked_by_v2(context, &config)?))
        }
        Some(chosen) if chosen.value.trim() == "0" => {
            Some(chosen_without(chosen, "V1", lacked_by_v1(context, &config)?))
        }
        None if context.launch.lacks_variable(VARIABLE) => {
            let (old, new) = (lacked_by_v2(context, &config)?, lacked_by_v1(context, &config)?);
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
        .help(format!("take {VARIABLE} out, so that vllm chooses the runner"))
}

fn says(runner: &str, words: &str) -> String {
    let yet = if runner == "V2" { "does not yet support" } else { "does not support" };
    format!("ValueError: Model Runner {runner} {yet}: {words}")
}

fn lacked_by_v2(context: &Context<'_>, config: &VllmSpeculation) -> Option<Lack> {
    let (version, method) = (context.version(), method_of(config)?);
    let method = if method.ends_with("_mtp") { "mtp" } else { method };
    let since = IN_V2.iter().find(|(own, _)| *own == method).map(|(_, since)| *since);
    let is_missing = NEVER_IN_V2.contains(&method) || since.is_some_and(|since| version < since);
    let place = config.keys.get("method").map_or(config.span, |key| key.span);
    if is_missing {
        let is_lookup = matches!(method, "ngram" | "ngram_gpu") && version < EngineVersion::new(0, 30, 0);
        let words = if is_lookup && version >= CHECKS_PARALLEL {
            "ngram/ngram_gpu speculative decoding".to_owned()
        } else {
            format!("speculative method '{method}'")
        };
        return Some(Lack { words, place });
    }
    let on = |key: &str| Some(config.keys.get(key)?).filter(|key| key.value == Some(Json::Bool(true)));
    if let Some(key) =
        on("parallel_drafting").filter(|_| !matches!(method, "dflash" | "dspark") && version >= CHECKS_PARALLEL)
    {
        return Some(Lack { words: "parallel drafting for EAGLE speculative decoding".to_owned(), place: key.span });
    }
    if let Some(key) = on("use_heterogeneous_vocab").filter(|_| version >= CHECKS_VOCABULARY) {
        return Some(Lack { words: "heterogeneous-vocabulary draft models".to_owned(), place: key.span });
    }
    let stages = || context.launch.vllm_flag("--pipeline-parallel-size");
    let size = stages()?.values.first()?.value.known()?.parse::<usize>().ok()?;
    (method == "eagle3" && size > 1 && NO_PIPELINE.contains(&version))
        .then(|| Lack { words: "EAGLE3 with pipeline parallelism".to_owned(), place })
}

fn lacked_by_v1(context: &Context<'_>, config: &VllmSpeculation) -> Option<Lack> {
    if context.version() < CHECKS_V1 {
        return None;
    }
    if method_of(config) == Some("dspark") {
        let draft = context.span(Key::SpeculativeDraftModelPath);
        let place = config.keys.get("method").map(|key| key.span).or(draft).unwrap_or(config.span);
        return Some(Lack { words: "dspark speculative decoding".to_owned(), place });
    }
    let on = |key: &str| Some(config.keys.get(key)?).filter(|key| key.value == Some(Json::Bool(true)));
    let adaptive = on("enable_adaptive_verification")?;
    Some(Lack { words: "adaptive draft verification".to_owned(), place: adaptive.span })
}
