//! Sources of engines that a text clones and checks out.

use schemas::{
    text::{Located, Span},
    version::EngineVersion,
};

use super::version_text::{plausible, version_at};
use crate::Engine;

/// Maximum number of clones per text.
const MOST: usize = 1 << 12;

/// The versions of engines whose sources a text clones and checks out:
/// `git clone -b v0.5.9 https://…/sglang.git`.
pub(super) fn clones(text: &str) -> Vec<(Engine, Located<EngineVersion>)> {
    let mut found = Vec::new();
    let mut cloned = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        if !line.contains("git ") || found.len() >= MOST {
            continue;
        }
        for command in line.split(['&', ';', '|']) {
            let words: Vec<&str> = command.split_whitespace().map(|word| word.trim_matches(['"', '\'', '`'])).collect();
            let Some(git) = words.iter().position(|word| *word == "git") else { continue };
            let words = words.get(git..).unwrap_or_default();
            let place = |word: &str| {
                let from = start + line.find(word).unwrap_or_default();
                Span::new(from, from + word.len())
            };
            let mut state = |engine: Engine, word: &str| {
                let tag = word.trim_start_matches("tags/");
                // A branch such as `v0.5.9-fix` is not the release.
                let version = version_at(tag).filter(|(_, length)| *length == tag.len());
                if let Some(version) = version.and_then(|(version, _)| plausible(version)) {
                    found.push((engine, Located::new(version, place(word))));
                }
            };
            if words.contains(&"clone") {
                cloned = words.iter().find_map(|word| engine_of_sources(word));
                let tied =
                    |word: &&str| word.strip_prefix("--branch=").or_else(|| word.strip_prefix("-b=")).map(str::len);
                let branch =
                    words.iter().zip(words.iter().skip(1)).find(|(flag, _)| matches!(**flag, "-b" | "--branch"));
                let branch = branch
                    .map(|(_, branch)| *branch)
                    .or_else(|| words.iter().find_map(|word| word.get(word.len() - tied(word)?..)));
                if let (Some(engine), Some(branch)) = (cloned, branch) {
                    state(engine, branch);
                }
            } else if let (Some(engine), Some("checkout" | "switch")) = (cloned, words.get(1).copied())
                && let Some(tag) = words.iter().skip(2).find(|word| !word.starts_with('-'))
            {
                state(engine, tag);
            }
        }
    }
    found
}

/// The engine whose source repository an address names.
pub(super) fn engine_of_sources(address: &str) -> Option<Engine> {
    let name = address.trim_end_matches('/').trim_end_matches(".git").rsplit(['/', ':']).next()?;
    match name {
        _ if !address.contains(['/', ':']) => None,
        "sglang" => Some(Engine::Sglang),
        "vllm" => Some(Engine::Vllm),
        _ => None,
    }
}
