//! # VL27: keys-apart
//!
//! Keys of the speculative configuration that cannot be combined.
//!
//! ## What it does
//!
//! Looks for keys that the method does not accept, and for pairs that vLLM rejects.
//!
//! ## Why is this bad?
//!
//! vLLM does not start.
//!
//! ## What vLLM does
//!
//! `ValueError: use_heterogeneous_vocab only works with method='draft_model'`, `ValueError:
//! synthetic_acceptance_rates / synthetic_acceptance_length are only valid with
//! rejection_sample_method='synthetic'.` and others of this kind.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3, "use_heterogeneous_vocab": true}'
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 1, "rejection_sample_method": "fly"}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "draft_model", "model": "draft", "num_speculative_tokens": 3, "use_heterogeneous_vocab": true}'
//! ```
//!
//! ## Versions
//!
//! As read in 0.33.0; a key that a version does not have is another finding (VL13).
//!
//! ## Source
//!
//! vLLM `config/speculative.py` of 0.33.0.

use launch::VllmSpeculation;
use schemas::{diagnostic::Severity, flags::Speculative};
use serde_json::Value as Json;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL27",
    name: "keys-apart",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

/// A key that some methods do not accept.
struct Bound {
    key: &'static str,
    methods: &'static [&'static str],
    says: &'static str,
}

const BOUND: [Bound; 5] = [
    Bound {
        key: "use_heterogeneous_vocab",
        methods: &["draft_model"],
        says: "ValueError: use_heterogeneous_vocab only works with method='draft_model'",
    },
    Bound {
        key: "dspark_draft_topk",
        methods: &["dspark"],
        says: "ValueError: dspark_draft_topk is only supported by DSpark",
    },
    Bound { key: "xpress_topc", methods: &["dflash"], says: "ValueError: xpress_topc is only supported by XPress" },
    Bound {
        key: "index_share_for_mtp_iteration",
        methods: &["mtp"],
        says: "ValueError: index_share_for_mtp_iteration is only supported with method='mtp'",
    },
    Bound {
        key: "draft_lm_head_quantization",
        methods: &["eagle", "eagle3", "mtp"],
        says: "ValueError: draft_lm_head_quantization is not supported for method …",
    },
];

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(config) = context.launch.vllm_speculation() else { return Vec::new() };
    let version = context.version();
    let known = |key: &str| Speculative::Key.word(key).is_some_and(|word| word.exists_in(version));
    let method = method_of(&config).map(|method| if method.ends_with("_mtp") { "mtp" } else { method });
    let bound = BOUND.iter().filter(|bound| known(bound.key) && is_on(&config, bound.key)).filter_map(|bound| {
        let method = method.filter(|method| !bound.methods.contains(method))?;
        let place = config.keys.get(bound.key)?.span;
        let message = format!("`{}` does not go with the method {method}", bound.key);
        let finding = Finding::new(place, message, "not with this method").vllm_says(bound.says);
        Some(finding.help(format!("take `{}` out", bound.key)))
    });
    let others = [synthetic(&config), fly(&config)];
    bound.chain(others.into_iter().flatten()).collect()
}

/// Whether a key is given and not turned off.
fn is_on(config: &VllmSpeculation, key: &str) -> bool {
    config.gives(key) && config.keys.get(key).is_some_and(|key| key.value != Some(Json::Bool(false)))
}

fn synthetic(config: &VllmSpeculation) -> Option<Finding> {
    let keys = ["synthetic_acceptance_rates", "synthetic_acceptance_length"];
    let given: Vec<&str> = keys.into_iter().filter(|key| config.gives(key)).collect();
    let method = config.text("rejection_sample_method");
    if config.is_open || (method.is_none() && config.gives("rejection_sample_method")) {
        return None;
    }
    match (method == Some("synthetic"), given.as_slice()) {
        (true, [_]) | (false, []) => None,
        (true, _) => {
            let place = config.keys.get("rejection_sample_method")?.span;
            Some(
                Finding::new(
                    place,
                    "synthetic acceptance takes rates or a length, exactly one of them",
                    "not one of them",
                )
                .vllm_says(
                    "ValueError: rejection_sample_method='synthetic' requires exactly one of \
                         synthetic_acceptance_rates or synthetic_acceptance_length.",
                )
                .help("give one of `synthetic_acceptance_rates` and `synthetic_acceptance_length`"),
            )
        }
        (false, [key, ..]) => {
            let place = config.keys.get(*key)?.span;
            Some(
                Finding::new(place, format!("`{key}` is set without synthetic acceptance"), "not read by this method")
                    .vllm_says(
                        "ValueError: synthetic_acceptance_rates / synthetic_acceptance_length are only valid \
                         with rejection_sample_method='synthetic'.",
                    )
                    .help(format!("take `{key}` out")),
            )
        }
    }
}

fn fly(config: &VllmSpeculation) -> Option<Finding> {
    let tokens = config.num_speculative_tokens?;
    config.text("rejection_sample_method").filter(|method| *method == "fly")?;
    let place = config.keys.get("rejection_sample_method")?.span;
    let window = config.integer("fly_window_size");
    let (message, says) = match window {
        _ if tokens < 2 => (
            format!("fly reads at least 2 draft tokens, and {tokens} is drafted"),
            "FLy requires num_speculative_tokens to be at least 2.",
        ),
        Some(window) if window >= tokens => (
            format!("a window of {window} decisions is not within {tokens} draft tokens"),
            "FLy requires fly_window_size to be smaller than num_speculative_tokens.",
        ),
        _ => return None,
    };
    Some(
        Finding::new(place, message, "fly")
            .vllm_says(format!("ValueError: {says}"))
            .help("draft more tokens, or take `rejection_sample_method` out"),
    )
}
