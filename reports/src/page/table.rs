//! Tables of one load.

use serde::Serialize;
use tuner::trials::record::{CandidateRole, Exclusion};

use crate::{
    columns::{self, Column},
    definitions, failures, figures,
    race::{Race, RaceEntry, Repeat},
};

/// A table of configurations.
#[derive(Serialize)]
pub struct RankingTable {
    columns: Vec<RankingHeading>,
    rows: Vec<RankedRow>,
}

#[derive(Serialize)]
struct RankingHeading {
    title: String,
    meaning: &'static str,
}

/// A measured configuration.
#[derive(Serialize)]
struct RankedRow {
    /// Empty for a probe.
    rank: String,
    name: String,
    badges: Vec<&'static str>,
    chosen: bool,
    cells: Vec<RankingCell>,
}

/// A figure of a configuration.
#[derive(Serialize)]
struct RankingCell {
    text: String,
    range: Option<String>,
    /// The value to sort by.
    value: Option<f64>,
}

/// Trials that failed for the same reason.
#[derive(Serialize)]
pub struct Failed {
    names: String,
    summary: String,
    /// Further lines of the reason, those of the server.
    lines: String,
}

/// Differences between repeats.
#[derive(Serialize)]
pub struct NoiseTable {
    rows: Vec<NoiseRow>,
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct NoiseRow {
    name: String,
    repeats: String,
    spread: String,
    value: Option<f64>,
    noisy: bool,
}

/// Number of the best configurations that are shown first.
const FIRST: usize = 5;

/// All measured configurations with all figures, best first, then the probes.
pub fn whole(race: &Race) -> Option<RankingTable> {
    ranking(race, race.measured().chain(race.measured_probes()).collect(), &columns::for_race(race))
}

/// The best configurations, and always the chosen one, no speculation, the engine's default and
/// probes, with the main figures.
pub fn first(race: &Race) -> Option<RankingTable> {
    let is_shown = |entry: &&RaceEntry| {
        entry.rank.is_some_and(|rank| rank <= FIRST) || entry.chosen || entry.ranked.role != CandidateRole::Candidate
    };
    let columns: Vec<&Column> =
        columns::for_race(race).into_iter().filter(|column| column.is_main(race.metric)).collect();
    ranking(race, race.measured().filter(is_shown).chain(race.measured_probes()).collect(), &columns)
}

/// `None` without an entry.
fn ranking(race: &Race, entries: Vec<&RaceEntry>, columns: &[&Column]) -> Option<RankingTable> {
    let row = |entry: &&RaceEntry| RankedRow {
        rank: entry.rank.map_or_else(String::new, |rank| rank.to_string()),
        name: columns::name(entry),
        badges: columns::badges(entry),
        chosen: entry.chosen,
        cells: columns.iter().map(|column| cell(entry, column)).collect(),
    };
    let heading = |column: &&Column| RankingHeading {
        title: column.title(),
        meaning: if column.key == "output_tokens_per_s" {
            definitions::throughput([race.load])
        } else {
            column.meaning
        },
    };
    (!entries.is_empty()).then(|| RankingTable {
        columns: columns.iter().map(heading).collect(),
        rows: entries.iter().map(row).collect(),
    })
}

fn cell(entry: &RaceEntry, column: &Column) -> RankingCell {
    RankingCell {
        text: column.text(entry),
        range: column.range(entry),
        value: (column.figure)(entry).value().filter(|value| value.is_finite()),
    }
}

/// A line of a log without colours and other control characters.
fn printable(line: &str) -> String {
    line.chars().filter(|character| !character.is_control()).collect()
}

/// The failed trials, with reasons.
pub fn failed(race: &Race) -> Vec<Failed> {
    let failed = |one: failures::Failures| Failed {
        names: one.what.join(", "),
        summary: printable(one.summary()),
        lines: one.lines().map(printable).collect::<Vec<_>>().join("\n"),
    };
    failures::in_race(race).into_iter().map(failed).collect()
}

/// The differences between repeats, and what they mean.
pub fn noise(race: &Race) -> NoiseTable {
    let row = |entry: &RaceEntry| {
        let noise = entry.noise.as_ref()?;
        let repeats: Vec<String> = noise.repeats.iter().map(repeat).collect();
        Some(NoiseRow {
            name: columns::name(entry),
            repeats: repeats.join(" · "),
            spread: noise.spread.map_or("one repeat".into(), figures::share),
            value: noise.spread,
            noisy: entry.ranked.too_noisy,
        })
    };
    let rows: Vec<NoiseRow> = race.measured().filter_map(row).collect();
    let remarks = remarks(race, &rows);
    NoiseTable { rows, remarks }
}

fn remarks(race: &Race, rows: &[NoiseRow]) -> Vec<String> {
    let mut remarks = Vec::new();
    let spreads: Vec<f64> = rows.iter().filter_map(|row| row.value).collect();
    if let (Some(median), Some(largest)) =
        (crate::statistics::median(spreads.clone()), spreads.iter().copied().reduce(f64::max))
    {
        remarks.push(format!(
            "Repeats of one configuration differ by {} (median over configurations), {} at most.",
            figures::share(median),
            figures::share(largest)
        ));
    }
    let noisy = rows.iter().filter(|row| row.noisy).count();
    if noisy > 0 {
        remarks.push(format!(
            "{} too noisy: the interval is too wide to tell it from the best, or to call it a tie. More repeats or \
             longer trials help.",
            figures::counted(noisy, "configuration is", "configurations are")
        ));
    }
    let single = rows.iter().filter(|row| row.value.is_none()).count();
    if single > 0 {
        remarks.push(format!(
            "{} measured once: the noise is unknown.",
            if single == rows.len() {
                "Every configuration was".into()
            } else {
                figures::counted(single, "configuration was", "configurations were")
            }
        ));
    }
    remarks.extend(exclusions(race));
    let failed: usize = race.entries.iter().map(|entry| entry.failures.len()).sum();
    if failed > 0 {
        remarks.push(format!("{} failed.", figures::counted(failed, "repeat", "repeats")));
    }
    first_repeat(race).into_iter().for_each(|remark| remarks.push(remark));
    remarks
}

/// The excluded repeats by reason, each by its name.
fn exclusions(race: &Race) -> Vec<String> {
    let mut reasons: Vec<(Exclusion, Vec<String>)> = Vec::new();
    for one in &race.excluded {
        let name = format!("{} repeat {}", one.trial.configuration, one.trial.repeat + 1);
        match reasons.iter_mut().find(|(reason, _)| *reason == one.reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((one.reason, vec![name])),
        }
    }
    if reasons.is_empty() {
        return vec!["No repeat was excluded.".into()];
    }
    let sentence = |(reason, names): (Exclusion, Vec<String>)| {
        let were = figures::counted(names.len(), "repeat is", "repeats are");
        format!("{were} excluded from medians and comparisons ({}): {}.", reason.words(), names.join("; "))
    };
    reasons.into_iter().map(sentence).collect()
}

/// Output tokens per second of a repeat, and why it does not count.
fn repeat(repeat: &Repeat) -> String {
    let figure = figures::quantity(repeat.output_tokens_per_s);
    repeat.excluded.map_or(figure.clone(), |reason| format!("({figure}, excluded: {})", reason.name()))
}

/// Reports if first repeats are consistently slower than later ones, which indicates a cold start.
fn first_repeat(race: &Race) -> Option<String> {
    let ratios: Vec<f64> = race
        .measured()
        .filter_map(|entry| {
            let (first, later) = entry.noise.as_ref()?.repeats.split_first()?;
            // Excluded ones are slow for another reason, and would hide a slow start.
            let later = later.iter().filter(|one| one.excluded.is_none()).map(|one| one.output_tokens_per_s);
            Some(first.output_tokens_per_s / crate::statistics::median(later.collect())?)
        })
        .collect();
    let slower = ratios.iter().filter(|ratio| **ratio < 1.0).count();
    let median = crate::statistics::median(ratios.clone())?;
    // Noise alone makes about half of the first repeats slower, and seldom nine in ten by 3%.
    (ratios.len() >= 5 && slower * 10 >= ratios.len() * 9 && median < 0.97).then(|| {
        format!(
            "First repeats are consistently slower ({} at the median): warm-up may be too short.",
            figures::gain(median)
        )
    })
}
