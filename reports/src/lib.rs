//! Turns trials into ranked reports: a self-contained web page, Markdown, tables for programs, charts, and a table for
//! the terminal.
//!
//! A report shows what selection has decided. Trials are ranked together only where their fingerprints agree; every
//! figure is measured, and what was not measured stays missing.
#![forbid(unsafe_code)]

mod batch;
mod charts;
mod columns;
mod comparison;
mod data;
mod definitions;
mod error;
mod figures;
mod files;
mod frames;
mod input;
mod page;
mod render;
mod section;
mod terminal;

use std::path::{Path, PathBuf};

pub use error::ReportError;
pub use input::{ReportInput, Sweep};
pub use terminal::table as terminal_table;

/// Writes the whole report into a folder, which is made if need be, and returns the files written, `report.html` first.
/// A file of an earlier report is replaced whole or not at all; other files are left alone.
///
/// # Errors
/// When the folder cannot be made, a file cannot be written, or a table or chart cannot be built.
pub fn write(input: &ReportInput, out_dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let sections = section::sections(&input.sweeps);
    let page = page::Page::new(&sections, &input.sweeps)?;
    let data = data::json(&sections)?;
    let mut contents: Vec<(PathBuf, Vec<u8>)> = vec![
        ("report.html".into(), render::html(&page, &data)?.into_bytes()),
        ("report.md".into(), render::markdown(&page)?.into_bytes()),
        ("report.json".into(), data.into_bytes()),
    ];
    for (name, mut frame) in [("trials", frames::trials(&sections)?), ("ranking", frames::ranking(&sections)?)] {
        contents.push((format!("{name}.csv").into(), frames::csv(&mut frame)?));
        contents.push((format!("{name}.parquet").into(), frames::parquet(&mut frame)?));
    }
    let charts = page.charts().map(|(name, svg)| (Path::new("charts").join(name), charts::as_file(svg).into_bytes()));
    contents.extend(charts);

    // Everything is computed before anything is written: a failure leaves an older report as it was.
    files::folder(&out_dir.join("charts"))?;
    contents.into_iter().map(|(name, bytes)| files::write(&out_dir.join(name), &bytes)).collect()
}
