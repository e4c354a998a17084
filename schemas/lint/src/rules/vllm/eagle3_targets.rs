//! vLLM's classes that return the hidden states which EAGLE-3 and DFlash drafts read, by version:
//! `vllm_eagle3.tsv`, generated from wheels by `scripts/read_eagle3.py`.

use std::sync::OnceLock;

use schemas::version::EngineVersion;

use crate::rules::class_table::ClassTable;

/// Of each class that lacked the states in some version: the first version read in which it returns
/// them, and the first that has the architecture, if an older one does not.
fn table() -> &'static ClassTable<2> {
    static TABLE: OnceLock<ClassTable<2>> = OnceLock::new();
    TABLE.get_or_init(|| ClassTable::from_text(include_str!("vllm_eagle3.tsv")))
}

/// Whether a version has the architecture but does not return its states. A version between two
/// that were read may return them if the later one does; outside the versions that were read
/// nothing is known.
pub(super) fn lacks_states(architecture: &str, version: EngineVersion) -> bool {
    let Some([since, known_since]) = table().class(architecture) else { return false };
    let Some(next) = table().next_read(version) else { return false };
    known_since.is_none_or(|known| known <= version) && since.is_none_or(|since| next < since)
}

/// The first version read that returns them.
pub(super) fn has_states_since(architecture: &str) -> Option<EngineVersion> {
    table().class(architecture).and_then(|[since, _]| since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        table().check(include_str!("vllm_eagle3.tsv"), 10, 0..1);
    }

    #[test]
    fn classes_gain_the_interface() {
        let lacks = |name: &str, version: &str| lacks_states(name, version.parse().expect("a version"));
        assert!(lacks("Qwen3NextForCausalLM", "0.15.0") && lacks("Qwen3NextForCausalLM", "0.23.0"));
        // It was added after 0.23.0, in 0.24 or 0.25.
        assert!(!lacks("Qwen3NextForCausalLM", "0.24.0") && !lacks("Qwen3NextForCausalLM", "0.25.1"));
        assert!(lacks("Gemma3ForConditionalGeneration", "0.33.0"));
        assert!(
            !lacks("Gemma3ForConditionalGeneration", "0.34.0") && !lacks("Gemma3ForConditionalGeneration", "0.10.0")
        );
        assert!(!lacks("LlamaForCausalLM", "0.11.0") && !lacks("NotAClassForCausalLM", "0.11.0"));
        assert!(!lacks("MiniMaxM2ForCausalLM", "0.11.0") && lacks("MiniMaxM2ForCausalLM", "0.12.0"));
    }
}
