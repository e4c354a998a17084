//! Predictions compared with measurements.

use crate::{
    agreement::{Agreement, PredictedGain},
    charts::{self, Chart, axes::AxisMark, palette::ColorRole, scatter},
    error::ReportError,
    figures, names,
    page::part::{Cell, PagePart, PartTable},
    section::Section,
};

/// Maximum number of unmeasured rows in a table: the rest is in `predictions.csv`.
const ROWS: usize = 20;

pub fn part(section: &Section<'_>) -> Result<Option<PagePart>, ReportError> {
    let agreements = section.agreements();
    if agreements.is_empty() {
        return Ok(None);
    }
    let mut charts = Vec::new();
    for agreement in &agreements {
        charts.extend(chart(agreement)?);
    }
    Ok(Some(PagePart {
        anchor: "predictions".into(),
        title: "Predicted against measured".into(),
        how: "A point on the diagonal was predicted exactly; above it, the measurement is larger. The whole predicted space of a load is shown next to its measured heat map.".into(),
        remarks: agreements.iter().map(remark).collect(),
        charts,
        tables: agreements.iter().map(table).collect(),
    }))
}

fn remark(agreement: &Agreement<'_>) -> String {
    let (_, what) = agreement.figure.words();
    let all = figures::counted(agreement.rows.len(), "configuration is", "configurations are");
    let extrapolated = agreement.rows.iter().filter(|row| row.prediction.extrapolated.is_some()).count();
    let beyond = match extrapolated {
        0 => String::new(),
        some => format!(
            " {} beyond what was timed.",
            figures::counted(some, "prediction is extrapolated", "predictions are extrapolated")
        ),
    };
    let errors = match agreement.errors() {
        None => "none of them was measured".to_owned(),
        Some((median, largest, row)) => format!(
            "{} of them measured: the prediction of {what} is off by {} (median), {} at most ({})",
            agreement.pairs().count(),
            figures::share(median),
            figures::share(largest),
            row.prediction.configuration
        ),
    };
    format!("{}: {all} predicted, {errors}.{beyond}", names::heading(agreement.load))
}

fn chart(agreement: &Agreement<'_>) -> Result<Option<Chart>, ReportError> {
    let (unit, _) = agreement.figure.words();
    let points: Vec<scatter::ScatterPoint> = agreement
        .pairs()
        .map(|(row, measured)| {
            let outside = row.prediction.extrapolated.as_deref();
            scatter::ScatterPoint {
                predicted: row.predicted,
                measured: measured.median,
                role: if outside.is_some() { ColorRole::Default } else { ColorRole::Chosen },
                hollow: outside.is_some(),
                tip: format!(
                    "{}\npredicted {}, measured {} ({}){}",
                    row.prediction.configuration,
                    figures::quantity(row.predicted),
                    figures::quantity(measured.median),
                    figures::range(measured, figures::quantity),
                    outside.map_or(String::new(), |outside| format!("\nextrapolated: {outside}"))
                ),
            }
        })
        .collect();
    let mut legend = vec![(AxisMark::Dot(ColorRole::Chosen), "interpolated".to_owned())];
    if points.iter().any(|point| point.hollow) {
        legend.push((AxisMark::Ring(ColorRole::Default), "extrapolated".to_owned()));
    }
    legend.push((AxisMark::Line(ColorRole::Muted), "as predicted".to_owned()));
    let title = format!("Predicted against measured, {}", agreement.load);
    let name = format!("{}-predicted", names::anchor(agreement.load));
    let caption = "Across: predicted before anything was measured. Up: measured, median over repeats.";
    charts::chart(&name, &title, caption, |format| scatter::draw(&points, &title, unit, &legend, format))
}

fn table(agreement: &Agreement<'_>) -> PartTable {
    let shown = |(place, row): &(usize, &PredictedGain<'_>)| *place < ROWS || row.measured.is_some();
    let rows: Vec<Vec<Cell>> =
        agreement.rows.iter().enumerate().filter(shown).map(|(place, row)| cells(place, row)).collect();
    let left_out = agreement.rows.len() - rows.len();
    let more = if left_out > 0 { format!(", {left_out} more in predictions.csv") } else { String::new() };
    let (unit, _) = agreement.figure.words();
    PartTable::new(
        format!("{}, best predicted first, in {unit}{more}", names::heading(agreement.load)),
        &[
            "##",
            "configuration",
            "#predicted",
            "#measured",
            "#error",
            "#accept length (predicted)",
            "#round (predicted, ms)",
            "extrapolated",
        ],
        rows,
    )
    .folded()
}

fn cells(place: usize, row: &PredictedGain<'_>) -> Vec<Cell> {
    let one = row.prediction;
    vec![
        Cell::number((place + 1) as f64, |place| format!("{place:.0}")),
        Cell::text(one.configuration.to_string()),
        Cell::number(row.predicted, figures::quantity),
        Cell::number(row.measured.map(|interval| interval.median), figures::quantity),
        // `gain` writes a ratio as a change; an error is a change already.
        Cell::number(row.error(), |error| figures::gain(error + 1.0)),
        Cell::number(one.accept_length, figures::quantity),
        Cell::number(one.round_ms, figures::quantity),
        Cell::text(one.extrapolated.clone().unwrap_or_default()),
    ]
}
