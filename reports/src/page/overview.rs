//! Overview of several sections: what to run at each load on each machine.

use std::collections::BTreeSet;

use tuner::trials::configuration::TrialLoad;

use super::part::{Cell, PartTable};
use crate::{figures, names, section::Section};

/// One row per load and one column per section; `None` for a single section.
pub fn table(sections: &[Section<'_>], labels: &[String]) -> Option<PartTable> {
    if sections.len() < 2 {
        return None;
    }
    let loads: BTreeSet<TrialLoad> = sections.iter().flat_map(|section| &section.races).map(|race| race.load).collect();
    let row = |load: &TrialLoad| {
        let cells = sections.iter().map(|section| Cell::text(answer(section, *load)));
        std::iter::once(Cell::text(names::heading(*load))).chain(cells).collect()
    };
    let headings: Vec<String> = std::iter::once("load".to_owned())
        .chain(labels.iter().enumerate().map(|(place, label)| format!("{}: {label}", place + 1)))
        .collect();
    let caption =
        "Side by side: what to run, its throughput, and how it compares with no speculation on the same machine";
    Some(PartTable::new(caption, &headings, loads.iter().map(row).collect()))
}

/// What to run under a load, in one line.
pub fn answer(section: &Section<'_>, load: TrialLoad) -> String {
    let Some(race) = section.races.iter().find(|race| race.load == load) else { return figures::MISSING.into() };
    let Some(winner) = race.winner() else { return race.verdict.words().into() };
    let name = names::short(&winner.ranked.configuration);
    let name = if winner.is_off() { "no speculation".to_owned() } else { name };
    let throughput = winner.ranked.output_tokens_per_s.map(|rate| format!("{} tok/s", figures::quantity(rate.median)));
    let gain = winner.ranked.speedup.filter(|_| !winner.is_off()).map(|ratio| figures::gain(ratio.median));
    let verdict = winner.is_off().then(|| race.verdict.words().to_owned());
    let parts: Vec<String> = throughput.into_iter().chain(gain).chain(verdict).collect();
    format!("{name}: {}", parts.join(", "))
}
