//! Infers the version of an engine from the text around a launch: image tags, requirements,
//! variables and prose.
//!
//! The launch's own image or requirement counts first, then tags and clones anywhere in the text,
//! then prose, then the folder's name, then the title of a page. Contradicting statements count as
//! none. Evidence that may belong to another launch (another section of a page, prose, a folder)
//! counts only if that version has every flag that the launch uses.

use schemas::{
    engines::releases::{Day, newest_on, published},
    text::{Located, Source, Span},
    version::EngineVersion,
};

use super::{
    Engine, Launch, Options,
    forks::{self, Forks},
    images::{is_own_source, is_published},
    kind::is_page_name,
};

/// Maximum number of mentions of an engine that are inspected per text.
const MOST: usize = 1 << 12;

/// A version that a text states, with its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatedVersion {
    pub engine: Engine,
    pub version: Located<EngineVersion>,
}

/// How certain it is that the version is the one that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strength {
    /// An image's tag, a requirement, a variable.
    Tag,
    /// Prose.
    Words,
}

impl StatedVersion {
    /// Whether it applies to a launch of this engine.
    pub fn is_of(&self, engine: Engine) -> bool {
        match engine {
            Engine::Sglang | Engine::Slime => self.engine == Engine::Sglang,
            Engine::Vllm => self.engine == Engine::Vllm,
            Engine::Spectune => false,
        }
    }
}

/// The version in an image's tag: `lmsysorg/sglang:v0.5.9-cu129`.
pub(super) fn version_in_image(image: &str, span: Span) -> Option<StatedVersion> {
    let found = all(image).into_iter().find(|(_, strength)| *strength == Strength::Tag)?.0;
    // Requirements are handled elsewhere.
    (!image.contains("==")).then_some(StatedVersion { version: Located::new(found.version.value, span), ..found })
}

/// The version that a requirement pins: `sglang[all]==0.5.9`.
pub(super) fn version_in_requirement(requirement: &str, span: Span) -> Option<StatedVersion> {
    let (name, version) = requirement.split_once("==")?;
    let engine = match name.split('[').next()?.trim() {
        "sglang" => Engine::Sglang,
        "vllm" => Engine::Vllm,
        _ => return None,
    };
    if is_far_from_its_tag(version) {
        return None;
    }
    Some(StatedVersion { engine, version: Located::new(plausible(version.trim().parse().ok()?)?, span) })
}

