//! Whose drafts come from outputs of other requests, which a server keeps outside of its prefix
//! cache.

use schemas::{
    drafting::vllm_method,
    sweep::{SystemKind, SystemSettings},
    tree::NodeSource,
};
use serde_json::Value;

use super::LaunchPlan;
use crate::trials::configuration::Configuration;

/// vLLM's method that keeps outputs of other requests, and the key of how many. Its `ngram` looks
/// up in the request's own tokens alone.
const SUFFIX: &str = "suffix";
const KEPT: &str = "suffix_decoding_max_cached_requests";

/// Whether the server of a configuration keeps outputs that a flush of the prefix cache does not
/// clear.
pub fn outlive_a_flush(plan: &LaunchPlan, settings: &SystemSettings, configuration: &Configuration) -> bool {
    if plan.kind != SystemKind::Vllm || configuration.is_off() {
        return false;
    }
    let plan = plan.for_draft(configuration);
    let keys = &settings.speculative_config;
    let own = || vllm_method(&plan.algorithm).map(|method| method.name);
    let method = keys.get("method").and_then(Value::as_str).or_else(own);
    method == Some(SUFFIX) && keys.get(KEPT).and_then(Value::as_u64) != Some(0)
}

/// Whether the server of a configuration keeps outputs that a flush clears: SGLang's trie, and
/// texts of spectune's own server.
pub fn need_a_flush(plan: &LaunchPlan, configuration: &Configuration) -> bool {
    let looks_up = || matches!(NodeSource::named(&plan.for_draft(configuration).algorithm), NodeSource::Text(_));
    plan.kind != SystemKind::Vllm && !configuration.is_off() && looks_up()
}

#[cfg(test)]
mod tests {
    use schemas::{sweep::SweepFile, text::Source};

    use super::*;

    fn kept(kind: &str, algorithm: &str, keys: &str, shape: &str) -> [bool; 2] {
        let text = format!(
            "[system]\nkind = '{kind}'\ncommand = ['s']\n{keys}\n[models]\ntarget = 't'\nalgorithm = '{algorithm}'\n\
             [workload]\nrandom = {{ input_length = 8 }}\n[space]\n"
        );
        let file = SweepFile::read(&Source::new("sweep.toml", &text)).expect("a sweep file");
        let plan = LaunchPlan::from_file(&file, std::path::Path::new("/nowhere"), 8);
        let configuration = Configuration::from_shape(shape.parse().expect("a shape"));
        [outlive_a_flush(&plan, &file.system, &configuration), need_a_flush(&plan, &configuration)]
    }

    #[test]
    fn vllms_suffix_keeps_outputs_whatever_is_flushed_and_sglangs_trie_until_then() {
        assert_eq!(kept("vllm", "SUFFIX", "", "3,1,4"), [true, false]);
        assert_eq!(kept("vllm", "SUFFIX", "", "0,1,1"), [false, false]);
        let none = "speculative_config = { suffix_decoding_max_cached_requests = 0 }";
        assert_eq!(kept("vllm", "SUFFIX", none, "3,1,4"), [false, false]);
        assert_eq!(kept("vllm", "PROMPT_LOOKUP", "", "3,1,4"), [false, false]);
        assert_eq!(kept("sglang", "NGRAM", "", "3,1,4"), [false, true]);
        assert_eq!(kept("sglang", "NEXTN", "", "3,1,4"), [false, false]);
    }
}
