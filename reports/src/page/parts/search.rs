//! How the space was searched, and the cost of the search.

use std::collections::HashSet;

use schemas::sweep::Until;
use tuner::trials::record::CandidateRole;

use crate::{
    figures,
    page::part::{Cell, PagePart, PartTable},
    section::Section,
};

pub fn part(section: &Section<'_>) -> PagePart {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |label: &str, value: String| rows.push((label.to_owned(), value));
    for sweep in &section.sweeps {
        let Some(file) = sweep.file() else { continue };
        let mut limits = vec![figures::counted(file.search.repeats, "repeat", "repeats")];
        limits.extend((file.search.until == Until::Decided).then(|| "then until decided".to_owned()));
        limits.extend(file.search.trials.map(|trials| format!("at most {trials} trials")));
        limits.extend(file.search.seconds.map(|seconds| format!("no trial started after {seconds} s")));
        row(
            "strategy",
            format!(
                "{}, {}, seed {} ({})",
                file.search.strategy.name(),
                limits.join(", "),
                file.search.seed,
                sweep.name
            ),
        );
    }
    let tried: HashSet<String> =
        section.records.iter().map(|(_, record)| record.trial.configuration.to_string()).collect();
    row("trials", section.counted());
    row("configurations measured", figures::count(tried.len() as u64));
    let probes = section.records.iter().filter(|(_, record)| record.role == CandidateRole::Probe).count();
    if probes > 0 {
        let of = format!("{}, not ranked", figures::counted(probes, "trial", "trials"));
        row("probes: in starts that serve several chains, to learn costs", of);
    }
    for plan in &section.plans {
        let done = plan.finished >= plan.planned;
        let end = if done { "the plan is complete" } else { "ended before its plan, or is still running" };
        let of = if section.plans.len() > 1 { format!(" ({})", plan.names.join(", ")) } else { String::new() };
        let [finished, planned] = [plan.finished, plan.planned].map(|trials| figures::count(trials as u64));
        row("plan", format!("{finished} of {planned} trials: {end}{of}"));
    }
    let elapsed = section.records.iter().filter_map(|(_, record)| Some(record.measurement()?.elapsed_s));
    let trials = elapsed.filter(|seconds| seconds.is_finite()).sum();
    row("time in trials", figures::duration(trials));
    if let Some(guide) = section.guide {
        row(
            "configurations predicted",
            figures::count(section.agreements().iter().map(|one| one.rows.len() as u64).max().unwrap_or(0)),
        );
        row("time for texts without speculation", figures::duration(guide.cost.texts_s));
        row("time for the draft's replay", figures::duration(guide.cost.replay_s));
        row("time for timing rounds, graph capture included", figures::duration(guide.cost.timing_s));
    }
    PagePart {
        anchor: "search".into(),
        title: "Search".into(),
        how: "Which part of the space was tried, and at what cost: measured time scales with the size of the search."
            .into(),
        remarks: Vec::new(),
        charts: Vec::new(),
        tables: vec![PartTable::new(
            "The search",
            &["what", "how much"],
            rows.into_iter().map(|(label, value)| vec![Cell::text(label), Cell::text(value)]).collect(),
        )],
    }
}
