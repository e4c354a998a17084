//! Keys, methods and rejection-sampling methods that vLLM's speculative configuration accepts, by
//! version.
//!
//! The table was read by `schemas/scripts/read_flags.py`.

use std::sync::OnceLock;

use super::Word;
use crate::version::EngineVersion;

/// The kind of a word of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speculative {
    /// A key of the configuration.
    Key,
    /// A value of `method`.
    Method,
    /// A value of `rejection_sample_method`.
    RejectionSampleMethod,
}

impl Speculative {
    /// The words of this kind, of all versions.
    pub fn words(self) -> impl Iterator<Item = &'static Word> {
        rows().iter().filter(move |(kind, _)| *kind == self).map(|(_, word)| word)
    }

    /// The word of this kind with this text.
    pub fn word(self, text: &str) -> Option<&'static Word> {
        self.words().find(|word| word.text == text)
    }

    /// The words of this kind that a version accepts.
    pub fn words_in(self, version: EngineVersion) -> impl Iterator<Item = &'static str> {
        self.words().filter(move |word| word.exists_in(version)).map(|word| word.text)
    }
}

fn rows() -> &'static [(Speculative, Word)] {
    static ROWS: OnceLock<Vec<(Speculative, Word)>> = OnceLock::new();
    ROWS.get_or_init(|| include_str!("vllm_speculative.tsv").lines().filter_map(row).collect())
}

fn row(line: &'static str) -> Option<(Speculative, Word)> {
    let mut columns = line.split('\t');
    let kind = match columns.next()? {
        "key" => Speculative::Key,
        "method" => Speculative::Method,
        "rejection_sample_method" => Speculative::RejectionSampleMethod,
        _ => return None,
    };
    let text = columns.next()?;
    let since = columns.next()?.parse().ok();
    let until = columns.next()?.parse().ok();
    Some((kind, Word { text, since, until }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_once() {
        let lines = include_str!("vllm_speculative.tsv").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(rows().len(), lines);
        for (kind, word) in rows() {
            assert_eq!(kind.words().filter(|other| other.text == word.text).count(), 1, "{}", word.text);
        }
    }

    #[test]
    fn methods_come_and_go() {
        let has = |method: &str, version| Speculative::Method.words_in(version).any(|known| known == method);
        assert!(has("eagle3", EngineVersion::new(0, 10, 0)) && has("eagle3", EngineVersion::new(0, 33, 0)));
        assert!(!has("mtp", EngineVersion::new(0, 10, 2)) && has("mtp", EngineVersion::new(0, 11, 0)));
        assert!(has("medusa", EngineVersion::new(0, 32, 0)) && !has("medusa", EngineVersion::new(0, 33, 0)));
    }
}
