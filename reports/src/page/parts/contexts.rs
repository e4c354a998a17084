//! Accept length and round time by batch and context.

use std::collections::BTreeSet;

use tuner::trials::configuration::Configuration;

use crate::{
    contexts::{self, BatchContexts},
    figures,
    page::part::{Cell, PagePart, PartTable},
    section::Section,
};

/// Configurations of a batch that are shown.
const ROWS: usize = 8;

/// `None` if no batch was measured in buckets of contexts.
pub fn part(section: &Section<'_>) -> Option<PagePart> {
    let batches = contexts::compute(section);
    (!batches.is_empty()).then(|| PagePart {
        anchor: "contexts".into(),
        title: "Accept length and round time by context".into(),
        how: "Heads trained on short texts accept less at long contexts, and rounds take longer there: where the best tree \
              differs, a table by context pays."
            .into(),
        remarks: batches.iter().filter_map(BatchContexts::sentence).collect(),
        charts: Vec::new(),
        tables: batches.iter().map(table).collect(),
    })
}

/// One row per configuration; for each bucket its accept length, its round time and its
/// throughput, with a mark at the choice.
fn table(batch: &BatchContexts<'_>) -> PartTable {
    let mut headings = vec!["run".to_owned()];
    for (contexts, _) in &batch.races {
        headings.extend(["accept length", "round (ms)", "tok/s"].map(|name| format!("#{contexts}: {name}")));
    }
    let row = |configuration: &Configuration| {
        let mut cells = Vec::new();
        let mut chosen_for = Vec::new();
        for (contexts, race) in &batch.races {
            let entry = contexts::entry(race, configuration);
            if entry.is_some_and(|entry| entry.chosen) {
                chosen_for.push(contexts.to_string());
            }
            let ranked = entry.map(|entry| &entry.ranked);
            cells.push(Cell::number(ranked.and_then(|one| one.accept_length), figures::quantity));
            cells.push(Cell::number(ranked.and_then(|one| Some(one.round_ms?.median)), figures::quantity));
            cells.push(Cell::number(ranked.and_then(|one| Some(one.output_tokens_per_s?.median)), figures::quantity));
        }
        let name = match chosen_for.len() {
            0 => configuration.to_string(),
            count if count == batch.races.len() => format!("{configuration} (the choice for all contexts)"),
            _ => format!("{configuration} (the choice for {})", chosen_for.join(" and ")),
        };
        std::iter::once(Cell::text(name)).chain(cells).collect()
    };
    let rows = shown(batch).iter().map(row).collect();
    PartTable::new(format!("Batch {}", batch.batch), &headings, rows)
}

/// The choices of all buckets, no speculation, the best single configuration, then the best of each
/// bucket in turn.
fn shown(batch: &BatchContexts<'_>) -> Vec<Configuration> {
    let (mut shown, mut known) = (Vec::new(), BTreeSet::new());
    let mut show = |configuration: &Configuration| {
        if known.insert(configuration.clone()) {
            shown.push(configuration.clone());
        }
    };
    let races = || batch.races.iter().map(|(_, race)| race);
    races().filter_map(|race| race.chosen.as_ref()).for_each(&mut show);
    races().filter_map(|race| Some(&race.baseline()?.ranked.configuration)).for_each(&mut show);
    batch.gain.iter().for_each(|gain| show(&gain.single));
    let always = known.len();
    let mut show = |configuration: &Configuration| {
        if shown.len() < always.max(ROWS) && known.insert(configuration.clone()) {
            shown.push(configuration.clone());
        }
    };
    for rank in 0..ROWS {
        races().filter_map(|race| Some(&race.measured().nth(rank)?.ranked.configuration)).for_each(&mut show);
    }
    shown
}
