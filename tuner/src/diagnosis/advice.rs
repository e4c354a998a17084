//! What costs time according to a log, and what to change.

use external::{api::ApiKind, log::ServerLog};

use super::{
    Against, DiagnosisFinding, LoadFigures, Promise, acceptance, captured,
    flags::{Flags, SGLANG, VLLM},
};

/// Findings, the most important first.
pub fn findings(
    log: &ServerLog,
    loads: &[LoadFigures],
    against: &[Against],
    promise: Promise,
) -> Vec<DiagnosisFinding> {
    let captured = captured::sizes(log);
    let flags = match log.kind {
        ApiKind::Sglang => &SGLANG,
        ApiKind::Vllm => &VLLM,
    };
    let mut found = Vec::new();
    found.extend(slower_than_none(against));
    found.extend(simulated(log));
    // The load with the most reports is what the server mostly does.
    if let Some(main) = loads.iter().max_by_key(|load| load.reports) {
        found.extend(acceptance::short(main, promise));
        found.extend(acceptance::late_positions(main, &log.settings, flags));
        found.extend(other_time(main, flags));
    }
    found.extend(loads.iter().filter_map(|load| outside_graphs(load, &captured, log, flags)));
    found.extend(padding(loads, &captured, log));
    found.extend(waiting(loads, log, flags));
    found.extend(retractions(log, flags));
    found
}

/// What a log cannot show.
pub fn unknown(log: &ServerLog, has_other: bool, divides: bool) -> Vec<String> {
    let mut unknown = Vec::new();
    if log.speculates() && !has_other {
        unknown.push(
            "the speed-up: give the log of the same load without speculation with --against, or let `spectune tune` measure both"
                .to_owned(),
        );
    }
    if !divides {
        unknown.push(
            "how a round divides into draft, verification and the host: no log says it; `spectune bench` measures rounds \
             of a model's shape against their floor"
                .to_owned(),
        );
    }
    if log.kind == ApiKind::Vllm {
        unknown.push("whether rounds ran as CUDA graphs: vLLM's log does not say".to_owned());
    }
    if log.intervals.iter().any(|interval| interval.speculates && interval.accept_length.is_none()) {
        unknown.push(
            "the accept length of some reports, or of all: the engine did not report it, so rounds are not counted there"
                .to_owned(),
        );
    }
    unknown
}

/// Why a log was not compared with the one without speculation, each with its loads.
pub fn not_compared(
    (log, loads): (&ServerLog, &[LoadFigures]),
    (other, plain): (&ServerLog, &[LoadFigures]),
) -> String {
    if !log.speculates() {
        return "the speed-up: neither of the two logs has speculation".to_owned();
    }
    let running = |loads: &[LoadFigures]| {
        let all: Vec<String> = loads.iter().map(|load| format!("{:.0}", load.running)).collect();
        all.join(", ")
    };
    if loads.iter().all(|load| load.accept_length.is_none()) {
        return "the speed-up: the log with speculation has no accept length".to_owned();
    }
    let engines = if log.kind == other.kind { "" } else { ", and the two logs are of different engines" };
    format!(
        "the speed-up: the loads of the two logs differ ({} running requests with speculation, {} without; 15% are allowed){engines}: \
         give the log of the same load",
        running(loads),
        running(plain)
    )
}

fn slower_than_none(against: &[Against]) -> Option<DiagnosisFinding> {
    let slow: Vec<&Against> = against.iter().filter(|against| against.speed_up < 1.0).collect();
    let shown = |against: &&Against| format!("{:.2}× at {:.0} running", against.speed_up, against.running[0]);
    (!slow.is_empty()).then(|| DiagnosisFinding {
        what: format!("speculation is slower than none: {}", slow.iter().map(shown).collect::<Vec<_>>().join(", ")),
        change: "verify fewer rows at these loads, or do not speculate there: `spectune tune` finds which".into(),
    })
}

fn simulated(log: &ServerLog) -> Option<DiagnosisFinding> {
    log.settings.simulated.then(|| DiagnosisFinding {
        what: "acceptance is made up by the server's configuration: times are real, accept lengths say nothing".into(),
        change: match (log.kind, log.settings.engine.as_deref()) {
            (_, Some("spectune")) => "remove --simulate-accept-length to serve users".into(),
            (ApiKind::Sglang, _) => "unset SGLANG_SIMULATE_ACC_LEN to serve users".into(),
            (ApiKind::Vllm, _) => "remove rejection_sample_method to serve users".into(),
        },
    })
}

