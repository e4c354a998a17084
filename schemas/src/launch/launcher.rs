//! The program that starts an engine: the user's command, or a launcher with additional flags.

use super::{Engine, Launch, Parsed, problems};
use crate::{
    diagnostic::Severity,
    text::{Source, Span},
};

/// What starts an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Launcher {
    /// The engine's own program or class.
    Own,
    /// A benchmark that runs the engine in its own process.
    Benchmark,
    /// Dynamo's workers, `dynamo.sglang` and `dynamo.vllm`.
    Dynamo,
    /// slime.
    Slime,
    /// miles, which grew out of slime and takes flags that slime does not.
    Miles,
    /// slime or miles: the text does not say which.
    SlimeOrMiles,
    /// A trainer with Hydra's overrides: verl, NeMo-RL.
    Hydra,
    /// A named program that is not known, with flags like the engine's: it may hand them on, or have flags and values of its own.
    Wrapper,
}

/// Tells slime and miles apart, by how the text or its place calls them.
pub(super) fn tell_apart(source: &Source, launches: &mut [Launch]) {
    let mut of_either = launches.iter_mut().filter(|launch| launch.engine == Engine::Slime).peekable();
    if of_either.peek().is_none() {
        return;
    }
    let named = |name: &str| source.text().contains(name) || source.name().contains(name);
    let launcher = match (named("miles") || named("MILES"), named("slime") || named("SLIME")) {
        (true, false) => Launcher::Miles,
        (false, true) => Launcher::Slime,
        _ => Launcher::SlimeOrMiles,
    };
    of_either.for_each(|launch| launch.launcher = launcher);
}

/// What is found in the words of a program that is not known is no error: it may have flags and values of its own. How the
/// shell cuts its command is known.
pub(super) fn allow_wrappers(parsed: &mut Parsed) {
    let wrapped: Vec<_> =
        parsed.launches.iter().filter(|one| one.launcher == Launcher::Wrapper).map(|one| one.span).collect();
    let is_inside = |place: Span| wrapped.iter().any(|launch| launch.start <= place.start && place.end <= launch.end);
    let is_own = |code: &str, has_fix: bool| code == problems::UNKNOWN_FLAG.code && !has_fix;
    parsed.diagnostics.retain(|one| !(is_own(one.code, one.fix.is_some()) && is_inside(one.span)));
    let found = parsed.diagnostics.iter_mut().filter(|one| one.code != problems::BROKEN_LINE.code);
    found.filter(|one| is_inside(one.span)).for_each(|one| one.severity = one.severity.min(Severity::Warning));
}
