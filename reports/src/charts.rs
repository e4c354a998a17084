//! The charts, each drawn twice: wide for a screen or a file, narrow for a phone.

mod axes;
mod canvas;
mod forest;
mod heat_map;
mod histogram;
pub mod palette;
mod pareto;
mod positions;
mod round_time;

use crate::{batch::Batch, error::ReportError, section::Section};

/// A finished chart.
pub struct Chart {
    /// Its file name without ending, such as `batch-8-heat-map`.
    pub name: String,
    /// What it shows, as a heading.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// For a screen or a file.
    pub wide: String,
    /// For a phone.
    pub narrow: String,
}

/// Width of a drawing, from which the rest follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Wide,
    Narrow,
}

impl Format {
    fn width(self) -> i32 {
        match self {
            Self::Wide => 860,
            Self::Narrow => 400,
        }
    }

    fn is_narrow(self) -> bool {
        self == Self::Narrow
    }
}

/// The chart over all batch sizes; nothing without a measured trial.
///
/// # Errors
/// When the drawing library fails.
pub fn of_section(section: &Section<'_>) -> Result<Vec<Chart>, ReportError> {
    let mut charts = Vec::new();
    add(&mut charts, "pareto", "Throughput against speed for one user", &pareto::caption(section), |format| {
        pareto::draw(section, format)
    })?;
    Ok(charts)
}

/// The charts of one batch size, without those that nothing was measured for.
///
/// # Errors
/// When the drawing library fails.
pub fn of_batch(batch: &Batch) -> Result<Vec<Chart>, ReportError> {
    let mut charts = Vec::new();
    let name = |chart: &str| format!("batch-{}-{chart}", batch.batch_size);
    add(&mut charts, &name("ranking"), "Ranking with intervals", &forest::caption(batch), |format| {
        forest::draw(batch, format)
    })?;
    add(&mut charts, &name("heat-map"), "Steps × topk", &heat_map::caption(batch), |format| {
        heat_map::draw(batch, format)
    })?;
    add(&mut charts, &name("round-time"), "Where a round's time goes", round_time::CAPTION, |format| {
        round_time::draw(batch, format)
    })?;
    add(&mut charts, &name("accepted-drafts"), "Accepted drafts a round", histogram::CAPTION, |format| {
        histogram::draw(batch, format)
    })?;
    add(&mut charts, &name("accept-positions"), "Acceptance by position", positions::CAPTION, |format| {
        positions::draw(batch, format)
    })?;
    Ok(charts)
}

/// What drawing gives: nothing where there is nothing to show.
type Drawn = Result<Option<String>, canvas::DrawError>;

fn add(
    charts: &mut Vec<Chart>,
    name: &str,
    title: &str,
    caption: &str,
    draw: impl Fn(Format) -> Drawn,
) -> Result<(), ReportError> {
    let drawn =
        |format| draw(format).map_err(|error| ReportError::Chart { chart: name.to_owned(), reason: error.to_string() });
    if let (Some(wide), Some(narrow)) = (drawn(Format::Wide)?, drawn(Format::Narrow)?) {
        charts.push(Chart { name: name.into(), title: title.into(), caption: caption.into(), wide, narrow });
    }
    Ok(())
}

/// A drawing as a file of its own, which follows the viewer's theme.
pub fn as_file(svg: &str) -> String {
    match svg.find('>') {
        Some(end) => format!("{}{}{}", &svg[..=end], palette::file_style(), &svg[end + 1..]),
        None => svg.to_owned(),
    }
}
