//! vLLM's classes that return the hidden states which EAGLE-3 and DFlash drafts read, by version:
//! `vllm_eagle3.tsv`, generated from wheels by `scripts/read_eagle3.py`.

use std::sync::OnceLock;

use schemas::version::EngineVersion;

/// An architecture whose class lacked the states in some version.
struct TargetRow {
    name: &'static str,
    /// The first version read in which it returns them.
    since: Option<EngineVersion>,
    /// The first version read that has the architecture, if an older one does not.
    known_since: Option<EngineVersion>,
}

struct TargetTable {
    /// Versions that were read, in order.
    read: Vec<EngineVersion>,
    rows: Vec<TargetRow>,
}

fn table() -> &'static TargetTable {
    static TABLE: OnceLock<TargetTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        let text = include_str!("vllm_eagle3.tsv");
        let read = text.lines().next().and_then(|line| line.strip_prefix("# read from ")).unwrap_or_default();
        let row = |line: &'static str| {
            let mut columns = line.split('\t');
            let name = columns.next().filter(|name| !name.starts_with('#'))?;
            let mut version = || columns.next().and_then(|text| text.parse().ok());
            Some(TargetRow { name, since: version(), known_since: version() })
        };
        TargetTable {
            read: read.split(", ").filter_map(|text| text.parse().ok()).collect(),
            rows: text.lines().filter_map(row).collect(),
        }
    })
}

/// Whether a version has the architecture but does not return its states. A version between two
/// that were read may return them if the later one does; outside the versions that were read
/// nothing is known.
pub(super) fn lacks_states(architecture: &str, version: EngineVersion) -> bool {
    let TargetTable { read, rows } = table();
    let Some(row) = rows.iter().find(|row| row.name == architecture) else { return false };
    let Some(next) = read.iter().find(|read| version <= **read) else { return false };
    read.first().is_some_and(|first| *first <= version)
        && row.known_since.is_none_or(|known| known <= version)
        && row.since.is_none_or(|since| *next < since)
}

/// The first version read that returns them.
pub(super) fn has_states_since(architecture: &str) -> Option<EngineVersion> {
    table().rows.iter().find(|row| row.name == architecture)?.since
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        let TargetTable { read, rows } = table();
        let lines = include_str!("vllm_eagle3.tsv").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(rows.len(), lines.clone().count());
        assert!(read.windows(2).all(|pair| pair[0] < pair[1]) && read.len() > 10, "{read:?}");
        for (row, line) in rows.iter().zip(lines) {
            let columns: Vec<&str> = line.split('\t').collect();
            assert_eq!(columns.len(), 3, "{line}");
            assert_eq!(
                (row.since.is_none(), row.known_since.is_none()),
                (columns[1] == "-", columns[2] == "-"),
                "{line}"
            );
            assert!(row.since.is_none_or(|since| read.contains(&since)), "{line}");
        }
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
