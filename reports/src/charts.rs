//! The charts, each drawn twice: wide for a screen or a file, narrow for a phone.

pub mod axes;
pub mod bars;
mod canvas;
pub mod curve;
mod forest;
mod heat_map;
mod histogram;
pub mod palette;
mod pareto;
#[cfg(feature = "png")]
pub mod picture;
mod positions;
mod round_time;
pub mod scatter;
pub mod spans;

use serde::Serialize;

use crate::{agreement::Agreement, error::ReportError, names, race::Race, section::Section};

/// A finished chart.
#[derive(Serialize)]
pub struct Chart {
    /// Its file name without extension, such as `batch-8-heat-map`.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// For a screen or a file.
    pub wide: String,
    /// For a phone.
    pub narrow: String,
}

/// How to read the heat map of predictions.
const PREDICTED: &str = "Predicted, not measured: output tokens/s relative to the prediction without speculation, for the whole space. Each cell is the best over num_draft_tokens (N, the root included). Outlined: the shape chosen by the measurements.";

/// Width of a drawing, which determines the rest of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartFormat {
    Wide,
    Narrow,
}

impl ChartFormat {
    fn width(self) -> i32 {
        match self {
            Self::Wide => 860,
            // Fits a card on a phone of 390 pixels without scaling, so that 12 pixels stay 12
            // pixels.
            Self::Narrow => 340,
        }
    }

    fn is_narrow(self) -> bool {
        self == Self::Narrow
    }
}

/// The charts over all loads; empty without a measured trial.
///
/// # Errors
/// When the drawing library fails.
pub fn for_section(section: &Section<'_>) -> Result<Vec<Chart>, ReportError> {
    let mut charts = Vec::new();
    add(&mut charts, "pareto", "Throughput against speed for one user", &pareto::caption(section), |format| {
        pareto::draw(section, format)
    })?;
    Ok(charts)
}

/// The charts of one load, except those without measurements.
///
/// # Errors
/// When the drawing library fails.
pub fn for_race(race: &Race, agreement: Option<&Agreement<'_>>) -> Result<Vec<Chart>, ReportError> {
    let mut charts = Vec::new();
    let name = |chart: &str| format!("{}-{chart}", names::anchor(race.load));
    add(&mut charts, &name("ranking"), "Ranking with intervals", &forest::caption(race), |format| {
        forest::draw(race, format)
    })?;
    add(&mut charts, &name("heat-map"), "Steps × topk", &heat_map::caption(race), |format| {
        heat_map::draw(&heat_map::measured(race), format)
    })?;
    if let Some(agreement) = agreement {
        let title = format!("Steps × topk, predicted for {}", race.load);
        let predictions: Vec<_> = agreement.rows.iter().map(|row| row.prediction).collect();
        let grid = heat_map::predicted(&predictions, race.winner(), title);
        add(&mut charts, &name("heat-map-predicted"), "Steps × topk, predicted", PREDICTED, |format| {
            heat_map::draw(&grid, format)
        })?;
    }
    add(&mut charts, &name("round-time"), "Where a round's time goes", &round_time::caption(race), |format| {
        round_time::draw(race, format)
    })?;
    add(&mut charts, &name("accepted-drafts"), "Accepted drafts per round", histogram::CAPTION, |format| {
        histogram::draw(race, format)
    })?;
    add(&mut charts, &name("accept-positions"), "Acceptance by position", positions::CAPTION, |format| {
        positions::draw(race, format)
    })?;
    Ok(charts)
}

/// A chart; `None` if there is nothing to draw. `caption` explains how to read it.
///
/// # Errors
/// When the drawing library fails.
pub fn chart(
    name: &str,
    title: &str,
    caption: &str,
    draw: impl Fn(ChartFormat) -> DrawnChart,
) -> Result<Option<Chart>, ReportError> {
    let mut charts = Vec::new();
    add(&mut charts, name, title, caption, draw)?;
    Ok(charts.pop())
}

/// The SVG of a drawing; `None` if there is nothing to draw.
pub type DrawnChart = Result<Option<String>, canvas::DrawError>;

fn add(
    charts: &mut Vec<Chart>,
    name: &str,
    title: &str,
    caption: &str,
    draw: impl Fn(ChartFormat) -> DrawnChart,
) -> Result<(), ReportError> {
    let drawn =
        |format| draw(format).map_err(|error| ReportError::Chart { chart: name.to_owned(), reason: error.to_string() });
    if let (Some(wide), Some(narrow)) = (drawn(ChartFormat::Wide)?, drawn(ChartFormat::Narrow)?) {
        charts.push(Chart { name: name.into(), title: title.into(), caption: caption.into(), wide, narrow });
    }
    Ok(())
}

/// A drawing as a standalone file that follows the viewer's theme.
pub fn as_file(svg: &str) -> String {
    match svg.find('>') {
        Some(end) => format!("{}{}{}", &svg[..=end], palette::file_style(), &svg[end + 1..]),
        None => svg.to_owned(),
    }
}
