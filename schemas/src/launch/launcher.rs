//! The program that starts an engine: the user's command, or a launcher with additional flags.

use super::{Engine, Launch};
use crate::text::Source;

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
