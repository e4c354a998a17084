//! Why a report cannot be written.

use std::{io, path::PathBuf};

/// Why a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder cannot be created.
    #[error("cannot create the report's folder {}: {source}", path.display())]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file cannot be written; an older file of that name is unchanged.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The table of trials or of the ranking cannot be built or encoded.
    #[error("cannot build the table {table}: {source}")]
    Table {
        /// Name of the table.
        table: &'static str,
        /// The error of the data frame library.
        source: polars_core::error::PolarsError,
    },
    /// A chart cannot be drawn.
    #[error("cannot draw the chart {chart}: {reason}")]
    Chart {
        /// Name of the chart.
        chart: String,
        /// The error of the drawing library.
        reason: String,
    },
    /// A page cannot be rendered.
    #[error("cannot fill in {page}: {source}")]
    Page {
        /// Name of the page.
        page: &'static str,
        /// The error of the template engine.
        source: minijinja::Error,
    },
    /// The data cannot be written as JSON.
    #[error("cannot write the report's data as JSON: {0}")]
    Json(#[from] serde_json::Error),
}
