//! Infers the version of an engine from the text around a launch: image tags, requirements,
//! variables and prose.
//!
//! The launch's own image or requirement counts first, then tags and clones anywhere in the text,
//! then prose, then the folder's name, then the title of a page. Contradicting statements count as
//! none. Evidence that may belong to another launch (another section of a page, prose, a folder)
//! counts only if that version has every flag that the launch uses.

mod changes;
mod clones;
mod stated;
mod unnamed;
mod version_text;

pub(super) use stated::{StatedVersion, version_in_image, version_in_requirement};

use schemas::{
    engines::releases::{Day, newest_on},
    text::{Located, Source, Span},
    version::EngineVersion,
};

use self::{
    changes::{has_flag_of_fork, installs_copy, speaks_of_changes},
    stated::{Strength, all},
    unnamed::{in_title, version_in_path},
};
use super::{Engine, Launch, Options, forks::Forks, images::is_published, kind::is_page_name};

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
        launch.version_of_day =
            launch.dated.filter(|_| found.is_none()).and_then(|day| version_on_day(source, day, launch));
    }
}

/// The newest version of a text's day, if it has what the launch uses. Days in scripts are those of
/// changes, which say little of the version that runs; pages and reports are of their day.
fn version_on_day(source: &Source, day: Day, launch: &Launch) -> Option<EngineVersion> {
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

/// Whether an image's tag names a platform other than NVIDIA's: `v0.5.9-rocm700-mi35x`.
fn is_for_one_platform(source: &Source, version: Span) -> bool {
    let tag = source.text().get(version.end..).unwrap_or_default();
    let tag = tag.split(|letter: char| letter.is_whitespace() || letter == '`').next().unwrap_or_default();
    ["rocm", "xpu", "npu", "cann", "-cpu", "musa", "hpu"].iter().any(|platform| tag.contains(platform))
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

#[cfg(test)]
mod tests;
