//! Which launch of a file, and whether it can be started here.

use launch::{Launch, Launcher, Syntax};
use schemas::{flags::Key, text::Source};

/// The launch to tune: the only one, or the one with the number (from 1).
///
/// # Errors
/// With the list of launches if the number is missing or there is none.
pub fn choose<'a>(source: &Source, launches: &'a [Launch], number: Option<usize>) -> Result<&'a Launch, String> {
    let list = || {
        let line = |(at, launch): (usize, &Launch)| {
            let line = source.position(launch.anchor.start).line;
            format!("\n  --launch {}   {}, line {line}: {}", at + 1, launch.engine, source.slice(launch.anchor))
        };
        launches.iter().enumerate().map(line).collect::<String>()
    };
    match (launches, number) {
        ([], _) => Err(format!("{} starts no engine that is known", source.name())),
        ([only], None) => Ok(only),
        (many, None) => Err(format!("{} has {} launches; choose one of:{}", source.name(), many.len(), list())),
        (many, Some(number)) => many
            .get(number.wrapping_sub(1))
            .ok_or_else(|| format!("{} has no launch {number}; it has:{}", source.name(), list())),
    }
}

/// Reasons why a launch cannot be started by a sweep.
/// `is_started` says whether the user gives the commands that start and end it.
pub(super) fn unfit(launch: &Launch, is_started: bool) -> Vec<String> {
    const RUNNING: &str = "give commands that start and end it with --start and --stop, or start it as you do and \
                           measure it with `spectune tune --url URL --launch FILE`";
    let mut wrong = Vec::new();
    let program = match launch.launcher {
        Launcher::Own | Launcher::Slime | Launcher::Miles | Launcher::SlimeOrMiles => None,
        Launcher::Benchmark => Some("a benchmark runs the engine in its own process"),
        Launcher::Dynamo => Some("Dynamo's workers are started together"),
        Launcher::Hydra => Some("a trainer starts the engine"),
        Launcher::Wrapper => Some("an unknown program starts the engine"),
    };
    let program = program.filter(|_| !is_started);
    wrong.extend(program.map(|why| format!("{why}, so its command cannot be repeated alone: {RUNNING}")));
    let disaggregated = launch.text(Key::DisaggregationMode).is_some_and(|mode| mode.value != "null");
    let nodes = launch.arguments.iter().find(|argument| argument.flag.value.replace('_', "-").ends_with("-nnodes"));
    let nodes = nodes.and_then(|argument| argument.values.first()?.value.known());
    if disaggregated && !is_started {
        wrong.push(format!("one server of a disaggregated pair does not serve alone: {RUNNING}"));
    }
    if nodes.is_some_and(|count| count != "1") && !is_started {
        wrong.push(format!("the launch spans several nodes: {RUNNING}"));
    }
    if launch.has(Key::Config) {
        wrong.push(
            "the launch takes flags from a --config file: tune that file, or write its flags into the launch".into(),
        );
    }
    if launch.has(Key::SglangConfig) {
        wrong.push(
            "its servers differ (--sglang-config): write the flags of one of them into a copy of the launch".into(),
        );
    }
    if launch.syntax == Syntax::YamlOverrides {
        wrong.push("these are overrides of a launch, not a launch: tune the file that starts the engine".into());
    }
    wrong
}
