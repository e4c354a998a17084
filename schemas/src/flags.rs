//! The table of flags, one row per flag, which the launch parser, `--help`, the docs and the rules
//! all use.

mod accepted;
mod key;
mod list;
mod registered;
mod serve;
mod short;
mod speculative;
mod table;

pub use accepted::{AcceptedValues, JsonForm, ValueKind, Word, is_size};
pub use key::Key;
pub(crate) use list::with_flags;
pub use registered::{Arity, Lookup, Registered, Spelling, lookup, sglang, spelling, spellings, vllm};
pub use serve::{all_of_serve, arity_in_serve};
pub(crate) use short::vllm_long_name;
pub use speculative::Speculative;
pub use table::FLAGS;

use std::{collections::HashMap, sync::OnceLock};

use crate::version::EngineVersion;

/// The kind of values that a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// No value: a switch.
    Nothing,
    /// One text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One integer.
    Integer,
    /// One integer that may carry a suffix: `8k` is 8000, `8Ki` is 8192 (SGLang `utils/common.py`,
    /// `human_readable_int`).
    Size,
    /// One number.
    Number,
    /// One or more integers.
    Integers,
    /// One or more texts.
    Texts,
}

/// Values of `--attention-backend` in SGLang 0.4.7 to 0.5.23. Other names belong to the engine that
/// was tuned.
pub const SGLANG_ATTENTION_BACKENDS: &[&str] = &[
    "aiter",
    "ascend",
    "cutedsl_mla",
    "cutlass_mla",
    "dsa",
    "dual_chunk_flash_attn",
    "fa3",
    "fa4",
    "flashinfer",
    "flashinfer_mla",
    "flashmla",
    "flex_attention",
    "hybrid_linear_attn",
    "intel_amx",
    "intel_xpu",
    "nsa",
    "tokenspeed_mla",
    "torch_native",
    "triton",
    "trtllm_mha",
    "trtllm_mla",
    "wave",
];

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The meaning of the flag, independent of its name.
    pub key: Key,
    /// The name to print, without dashes: SGLang's own.
    pub name: &'static str,
    /// The kind of its values.
    pub takes: Takes,
    /// Whether spectune's own engine also accepts it.
    pub ours: bool,
    /// Whether it is one of slime's own flags, which have no `--sglang-` prefix and which no engine
    /// has.
    pub of_slime: bool,
    /// One line for `--help` and the docs.
    pub help: &'static str,
}

impl Key {
    /// The flag's row.
    pub fn flag(self) -> &'static Flag {
        FLAGS.iter().find(|flag| flag.key == self).unwrap_or(&FLAGS[0])
    }

    /// The spelling, without dashes, that the version's parser accepts: the row's name, or else the
    /// first alias that exists in that version.
    pub fn name_in(self, version: EngineVersion) -> &'static str {
        let flag = self.flag();
        let alive = |name: &&str| spelling(name).is_none_or(|spelling| spelling.exists_in(version));
        flag.names().find(alive).unwrap_or(flag.name)
    }
}

/// Names of flags with the ones that replaced them, or that only slime has. The tables of the
/// parsers do not say that these mean the same.
const RENAMED: [(&str, &str); 5] = [
    ("cuda-graph-bs", "cuda-graph-bs-decode"),
    ("cuda-graph-max-bs", "cuda-graph-max-bs-decode"),
    ("enable-linear-replayssm-spec", "enable-gdn-replayssm-spec"),
    ("mamba-scheduler-strategy", "mamba-radix-cache-strategy"),
    ("model-path", "hf-checkpoint"),
];

impl Flag {
    /// Other spellings that SGLang's parser accepts, without dashes.
    pub fn aliases(&self) -> impl Iterator<Item = &'static str> {
        let name = self.name;
        let renamed = RENAMED.into_iter().filter(move |(old, _)| *old == name).map(|(_, new)| new);
        renamed.chain(registered::aliases(name).iter().copied())
    }

    /// First SGLang version that has it under its name, if an older one lacks it.
    pub fn since(&self) -> Option<EngineVersion> {
        spelling(self.name)?.since
    }

    /// First SGLang version that no longer has it under its name.
    pub fn until(&self) -> Option<EngineVersion> {
        spelling(self.name)?.until
    }

    /// Every spelling, the name first.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases())
    }

    /// The number of words that follow the flag.
    pub fn arity(&self) -> Arity {
        match self.takes {
            Takes::Nothing => Arity::None,
            Takes::Integers | Takes::Texts => Arity::Several,
            Takes::Text | Takes::Choice(_) | Takes::Integer | Takes::Size | Takes::Number => Arity::One,
        }
    }
}

