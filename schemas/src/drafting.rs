//! How SGLang and vLLM are told to draft: the flags of an algorithm with a shape, and what a shape
//! is called there.
//!
//! The triple of a shape has its meaning for beams alone. SGLang overwrites steps and topk of a
//! block, whose size is the number of verified rows, and of its trie, whose breadth has a flag of
//! its own (`ServerArgs`, `_handle_speculative_decoding`); vLLM takes the number of drafts of a
//! chain for every method (`config/speculative.py`).

use crate::{
    flags::Key,
    tree::{NodeSource, TreeShape},
};

/// A method of vLLM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VllmMethod {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Whether the configuration must name a draft.
    pub needs_draft: bool,
    /// Whether it has a number of drafts of its own, so that none need be given.
    pub has_default: bool,
}

/// What can be a second source of drafts next to a head, as flags and files name it: look-ups in
/// texts that find chains.
pub const SECOND_SOURCES: [&str; 2] = ["PROMPT_LOOKUP", "SUFFIX"];

/// The algorithms with a counterpart in vLLM, as SGLang and spectune name them.
const METHODS: [(&str, VllmMethod); 8] = [
    ("EAGLE", VllmMethod { name: "eagle", needs_draft: true, has_default: false }),
    ("EAGLE3", VllmMethod { name: "eagle3", needs_draft: true, has_default: false }),
    ("NEXTN", VllmMethod { name: "mtp", needs_draft: false, has_default: true }),
    ("STANDALONE", VllmMethod { name: "draft_model", needs_draft: true, has_default: false }),
    ("DFLASH", VllmMethod { name: "dflash", needs_draft: true, has_default: false }),
    ("DSPARK", VllmMethod { name: "dspark", needs_draft: true, has_default: true }),
    ("PROMPT_LOOKUP", VllmMethod { name: "ngram", needs_draft: false, has_default: false }),
    ("SUFFIX", VllmMethod { name: "suffix", needs_draft: false, has_default: true }),
];

/// The method that drafts as an algorithm does; `None` if vLLM has none.
pub fn vllm_method(algorithm: &str) -> Option<VllmMethod> {
    METHODS.iter().find(|(name, _)| name.eq_ignore_ascii_case(algorithm)).map(|(_, method)| *method)
}

/// The algorithm that drafts as a method of vLLM does; `None` if SGLang and spectune have none. The
/// methods of single models (`deepseek_mtp`) are that of all MTP layers.
pub fn algorithm_of_vllm(method: &str) -> Option<&'static str> {
    let is_mtp = method.ends_with("_mtp");
    METHODS.iter().find(|(_, one)| one.name == method || is_mtp && one.name == "mtp").map(|(name, _)| *name)
}

/// A flag that only one algorithm reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnFlag {
    /// The flag.
    pub key: Key,
    /// The algorithm.
    pub algorithm: &'static str,
    /// Whether vLLM reads it too: as a key of the same name in its speculative configuration.
    pub in_vllm: bool,
}

/// A flag that SGLang or spectune alone reads.
const fn own(key: Key, algorithm: &'static str) -> OwnFlag {
    OwnFlag { key, algorithm, in_vllm: false }
}

/// A flag that is named after vLLM's key.
const fn vllm_key(key: Key, algorithm: &'static str) -> OwnFlag {
    OwnFlag { key, algorithm, in_vllm: true }
}

/// All flags that only one algorithm reads.
pub const OWN_FLAGS: [OwnFlag; 14] = [
    vllm_key(Key::PromptLookupMax, "PROMPT_LOOKUP"),
    vllm_key(Key::PromptLookupMin, "PROMPT_LOOKUP"),
    own(Key::PromptLookupMatch, "PROMPT_LOOKUP"),
    own(Key::SpeculativeDflashBlockSize, "DFLASH"),
    own(Key::SpeculativeDsparkBlockSize, "DSPARK"),
    own(Key::SpeculativeNgramCapacity, "NGRAM"),
    own(Key::SpeculativeNgramMatchType, "NGRAM"),
    own(Key::SpeculativeNgramMaxBfsBreadth, "NGRAM"),
    own(Key::SpeculativeNgramMaxTrieDepth, "NGRAM"),
    own(Key::SpeculativeNgramMinBfsBreadth, "NGRAM"),
    vllm_key(Key::SuffixDecodingMaxCachedRequests, "SUFFIX"),
    vllm_key(Key::SuffixDecodingMaxSpecFactor, "SUFFIX"),
    vllm_key(Key::SuffixDecodingMaxTreeDepth, "SUFFIX"),
    vllm_key(Key::SuffixDecodingMinTokenProb, "SUFFIX"),
];

/// The flags that only this algorithm reads.
pub fn own_flags(algorithm: &str) -> impl Iterator<Item = OwnFlag> + '_ {
    OWN_FLAGS.into_iter().filter(move |flag| flag.algorithm.eq_ignore_ascii_case(algorithm))
}

