//! # VL02: num-speculative-tokens-missing
//!
//! The number of draft tokens is not given.
//!
//! ## What it does
//!
//! Looks for a draft model, a head, `mtp` or `ngram` without `num_speculative_tokens`, if no config
//! gives it either (`n_predict`). If no method is given and the draft is unknown, it is a warning.
//!
//! ## Why is this bad?
//!
//! vLLM does not start.
//!
//! ## What vLLM does
//!
//! `ValueError: num_speculative_tokens must be provided with speculative model unless the draft
//! model config contains an n_predict parameter.` The value for a target's own MTP layers is read
//! too late: with `mtp` the number must be given, otherwise the same error is raised, or a
//! TypeError.
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft"}'
//! ```
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "ngram", "prompt_lookup_max": 4}'
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp"}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! A number in another file or variable counts as given:
//!
//! ```launch good
//! vllm serve target --spec-method eagle3 --spec-model draft --spec-tokens $TOKENS
//! ```
//!
//! Separate flags are added to the JSON, whose keys may have dashes:
//!
//! ```launch good
//! vllm serve target --spec-tokens 3 --speculative-config '{"method": "eagle3", "model": "draft"}'
//! ```
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num-speculative-tokens": 3}'
//! ```
//!
//! ```launch good
//! vllm serve target --speculative-config.method eagle3 --speculative-config.model draft --speculative-config.num-speculative-tokens 3
//! ```
//!
//! ## Versions
//!
//! All versions with `--speculative-config`.
//!
//! ## Source
//!
//! vLLM PR #20375, issue #55323, `engine/arg_utils.py` and `config/speculative.py` of 0.33.0.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL02",
    name: "num-speculative-tokens-missing",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// Methods whose drafts do not state how many tokens they predict.
const SILENT: [&str; 5] = ["eagle", "eagle3", "draft_model", "ngram", "ngram_gpu"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation().filter(|config| !config.is_legacy)?;
    let method = method_of(&config)?;
    let is_mtp = method == "mtp" || method.ends_with("_mtp");
    // A number under a misspelt key counts as given: VL13 reports the key.
    let is_misspelt = config.keys.keys().any(|key| key.starts_with("num_spec"));
    if !(SILENT.contains(&method) || is_mtp) || config.gives_tokens || is_misspelt {
        return None;
    }
    let message = format!("{method} has no number of tokens to draft");
    let pair = context.config_pair("num_speculative_tokens", if is_mtp { "1" } else { "3" });
    let finding = Finding::new(config.span, message, "no num_speculative_tokens").help(format!("add `{pair}`"));
    // A draft with an unknown config may state its method and how many tokens it predicts.
    let is_guessed = config.method.is_none() && context.draft_config().is_none();
    Some(if is_guessed { finding.at_most(Severity::Warning) } else { finding })
}

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use crate::report::{ReportOptions, report_text};

    fn check(name: &str, text: &str, expected: &str) {
        let found = report_text(&Source::new(name, text), &ReportOptions::default()).findings;
        let help = found.iter().find(|found| found.code == "VL02").and_then(|found| found.help.clone());
        assert_eq!(help.as_deref(), Some(expected), "{text}");
    }

    #[test]
    fn what_to_add_is_in_the_form_of_the_launch() {
        let call =
            |config: &str| format!("from vllm import LLM\nllm = LLM(model=\"m\", speculative_config={config})\n");
        let keyword = "add `num_speculative_tokens=3`";
        let pair = "add `\"num_speculative_tokens\": 3`";
        check("a.py", &call("dict(method=\"eagle3\", model=\"d\")"), keyword);
        check("a.py", &call("{\"method\": \"eagle3\", \"model\": \"d\"}"), pair);
        check("a.sh", "vllm serve m --speculative-config '{\"method\": \"eagle3\", \"model\": \"d\"}'", pair);
        let flag = "add `--speculative-config.num_speculative_tokens 3`";
        check("a.sh", "vllm serve m --speculative-config.method eagle3 --speculative-config.model d", flag);
        check("a.sh", "vllm serve m --spec-method ngram", "add `--spec-tokens 3`");
    }
}
