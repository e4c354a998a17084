//! A text source: a draft without weights, which looks up what followed the last tokens in texts
//! that it has kept.
//!
//! It reads nothing of the target, keeps tokens only, and its look-ups cost no pass. Three rules
//! are known, each with its engine's defaults: vLLM's prompt lookup and suffix decoding, and
//! SGLang's trie.

use schemas::tree::{NodeSource, TextNodes, TreeShape};
use serde::{Deserialize, Serialize};

use crate::error::EngineError;

/// The rule of a text source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextSpec {
    /// The tokens after an earlier occurrence of the last n, in the request's own tokens (vLLM's
    /// `ngram`).
    PromptLookup(PromptLookup),
    /// The most frequent continuation, in the request's own tokens or in earlier outputs (vLLM's
    /// `suffix`, from arctic-inference).
    Suffix(SuffixRule),
    /// A tree of continuations of all suffixes, in recent outputs of all requests (SGLang's
    /// `NGRAM`).
    Trie(TrieRule),
}

/// vLLM's prompt lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptLookup {
    /// Length of the shortest run of tokens that is looked up; at least 1.
    pub min: usize,
    /// Length of the longest.
    pub max: usize,
    /// Which occurrence is taken.
    pub occurrence: Occurrence,
}

/// Which of several occurrences of the longest run is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occurrence {
    /// The earliest one: vLLM's model runner V1.
    Earliest,
    /// The latest one.
    Latest,
    /// The latest one, and missing drafts are copies of the last token, which are verified like
    /// others: vLLM's model runner V2.
    LatestFilled,
}

/// Suffix decoding. Defaults are vLLM's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuffixRule {
    /// Depth of the suffix trees, the looked up tokens included.
    pub max_tree_depth: usize,
    /// Number of requests whose outputs are kept, the oldest being dropped first; 0 looks up own
    /// tokens only.
    pub max_cached_requests: usize,
    /// Maximum number of drafts per looked up token.
    pub max_spec_factor: f32,
    /// Drafts end where the estimated probability of the path falls below this.
    pub min_token_prob: f32,
}

/// SGLang's trie. The maximum breadth is the `topk` of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrieRule {
    /// Maximum number of tokens on a path of the trie, the looked up ones included; at least 2.
    pub max_depth: usize,
    /// Minimum breadth below a node, for [`TrieMatch::Bfs`].
    pub min_breadth: usize,
    /// How the tree is grown.
    pub matching: TrieMatch,
    /// Maximum number of nodes of the trie; the least recently used ones are dropped.
    pub capacity: usize,
}

/// How a tree is grown from a trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TrieMatch {
    /// Breadth first; the most recent continuations of a node, fewer with each level.
    Bfs,
    /// The most probable path first, by frequency.
    Prob,
}

impl PromptLookup {
    /// vLLM's defaults.
    pub const DEFAULT: Self = Self { min: 5, max: 5, occurrence: Occurrence::Earliest };
    /// As a second source beside a head: short runs too, since each has a chance of its own.
    pub const SECOND: Self = Self { min: 2, max: 16, occurrence: Occurrence::Latest };
    /// The drafts of a round by default. vLLM has no default, and its examples use this one.
    pub const DRAFTS: usize = 5;
}

impl SuffixRule {
    /// vLLM's defaults.
    pub const DEFAULT: Self =
        Self { max_tree_depth: 24, max_cached_requests: 10_000, max_spec_factor: 1.0, min_token_prob: 0.1 };
}

impl TrieRule {
    /// SGLang's defaults.
    pub const DEFAULT: Self = Self { max_depth: 18, min_breadth: 1, matching: TrieMatch::Bfs, capacity: 10_000_000 };
    /// SGLang's default of the maximum breadth.
    pub const BREADTH: usize = 10;
    /// SGLang's default of the rows of a round, the root included.
    pub const ROWS: usize = 12;
}

/// Names of the rules, as `--speculative-algorithm` takes them, with the rule by default.
const NAMES: [(&str, TextSpec); 3] = [
    ("NGRAM", TextSpec::Trie(TrieRule::DEFAULT)),
    ("PROMPT_LOOKUP", TextSpec::PromptLookup(PromptLookup::DEFAULT)),
    ("SUFFIX", TextSpec::Suffix(SuffixRule::DEFAULT)),
];

