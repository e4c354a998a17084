//! Accept length by shape.

use tuner::{
    prediction::guide::{AcceptanceRow, AcceptanceSource, Guide},
    results::selection::{Interval, RangeKind},
};

use crate::{
    charts::{self, axes::AxisMark, palette::ColorRole, spans},
    definitions,
    error::ReportError,
    figures,
    page::part::{Cell, PagePart, PartTable},
    section::Section,
    statistics,
};

/// Maximum number of shapes in the chart.
const ROWS: usize = 24;

pub fn part(guide: &Guide, section: &Section<'_>) -> Result<PagePart, ReportError> {
    let table = &guide.acceptance;
    let (kind, source) = match &table.source {
        AcceptanceSource::Replayed { texts, tokens } => (
            "replayed",
            format!(
                "Replayed: the draft was run over {} of this workload ({} output tokens), which is exact for these \
                 texts. The interval estimates the result on other texts of the same kind.",
                figures::counted(*texts, "text", "texts"),
                figures::count(*tokens)
            ),
        ),
        AcceptanceSource::Imported { source } => (
            "imported",
            format!("Imported, measured elsewhere: {source}. Figures derived from it are only as good as this source."),
        ),
    };
    // Measured shapes first, then by accept length.
    let mut rows: Vec<(&AcceptanceRow, Option<f64>)> =
        table.rows.iter().map(|row| (row, measured(row, &guide.draft, section))).collect();
    rows.sort_by(|a, b| {
        let key = |row: &(&AcceptanceRow, Option<f64>)| (row.1.is_none(), -row.0.accept_length);
        key(a).0.cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1))
    });
    let drawn: Vec<spans::SpanRow> = rows.iter().take(ROWS).map(|(row, measured)| span(row, *measured, kind)).collect();
    let left_out = rows.len() - drawn.len();
    let mut legend = vec![(AxisMark::Dot(ColorRole::Chosen), kind.to_owned())];
    if rows.iter().any(|row| row.1.is_some()) {
        legend.push((AxisMark::Diamond(ColorRole::Default), "measured".to_owned()));
    }
    let frame = spans::SpanFrame {
        title: "Accept length by shape",
        axis: "accept length",
        suffix: "",
        line: None,
        legend: &legend,
    };
    let caption = format!(
        "Dot and bar: {kind}, with its 95% interval where it is known. Diamond: measured, median over repeats and \
         loads. {}Accept length: {}.",
        if left_out > 0 { format!("{left_out} more in the table. ") } else { String::new() },
        definitions::ACCEPT_LENGTH
    );
    let chart = charts::chart("accept-length", frame.title, &caption, |format| spans::draw(&drawn, &frame, format))?;
    Ok(PagePart {
        anchor: "acceptance".into(),
        title: "Accept length by shape".into(),
        how: "Further right, a round yields more tokens; it pays only if round time grows less than proportionally."
            .into(),
        remarks: vec![source],
        charts: chart.into_iter().collect(),
        tables: vec![
            PartTable::new(
                "All shapes",
                &["steps,topk,tokens", "#accept length", "95% interval", "#measured", "#difference"],
                rows.iter().map(|(row, measured)| cells(row, *measured)).collect(),
            )
            .folded(),
        ],
    })
}

/// The measured accept length of a shape: the median over all loads, without simulated ones.
fn measured(row: &AcceptanceRow, draft: &str, section: &Section<'_>) -> Option<f64> {
    let entries = section.races.iter().flat_map(|race| race.measured());
    let of_shape = entries.filter(|entry| {
        let configuration = &entry.ranked.configuration;
        let is_row = configuration.shape == row.shape && configuration.draft == draft;
        configuration.table.is_empty() && is_row && !entry.simulated
    });
    statistics::median(of_shape.filter_map(|entry| entry.ranked.accept_length).collect())
}

fn span(row: &AcceptanceRow, measured: Option<f64>, kind: &str) -> spans::SpanRow {
    // Without an interval the bar has no length.
    let [low, high] = row.interval.unwrap_or([row.accept_length; 2]);
    let interval = row.interval.map_or(String::new(), |[low, high]| format!(" ({low:.2}–{high:.2})"));
    let measured_too = measured.map_or(String::new(), |measured| format!("\nmeasured {measured:.2}"));
    spans::SpanRow {
        name: row.shape.to_string(),
        interval: Interval { median: row.accept_length, low, high, kind: RangeKind::Confidence, coverage: 0.95 },
        role: ColorRole::Chosen,
        second: measured,
        figure: figures::quantity(row.accept_length),
        tip: format!("{}\n{kind} {:.2}{interval}{measured_too}", row.shape, row.accept_length),
    }
}

fn cells(row: &AcceptanceRow, measured: Option<f64>) -> Vec<Cell> {
    let interval = row.interval.map_or(figures::MISSING.into(), |[low, high]| format!("{low:.2}–{high:.2}"));
    vec![
        Cell::text(row.shape.to_string()),
        Cell::number(row.accept_length, figures::quantity),
        Cell::text(interval),
        Cell::number(measured, figures::quantity),
        Cell::number(measured.map(|measured| row.accept_length / measured), figures::gain),
    ]
}
