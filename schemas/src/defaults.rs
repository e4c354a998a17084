//! What SGLang chooses if a launch does not say: the tree shape, and the batch sizes of CUDA
//! graphs.

use std::ops::RangeInclusive;

use crate::{engines::NEWEST_SGLANG, tree::TreeShape, version::EngineVersion};

const V0_5_2: EngineVersion = EngineVersion::new(0, 5, 2);
const V0_5_6: EngineVersion = EngineVersion::new(0, 5, 6);
const V0_5_9: EngineVersion = EngineVersion::new(0, 5, 9);

/// Values that SGLang takes if a launch does not say: the flag or variable, the first version that
/// was read with it, and the value. What a finding says of a default is looked up here.
const STATED: &[(&str, EngineVersion, &str)] = &[
    ("SGLANG_RAGGED_VERIFY_MODE", EngineVersion::new(0, 5, 23), "static"),
    // With speculation, except where an algorithm or a family of models sets its own.
    ("max-running-requests", EngineVersion::new(0, 4, 3), "48"),
    ("speculative-ngram-capacity", EngineVersion::new(0, 5, 12), "10000000"),
    ("speculative-ngram-max-bfs-breadth", EngineVersion::new(0, 5, 12), "10"),
    ("speculative-ngram-max-trie-depth", EngineVersion::new(0, 5, 12), "18"),
    ("speculative-ngram-min-bfs-breadth", EngineVersion::new(0, 5, 12), "1"),
];

/// The default of a flag or variable of SGLang in a version, if it is one that findings state and
/// was read in it.
pub fn stated(name: &str, version: EngineVersion) -> Option<&'static str> {
    let row = STATED.iter().find(|(own, since, _)| *own == name && *since <= version);
    row.map(|(_, _, value)| *value)
}

/// The same as a number.
pub fn stated_number(name: &str, version: EngineVersion) -> Option<usize> {
    stated(name, version)?.parse().ok()
}

/// Limit on the number of sizes, more than any engine captures; longer lists are not computed.
pub const MOST_SIZES: usize = 1 << 16;

/// Steps, topk and draft tokens.
pub type Triple = (usize, usize, usize);

const TREE: Triple = (5, 4, 8);
const CHAIN: Triple = (3, 1, 4);

/// Architectures for which a chain is chosen, each with the first version that does so, among the
/// wheels that were read.
const CHAINS: &[(&str, EngineVersion)] = &[
    ("BailingMoeForCausalLM", V0_5_6),
    ("BailingMoeV2ForCausalLM", V0_5_6),
    ("DeepseekV2ForCausalLM", EngineVersion::new(0, 0, 0)),
    ("DeepseekV32ForCausalLM", V0_5_6),
    ("DeepseekV3ForCausalLM", EngineVersion::new(0, 0, 0)),
    ("GptOssForCausalLM", V0_5_2),
];

/// Architectures for which the tree is chosen; from 0.5.9 on all others get the chain.
const TREES: &[&str] = &["Grok1ForCausalLM", "Grok1VForCausalLM", "LlamaForCausalLM"];

/// The tree shape that the engine chooses if the user gives no part of it. `None` if the choice
/// depends on the architecture, which is not known.
pub fn auto_triple(standalone: bool, architecture: Option<&str>, version: EngineVersion) -> Option<Triple> {
    if standalone && version >= V0_5_2 {
        return Some(CHAIN);
    }
    let architecture = architecture?;
    if TREES.contains(&architecture) {
        return Some(TREE);
    }
    let listed = CHAINS.iter().any(|(name, since)| *name == architecture && *since <= version);
    Some(if listed || version >= V0_5_9 { CHAIN } else { TREE })
}

/// The shape that the newest known SGLang chooses for an algorithm, empty if it is not given, and a
/// target of this architecture.
pub fn default_shape(algorithm: &str, architecture: &str) -> TreeShape {
    let standalone = algorithm.eq_ignore_ascii_case("STANDALONE");
    let (num_steps, topk, num_draft_tokens) =
        auto_triple(standalone, Some(architecture), NEWEST_SGLANG).unwrap_or(CHAIN);
    TreeShape::whole_tree(num_steps, topk, num_draft_tokens)
}

/// The batch sizes up to `largest` that the newest SGLang captures by default with speculation;
/// `largest` is always one of them.
pub fn default_capture_sizes(largest: usize) -> Vec<usize> {
    let largest = largest.min(MOST_SIZES);
    let mut sizes = speculative(largest);
    sizes.retain(|size| *size < largest);
    if largest > 0 {
        sizes.push(largest);
    }
    sizes
}

/// The same sizes up to `end`, which need not be one of them.
pub fn speculative(end: usize) -> Vec<usize> {
    ranges(&[(1..=8, 1), (10..=32, 2), (40..=64, 4), (72..=256, 8), (272..=end, 16)])
}

/// The numbers in ranges, each with its step.
pub fn ranges(parts: &[(RangeInclusive<usize>, usize)]) -> Vec<usize> {
    parts.iter().flat_map(|(range, step)| range.clone().step_by(*step)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engines::Engine, flags, variables};

    #[test]
    fn stated_defaults_are_of_flags_and_variables_that_the_newest_version_has() {
        assert!(STATED.is_sorted_by_key(|(name, ..)| *name));
        for (name, since, value) in STATED {
            let exists = match flags::sglang().spelling(name) {
                Some(spelling) => spelling.exists_in(NEWEST_SGLANG),
                None => variables::nearest(Engine::Sglang, name).is_some_and(|one| one.name == *name),
            };
            assert!(exists, "{name}");
            assert_eq!(stated(name, NEWEST_SGLANG), Some(*value), "{name}");
            assert_eq!(stated(name, EngineVersion::new(0, 0, 0)), None, "{name} since {since}");
        }
    }
}