/// The names of the algorithms with a counterpart in vLLM, for messages.
pub fn vllm_algorithms() -> String {
    METHODS.map(|(name, _)| name).join(", ")
}

/// The names of all algorithms that an engine is told here.
pub fn algorithms() -> impl Iterator<Item = &'static str> {
    METHODS.iter().map(|(name, _)| *name).chain(["NGRAM"])
}

/// An algorithm as engines spell it, by its name in any case.
pub fn algorithm_named(name: &str) -> Option<&'static str> {
    algorithms().find(|one| one.eq_ignore_ascii_case(name))
}

/// SGLang's flags for a shape of an algorithm; `None` if SGLang does not draft so: a tree over a
/// block, a budget of rows, or a look-up that only vLLM has.
pub fn sglang_flags(algorithm: &str, shape: TreeShape) -> Option<Vec<(Key, usize)>> {
    let TreeShape { num_steps, topk, num_draft_tokens, row_budget } = shape;
    if row_budget.is_some() {
        return None;
    }
    let rows = (Key::SpeculativeNumDraftTokens, num_draft_tokens);
    match NodeSource::named(algorithm) {
        NodeSource::Beams => Some(vec![(Key::SpeculativeNumSteps, num_steps), (Key::SpeculativeEagleTopk, topk), rows]),
        NodeSource::Block(_) if topk > 1 => None,
        // The block is the verified rows, or their number without the root.
        NodeSource::Block(block) if block.sized_by_drafts => {
            Some(vec![(Key::SpeculativeDsparkBlockSize, num_steps), rows])
        }
        NodeSource::Block(_) => Some(vec![rows]),
        NodeSource::Text(text) => text.branches.then(|| vec![(Key::SpeculativeNgramMaxBfsBreadth, topk), rows]),
    }
}

/// Whether what SGLang reports of itself is the requested shape: of blocks and look-ups it reports
/// steps and topk that it has overwritten.
pub fn runs_as_requested(algorithm: &str, runs: TreeShape, requested: TreeShape) -> bool {
    match NodeSource::named(algorithm) {
        NodeSource::Beams => runs == requested,
        NodeSource::Block(_) | NodeSource::Text(_) => runs.num_draft_tokens == requested.num_draft_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_vllm_are_found_by_either_name() {
        for (algorithm, method) in METHODS {
            assert_eq!(vllm_method(&algorithm.to_ascii_lowercase()), Some(method));
            assert_eq!(algorithm_of_vllm(method.name), Some(algorithm));
        }
        assert_eq!(algorithm_of_vllm("deepseek_mtp"), Some("NEXTN"));
        assert_eq!((vllm_method("NGRAM"), algorithm_of_vllm("medusa")), (None, None), "other rules under one name");
    }

    #[test]
    fn own_flags_belong_to_algorithms_that_are_known() {
        let known: Vec<&str> = algorithms().collect();
        for OwnFlag { key, algorithm, in_vllm } in OWN_FLAGS {
            assert!(known.contains(&algorithm), "{key:?}");
            assert!(!in_vllm || vllm_method(algorithm).is_some(), "{key:?}");
            assert_eq!(own_flags(&algorithm.to_ascii_lowercase()).filter(|own| own.key == key).count(), 1);
        }
        assert_eq!(own_flags("STANDALONE").count(), 0);
    }

    #[test]
    fn sglang_gets_a_shape_in_the_flags_that_it_reads() {
        let words = |algorithm: &str, shape: &str| {
            let shape = NodeSource::named(algorithm).parse(shape).expect("a shape");
            sglang_flags(algorithm, shape).map(|flags| {
                let flags = flags.into_iter().map(|(key, number)| format!("{key:?} {number}"));
                flags.collect::<Vec<_>>().join(", ")
            })
        };
        let check = |algorithm: &str, shape: &str, expected: Option<&str>| {
            assert_eq!(words(algorithm, shape).as_deref(), expected, "{algorithm} {shape}");
        };
        let beams = "SpeculativeNumSteps 3, SpeculativeEagleTopk 4, SpeculativeNumDraftTokens 8";
        check("EAGLE3", "3,4,8", Some(beams));
        check("DFLASH", "7,1,8", Some("SpeculativeNumDraftTokens 8"));
        check("DSPARK", "7,1,8", Some("SpeculativeDsparkBlockSize 7, SpeculativeNumDraftTokens 8"));
        check("NGRAM", "11,10,12", Some("SpeculativeNgramMaxBfsBreadth 10, SpeculativeNumDraftTokens 12"));
        check("DFLASH", "3,4,8", None);
        check("SUFFIX", "5,1,6", None);
    }

    #[test]
    fn overwritten_numbers_of_a_report_are_not_held_against_a_server() {
        let reported = TreeShape::whole_tree(1, 1, 8);
        assert!(runs_as_requested("DFLASH", reported, TreeShape::chain(7)));
        assert!(!runs_as_requested("DFLASH", reported, TreeShape::chain(6)));
        assert!(!runs_as_requested("EAGLE3", reported, TreeShape::chain(7)));
    }
}
