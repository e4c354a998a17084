//! Numbers beyond what a flag can mean: sizes of nothing, ports that do not exist, shares of more
//! than the whole.

use schemas::{diagnostic::Severity, engines::Engine, finding::Finding, keywords::Callee, text::shortened};

use super::super::{Argument, problems};

/// What the numbers of a flag are.
#[derive(Clone, Copy, PartialEq)]
enum Bounds {
    /// At least one.
    Count,
    /// At least one, where what 0 means depends on the version.
    Limit,
    /// A TCP port, or 0 for any.
    Port,
    /// A share of something, not 0 and at most 1.
    Share,
    /// A probability, which has no further effect beyond 1.
    Probability,
}

/// Flags of SGLang with their bounds. What 0 and negative numbers of other flags mean depends on
/// the version.
const OF_SGLANG: [(&str, Bounds); 12] = [
    ("dp-size", Bounds::Count),
    ("ep-size", Bounds::Count),
    ("max-running-requests", Bounds::Limit),
    ("max-total-tokens", Bounds::Limit),
    ("mem-fraction-static", Bounds::Share),
    ("nnodes", Bounds::Count),
    ("page-size", Bounds::Count),
    ("port", Bounds::Port),
    ("pp-size", Bounds::Count),
    ("speculative-accept-threshold-acc", Bounds::Probability),
    ("speculative-accept-threshold-single", Bounds::Probability),
    ("tp-size", Bounds::Count),
];

/// Flags of vLLM with their bounds.
const OF_VLLM: [(&str, Bounds); 8] = [
    ("block-size", Bounds::Count),
    ("data-parallel-size", Bounds::Count),
    ("gpu-memory-utilization", Bounds::Share),
    ("max-num-batched-tokens", Bounds::Count),
    ("max-num-seqs", Bounds::Count),
    ("pipeline-parallel-size", Bounds::Count),
    ("port", Bounds::Port),
    ("tensor-parallel-size", Bounds::Count),
];

/// The least share that can be meant as a percentage.
const LEAST_PERCENT: f64 = 10.0;
/// The highest port.
const LAST_PORT: f64 = 65535.0;

/// Reports a number that a flag cannot have.
pub(super) fn beyond(argument: &Argument, engine: Engine, callee: Option<Callee>) -> Option<Finding> {
    let word = argument.values.first().filter(|_| !argument.is_positional())?;
    let number: f64 = word.value.known()?.trim().parse().ok()?;
    let bounds = bounds_of(&argument.flag.value, engine)?;
    let (what, help) = match bounds {
        Bounds::Limit if number < 0.0 => ("a number of at least 1", None),
        Bounds::Count if number < 1.0 => ("a number of at least 1", None),
        Bounds::Port if !(0.0..=LAST_PORT).contains(&number) => ("a port of at most 65535", None),
        // No server runs with less than that, so a smaller number is not a percentage.
        Bounds::Share if (LEAST_PERCENT..=100.0).contains(&number) => ("a share of at most 1", Some(number / 100.0)),
        Bounds::Share if number > 1.0 => ("a share of at most 1", None),
        Bounds::Share if number <= 0.0 => ("a share of more than 0", None),
        Bounds::Probability if number > 1.0 => ("a probability of at most 1", Some(1.0)),
        Bounds::Probability if number < 0.0 => ("a probability of at least 0", None),
        _ => return None,
    };
    let flag = argument.named(callee);
    let message = format!("`{flag}` takes {what}, but got `{}`", shortened(word.value.written()));
    let mut finding = problems::BAD_VALUE.at(word.span, message, "out of range");
    if engine == Engine::Vllm && bounds == Bounds::Share && number > 1.0 {
        finding.notes.push("vllm: \"gpu_memory_utilization: Input should be less than or equal to 1\"".into());
    }
    let between = if callee.is_some() { "=" } else { " " };
    finding.help = help.map(|number| format!("write `{flag}{between}{number}`"));
    Some(if bounds == Bounds::Probability { finding.at_most(Severity::Warning) } else { finding })
}

fn bounds_of(flag: &str, engine: Engine) -> Option<Bounds> {
    let table: &[(&str, Bounds)] = match engine {
        Engine::Vllm => &OF_VLLM,
        Engine::Sglang | Engine::Slime => &OF_SGLANG,
        Engine::Spectune => return None,
    };
    let name = engine.canonical_flag(flag)?;
    table.iter().find(|(own, _)| *own == name).map(|(_, bounds)| *bounds)
}
