//! The error for a configuration file that cannot be used, with the place in its text.

use std::{error::Error, fmt};

use schemas::{
    diagnostic::{Diagnostic, Findings, Format, render},
    text::Source,
};

/// The error for a configuration file that cannot be used.
/// [`print_error`](crate::terminal::print_error) shows the position in the user's text.
#[derive(Debug)]
pub struct WrongFile {
    source: Source,
    findings: Vec<Diagnostic>,
}

impl WrongFile {
    /// An error for a file with one finding.
    pub fn new(source: Source, finding: Box<Diagnostic>) -> Self {
        Self { source, findings: vec![*finding] }
    }

    /// An error for a file with several findings.
    #[cfg(feature = "engine")]
    pub fn all(source: Source, findings: Vec<Diagnostic>) -> Self {
        Self { source, findings }
    }

    /// The findings with their positions in the text.
    pub fn shown(&self, coloured: bool) -> String {
        let findings = [Findings { source: &self.source, diagnostics: &self.findings }];
        render(&findings, Format::Full, coloured)
    }
}

impl fmt::Display for WrongFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, finding) in self.findings.iter().enumerate() {
            let place = self.source.position(finding.span.start);
            let separator = if at > 0 { "\n" } else { "" };
            write!(
                formatter,
                "{separator}{}:{}:{}: {}",
                self.source.name(),
                place.line,
                place.column,
                finding.message
            )?;
        }
        Ok(())
    }
}

impl Error for WrongFile {}
