//! Why a report cannot be written.

use std::{io, path::PathBuf};

/// Why a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder cannot be created.
    #[error("cannot create the report's folder {}: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written; an older file of that name is unchanged.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The table of trials or of the ranking cannot be built or encoded.
    #[error("cannot build the table {table}: {source}")]
    Table {
        /// Which.
        table: &'static str,
        /// Why.
        source: polars_core::error::PolarsError,
    },
    /// A chart cannot be drawn.
    #[error("cannot draw the chart {chart}: {reason}")]
    Chart {
        /// Which.
        chart: String,
        /// Why.
        reason: String,
    },
    /// A page cannot be rendered.
    #[error("cannot fill in {page}: {source}")]
    Page {
        /// Which.
        page: &'static str,
        /// Why.
        source: minijinja::Error,
    },
    /// The data cannot be written as JSON.
    #[error("cannot write the report's data as JSON: {0}")]
    Json(#[from] serde_json::Error),
}
