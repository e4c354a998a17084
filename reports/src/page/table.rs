//! Tables of one load.

use serde::Serialize;

use crate::{
    columns, figures,
    race::{Entry, Race},
};

/// A measured configuration.
#[derive(Serialize)]
pub struct Row {
    rank: usize,
    name: String,
    badges: Vec<&'static str>,
    chosen: bool,
    cells: Vec<Cell>,
}

/// A figure of a configuration.
#[derive(Serialize)]
struct Cell {
    text: String,
    range: Option<String>,
    /// The value to sort by.
    value: Option<f64>,
}

/// A configuration without a measured repeat, or a failed repeat of one.
#[derive(Serialize)]
pub struct Failed {
    name: String,
    reason: String,
    /// Whether other repeats of it were measured.
    partly: bool,
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

/// The measured configurations, best first.
pub fn rows(race: &Race) -> Vec<Row> {
    let shown = columns::of(race);
    let row = |entry: &Entry| {
        let cells = shown.iter().map(|column| Cell {
            text: column.text(entry),
            range: column.range(entry),
            value: (column.figure)(entry).value().filter(|value| value.is_finite()),
        });
        Some(Row {
            rank: entry.rank?,
            name: columns::name(entry),
            badges: columns::badges(entry),
            chosen: entry.chosen,
            cells: cells.collect(),
        })
    };
    race.measured().filter_map(row).collect()
}

/// The failed configurations and repeats, with reasons.
pub fn failed(race: &Race) -> Vec<Failed> {
    let of_entry = |entry: &Entry| {
        let name = columns::name(entry);
        match (entry.rank, &entry.ranked.failure) {
            (None, Some(reason)) => vec![Failed { name, reason: reason.clone(), partly: false }],
            (None, None) => vec![Failed { name, reason: "no repeat was measured".into(), partly: false }],
            (Some(_), _) => {
                let failed = |reason: &String| Failed { name: name.clone(), reason: reason.clone(), partly: true };
                entry.failures.iter().map(failed).collect()
            }
        }
    };
    race.entries.iter().flat_map(of_entry).collect()
}

/// The differences between repeats, and what they mean.
pub fn noise(race: &Race) -> NoiseTable {
    let row = |entry: &Entry| {
        let noise = entry.noise.as_ref()?;
        let repeats: Vec<String> = noise.repeats.iter().map(|figure| figures::quantity(*figure)).collect();
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
    let rejected: usize = race.entries.iter().map(|entry| entry.failures.len()).sum();
    remarks.push(if rejected == 0 {
        "No repeat was excluded.".into()
    } else {
        format!(
            "{} failed; failed repeats are excluded, outliers are kept.",
            figures::counted(rejected, "repeat", "repeats")
        )
    });
    first_repeat(race).into_iter().for_each(|remark| remarks.push(remark));
    remarks
}

/// Reports if first repeats are consistently slower than later ones, which indicates a cold start.
fn first_repeat(race: &Race) -> Option<String> {
    let ratios: Vec<f64> = race
        .measured()
        .filter_map(|entry| {
            let (first, later) = entry.noise.as_ref()?.repeats.split_first()?;
            Some(first / crate::statistics::median(later.to_vec())?)
        })
        .collect();
    let slower = ratios.iter().filter(|ratio| **ratio < 1.0).count();
    let median = crate::statistics::median(ratios.clone())?;
    (ratios.len() >= 5 && slower * 10 >= ratios.len() * 9 && median < 0.97).then(|| {
        format!(
            "First repeats are consistently slower ({} at the median): warm-up may be too short.",
            figures::gain(median)
        )
    })
}
