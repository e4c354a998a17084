//! The model of round times.

use tuner::prediction::guide::{RoundTimeSummary, TimedPoint};

use crate::{
    charts::{self, axes::AxisMark, palette::ColorRole, scatter},
    error::ReportError,
    figures,
    page::part::{Cell, PagePart, PartTable},
};

pub fn part(model: &RoundTimeSummary) -> Result<PagePart, ReportError> {
    let points: Vec<scatter::ScatterPoint> = model.points.iter().map(point).collect();
    let legend = [
        (AxisMark::Dot(ColorRole::Chosen), "a timed round".to_owned()),
        (AxisMark::Line(ColorRole::Muted), "as predicted".to_owned()),
    ];
    let title = "Round times, predicted and measured";
    let caption = "Each point was predicted by a fit that excluded it.";
    let chart = charts::chart("round-time-model", title, caption, |format| {
        scatter::draw(&points, title, "ms per round", &legend, format)
    })?;
    let remark = format!(
        "In leave-one-out validation, predictions of the {} timed points are off by {} (median), {} (90th \
         percentile) and {} at most.",
        figures::count(model.points.len() as u64),
        figures::share(model.error.median),
        figures::share(model.error.p90),
        figures::share(model.error.largest)
    );
    Ok(PagePart {
        anchor: "round-time-model".into(),
        title: "Round-time model".into(),
        how: "Fitted to timed rounds; the leave-one-out errors show how good predictions of throughput are. The fitted parameters are in guide.json; they have no error estimates, so they say little about the machine.".into(),
        remarks: if model.points.is_empty() { Vec::new() } else { vec![remark] },
        charts: chart.into_iter().collect(),
        tables: vec![
            PartTable::new(
                "Timed points",
                &["steps,topk,tokens", "#batch", "#context (tokens)", "#measured (ms)", "#predicted without it (ms)", "#error"],
                model.points.iter().map(cells).collect(),
            )
            .folded(),
        ],
    })
}

fn point(point: &TimedPoint) -> scatter::ScatterPoint {
    scatter::ScatterPoint {
        predicted: point.left_out_ms,
        measured: point.measured_ms,
        role: ColorRole::Chosen,
        hollow: false,
        tip: format!(
            "{}, {} requests of {} tokens\npredicted {} ms, measured {} ms",
            point.shape,
            point.batch,
            figures::count(point.context as u64),
            figures::quantity(point.left_out_ms),
            figures::quantity(point.measured_ms)
        ),
    }
}

fn cells(point: &TimedPoint) -> Vec<Cell> {
    vec![
        Cell::text(point.shape.to_string()),
        Cell::number(point.batch as f64, |number| figures::with_decimals(number, 0)),
        Cell::number(point.context as f64, |number| figures::with_decimals(number, 0)),
        Cell::number(point.measured_ms, figures::quantity),
        Cell::number(point.left_out_ms, figures::quantity),
        Cell::number(point.left_out_ms / point.measured_ms, figures::gain),
    ]
}