fn other_time(main: &LoadFigures, flags: &Flags) -> Option<DiagnosisFinding> {
    let share = main.other_share.filter(|share| *share > 0.1)?;
    Some(DiagnosisFinding {
        what: match main.spent {
            Some(spent) => format!(
                "{:.0}% of the time at {:.0} running requests is not rounds: {:.0}% prompts, the rest the host and time without \
                 work",
                100.0 * share,
                main.running,
                100.0 * spent.prefill
            ),
            None => format!(
                "{:.0}% of the time at {:.0} running requests is not rounds: prompts, the host, and time without work",
                100.0 * share,
                main.running
            ),
        },
        change: match main.spent {
            // Prompts are the smaller part.
            Some(spent) if 2.0 * spent.prefill < share => {
                "speculation cannot shorten it: see what else runs on the host, and whether the clients send requests in time"
                    .into()
            }
            _ => format!(
                "speculation cannot shorten it; see whether prompts repeat (prefix cache), and {} for how many tokens of \
                 prompts run between rounds",
                flags.prefill
            ),
        },
    })
}

fn outside_graphs(load: &LoadFigures, captured: &[usize], log: &ServerLog, flags: &Flags) -> Option<DiagnosisFinding> {
    let share = load.outside_graphs.filter(|share| *share > 0.02)?;
    let what =
        format!("{:.0}% of the reports at {:.0} running requests ran outside CUDA graphs", 100.0 * share, load.running);
    let largest = captured.last().copied();
    let change = match largest {
        _ if log.settings.graphs_off => "CUDA graphs are off in the launch: remove that flag".to_owned(),
        Some(largest) if load.running > largest as f64 => {
            format!("the largest captured batch is {largest}: {} {:.0}", flags.graphs, load.running.ceil())
        }
        _ => "batches of prompts or of other kinds run without a graph: look at the lines around them".to_owned(),
    };
    Some(DiagnosisFinding { what, change })
}

/// SGLang captures batches; vLLM rows, with a step of 8, so that nothing much is padded.
fn padding(loads: &[LoadFigures], captured: &[usize], log: &ServerLog) -> Option<DiagnosisFinding> {
    if log.kind != ApiKind::Sglang {
        return None;
    }
    let main = loads.iter().max_by_key(|load| load.reports)?;
    let size = captured.iter().find(|size| **size as f64 >= main.running)?;
    let padded = *size as f64 / main.running - 1.0;
    (padded > 0.08).then(|| DiagnosisFinding {
        what: format!(
            "{:.0} running requests are padded to a captured batch of {size}: {:.0}% more rows",
            main.running,
            100.0 * padded
        ),
        change: format!("add {:.0} to --cuda-graph-bs", main.running.ceil()),
    })
}

fn waiting(loads: &[LoadFigures], log: &ServerLog, flags: &Flags) -> Option<DiagnosisFinding> {
    let load = loads.iter().max_by(|one, other| one.waiting.total_cmp(&other.waiting))?;
    if load.waiting < 1.0 {
        return None;
    }
    let what = format!("{:.0} requests wait while {:.0} run", load.waiting, load.running);
    let full = load.cache_used.is_some_and(|share| share > 0.9);
    let change = match log.settings.max_running {
        _ if full => format!("the KV cache is full: {}, fewer drafts, or a KV cache in FP8", flags.memory),
        Some(limit) if load.running + 1.0 >= limit as f64 => limited(limit, log, flags),
        // Neither the limit nor the cache is reached, and prompts take little of the time.
        _ if load.other_share.is_some_and(|share| share < 0.1) => match log.kind {
            ApiKind::Sglang if log.settings.engine.is_none() => format!(
                "SGLang keeps KV cache free for what running requests may still generate{}: lower --schedule-conservativeness \
                 (1 by default), or the clients' max_new_tokens",
                load.cache_used.map_or_else(String::new, |used| format!(" ({:.0}% of it is used)", 100.0 * used))
            ),
            _ => format!(
                "neither {} nor the KV cache is at its limit: see whether requests wait for a grammar or for a transfer of \
                 their KV cache",
                flags.max_running
            ),
        },
        _ => format!("prompts come faster than they are processed: raise {}, or send fewer requests", flags.prefill),
    };
    Some(DiagnosisFinding { what, change })
}

/// Advice about the limit of running requests of what reports.
fn limited(limit: usize, log: &ServerLog, flags: &Flags) -> String {
    let is_sglang = log.kind == ApiKind::Sglang && log.settings.engine.is_none();
    let lowered = if is_sglang { " (SGLang lowers it with speculation unless it is given)" } else { "" };
    match log.sources() {
        0 | 1 => format!("{} is {limit}{lowered}: raise it if memory allows", flags.max_running),
        several => format!(
            "each of {several} ranks or engines runs at most {limit}: raise {}{lowered} if memory allows",
            flags.max_running
        ),
    }
}

fn retractions(log: &ServerLog, flags: &Flags) -> Option<DiagnosisFinding> {
    let times = if log.retractions == 1 { "once".to_owned() } else { format!("{} times", log.retractions) };
    (log.retractions > 0).then(|| DiagnosisFinding {
        what: format!("requests were put back {times} because the KV cache was full: they are computed again"),
        change: format!("lower {} or raise {}", flags.max_running, flags.memory),
    })
}
