//! The report of a training run: acceptance before and after, by position and by kind of prompts,
//! the course of training, and its cost.

mod parts;

use std::path::{Path, PathBuf};

use schemas::training_record::TrainingRecord;
use serde::Serialize;

use crate::{
    charts::{self, Chart},
    error::ReportError,
    figures, files,
    page::part::PagePart,
    render,
};

/// Content of the page.
#[derive(Serialize)]
struct TrainingPage {
    version: &'static str,
    title: String,
    subject: Vec<TrainingFact>,
    verdict: &'static str,
    because: String,
    warnings: Vec<String>,
    parts: Vec<PagePart>,
}

#[derive(Serialize)]
struct TrainingFact {
    label: &'static str,
    value: String,
}

/// Writes `report.html` and `report.md` of a run into a folder, with the charts, and returns the
/// files written. Each is replaced atomically.
///
/// # Errors
/// When a file cannot be written, or a chart cannot be drawn.
pub fn write(record: &TrainingRecord, out_dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let page = page(record)?;
    let data = serde_json::to_string(record)?;
    let mut contents: Vec<(PathBuf, Vec<u8>)> = vec![
        ("report.html".into(), render::html(&render::TRAINING, &page, &data)?.into_bytes()),
        ("report.md".into(), render::markdown(&render::TRAINING, &page)?.into_bytes()),
    ];
    for Chart { name, wide, .. } in page.parts.iter().flat_map(|part| &part.charts) {
        let file = |ending: &str| Path::new("charts").join(format!("{name}.{ending}"));
        contents.push((file("svg"), charts::as_file(wide).into_bytes()));
        #[cfg(feature = "png")]
        contents.push((file("png"), charts::picture::png(name, wide)?));
    }
    files::folder(&out_dir.join("charts"))?;
    contents.into_iter().map(|(name, bytes)| files::write(&out_dir.join(name), &bytes)).collect()
}

/// A few lines for the terminal.
pub fn summary(record: &TrainingRecord) -> String {
    let mut text = format!("{} {}\n", verdict(record), sentence(&record.verdict.because));
    for comparison in record.judged.iter().chain(&record.general) {
        text.push_str(&format!(
            "  {:<20} {:>4} prompts   accept length {} → {}   {}\n",
            comparison.name,
            comparison.prompts,
            length(comparison.before.accept_length()),
            length(comparison.after.accept_length()),
            parts::change(&comparison.ratio),
        ));
    }
    text
}

fn page(record: &TrainingRecord) -> Result<TrainingPage, ReportError> {
    let parts = [
        parts::before_and_after(record)?,
        parts::positions(record)?,
        parts::course(record)?,
        Some(parts::prompts(record)),
        Some(parts::cost(record)),
    ];
    Ok(TrainingPage {
        version: env!("CARGO_PKG_VERSION"),
        title: format!("{}, {} head", record.models.name, record.models.algorithm),
        subject: subject(record),
        verdict: verdict(record),
        because: sentence(&record.verdict.because),
        warnings: warnings(record),
        parts: parts.into_iter().flatten().collect(),
    })
}

fn subject(record: &TrainingRecord) -> Vec<TrainingFact> {
    let fact = |label, value: String| TrainingFact { label, value };
    let models = &record.models;
    let mut facts = vec![
        fact("target", format!("{} ({})", models.name, models.target)),
        fact("tree", format!("{} (num_steps,topk,num_draft_tokens)", record.shape)),
        fact("trained values", figures::count(models.parameters)),
        fact("previous head", models.before.clone().unwrap_or_else(|| "random values".into())),
    ];
    facts.extend(models.after.clone().map(|after| fact("written head", after)));
    facts.push(fact("engine on", models.device.clone()));
    facts
}

fn verdict(record: &TrainingRecord) -> &'static str {
    if record.verdict.better { "The trained head is better." } else { "The previous head is kept." }
}

/// Warnings that must be read first.
fn warnings(record: &TrainingRecord) -> Vec<String> {
    let mut warnings = Vec::new();
    if record.from_scratch {
        warnings.push(
            "This head was trained from random values. Published heads are trained on hundreds of thousands of \
             conversations; a head trained on a few thousand texts has a low accept length. Adapting a published \
             head takes far less text."
                .into(),
        );
    }
    // Only if the whole interval is below 1: a smaller loss may be chance.
    if let Some(general) = record.general.as_ref().filter(|general| general.ratio.high < 1.0) {
        warnings.push(format!(
            "On the general prompts the accept length changes by {}: the trained head is worse on other kinds of \
             prompts.",
            parts::change(&general.ratio)
        ));
    }
    warnings
}

/// A clause as a sentence.
fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn length(value: Option<f64>) -> String {
    value.map_or_else(|| figures::MISSING.into(), |value| format!("{value:.2}"))
}
