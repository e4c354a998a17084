//! Why a server is slower than was promised: figures of its log, or of a running server, divided
//! into parts that can each be changed.
//!
//! A speed-up is the accept length divided by how much longer a round of speculation takes, and by
//! what else takes time. So with the log of a run without speculation (or a promise) the gap
//! between the promised and the measured speed-up is a product of factors, all of them from the
//! logs. What no log shows (the draft's share of a round, the time of the host) is named as not
//! known.

mod acceptance;
mod advice;
mod captured;
mod flags;
mod loads;

use external::log::ServerLog;
use serde::Serialize;

pub use self::loads::{LoadFigures, TimeSpent};

/// What was promised, for example by a paper; `None` for what is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Promise {
    /// Throughput relative to no speculation.
    pub speed_up: Option<f64>,
    /// Tokens per round and request, bonus token included.
    pub accept_length: Option<f64>,
}

/// A diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Number of ranks and engines that report; all figures are those of one of them.
    pub sources: usize,
    /// Figures by number of running requests, ascending.
    pub loads: Vec<LoadFigures>,
    /// Comparisons with the run without speculation, for numbers of running requests that both
    /// have.
    pub against: Vec<Against>,
    /// Factors by which the speed-up is below what was promised. With a whole promise their product
    /// is the gap; without a promised speed-up it is what an accept length is divided by to give
    /// the speed-up.
    pub factors: Vec<Factor>,
    /// What costs time, and what to change, the most important first.
    pub findings: Vec<DiagnosisFinding>,
    /// What a log does not show.
    pub unknown: Vec<String>,
}

/// A comparison with a run without speculation at the same load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    /// Running requests, of the run with speculation and of the one without.
    pub running: [f64; 2],
    /// Throughput relative to no speculation.
    pub speed_up: f64,
    /// Tokens per round and request.
    pub accept_length: f64,
    /// Duration of a round relative to one without speculation, in reports without prompts.
    pub round_ratio: Option<f64>,
    /// What else slows it down, relative to the run without speculation: prompts, waiting, idle
    /// time, and what the two loads differ in.
    pub rest: Option<f64>,
}

/// A factor of the gap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Factor {
    /// Its name.
    pub name: String,
    /// By how much it lowers the speed-up; below 1, it raises it.
    pub factor: f64,
    /// The figures behind it.
    pub figures: String,
}

/// Something that costs time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiagnosisFinding {
    /// What, with its figures.
    pub what: String,
    /// What to change.
    pub change: String,
}

/// Diagnoses a log, beside one of a run without speculation if there is one.
pub fn diagnose(log: &ServerLog, without: Option<&ServerLog>, promise: Promise) -> Diagnosis {
    let loads = loads::by_running(log);
    let plain = without.map(loads::by_running).unwrap_or_default();
    let against: Vec<Against> = loads.iter().filter_map(|load| compare(load, &plain)).collect();
    let factors = against.last().map(|against| factors(against, promise)).unwrap_or_default();
    let findings = advice::findings(log, &loads, &against, promise);
    let is_compared = !against.is_empty();
    let divides = loads.iter().any(|load| load.spent.is_some_and(|spent| spent.parts_ms.is_some()));
    let mut unknown = advice::unknown(log, without.is_some(), divides);
    if let Some(without) = without.filter(|_| !is_compared) {
        unknown.insert(0, advice::not_compared((log, &loads), (without, &plain)));
    }
    Diagnosis { sources: log.sources(), loads, against, factors, findings, unknown }
}

/// Compares with the load that is closest in running requests, if it is close.
fn compare(load: &LoadFigures, plain: &[LoadFigures]) -> Option<Against> {
    /// Numbers of running requests with at most this ratio count as the same load.
    const CLOSE: f64 = 1.15;
    let accept_length = load.accept_length?;
    let distance = |other: &LoadFigures| (other.running / load.running).ln().abs();
    let other = plain.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)))?;
    if distance(other) > CLOSE.ln() {
        return None;
    }
    let speed_up = load.tokens_per_s / other.tokens_per_s;
    let round_ratio = load.round_ms.zip(other.round_ms).map(|(with, without)| with / without);
    let rest = round_ratio.map(|ratio| accept_length / ratio / speed_up);
    Some(Against { running: [load.running, other.running], speed_up, accept_length, round_ratio, rest })
}

fn factors(against: &Against, promise: Promise) -> Vec<Factor> {
    let mut factors = Vec::new();
    let mut add =
        |name: &str, factor: f64, figures: String| factors.push(Factor { name: name.into(), factor, figures });
    if let Some(promised) = promise.accept_length {
        let found = against.accept_length;
        add("acceptance", promised / found, format!("accept length {promised:.2} promised, {found:.2} found"));
    }
    if let Some(ratio) = against.round_ratio {
        match (promise.speed_up, promise.accept_length) {
            (Some(speed_up), Some(length)) => {
                let promised = length / speed_up;
                let figures =
                    format!("a round takes {ratio:.2} times one without speculation, {promised:.2} by the promise");
                add("rounds", ratio / promised, figures);
            }
            _ => add("rounds", ratio, format!("a round takes {ratio:.2} times one without speculation")),
        }
    }
    if let Some(rest) = against.rest {
        add("the rest", rest, "prompts, waiting, idle time, and the difference of the two loads".into());
    }
    factors
}

#[cfg(test)]
mod tests;
