//! The error for a configuration file that cannot be used, with the place in its text.

use std::{error::Error, fmt};

use schemas::{
    diagnostic::{Diagnostic, Findings, Format, render},
    text::Source,
};

/// The error for a configuration file that cannot be used. [`print_error`](crate::terminal::print_error) shows the
/// position in the user's text.
#[derive(Debug)]
pub struct WrongFile {
    source: Source,
    finding: Box<Diagnostic>,
}

impl WrongFile {
    /// An error for a file with one finding.
    pub fn new(source: Source, finding: Box<Diagnostic>) -> Self {
        Self { source, finding }
    }

    /// The finding with its position in the text.
    pub fn shown(&self, coloured: bool) -> String {
        let findings = [Findings { source: &self.source, diagnostics: std::slice::from_ref(&*self.finding) }];
        render(&findings, Format::Full, coloured)
    }
}

impl fmt::Display for WrongFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.source.position(self.finding.span.start);
        write!(formatter, "{}:{}:{}: {}", self.source.name(), place.line, place.column, self.finding.message)
    }
}

impl Error for WrongFile {}
