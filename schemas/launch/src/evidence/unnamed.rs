//! Versions that stand without the engine's name: in a title, in the name of a folder.

use schemas::{
    engines::releases::published,
    text::{Located, Source, Span},
    version::EngineVersion,
};

use super::version_text::version_at;
use crate::{Engine, kind::is_page_name};

/// Maximum number of versions that are kept of one page.
const MOST: usize = 1 << 12;

/// The only published version of an engine that a page names without the engine's name, in its
/// title or as that of an image: `# Crash at start on 0.25.1`, `Official docker image 0.25.1`.
pub(super) fn in_title(source: &Source, engine: Engine) -> Option<Located<EngineVersion>> {
    let text = source.text();
    let speaks = |at: usize, line: &str| (at == 0 && line.starts_with("# ")) || line.contains(" image ");
    let mut start = 0;
    let mut found: Vec<Located<EngineVersion>> = Vec::new();
    for line in text.split_inclusive('\n').filter(|_| is_page_name(source.name())) {
        if speaks(start, line) && found.len() < MOST {
            found.extend(
                unnamed(line, engine)
                    .map(|(version, span)| Located::new(version, Span::new(start + span.start, start + span.end))),
            );
        }
        start += line.len();
    }
    let (first, rest) = found.split_first()?;
    rest.iter().all(|other| other.value == first.value).then_some(*first)
}

/// The published versions of an engine in a line, with their places.
fn unnamed(line: &str, engine: Engine) -> impl Iterator<Item = (EngineVersion, Span)> {
    let begins = |at: &usize| {
        let before = line.get(..*at).and_then(|before| before.chars().next_back());
        before.is_some_and(|letter| matches!(letter, ' ' | '(' | '[' | '`'))
    };
    (0..line.len()).filter(begins).filter_map(move |at| {
        let (version, width) = version_at(line.get(at..)?)?;
        let is_whole = !line.get(at + width..).is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
        (is_whole && published(engine, version).is_some()).then(|| (version, Span::new(at, at + width)))
    })
}

/// The version that a folder or the file itself is named after: `v0.5.6/run.sh`.
pub(super) fn version_in_path(path: &str) -> Option<(Option<Engine>, EngineVersion)> {
    let of_part = |part: &str| {
        let part = part.to_ascii_lowercase();
        let engines = [("sglang", Engine::Sglang), ("vllm", Engine::Vllm)];
        let named = engines.into_iter().find_map(|(name, engine)| Some((part.strip_prefix(name)?, engine)));
        let (rest, engine) = named.map_or((part.as_str(), None), |(rest, engine)| (rest, Some(engine)));
        let rest = rest.trim_start_matches(['-', '_']);
        let (version, length) = version_at(rest)?;
        let ends = matches!(rest.get(length..), Some("" | ".sh" | ".md" | ".yaml" | ".yml" | ".py"));
        (ends && (engine.is_some() || rest.starts_with('v'))).then_some((engine, version))
    };
    path.rsplit(['/', '\\']).find_map(of_part)
}
