//! The table of flags, one row per flag, which the launch parser, `--help`, the docs and the rules all use.

mod accepted;
mod key;
mod registered;
mod speculative;
mod table;

pub use accepted::{Accepted, Kind, Word};
pub use key::Key;
pub use registered::{Arity, Lookup, Registered, Spelling, lookup, sglang, spelling, spellings, vllm};
pub use speculative::Speculative;
pub use table::FLAGS;

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

/// Values of `--attention-backend` in SGLang 0.4.7 to 0.5.23. Other names belong to the engine that was tuned.
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
    /// Other spellings that SGLang's parser accepts, without dashes.
    pub aliases: &'static [&'static str],
    /// The kind of its values.
    pub takes: Takes,
    /// Whether spectune's own engine also accepts it.
    pub ours: bool,
    /// Whether it is one of slime's own flags, which have no `--sglang-` prefix and which no engine has.
    pub of_slime: bool,
    /// First SGLang version that has it under `name`, if known.
    pub since: Option<EngineVersion>,
    /// First SGLang version that no longer has it under `name`, if known.
    pub until: Option<EngineVersion>,
    /// One line for `--help` and the docs.
    pub help: &'static str,
}

impl Key {
    /// The flag's row.
    pub fn flag(self) -> &'static Flag {
        FLAGS.iter().find(|flag| flag.key == self).unwrap_or(&FLAGS[0])
    }

    /// The spelling, without dashes, that the version's parser accepts: the row's name, or else the first alias that exists
    /// in that version.
    pub fn name_in(self, version: EngineVersion) -> &'static str {
        let flag = self.flag();
        let alive = |name: &&str| spelling(name).is_none_or(|spelling| spelling.exists_in(version));
        std::iter::once(flag.name).chain(flag.aliases.iter().copied()).find(alive).unwrap_or(flag.name)
    }
}

impl Flag {
    const fn new(key: Key, name: &'static str, takes: Takes, help: &'static str) -> Self {
        Self { key, name, aliases: &[], takes, ours: false, of_slime: false, since: None, until: None, help }
    }

    const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn ours(self) -> Self {
        Self { ours: true, ..self }
    }

    const fn of_slime(self) -> Self {
        Self { of_slime: true, ..self }
    }

    const fn since(self, version: EngineVersion) -> Self {
        Self { since: Some(version), ..self }
    }

    const fn until(self, version: EngineVersion) -> Self {
        Self { until: Some(version), ..self }
    }

    /// Every spelling, the name first.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
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
    FLAGS.iter().find(|flag| flag.names().any(|known| known == name))
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
            let versions = match (flag.since, flag.until) {
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
    fn every_key_has_exactly_one_row() {
        for key in Key::ALL {
            assert_eq!(FLAGS.iter().filter(|flag| flag.key == *key).count(), 1, "{key:?}");
        }
        assert_eq!(FLAGS.len(), Key::ALL.len());
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
    const NOT_SGLANG: &[Key] = &[Key::BatchInvariant, Key::ModelShape, Key::NumLayers, Key::SimulateAcceptLength];

    #[test]
    fn rows_agree_with_what_the_wheels_register() {
        for flag in FLAGS.iter().filter(|flag| !flag.of_slime && !NOT_SGLANG.contains(&flag.key)) {
            let Some(own) = spelling(flag.name) else { panic!("--{} is in no wheel", flag.name) };
            assert_eq!((own.since, own.until), (flag.since, flag.until), "--{}", flag.name);
            for name in flag.names() {
                // slime's own name for the target is the only alias that is not SGLang's.
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
