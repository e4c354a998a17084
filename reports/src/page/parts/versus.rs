//! Comparison of two runs.

use crate::{
    charts::{self, Chart, axes::AxisMark, palette::ColorRole, spans},
    comparison::{ComparisonRow, ComparisonSummary, RunComparison},
    error::ReportError,
    figures, names,
    page::part::{Cell, PagePart, PartTable},
};

/// Maximum number of rows in a chart.
const ROWS: usize = 30;

pub fn part(comparison: &RunComparison<'_>) -> Result<PagePart, ReportError> {
    let [first, second] = comparison.names;
    let mut remarks = vec![match comparison.differing.as_slice() {
        [] => format!(
            "{first} and {second} have the same fingerprint: they differ only in time and noise. The ranking below \
             takes each trial once, from {first}."
        ),
        differing => {
            let words: Vec<String> =
                differing.iter().map(|(name, first, second)| format!("{name}: {first} → {second}")).collect();
            format!("What differs between the runs: {}. They are compared, and not ranked together.", words.join("; "))
        }
    }];
    remarks.extend(comparison.summaries().iter().map(summary));
    if comparison.rows.is_empty() {
        remarks.push("The runs have no configuration and load in common: there is nothing to compare.".into());
    }
    if comparison.unmatched > 0 {
        remarks.push(format!(
            "{} in one of the runs only.",
            figures::counted(comparison.unmatched, "configuration under a load is", "configurations under a load are")
        ));
    }
    let mut charts = Vec::new();
    for rows in comparison.rows.chunk_by(|a, b| a.load == b.load) {
        charts.extend(chart(rows)?);
    }
    Ok(PagePart {
        anchor: "comparison".into(),
        title: format!("{second} against {first}"),
        how: format!(
            "Right of 1× a configuration is better in {second} than in {first}, in terms of the objective ({}); \"no \
             significant difference\" by the rule that makes a tie in a ranking.",
            comparison.metric.name()
        ),
        remarks,
        charts,
        tables: if comparison.rows.is_empty() { Vec::new() } else { vec![table(&comparison.rows)] },
    })
}

/// The conclusion for a load, in one line.
pub fn summary(summary: &ComparisonSummary) -> String {
    let ComparisonSummary { load, ratio, counts: [better, worse, same, noisy] } = summary;
    let all = better + worse + same + noisy;
    let verdict = match (*better, *worse) {
        (0, 0) if *noisy == 0 => "no significant difference".to_owned(),
        (0, 0) if *same == 0 => "too noisy to tell".to_owned(),
        (0, 0) => format!("no significant difference in {same}, too noisy to tell in {noisy} of {all}"),
        (_, 0) => format!("better in {better} of {all}"),
        (0, _) => format!("worse in {worse} of {all}"),
        _ => format!("better in {better} and worse in {worse} of {all}"),
    };
    format!("{}: {verdict}; {} at the median.", names::heading(*load), figures::ratio(*ratio))
}

fn chart(rows: &[ComparisonRow]) -> Result<Option<Chart>, ReportError> {
    let Some(load) = rows.first().map(|row| row.load) else { return Ok(None) };
    let drawn: Vec<spans::SpanRow> = rows.iter().take(ROWS).map(span).collect();
    let legend = [
        (AxisMark::Dot(ColorRole::Chosen), "better".to_owned()),
        (AxisMark::Dot(ColorRole::Default), "worse".to_owned()),
        (AxisMark::Dot(ColorRole::Candidate), "no significant difference".to_owned()),
    ];
    let title = format!("Second run against the first, {load}");
    let frame = spans::SpanFrame {
        title: &title,
        axis: "second run / first run",
        suffix: "×",
        line: Some(1.0),
        legend: &legend,
    };
    let more = if rows.len() > ROWS { format!(" {} more in the table.", rows.len() - ROWS) } else { String::new() };
    let caption = format!("Measured in both runs: median of the ratios of repeats. Bar: {}.{more}", figures::INTERVAL);
    let name = format!("{}-comparison", names::anchor(load));
    charts::chart(&name, &title, &caption, |format| spans::draw(&drawn, &frame, format))
}

fn span(row: &ComparisonRow) -> spans::SpanRow {
    spans::SpanRow {
        name: row.configuration.to_string(),
        interval: row.ratio,
        role: match row.verdict() {
            "better" => ColorRole::Chosen,
            "worse" => ColorRole::Default,
            _ => ColorRole::Candidate,
        },
        second: None,
        figure: figures::ratio(row.ratio.median),
        tip: format!(
            "{}\n{} ({})\n{}",
            row.configuration,
            figures::ratio(row.ratio.median),
            figures::range(row.ratio, figures::ratio),
            row.verdict()
        ),
    }
}

fn table(rows: &[ComparisonRow]) -> PartTable {
    let cells = |row: &ComparisonRow| {
        let [first, second] = row.throughput.map(|figure| figure.map(|figure| figure.median));
        // One repeat says nothing about the scatter of the ratio.
        let interval = (row.repeats > 1).then(|| figures::range(row.ratio, figures::ratio));
        vec![
            Cell::text(row.load.to_string()),
            Cell::text(row.configuration.to_string()),
            Cell::number(first, figures::quantity),
            Cell::number(second, figures::quantity),
            Cell::number(row.ratio.median, figures::ratio),
            Cell::text(interval.unwrap_or_else(|| figures::MISSING.into())),
            Cell::text(row.verdict()),
        ]
    };
    PartTable::new(
        "Every configuration that both runs measured",
        &[
            "load",
            "configuration",
            "#first (tok/s)",
            "#second (tok/s)",
            "#second / first",
            "range, interval",
            "verdict",
        ],
        rows.iter().map(cells).collect(),
    )
    .folded()
}