/// The row with exactly this name or alias (without dashes).
pub fn by_name(name: &str) -> Option<&'static Flag> {
    static BY_NAME: OnceLock<HashMap<&'static str, &'static Flag>> = OnceLock::new();
    let all = || FLAGS.iter().flat_map(|flag| flag.names().map(move |name| (name, flag))).collect();
    BY_NAME.get_or_init(all).get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the page of flags with the table; `SPECTUNE_UPDATE=1` rewrites it.
    #[test]
    fn the_page_in_the_docs_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/flags.md");
        let text = page();
        if std::env::var_os("SPECTUNE_UPDATE").is_some() {
            std::fs::write(path, &text).expect("the page can be written");
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(found == text, "docs/reference/flags.md is stale: run the tests with SPECTUNE_UPDATE=1");
    }

    fn page() -> String {
        let mut text = String::from(
            "# Flags\n\nThe flags that spectune understands, from its flag table. Names are SGLang's; slime's own flags are marked \
             as such. Flags with a mark under *engine* are supported by spectune's own `generate`, `serve` and `bench`. \
             *Versions* are SGLang's: `0.5.6…` was added in 0.5.6 or shortly before, `…0.5.20` was removed by 0.5.20.\n\n\
             | flag | takes | engine | versions | meaning |\n|---|---|---|---|---|\n",
        );
        for flag in FLAGS {
            let names: Vec<String> = flag.names().map(|name| format!("`--{name}`")).collect();
            let takes = match flag.takes {
                Takes::Nothing => "".to_owned(),
                Takes::Text => "text".to_owned(),
                Takes::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
                Takes::Integer => "integer".to_owned(),
                Takes::Size => "integer, with a suffix such as `8k`".to_owned(),
                Takes::Number => "number".to_owned(),
                Takes::Integers => "integers".to_owned(),
                Takes::Texts => "texts".to_owned(),
            };
            let version = |version: Option<EngineVersion>| version.map_or_else(String::new, |one| one.to_string());
            let versions = match (flag.since(), flag.until()) {
                (None, None) => String::new(),
                (since, until) => format!("{}…{}", version(since), version(until)),
            };
            let ours = if flag.ours { "✓" } else { "" };
            let help = flag.help.replace('|', "\\|");
            text.push_str(&format!("| {} | {takes} | {ours} | {versions} | {help} |\n", names.join(", ")));
        }
        text
    }

    #[test]
    fn keys_and_names_are_the_same_words() {
        for flag in FLAGS {
            // Some of slime's names begin with the engine's.
            let own = flag.name.strip_prefix("sglang-").filter(|_| flag.of_slime).unwrap_or(flag.name);
            let key = format!("{:?}", flag.key).to_lowercase();
            assert!([flag.name, own].iter().any(|name| name.replace('-', "") == key), "{key} is not {}", flag.name);
        }
    }

    #[test]
    fn flags_have_the_aliases_of_the_parser_and_those_that_replaced_them() {
        let names = |name: &str| by_name(name).map(|flag| flag.names().collect::<Vec<_>>().join(" "));
        assert_eq!(names("ep").as_deref(), Some("ep-size ep expert-parallel-size"));
        assert_eq!(names("hf-checkpoint").as_deref(), Some("model-path hf-checkpoint model"));
        assert_eq!(names("cuda-graph-bs-decode").as_deref(), Some("cuda-graph-bs cuda-graph-bs-decode"));
    }

    #[test]
    fn rows_are_in_alphabetical_order_and_no_spelling_means_two_things() {
        for pair in FLAGS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} before {}", pair[0].name, pair[1].name);
        }
        let mut names: Vec<_> = FLAGS.iter().flat_map(Flag::names).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    /// Flags of spectune's own engine that SGLang's parser does not have.
    const NOT_SGLANG: &[Key] = &[
        Key::BatchInvariant,
        Key::Fp8Compute,
        Key::ModelShape,
        Key::NumLayers,
        Key::PromptLookupMatch,
        Key::PromptLookupMax,
        Key::PromptLookupMin,
        Key::SimulateAcceptLength,
        Key::SpeculativeRowBudget,
        Key::SpeculativeSecondSource,
        Key::SuffixDecodingMaxCachedRequests,
        Key::SuffixDecodingMaxSpecFactor,
        Key::SuffixDecodingMaxTreeDepth,
        Key::SuffixDecodingMinTokenProb,
    ];

    #[test]
    fn rows_agree_with_what_the_wheels_register() {
        for flag in FLAGS.iter().filter(|flag| !flag.of_slime && !NOT_SGLANG.contains(&flag.key)) {
            assert!(spelling(flag.name).is_some(), "--{} is in no wheel", flag.name);
            for name in flag.names() {
                // slime's own name for the target is the only other one that is not SGLang's.
                if let Some(spelling) = spelling(name) {
                    assert_eq!(spelling.arity, flag.arity(), "--{name}");
                } else {
                    assert_eq!(name, "hf-checkpoint");
                }
            }
        }
    }

    #[test]
    fn every_alias_that_sglang_has_is_in_the_table() {
        for spelling in spellings() {
            if let Some(flag) = by_name(spelling.canonical) {
                assert!(flag.names().any(|name| name == spelling.name), "--{} of --{}", spelling.name, flag.name);
            }
        }
    }

    #[test]
    fn a_renamed_flag_is_spelled_as_the_version_wants() {
        assert_eq!(Key::CudaGraphBs.name_in(EngineVersion::new(0, 5, 9)), "cuda-graph-bs");
        assert_eq!(Key::CudaGraphBs.name_in(EngineVersion::new(0, 5, 15).post(1)), "cuda-graph-bs");
        assert_eq!(Key::CudaGraphBs.name_in(EngineVersion::new(0, 5, 23)), "cuda-graph-bs-decode");
        assert_eq!(Key::ModelPath.name_in(EngineVersion::new(0, 4, 7)), "model-path");
    }
}
