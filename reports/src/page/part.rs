//! A part of the page: a heading, how to read it, remarks, tables and charts. All parts have the
//! same layout, in every format.

use serde::Serialize;

use crate::charts::Chart;

/// A part.
#[derive(Serialize)]
pub struct PagePart {
    /// Its anchor on the page.
    pub anchor: String,
    /// Its heading.
    pub title: String,
    /// How to read it, in a sentence.
    pub how: String,
    /// Its findings, one sentence each.
    pub remarks: Vec<String>,
    /// Its charts.
    pub charts: Vec<Chart>,
    /// Its tables.
    pub tables: Vec<PartTable>,
}

/// A table.
#[derive(Serialize)]
pub struct PartTable {
    /// Its caption.
    pub caption: String,
    /// Whether it is collapsed initially.
    pub folded: bool,
    /// Its columns.
    pub headings: Vec<Heading>,
    /// Its rows, with one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// The heading of a column.
#[derive(Serialize)]
pub struct Heading {
    /// Name of the column, with the unit.
    pub text: String,
    /// Whether the column contains numbers.
    pub numeric: bool,
}

/// A cell of a table.
#[derive(Serialize)]
pub struct Cell {
    /// The displayed text.
    pub text: String,
    /// The value to sort by.
    pub value: Option<f64>,
}

impl PagePart {
    /// Says whose it is, if there are several drafts.
    pub fn for_draft(mut self, draft: &str) -> Self {
        if !draft.is_empty() {
            self.title = format!("{}: {draft}", self.title);
            self.anchor = format!("{}-{draft}", self.anchor);
            self.charts.iter_mut().for_each(|chart| chart.name = format!("{}-{draft}", chart.name));
        }
        self
    }
}

impl PartTable {
    /// A table with these columns; columns whose heading starts with `#` contain numbers.
    pub fn new<H: AsRef<str>>(caption: impl Into<String>, headings: &[H], rows: Vec<Vec<Cell>>) -> Self {
        let heading =
            |text: &str| Heading { text: text.trim_start_matches('#').into(), numeric: text.starts_with('#') };
        let headings = headings.iter().map(|text| heading(text.as_ref())).collect();
        Self { caption: caption.into(), folded: false, headings, rows }
    }

    /// The same, collapsed initially.
    pub fn folded(self) -> Self {
        Self { folded: true, ..self }
    }
}

impl Cell {
    /// A cell with text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: None }
    }

    /// A formatted number; a dash if it is missing.
    pub fn number(value: impl Into<Option<f64>>, write: fn(f64) -> String) -> Self {
        let value: Option<f64> = value.into().filter(|value| value.is_finite());
        Self { text: value.map_or(crate::figures::MISSING.into(), write), value }
    }
}