impl TextSpec {
    /// Largest number of tokens that may be looked up, and depth of a tree.
    pub const LARGEST: usize = 256;
    /// Largest number of nodes of a trie.
    const MOST_NODES: usize = 1 << 26;

    /// The rule of this name with its default values, in any case. `NGRAM` is SGLang's trie: vLLM's
    /// `ngram` has another rule, and is called `PROMPT_LOOKUP`.
    pub fn named(algorithm: &str) -> Option<Self> {
        NAMES.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(algorithm)).map(|(_, spec)| spec)
    }

    /// The rule of this name as a second source next to a head, with its default values: one of
    /// [`schemas::drafting::SECOND_SOURCES`], in any case.
    pub fn second(name: &str) -> Option<Self> {
        let rule = match Self::named(name)? {
            Self::PromptLookup(_) => Self::PromptLookup(PromptLookup::SECOND),
            other => other,
        };
        rule.can_be_second().then_some(rule)
    }

    /// Whether outputs of other requests are looked up too, so that drafts depend on what ran
    /// before.
    pub fn keeps_outputs(&self) -> bool {
        match self {
            Self::PromptLookup(_) => false,
            Self::Suffix(rule) => rule.max_cached_requests > 0,
            Self::Trie(_) => true,
        }
    }

    /// Whether it can be a second source: it finds chains, and fills none of them.
    pub fn can_be_second(&self) -> bool {
        match self {
            Self::PromptLookup(rule) => rule.occurrence != Occurrence::LatestFilled,
            Self::Suffix(_) => true,
            Self::Trie(_) => false,
        }
    }

    /// The name for `--speculative-algorithm`.
    pub fn algorithm(&self) -> &'static str {
        // By kind alone: a rule with other numbers than the default has the same name.
        let same = |spec: &Self| std::mem::discriminant(spec) == std::mem::discriminant(self);
        NAMES.iter().find(|(_, spec)| same(spec)).map_or("", |(name, _)| name)
    }

    /// What a shape means for it.
    pub fn nodes(&self) -> NodeSource {
        NodeSource::Text(match self {
            Self::PromptLookup(_) => TextNodes { depth: TreeShape::LARGEST, branches: false },
            Self::Suffix(rule) => TextNodes { depth: rule.max_tree_depth, branches: false },
            // At least one token of a path is looked up.
            Self::Trie(rule) => TextNodes { depth: rule.max_depth.saturating_sub(1), branches: true },
        })
    }

    /// The shape of the engine's default.
    pub fn default_shape(&self) -> TreeShape {
        match self {
            Self::PromptLookup(_) => TreeShape::chain(PromptLookup::DRAFTS),
            Self::Suffix(rule) => TreeShape::chain(rule.max_tree_depth),
            Self::Trie(_) => self.shape_with_rows(TrieRule::ROWS, TrieRule::BREADTH),
        }
    }

    /// The shape of this many rows, the root included: a chain, or a tree of a maximum breadth.
    pub fn shape_with_rows(&self, rows: usize, breadth: usize) -> TreeShape {
        let drafts = rows.saturating_sub(1);
        match self {
            Self::PromptLookup(_) | Self::Suffix(_) => TreeShape::chain(drafts),
            Self::Trie(_) if drafts == 0 => TreeShape::OFF,
            Self::Trie(rule) => {
                // At least one token of a path is looked up, as in `nodes`.
                TreeShape::whole_tree(drafts.min(rule.max_depth - 1), breadth, rows)
            }
        }
    }

    /// The same for a request's own tokens, where the rule can tell them from others.
    #[must_use]
    pub fn own_tokens_only(self) -> Self {
        match self {
            Self::Suffix(rule) => Self::Suffix(SuffixRule { max_cached_requests: 0, ..rule }),
            other => other,
        }
    }

    /// Checks the rule's numbers.
    ///
    /// # Errors
    /// When one is out of its range; the message names its flag.
    pub fn check(&self) -> Result<(), EngineError> {
        let wrong = |flag: &str, found: String, expected: String| {
            Err(EngineError::Configuration(format!("{flag} {found}: expected {expected}")))
        };
        let whole = |flag: &str, found: usize, least: usize, most: usize| match (least..=most).contains(&found) {
            true => Ok(()),
            false => wrong(flag, found.to_string(), format!("a number from {least} to {most}")),
        };
        match self {
            Self::PromptLookup(PromptLookup { min, max, .. }) => {
                whole("--prompt-lookup-max", *max, 1, Self::LARGEST)?;
                whole("--prompt-lookup-min", *min, 1, *max)
            }
            Self::Suffix(rule) => {
                whole("--suffix-decoding-max-tree-depth", rule.max_tree_depth, 2, Self::LARGEST)?;
                whole("--suffix-decoding-max-cached-requests", rule.max_cached_requests, 0, i32::MAX as usize)?;
                let SuffixRule { max_spec_factor: factor, min_token_prob: least, .. } = *rule;
                if !(factor >= 0.0 && factor.is_finite()) {
                    let expected = "a number of at least 0".to_owned();
                    return wrong("--suffix-decoding-max-spec-factor", factor.to_string(), expected);
                }
                if !(0.0..=1.0).contains(&least) {
                    let expected = "a number from 0 to 1".to_owned();
                    return wrong("--suffix-decoding-min-token-prob", least.to_string(), expected);
                }
                Ok(())
            }
            Self::Trie(rule) => {
                whole("--speculative-ngram-max-trie-depth", rule.max_depth, 2, Self::LARGEST)?;
                whole("--speculative-ngram-min-bfs-breadth", rule.min_breadth, 1, TreeShape::LARGEST)?;
                whole("--speculative-ngram-capacity", rule.capacity, rule.max_depth + 1, Self::MOST_NODES)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_name_and_a_default_that_its_nodes_allow() {
        for (name, spec) in NAMES {
            assert_eq!(TextSpec::named(&name.to_lowercase()), Some(spec));
            assert_eq!(spec.algorithm(), name);
            spec.check().expect("valid defaults");
            spec.nodes().check(spec.default_shape()).expect("a valid shape");
        }
        let shapes = NAMES.map(|(_, spec)| spec.default_shape().to_string());
        assert_eq!(shapes, ["11,10,12", "5,1,6", "24,1,25"]);
    }

    #[test]
    fn second_sources_are_those_that_files_and_flags_name() {
        for (name, _) in NAMES {
            let is_named = schemas::drafting::SECOND_SOURCES.contains(&name);
            assert_eq!(TextSpec::second(&name.to_lowercase()).is_some(), is_named, "{name}");
        }
        assert_eq!(TextSpec::second("EAGLE3"), None);
        let filled = PromptLookup { occurrence: Occurrence::LatestFilled, ..PromptLookup::SECOND };
        assert!(!TextSpec::PromptLookup(filled).can_be_second());
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_their_flag() {
        let check = |spec: TextSpec, flag: &str| {
            let error = spec.check().expect_err("out of range").to_string();
            assert!(error.contains(flag), "{error}");
        };
        let lookup = PromptLookup::DEFAULT;
        check(TextSpec::PromptLookup(PromptLookup { min: 6, ..lookup }), "--prompt-lookup-min 6");
        check(TextSpec::PromptLookup(PromptLookup { min: 0, ..lookup }), "--prompt-lookup-min 0");
        check(TextSpec::Suffix(SuffixRule { min_token_prob: f32::NAN, ..SuffixRule::DEFAULT }), "min-token-prob NaN");
        check(TextSpec::Suffix(SuffixRule { max_spec_factor: -1.0, ..SuffixRule::DEFAULT }), "max-spec-factor -1");
        check(TextSpec::Trie(TrieRule { max_depth: 1, ..TrieRule::DEFAULT }), "max-trie-depth 1");
        check(TextSpec::Trie(TrieRule { capacity: 18, ..TrieRule::DEFAULT }), "ngram-capacity 18");
    }
}
