//! Determines which engine a command line starts, and where its arguments start.
//!
//! The strongest evidence wins: the user's choice, the program, the prefix `--sglang-`, Hydra
//! overrides, the image, and finally flags that only one engine has. Flags of an unknown program,
//! or without a program, are a partial launch (`is_part`).

mod flags_of;
mod hydra;
mod image;
mod others;
mod program;
mod verl;

use schemas::text::Span;

use super::{
    Engine, Launcher,
    command::{ArrayPlace, Field, ShellCommand},
    images,
    programs::{self, ProgramRole},
};

/// Maximum number of words of one launch: every rule may inspect each of them.
pub(super) const MOST_WORDS: usize = 1 << 13;

pub(super) use flags_of::engine_of_flags;
pub(super) use hydra::as_flags;
pub(super) use program::starts_engine;
pub(super) use verl::{RANKS, VerlSwitch, rollout_flags};

/// Every text with a launch contains at least one of these substrings.
const EVIDENT: [&str; 8] =
    ["sglang", "sgl.", "vllm", "spectune", "launch_server", "speculative-", "speculative_", "--model-path"];

/// A command line that starts an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detected {
    pub engine: Engine,
    pub launcher: Launcher,
    /// The index of the first word that is an argument of the engine.
    pub first_argument: usize,
    /// The words that represent the launch.
    pub anchor: Span,
    /// The array that contains the flags, if there is one.
    pub array: Option<Span>,
    /// Whether all the words belong to the engine: an unknown program may have its own flags, and
    /// may add others.
    pub is_sure: bool,
    /// Whether there are flags but no program.
    pub is_bare: bool,
}

/// What was inferred from a line.
struct EngineMatch {
    engine: Engine,
    launcher: Launcher,
    first: usize,
    /// The words that name the program.
    words: Option<(usize, usize)>,
    is_sure: bool,
}

