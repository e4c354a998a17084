//! Sweeps of several drafts: the best configuration of each, and which draft for which workload.

use super::{
    overview::answer as answer_in_a_line,
    part::{Cell, PartTable},
};
use crate::{
    ReportInput, columns,
    comparison::{self, RunComparison},
    figures, names,
    race::{Race, RaceEntry},
    section::Section,
};

/// The comparison of the two sweeps of a report, if there is one. The workloads of a sweep of
/// several drafts are compared by draft instead, unless the user asks for a comparison.
pub fn comparison<'a>(input: &'a ReportInput, sections: &[Section<'_>]) -> Option<RunComparison<'a>> {
    let by_draft = !input.compare && across_workloads(sections).is_some();
    comparison::compute(&input.sweeps, input.compare).filter(|_| !by_draft)
}

/// The best measured configuration of each draft, and no speculation, best first; empty for a
/// single draft.
pub fn best_of_each(race: &Race) -> Vec<&RaceEntry> {
    let mut best: Vec<&RaceEntry> = Vec::new();
    for entry in race.measured() {
        let draft = &entry.ranked.configuration.draft;
        if best.iter().all(|known| known.ranked.configuration.draft != *draft) {
            best.push(entry);
        }
    }
    if best.iter().any(|entry| !entry.ranked.configuration.draft.is_empty()) { best } else { Vec::new() }
}

/// What the best of a draft is called: `none` for no speculation.
fn draft_of(entry: &RaceEntry) -> &str {
    match entry.ranked.configuration.draft.as_str() {
        "" => "none",
        draft => draft,
    }
}

/// The figures of the best configuration of a draft.
fn figures_of(entry: &RaceEntry) -> String {
    let rate = entry.ranked.output_tokens_per_s.map(|rate| format!("{} tok/s", figures::quantity(rate.median)));
    let gain = entry.ranked.speedup.filter(|_| !entry.is_off()).map(|ratio| figures::ratio(ratio.median));
    let tie = (entry.ranked.tied_with_best && !entry.chosen).then(|| "≈ tie".to_owned());
    rate.into_iter().chain(gain).chain(tie).collect::<Vec<_>>().join(", ")
}

/// The best of each draft in a line for a terminal; `None` for a single draft.
pub fn line(race: &Race) -> Option<String> {
    let one = |entry: &&RaceEntry| format!("{} {}", names::short(&entry.ranked.configuration), figures_of(entry));
    let all: Vec<String> = best_of_each(race).iter().map(one).collect();
    (!all.is_empty()).then(|| format!("best of each draft: {}", all.join("; ")))
}

/// The best configuration of each draft under each load; `None` for a single draft.
pub fn table(section: &Section<'_>) -> Option<PartTable> {
    let rows: Vec<Vec<Cell>> = section.races.iter().flat_map(rows).collect();
    let headings = ["load", "draft", "best configuration", "#tok/s", "#over no speculation", "#accept length", ""];
    (!rows.is_empty()).then(|| PartTable::new("The best of each draft", &headings, rows))
}

fn rows(race: &Race) -> Vec<Vec<Cell>> {
    let row = |entry: &&RaceEntry| {
        vec![
            Cell::text(race.load.to_string()),
            Cell::text(draft_of(entry)),
            Cell::text(names::short(&entry.ranked.configuration)),
            Cell::number(entry.ranked.output_tokens_per_s.map(|rate| rate.median), figures::quantity),
            Cell::number(entry.ranked.speedup.map(|ratio| ratio.median), figures::ratio),
            Cell::number(entry.ranked.accept_length, figures::quantity),
            Cell::text(columns::badges(entry).join(", ")),
        ]
    };
    best_of_each(race).iter().map(row).collect()
}

/// Which draft for which workload: one row for each workload and load, with the best of each draft.
/// `None` unless several workloads were measured with the same models on the same machine, and
/// several drafts raced.
pub fn across_workloads(sections: &[Section<'_>]) -> Option<PartTable> {
    let first = sections.first()?;
    let same_but_workload = |section: &&Section<'_>| {
        let differing = first.fingerprint.differences(section.fingerprint);
        differing.iter().all(|(what, ..)| *what == "workload")
    };
    let those: Vec<&Section<'_>> = sections.iter().filter(same_but_workload).collect();
    let mut drafts: Vec<&str> = Vec::new();
    for entry in those.iter().flat_map(|section| &section.races).flat_map(best_of_each) {
        if !drafts.contains(&draft_of(entry)) {
            drafts.push(draft_of(entry));
        }
    }
    if those.len() < 2 || drafts.len() < 2 {
        return None;
    }
    drafts.sort_unstable();
    let headings: Vec<&str> = ["workload", "load", "run"].into_iter().chain(drafts.iter().copied()).collect();
    let row = |section: &Section<'_>, race: &Race| {
        let best = best_of_each(race);
        let of = |draft: &&str| {
            let entry = best.iter().find(|entry| draft_of(entry) == *draft);
            Cell::text(entry.map_or_else(|| figures::MISSING.into(), |entry| figures_of(entry)))
        };
        let first = [section.prompts(), race.load.to_string(), answer_in_a_line(section, race.load)];
        first.into_iter().map(Cell::text).chain(drafts.iter().map(of)).collect()
    };
    let rows = those.iter().flat_map(|section| section.races.iter().map(move |race| row(section, race)));
    let caption = "Which draft for which workload: what to run, and the best of each draft over no speculation";
    Some(PartTable::new(caption, &headings, rows.collect()))
}

/// The same for a terminal: one line for each workload and load.
pub fn lines_across(sections: &[Section<'_>]) -> Vec<String> {
    if across_workloads(sections).is_none() {
        return Vec::new();
    }
    let line = |section: &Section<'_>, race: &Race| {
        let best = best_of_each(race).into_iter().find(|entry| !entry.is_off());
        let best = best.filter(|entry| !entry.chosen).map_or_else(String::new, |entry| {
            format!("; best draft {} {}", names::short(&entry.ranked.configuration), figures_of(entry))
        });
        format!("{}, {}: {}{best}", section.prompts(), race.load, answer_in_a_line(section, race.load))
    };
    let lines = sections.iter().flat_map(|section| section.races.iter().map(move |race| line(section, race)));
    std::iter::once("which draft for which workload:".to_owned()).chain(lines).collect()
}
