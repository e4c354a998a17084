//! Turns trials into ranked reports: a self-contained web page, Markdown, tables for programs,
//! charts, and a table for the terminal.
//!
//! A report shows what selection has decided. Trials are ranked together only if their fingerprints
//! agree. Every figure is measured, and figures that were not measured stay missing.
#![forbid(unsafe_code)]

mod acceptance;
mod agreement;
mod charts;
mod columns;
mod comparison;
mod contexts;
mod data;
mod definitions;
mod drift;
mod error;
mod failures;
mod figures;
mod files;
#[cfg(test)]
mod fixtures;
mod frames;
mod importance;
mod input;
mod names;
mod order;
mod page;
mod race;
mod render;
pub mod running;
mod section;
mod terminal;
pub mod training;
mod uneven;

use std::path::{Path, PathBuf};

use tuner::statistics;

pub use error::ReportError;
pub use figures::{duration, quantity};
pub use input::{ReportInput, Sweep};
pub use terminal::{across_workloads, table as terminal_table};

/// Writes the whole report into a folder, which is created if necessary, and returns the files
/// written, `report.html` first. Files of an earlier report are replaced atomically; other files
/// are not touched.
///
/// # Errors
/// When the folder cannot be created, a file cannot be written, or a table or chart cannot be
/// built.
pub fn write(input: &ReportInput, out_dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let sections = section::sections(&input.sweeps);
    let comparison = page::drafts::comparison(input, &sections);
    let page = page::Page::new(&sections, &input.sweeps, comparison.as_ref())?;
    let data = data::json(&sections, comparison.as_ref())?;
    let mut contents: Vec<(PathBuf, Vec<u8>)> = vec![
        ("report.html".into(), render::html(&render::REPORT, &page, &data)?.into_bytes()),
        ("report.md".into(), render::markdown(&render::REPORT, &page)?.into_bytes()),
        ("report.json".into(), data.into_bytes()),
        ("acceptance.json".into(), acceptance::json(&sections)?.into_bytes()),
        ("columns.md".into(), frames::meanings::page().into_bytes()),
    ];
    let mut tables = vec![("trials", frames::trials(&sections)?), ("ranking", frames::ranking(&sections)?)];
    tables.extend(frames::predictions(&sections)?.map(|frame| ("predictions", frame)));
    tables.extend(comparison.as_ref().map(frames::comparison).transpose()?.map(|frame| ("comparison", frame)));
    for (name, mut frame) in tables {
        contents.push((format!("{name}.csv").into(), frames::csv(&mut frame)?));
        #[cfg(feature = "parquet")]
        contents.push((format!("{name}.parquet").into(), frames::parquet(&mut frame)?));
    }
    for (name, svg) in page.charts() {
        let file = |ending: &str| Path::new("charts").join(format!("{name}.{ending}"));
        contents.push((file("svg"), charts::as_file(svg).into_bytes()));
        #[cfg(feature = "png")]
        contents.push((file("png"), charts::picture::png(&name, svg)?));
    }

    // Everything is computed before anything is written, so a failure leaves an older report
    // unchanged.
    files::folder(&out_dir.join("charts"))?;
    contents.into_iter().map(|(name, bytes)| files::write(&out_dir.join(name), &bytes)).collect()
}
