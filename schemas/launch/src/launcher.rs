//! The program that starts an engine: the user's command, or a launcher with additional flags.

use schemas::text::Source;

use super::{Engine, Launch};

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
    /// An unknown program with flags like the engine's: it may pass them on, or have its own flags
    /// and values.
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
