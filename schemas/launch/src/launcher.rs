//! The program that starts an engine: the user's command, or a launcher with additional flags.

use schemas::{
    finding::Doubt,
    text::{Source, Span},
};

use super::{Engine, Launch, Parsed};

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

/// Records for findings in the words of unknown programs that such a program may have its own flags and values.
pub(super) fn doubt_wrappers(parsed: &mut Parsed) {
    let wrapped: Vec<_> =
        parsed.launches.iter().filter(|one| one.launcher == Launcher::Wrapper).map(|one| one.span).collect();
    let is_inside = |place: Span| wrapped.iter().any(|launch| launch.start <= place.start && place.end <= launch.end);
    for found in parsed.findings.iter_mut().filter(|found| is_inside(found.span)) {
        found.doubts.insert(Doubt::Wrapper);
    }
}
