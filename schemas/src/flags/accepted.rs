//! The values that the engines' parsers accept for a flag: argparse's types and `choices`.
//!
//! The tables were read by `schemas/scripts/read_flags.py`, which explains their columns.

use std::{collections::HashMap, sync::OnceLock};

use super::Registered;
use crate::version::EngineVersion;

/// The type to which a parser converts each value of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Python's `str`.
    Text,
    /// Python's `int`.
    Integer,
    /// An integer that may have a suffix, as `8k`.
    Size,
    /// Python's `float`.
    Number,
    /// JSON.
    Json(JsonForm),
}

/// The JSON that a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonForm {
    /// Any.
    Any,
    /// An object; the parser takes any JSON, and the engine fails later.
    Dict,
    /// An object; the parser refuses any other JSON.
    Object,
    /// An object in braces. Any other text is a text.
    TextOrDict,
}

/// The values that an engine's parser accepts for a flag.
#[derive(Clone, Debug)]
pub struct AcceptedValues {
    /// The type of a value.
    pub kind: ValueKind,
    /// Whether plugins can extend the list, or the engine does more than compare words with it.
    pub is_open: bool,
    /// First version with a list of words, if an older one accepts any word. Of JSON the first one
    /// that takes this kind.
    since: Option<EngineVersion>,
    /// First version that accepts any word again.
    until: Option<EngineVersion>,
    /// The words, of all versions.
    pub words: Vec<Word>,
}

/// A word that some version accepts.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// The word itself.
    pub text: &'static str,
    /// First version that accepts it, if an older one has a list without it.
    pub since: Option<EngineVersion>,
    /// First version that no longer accepts it.
    pub until: Option<EngineVersion>,
}

impl Word {
    /// Whether the version's parser accepts it.
    pub fn exists_in(&self, version: EngineVersion) -> bool {
        self.since.is_none_or(|since| since <= version) && self.until.is_none_or(|until| version < until)
    }
}

/// Whether some version of an engine reads a text as an integer that may have a suffix: `8192`,
/// `8k`, `25.6k`, `8Ki`, and vLLM's `8K`.
pub fn is_size(text: &str) -> bool {
    let text = text.trim();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let plain = |digits: &str| {
        let parts = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        !digits.is_empty() && digits.split('_').all(parts)
    };
    if plain(unsigned) {
        return true;
    }
    let number = text.strip_suffix('i').unwrap_or(text).strip_suffix(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T']);
    number.is_some_and(|number| number.split('.').count() <= 2 && number.split('.').all(plain))
}

impl AcceptedValues {
    /// Whether the version's parser compares words with a list.
    pub fn has_list_in(&self, version: EngineVersion) -> bool {
        !self.words.is_empty()
            && self.since.is_none_or(|since| since <= version)
            && self.until.is_none_or(|until| version < until)
    }

    /// The JSON that a version takes, and whether that is certain: without a version, an older one
    /// may take something else.
    pub fn json_in(&self, version: Option<EngineVersion>) -> Option<(JsonForm, bool)> {
        let ValueKind::Json(form) = self.kind else { return None };
        match (version, self.since) {
            (_, None) => Some((form, true)),
            (None, Some(_)) => Some((form, false)),
            (Some(version), Some(since)) => (since <= version).then_some((form, true)),
        }
    }

    /// The words that the version accepts.
    pub fn words_in(&self, version: EngineVersion) -> impl Iterator<Item = &'static str> {
        self.words.iter().filter(move |word| word.exists_in(version)).map(|word| word.text)
    }
}

type AcceptedTable = HashMap<&'static str, AcceptedValues>;

impl Registered {
    /// The accepted values of the flag with this canonical name; `None` if the parser accepts any
    /// text.
    pub fn accepted(&'static self, canonical: &str) -> Option<&'static AcceptedValues> {
        static SGLANG: OnceLock<AcceptedTable> = OnceLock::new();
        static VLLM: OnceLock<AcceptedTable> = OnceLock::new();
        let table = if std::ptr::eq(self, super::sglang()) {
            SGLANG.get_or_init(|| read(include_str!("sglang_values.tsv")))
        } else {
            VLLM.get_or_init(|| read(include_str!("vllm_values.tsv")))
        };
        table.get(canonical)
    }
}

fn read(table: &'static str) -> AcceptedTable {
    table.lines().filter(|line| !line.starts_with('#')).filter_map(row).collect()
}

fn row(line: &'static str) -> Option<(&'static str, AcceptedValues)> {
    let mut columns = line.split('\t');
    let name = columns.next()?;
    let kind = match columns.next()? {
        "text" => ValueKind::Text,
        "int" => ValueKind::Integer,
        "size" => ValueKind::Size,
        "float" => ValueKind::Number,
        "json" => ValueKind::Json(JsonForm::Any),
        "dict" => ValueKind::Json(JsonForm::Dict),
        "object" => ValueKind::Json(JsonForm::Object),
        "text-or-dict" => ValueKind::Json(JsonForm::TextOrDict),
        _ => return None,
    };
    let is_open = columns.next()? == "open";
    let since = columns.next()?.parse().ok();
    let until = columns.next()?.parse().ok();
    let words = columns.next().unwrap_or_default().split(' ').filter(|word| !word.is_empty()).map(word).collect();
    Some((name, AcceptedValues { kind, is_open, since, until, words }))
}

fn word(text: &'static str) -> Word {
    let (text, versions) = text.split_once('@').unwrap_or((text, ".."));
    let (since, until) = versions.split_once("..").unwrap_or_default();
    Word { text, since: since.parse().ok(), until: until.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_and_belongs_to_a_flag() {
        for (engine, table) in [
            (super::super::sglang(), include_str!("sglang_values.tsv")),
            (super::super::vllm(), include_str!("vllm_values.tsv")),
        ] {
            for line in table.lines().filter(|line| !line.starts_with('#')) {
                let (name, accepted) = row(line).unwrap_or_else(|| panic!("{line}"));
                assert!(engine.spelling(name).is_some(), "{name}");
                assert!(engine.accepted(name).is_some(), "{name} appears twice");
                assert!(accepted.kind != ValueKind::Text || !accepted.words.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn words_come_and_go() {
        let backends = super::super::sglang().accepted("attention-backend").expect("a list");
        let takes = |word: &str, version: EngineVersion| backends.words_in(version).any(|known| known == word);
        assert!(backends.is_open);
        assert!(takes("triton", EngineVersion::new(0, 4, 7)) && takes("triton", EngineVersion::new(0, 5, 23)));
        assert!(
            !takes("cutedsl_mla", EngineVersion::new(0, 5, 12)) && takes("cutedsl_mla", EngineVersion::new(0, 5, 13))
        );
        assert!(!takes("cutlass_mla", EngineVersion::new(0, 5, 20)));
        let algorithms = super::super::sglang().accepted("speculative-algorithm").expect("a list");
        assert!(algorithms.has_list_in(EngineVersion::new(0, 5, 9)));
        assert!(!algorithms.has_list_in(EngineVersion::new(0, 5, 12)));
    }
}
