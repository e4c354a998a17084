//! Scatter of repeats, and drift of trials.

use crate::{
    charts::{self, axes::AxisMark, curve, palette::ColorRole},
    drift::{self, Drift},
    error::ReportError,
    figures,
    page::part::PagePart,
    section::Section,
};

/// Drifts below this share are negligible.
const FELT: f64 = 0.01;

pub fn part(section: &Section<'_>) -> Result<Option<PagePart>, ReportError> {
    let Some(drift) = drift::compute(section.records.iter().map(|(_, record)| *record), section.metric) else {
        return Ok(None);
    };
    let loads = section.races.len();
    let colour =
        |load| ColorRole::load(section.races.iter().position(|race| race.load == load).unwrap_or_default(), loads);
    let spots: Vec<curve::Spot> = drift
        .deviations
        .iter()
        .map(|one| {
            let trial = &one.record.trial;
            curve::Spot {
                at: (one.place as f64, (one.ratio - 1.0) * 100.0),
                mark: AxisMark::Dot(colour(trial.load)),
                tip: format!(
                    "trial {}: {}, {}, repeat {}\n{} against its configuration's mean",
                    one.place,
                    trial.configuration,
                    trial.load,
                    trial.repeat + 1,
                    figures::gain(one.ratio)
                ),
            }
        })
        .collect();
    let legend: Vec<(AxisMark, String)> =
        section.races.iter().map(|race| (AxisMark::Dot(colour(race.load)), race.load.to_string())).collect();
    let title = "Deviations in the order of the trials";
    let frame = curve::Frame {
        title,
        across: "trial, in the order in which they ran",
        up: "from its configuration's mean",
        suffix: "%",
        legend: &legend,
        level: Some(0.0),
    };
    let caption =
        "Measured: each trial relative to the mean of its configuration under its load, in terms of the objective.";
    let chart = charts::chart("drift", title, caption, |format| curve::draw(&[], &spots, &frame, format))?;
    Ok(Some(PagePart {
        anchor: "noise".into(),
        title: "Noise and drift".into(),
        how: "Dots that scatter evenly about 0 are noise, which intervals account for; dots that climb or fall from left to right show that the machine changed while it was measured.".into(),
        remarks: remarks(&drift),
        charts: chart.into_iter().collect(),
        tables: Vec::new(),
    }))
}

fn remarks(drift: &Drift<'_>) -> Vec<String> {
    let mut remarks = vec![format!(
        "Half of the {} repeated trials are within {} of their configuration's mean, nine out of ten within {}.",
        figures::count(drift.deviations.len() as u64),
        figures::share(drift.half),
        figures::share(drift.most)
    )];
    remarks.extend(drift.trend.map(|trend| {
        if (trend - 1.0).abs() < FELT.max(drift.half) {
            format!(
                "No drift: the last third of the trials is {} against the first third (medians).",
                figures::gain(trend)
            )
        } else {
            format!(
                "Drift: the last third of the trials is {} against the first third (medians). Repeats are \
                 interleaved and compared in pairs, so drift favours no configuration, but absolute figures are an \
                 average over the drift.",
                figures::gain(trend)
            )
        }
    }));
    remarks
}