/// The texts of words; one that is not known is empty, or the name of the program that it is a path
/// to.
fn texts<'l>(words: &'l [Field<'_>]) -> Vec<&'l str> {
    let text = |word: &'l Field<'_>| match word.value.known() {
        Some(text) => text,
        None => program::at_unknown_path(word.value.written()).unwrap_or_default(),
    };
    words.iter().map(text).collect()
}

/// Detects the engine in a line; `told` is the engine that the user set for all launches.
pub(super) fn detect(line: &ShellCommand<'_>, stated: Option<Engine>) -> Option<Detected> {
    let texts = texts(&line.words);
    let prefixed = flags_of::first_prefixed(&texts);
    let found = find(line, &texts, prefixed, stated)?;
    let engine = stated.unwrap_or(found.engine);
    let first_word = line.words.get(found.first);
    let significant = prefixed.and_then(|flag| line.words.get(flag)).or(first_word);
    let within = |word: Span| move |array: &&ArrayPlace| array.span.start <= word.start && word.end <= array.span.end;
    // An array counts only if no program is next to its flags: else the command is what to show.
    let array = significant
        .and_then(|word| line.arrays.iter().find(within(word.span)))
        .filter(|_| found.words.is_none() || found.launcher == Launcher::Slime);
    let anchor = match (array, found.words) {
        (Some(array), _) => array.name,
        (None, Some((from, to))) => line.words.get(from)?.span.join(line.words.get(to)?.span),
        (None, None) => significant?.span,
    };
    Some(Detected {
        engine,
        launcher: found.launcher,
        first_argument: found.first,
        anchor,
        array: array.map(|array| array.span),
        is_sure: found.is_sure,
        is_bare: found.words.is_none() && found.first == 0 && found.launcher == Launcher::Own,
    })
}

/// Whether flags without a program belong to an engine: a single flag could belong to many
/// programs.
pub(super) fn is_list_of_flags(words: &[Field<'_>]) -> bool {
    let texts = texts(words);
    flags_of::speaks_of_speculation(&texts) || flags_of::is_list(&texts)
}

/// The image that the words before a program run, if they name one.
pub(super) fn image_of(before: &[Field<'_>]) -> Option<String> {
    let texts = texts(before);
    let run = image::run(before, &texts)?;
    texts.get(run.at).filter(|image| !image.is_empty()).map(|image| (*image).to_owned())
}

/// The image that a command runs, if its own entry point runs, and the first word after it.
pub(super) fn image_with_own_entry_point<'l, 'a>(words: &'l [Field<'a>]) -> Option<(&'l str, &'l Field<'a>)> {
    let run = image::run(words, &texts(words))?;
    let image = words.get(run.at)?.value.known().filter(|_| run.entry_point.is_none())?;
    Some((image, words.get(run.first)?))
}

fn find(
    line: &ShellCommand<'_>,
    texts: &[&str],
    prefixed: Option<usize>,
    stated: Option<Engine>,
) -> Option<EngineMatch> {
    if let Some(program) = program::program(texts) {
        let program::Program { engine, launcher, last, from } = program;
        let flags = texts.get(last + 1..).unwrap_or_default();
        let is_requested_for_help =
            flags.iter().any(|flag| matches!(*flag, "--help" | "-h") || flag.starts_with("--help="));
        if is_requested_for_help || programs::has_flag_of_diffusion(flags, Some(engine)) {
            return None;
        }
        // Words that start with a flag are a part of a command, so what the program belongs to is
        // not known.
        let is_sure = !texts.first().is_some_and(|first| first.starts_with("--"));
        return Some(EngineMatch { engine, launcher, first: last + 1, words: Some((from, last)), is_sure });
    }
    if let Some(at) = hydra::program(texts, &line.words) {
        let engine = hydra::engine(texts.get(at + 1..).unwrap_or_default())?;
        return Some(EngineMatch {
            engine,
            launcher: Launcher::Hydra,
            first: at + 1,
            words: Some((at, at)),
            is_sure: true,
        });
    }
    // Before flags are looked at: clients of an engine share many of them.
    if others::is_client(texts) {
        return None;
    }
    if let Some(flag) = prefixed {
        if programs::has_flag_of_trainer(texts) || programs::has_flag_of_diffusion(texts, None) {
            return None;
        }
        let script = texts.iter().take(flag).rposition(|text| text.ends_with(".py"));
        let first = script.map_or_else(|| first_flag(texts), |script| script + 1);
        let words = script.map(|script| (script, script));
        return Some(EngineMatch { engine: Engine::Slime, launcher: Launcher::Slime, first, words, is_sure: true });
    }
    if let Some(image) = image::run(&line.words, texts) {
        return in_image(texts, &image, stated);
    }
    match_flags(line, texts, stated)
}

/// The words after an image: arguments of its own entry point, or of the program that replaces it.
fn in_image(texts: &[&str], image: &image::ImageRun, stated: Option<Engine>) -> Option<EngineMatch> {
    let flags = texts.get(image.first..).unwrap_or_default();
    let is_other = texts.get(image.at).is_some_and(|image| images::is_of_other_engine(image));
    if is_other || programs::has_flag_of_diffusion(flags, stated.or(image.engine)) {
        return None;
    }
    let found = |engine, launcher, first| {
        let words = Some((image.at, image.at));
        Some(EngineMatch { engine, launcher, first, words, is_sure: true })
    };
    if let Some(entry_point) = &image.entry_point {
        let replaced: Vec<&str> = entry_point.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        if let Some(program) = program::program(&replaced) {
            let after = (program.last + 1).saturating_sub(entry_point.len());
            let is_requested_for_help = flags.iter().any(|flag| *flag == "--help" || flag.starts_with("--help="));
            return if is_requested_for_help {
                None
            } else {
                found(program.engine, program.launcher, image.first + after)
            };
        }
        // An interpreter runs another program, with arguments of its own.
        let own = entry_point.first().map(String::as_str).unwrap_or_default();
        if programs::base(own).starts_with("python") || programs::has(own, ProgramRole::Shell) {
            return None;
        }
    }
    let engine = stated.or(image.engine).or_else(|| engine_of_flags(flags))?;
    let first = flags.first()?;
    let is_program = programs::has(first, ProgramRole::Tool) || programs::has(first, ProgramRole::Shell);
    // The entry point of vLLM's images takes the model without a flag; what other publishers start
    // is not known, and a word may be a program there.
    let is_published = texts.get(image.at).is_some_and(|image| images::is_published(image));
    let is_name = is_published || first.is_empty() || first.contains('/') || *first == "serve";
    let is_model = (image.engine == Some(Engine::Vllm) && is_name) || (engine == Engine::Vllm && first.is_empty());
    if is_program || !(first.starts_with('-') || is_model) {
        return None;
    }
    found(engine, Launcher::Own, image.first + usize::from(*first == "serve"))
}

/// Flags alone are a launch. After an unknown program, or in a variable, they are one only if they
/// cannot be anything else.
fn match_flags(line: &ShellCommand<'_>, texts: &[&str], stated: Option<Engine>) -> Option<EngineMatch> {
    let first = first_flag(texts);
    let served = program::variable_that_serves(&line.words).filter(|serve| *serve < first);
    let flags = texts.get(first..).unwrap_or_default();
    let flags = flags.get(..MOST_WORDS).unwrap_or(flags);
    let alone = first == 0 && !texts.is_empty();
    let engine = stated.or_else(|| engine_of_flags(flags))?;
    if programs::has_flag_of_diffusion(flags, Some(engine))
        || (stated.is_none() && programs::has_flag_of_other_server(flags))
    {
        return None;
    }
    let evident = match (alone, line.is_variable) {
        (true, false) => true,
        (true, true) => {
            flags_of::speaks_of_speculation(flags) || flags.iter().any(|flag| flag.starts_with("--model-path"))
        }
        (false, _) => {
            let before = line.words.get(..first).unwrap_or_default();
            flags_of::speaks_of_speculation(flags) && others::may_be_wrapper(before)
                || others::is_unknown_program(before) && flags_of::is_evident(flags)
        }
    };
    let before = line.words.get(..first).unwrap_or_default();
    let is_named = !alone && before.iter().all(|word| word.value.known().is_some());
    let is_forwarded = line.is_forwarded || (is_named && stated.is_none());
    let launcher = if is_forwarded { Launcher::Wrapper } else { Launcher::Own };
    let words = served.map(|serve| (serve - 1, serve));
    let first = served.map_or(first, |serve| serve + 1);
    // Flags that name the target are all that an option passes on.
    let is_sure = alone && (!line.is_forwarded || flags_of::names_target(flags));
    evident.then_some(EngineMatch { engine, launcher, first, words, is_sure })
}

/// Whether a text may contain a launch of an engine.
pub(super) fn names_engine(text: &str) -> bool {
    EVIDENT.iter().any(|name| text.contains(name))
}

fn first_flag(texts: &[&str]) -> usize {
    texts.iter().position(|text| text.starts_with("--") || text.starts_with("-sc")).unwrap_or(texts.len())
}