/// Whether a version is that of a commit so far from the tag that it is numbered by that it says
/// nothing of the release: `0.3.2.dev9039+g90c446848`.
fn is_far_from_its_tag(version: &str) -> bool {
    let commits = version.split_once(".dev").map(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
    commits.is_some_and(|digits| digits >= 4)
}

/// Fills in the version of launches whose own words do not name one, from the surrounding text and
/// its file name.
///
/// If the launch's own image has no version (`latest`, a custom build), statements about other
/// images do not count. A statement that is not certain to be about this launch is ignored if its
/// version lacks something that the launch uses; otherwise the version is marked as inferred. If
/// the user gives the version, nothing is inferred.
pub(super) fn fill_in(source: &Source, options: &Options, forks: Forks, launches: &mut [Launch]) {
    if !launches.is_empty() {
        let is_changed = speaks_of_changes(source.text());
        let copied = [Engine::Sglang, Engine::Vllm].map(|engine| (engine, installs_copy(source.text(), engine)));
        let built = Day::latest_build_in(source.text());
        let dated = built.max(Day::latest_in(source.text()));
        for launch in launches.iter_mut() {
            launch.dated = dated;
            launch.forks = forks;
            launch.is_changed |= is_changed || forks.any_of(launch.engine) || has_flag_of_fork(launch);
            launch.is_changed |= copied.contains(&(base(launch.engine), true));
        }
    }
    let open = |launch: &Launch| launch.engine_version.is_none();
    if options.version.is_some() || !launches.iter().any(open) {
        return;
    }
    let (all, from_name) = (all(source.text()), version_in_path(source.name()));
    for launch in launches.iter_mut().filter(|launch| open(launch)) {
        let found = match &launch.image {
            None => version(source, &all, from_name, launch),
            // What a page says of the engine is true of the project's own images.
            Some(image) if is_published(image) => in_words(source, &all, launch).map(|version| (version, false)),
            Some(_) => None,
        };
        launch.engine_version = found.map(|(version, _)| version);
        launch.version_is_inferred = found.is_some_and(|(_, is_certain)| !is_certain);
        launch.version_of_day = launch.dated.filter(|_| found.is_none()).and_then(|day| of_day(source, day, launch));
    }
}

/// The newest version of a text's day, if it has what the launch uses. Days in scripts are those of
/// changes, which say little of the version that runs; pages and reports are of their day.
fn of_day(source: &Source, day: Day, launch: &Launch) -> Option<EngineVersion> {
    let is_built = Day::latest_build_in(source.text()) == Some(day);
    let engine = base(launch.engine);
    let version =
        newest_on(engine, day, engine.registered().versions()).filter(|_| is_built || is_page_name(source.name()));
    version.filter(|version| launch.has_flags_of(*version) && launch.has_words_of(*version))
}

/// The version on which the prose of a page agrees, if it has what the launch uses.
fn in_words(source: &Source, all: &[(StatedVersion, Strength)], launch: &Launch) -> Option<Located<EngineVersion>> {
    let words = all.iter().filter(|(stated, strength)| *strength == Strength::Words && stated.is_of(launch.engine));
    let words: Vec<&StatedVersion> = words.map(|(stated, _)| stated).collect();
    let found = agreed(&words).filter(|_| is_page_name(source.name()))?.version;
    (launch.has_flags_of(found.value) && launch.has_words_of(found.value)).then_some(found)
}

/// The version of a launch by the statements of the text and by its name, and whether it is certain
/// to be this launch's.
fn version(
    source: &Source,
    all: &[(StatedVersion, Strength)],
    from_name: Option<(Option<Engine>, EngineVersion)>,
    launch: &Launch,
) -> Option<(Located<EngineVersion>, bool)> {
    let named = |wanted: Strength| -> Vec<&StatedVersion> {
        let found = all.iter().filter(|(_, strength)| *strength == wanted).map(|(stated, _)| stated);
        found.filter(|stated| stated.is_of(launch.engine)).collect()
    };
    let has_what_is_used = |version: EngineVersion| launch.has_flags_of(version) && launch.has_words_of(version);
    let tags = named(Strength::Tag);
    let near = if is_page_name(source.name()) { nearest(source, &tags, launch.anchor) } else { agreed(&tags) };
    if let Some(stated) = near {
        return Some((stated.version, is_certain_for(source, stated.version.span, launch.anchor)));
    }
    // In another section of a page, an image for one platform does not apply to launches for
    // others.
    let is_general =
        |stated: &&&StatedVersion| !(is_page_name(source.name()) && is_for_one_platform(source, stated.version.span));
    let elsewhere = match tags.is_empty() {
        false => agreed(&tags.iter().filter(is_general).copied().collect::<Vec<_>>()),
        true => agreed(&named(Strength::Words)),
    };
    let elsewhere = elsewhere.map(|stated| stated.version).filter(|version| has_what_is_used(version.value));
    let by_name = || {
        let is_of = |engine: Option<Engine>| engine.is_none_or(|engine| engine == base(launch.engine));
        let (_, version) = from_name.filter(|(engine, _)| is_of(*engine))?;
        let is_release = launch.engine.registered().versions().contains(&version);
        (is_release && has_what_is_used(version)).then(|| Located::new(version, launch.anchor))
    };
    let may_be_named = tags.is_empty() && launch.engine != Engine::Spectune;
    let by_title = || in_title(source, launch.engine).filter(|version| has_what_is_used(version.value));
    let otherwise = || by_name().or_else(by_title).filter(|_| may_be_named);
    elsewhere.or_else(otherwise).map(|version| (version, false))
}

/// The version of vLLM that a version of its Ascend plugin is made for, which has the same numbers
/// (its page on versions).
fn of_plugin(version: EngineVersion) -> EngineVersion {
    EngineVersion { candidate: None, post: None, ..version }
}

/// The only published version of an engine that a page names without the engine's name, in its
/// title or as that of an image: `# Crash at start on 0.25.1`, `Official docker image 0.25.1`.
fn in_title(source: &Source, engine: Engine) -> Option<Located<EngineVersion>> {
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

/// Whether an image's tag names a platform other than NVIDIA's: `v0.5.9-rocm700-mi35x`.
fn is_for_one_platform(source: &Source, version: Span) -> bool {
    let tag = source.text().get(version.end..).unwrap_or_default();
    let tag = tag.split(|letter: char| letter.is_whitespace() || letter == '`').next().unwrap_or_default();
    ["rocm", "xpu", "npu", "cann", "-cpu", "musa", "hpu"].iter().any(|platform| tag.contains(platform))
}

/// Whether a text patches an engine.
fn speaks_of_changes(text: &str) -> bool {
    const WORDS: [&str; 3] = ["git apply", "patch -p", "patches/"];
    WORDS.iter().any(|word| text.contains(word))
}

/// Whether a text installs an engine from the sources of someone else:
/// `git clone https://github.com/me/sglang`.
fn installs_copy(text: &str, engine: Engine) -> bool {
    let is_copy = |word: &str| {
        let address = word.trim_start_matches("git+").split(['@', '#']).next().unwrap_or_default();
        let address = address.trim_matches(['"', '\'', '`', ')', ',']);
        address.contains("github.com/") && engine_of_sources(address) == Some(engine) && !is_own_source(address)
    };
    let installs = |line: &&str| line.contains("clone ") || line.contains("git+http");
    text.contains("github.com/") && text.lines().filter(installs).any(|line| line.split_whitespace().any(is_copy))
}

/// Whether a launch has a flag that alone identifies a fork.
fn has_flag_of_fork(launch: &Launch) -> bool {
    let mut names = launch.arguments.iter().filter_map(|argument| argument.flag.value.strip_prefix("--"));
    names.any(|name| forks::has_prefix(launch.engine, name))
}

fn base(engine: Engine) -> Engine {
    if engine == Engine::Slime { Engine::Sglang } else { engine }
}

/// The version on which several statements agree.
fn agreed(stated: &[&StatedVersion]) -> Option<StatedVersion> {
    let (first, rest) = stated.split_first()?;
    rest.iter().all(|other| other.version.value == first.version.value).then_some(**first)
}

/// The version stated before the launch in the same section of Markdown, if all statements there
/// agree.
fn nearest(source: &Source, stated: &[&StatedVersion], anchor: Span) -> Option<StatedVersion> {
    let before = source.text().get(..anchor.start)?;
    let section = before.rfind("\n#").unwrap_or(0);
    let here = stated.iter().filter(|one| section <= one.version.span.start && one.version.span.end <= anchor.start);
    agreed(&here.copied().collect::<Vec<_>>())
}

/// Whether a statement is about the launches after it beyond doubt: it is in the same script, or in
/// the same code block of a page.
fn is_certain_for(source: &Source, version: Span, anchor: Span) -> bool {
    let between = source.text().get(version.end..anchor.start);
    !is_page_name(source.name()) || between.is_some_and(|between| !between.contains("```") && !between.contains("~~~"))
}

/// The version that a folder or the file itself is named after: `v0.5.6/run.sh`.
fn version_in_path(path: &str) -> Option<(Option<Engine>, EngineVersion)> {
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

/// The versions of engines whose sources a text clones and checks out:
/// `git clone -b v0.5.9 https://…/sglang.git`.
fn clones(text: &str) -> Vec<StatedVersion> {
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
                    found.push(StatedVersion { engine, version: Located::new(version, place(word)) });
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
fn engine_of_sources(address: &str) -> Option<Engine> {
    let name = address.trim_end_matches('/').trim_end_matches(".git").rsplit(['/', ':']).next()?;
    match name {
        _ if !address.contains(['/', ':']) => None,
        "sglang" => Some(Engine::Sglang),
        "vllm" => Some(Engine::Vllm),
        _ => None,
    }
}

/// Every version that a text states.
fn all(text: &str) -> Vec<(StatedVersion, Strength)> {
    let mut found: Vec<(StatedVersion, Strength)> = if text.contains("git ") {
        clones(text).into_iter().map(|one| (one, Strength::Tag)).collect()
    } else {
        Vec::new()
    };
    let bytes = text.as_bytes();
    let begins = |at: &usize| {
        let is = |name: &[u8]| bytes.get(*at..*at + name.len()).is_some_and(|here| here.eq_ignore_ascii_case(name));
        is(b"sgl") || is(b"vllm") || is(b"v1 llm engine")
    };
    for at in (0..bytes.len())
        .filter(|at| matches!(bytes.get(*at), Some(b's' | b'S' | b'v' | b'V')))
        .filter(begins)
        .take(MOST)
    {
        found.extend(stated_at(text, at));
    }
    found
}

/// Names of engines, in lower case; longer ones first.
const NAMES: [(&str, Engine); 6] = [
    ("sglang", Engine::Sglang),
    ("sgl-dev", Engine::Sglang),
    ("sgl", Engine::Sglang),
    // vLLM's first line in a log.
    ("v1 llm engine", Engine::Vllm),
    ("vllm-openai", Engine::Vllm),
    ("vllm", Engine::Vllm),
];

/// Words between an engine's name and its version in reports and logs.
const WORDS: [&str; 6] = [" version", " api server version", " nightlies", " nightly", " docker image", " engine"];

/// Signs that set a version off in prose and tables of Markdown.
const SOFT: [char; 8] = [' ', '*', '|', '(', '`', '"', '\'', ':'];

/// Words before a version of an engine that is not the one that fails.
const PAST: [&str; 18] = [
    "works on",
    "works with",
    "works in",
    "worked on",
    "worked with",
    "worked in",
    "works fine on",
    "fine on",
    "fine in",
    "fine with",
    "back to",
    "downgrade to",
    "downgrading to",
    "downgraded to",
    "not on",
    "not in",
    "regression from",
    "upgraded from",
];

/// Words before a version that has a fault, unlike `fixed in`.
const PRESENT: [&str; 8] =
    ["exists in", "present in", "persists in", "reproduced in", "happens in", "fails in", "broken in", "seen in"];

/// Texts that may occur between an engine's name and the operator before its version.
const SUFFIXES: [&str; 16] = [
    "_image_tag",
    "_docker_tag",
    "_version",
    "_image",
    "_tag",
    "_ver",
    "-version",
    "-rocm",
    "-blackwell",
    "-cpu",
    "-xpu",
    "-dev",
    "[all]",
    "[srt]",
    ".git",
    "-source",
];

fn stated_at(text: &str, at: usize) -> Option<(StatedVersion, Strength)> {
    let rest = text.get(at..)?;
    let lower: String = rest.chars().take(64).map(|letter| letter.to_ascii_lowercase()).collect();
    let (name, engine) = NAMES.into_iter().find(|(name, _)| lower.starts_with(name))?;
    let mut length = name.len();
    while let Some(suffix) =
        SUFFIXES.iter().find(|suffix| lower.get(length..).is_some_and(|rest| rest.starts_with(*suffix)))
    {
        length += suffix.len();
    }
    let rest_of_name = lower.get(length..)?;
    let is_plugin = name == "vllm" && rest_of_name.starts_with("-ascend");
    let words = rest_of_name.trim_start_matches("-ascend").trim_start_matches('*');
    let word = WORDS.iter().find(|word| words.starts_with(*word));
    if is_plugin || word.is_some() {
        length = lower.len() - words.len() + word.map_or(0, |word| word.len());
    }
    let between = lower.get(length..)?;
    let signs = between.find(|letter: char| !"=:+_-/@\"'` {}$*|(".contains(letter))?;
    let (signs, version_text) = between.split_at_checked(signs)?;
    let (version, width) = version_at(version_text)?;
    let version = if is_plugin { of_plugin(version) } else { version };
    let start = at + length + signs.len();
    // `llm-scaler-vllm:0.21.0` is another vendor's product with its own version numbers.
    if text.get(..at).is_some_and(|before| before.ends_with('-')) {
        return None;
    }
    let stated = StatedVersion { engine, version: Located::new(plausible(version)?, Span::new(start, start + width)) };
    let bare = signs.trim_matches(['"', '\'', '`']);
    let strength = match bare.chars().next() {
        None => return None,
        // An image of the plugin is tagged with the plugin's version.
        Some(_) if is_plugin => Strength::Words,
        // `sgl-0.5` is not the name of a release.
        Some(_) if name == "sgl" && length == name.len() => return None,
        Some(_) if bare.chars().all(|letter| SOFT.contains(&letter) && (letter != ':' || word.is_some())) => {
            Strength::Words
        }
        Some('/') => Strength::Words,
        Some(_) => Strength::Tag,
    };
    let after = text.get(start + width..).unwrap_or_default().trim_start_matches(['`', '*', ' ']);
    // A build follows a plus: `0.27.1+rocm723`.
    let is_build = after.strip_prefix('+').is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
    let open = !is_build
        && ["+", "or ", "and ", "through", "to ", "-0", "~", "–", "later"].iter().any(|word| after.starts_with(word));
    let before = text.get(..at).unwrap_or_default().trim_end_matches(['`', '*', ' ', '(']);
    // `min_vllm_version` is not the version that runs.
    if ["min_", "min-", "minimum_", "minimum", "max_", "old_", "previous_"]
        .iter()
        .any(|word| ends_with_ignoring_case(before, word))
    {
        return None;
    }
    if PAST.iter().any(|word| ends_with_ignoring_case(before, word)) {
        return None;
    }
    let bounds = [">=", "since", "from", "before", "until", "after", "requires", "require", "pre", "than", "in"];
    let is_present = PRESENT.iter().any(|word| ends_with_ignoring_case(before, word));
    let bound = !is_present && bounds.iter().any(|word| ends_with_ignoring_case(before, word));
    (strength == Strength::Tag || !(open || bound)).then_some((stated, strength))
}

fn ends_with_ignoring_case(text: &str, word: &str) -> bool {
    let end = text.len().checked_sub(word.len()).and_then(|start| text.get(start..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(word))
}

/// The three-part version at the start of a text, and its length in bytes.
fn version_at(text: &str) -> Option<(EngineVersion, usize)> {
    let digits = text.strip_prefix('v').unwrap_or(text);
    let skipped = text.len() - digits.len();
    let mut length = 0;
    for number in 0..3 {
        let rest = digits.get(length..)?;
        let rest = if number > 0 { rest.strip_prefix('.')? } else { rest };
        let width = rest.bytes().take_while(u8::is_ascii_digit).count();
        if width == 0 || width > 3 {
            return None;
        }
        length += width + usize::from(number > 0);
    }
    for ending in [".post", "rc"] {
        if let Some(rest) = digits.get(length..)?.strip_prefix(ending) {
            let width = rest.bytes().take_while(u8::is_ascii_digit).count();
            length += if width > 0 { ending.len() + width } else { 0 };
        }
    }
    let rest = digits.get(length..)?;
    let goes_on = rest.starts_with(|letter: char| letter.is_ascii_digit()) || is_far_from_its_tag(rest);
    (!goes_on).then_some((digits.get(..length)?.parse().ok()?, skipped + length))
}

/// Filters out versions that no engine can have: some vendors number their images by year.
fn plausible(version: EngineVersion) -> Option<EngineVersion> {
    (version.release[0] == 0 && version.release[1] > 0).then_some(version)
}

#[cfg(test)]
mod tests;
