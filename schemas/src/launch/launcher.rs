//! The program that starts an engine: the user's command, or a launcher with additional flags.

use super::{Engine, Launch, Parsed, problems};
use crate::{
    diagnostic::Severity,
    text::{Source, Span},
};

/// The kind of program that starts an engine.
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
    /// miles, a descendant of slime with flags that slime does not have.
    Miles,
    /// slime or miles: the text does not say which.
    SlimeOrMiles,
    /// A trainer with Hydra overrides: verl, NeMo-RL.
    Hydra,
    /// An unknown program with flags like the engine's: it may pass them on, or have its own flags and values.
    Wrapper,
}

/// Distinguishes slime from miles by their mentions in the text or its path.
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

/// Downgrades findings in the words of unknown programs to warnings and removes those about unknown flags without a
/// fix: such a program may have its own flags and values. Broken lines stay errors.
pub(super) fn allow_wrappers(parsed: &mut Parsed) {
    let wrapped: Vec<_> =
        parsed.launches.iter().filter(|one| one.launcher == Launcher::Wrapper).map(|one| one.span).collect();
    let is_inside = |place: Span| wrapped.iter().any(|launch| launch.start <= place.start && place.end <= launch.end);
    let is_own = |code: &str, has_fix: bool| code == problems::UNKNOWN_FLAG.code && !has_fix;
    parsed.diagnostics.retain(|one| !(is_own(one.code, one.fix.is_some()) && is_inside(one.span)));
    let found = parsed.diagnostics.iter_mut().filter(|one| one.code != problems::BROKEN_LINE.code);
    found.filter(|one| is_inside(one.span)).for_each(|one| one.severity = one.severity.min(Severity::Warning));
}
