//! Findings, their fixes, and the formats in which they are printed.

mod concise;
pub mod fix;
mod full;
mod github;
mod json;
pub mod sarif;
pub mod statistics;

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::text::{Source, Span, shortened};

/// An output format of findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Human-readable, with excerpts of the user's text.
    #[default]
    Full,
    /// One line per finding.
    Concise,
    /// A JSON list of objects.
    Json,
    /// Workflow commands of GitHub Actions.
    Github,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
}

/// A text and what was found in it.
#[derive(Clone, Copy, Debug)]
pub struct Findings<'a> {
    /// The text.
    pub source: &'a Source,
    /// The findings, in the order of output.
    pub diagnostics: &'a [Diagnostic],
}

/// Renders the findings of all texts; SARIF without the pages of rules. `colour` adds terminal
/// colours to [`Format::Full`] and affects nothing else.
pub fn render(findings: &[Findings<'_>], format: Format, colour: bool) -> String {
    match format {
        Format::Full => full::render(findings, colour),
        Format::Concise => concise::render(findings),
        Format::Json => json::render(findings),
        Format::Github => github::render(findings),
        Format::Sarif => sarif::render(findings, |_| None),
    }
}

/// Maximum number of findings per code and text; no one reads a longer list.
const MOST_OF_A_CODE: usize = 64;

/// Sorts findings by position, the most severe first at the same position, and removes duplicates
/// (two launches that share an array have the same findings in it). Of many findings with one code
/// only the first ones remain, and a note on the last of these gives the number of the others.
pub fn tidy(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(|one, other| {
        let key =
            |diagnostic: &Diagnostic| (diagnostic.span.start, std::cmp::Reverse(diagnostic.severity), diagnostic.code);
        key(one).cmp(&key(other))
    });
    diagnostics.dedup();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    diagnostics.iter().for_each(|finding| *counts.entry(finding.code).or_default() += 1);
    counts.retain(|_, count| *count > MOST_OF_A_CODE);
    if counts.is_empty() {
        return;
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    diagnostics.retain_mut(|finding| {
        let seen = seen.entry(finding.code).or_default();
        *seen += 1;
        if let Some(all) = counts.get(finding.code)
            && *seen == MOST_OF_A_CODE
        {
            let more = all - MOST_OF_A_CODE;
            finding.notes.push(format!("{more} more findings of {} in this text are not shown", finding.code));
        }
        *seen <= MOST_OF_A_CODE
    });
}

impl Format {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Full, "full"),
        (Self::Concise, "concise"),
        (Self::Json, "json"),
        (Self::Github, "github"),
        (Self::Sarif, "sarif"),
    ];
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::ALL.iter().find(|(format, _)| format == self).map_or("full", |(_, word)| word);
        formatter.write_str(word)
    }
}

/// The text does not name a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a format (expected full, concise, json, github or sarif)")]
pub struct FormatError(pub String);

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let found = Self::ALL.iter().find(|(_, word)| *word == text);
        found.map(|(format, _)| *format).ok_or_else(|| FormatError(shortened(text)))
    }
}

/// The severity of a finding. `Info` never makes the linter fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing, but not a problem.
    Info,
    /// The launch starts, but is not what the user expects, is slow, or is fragile.
    Warning,
    /// The launch does not start, crashes, or gives wrong output.
    Error,
}

/// One finding of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The rule's code, such as `SD070`; the codes are stable.
    pub code: &'static str,
    /// The rule's name, such as `dtype-mismatch`.
    pub name: &'static str,
    /// How severe the finding is.
    pub severity: Severity,
    /// One sentence, lower case, without a full stop: what will happen.
    pub message: String,
    /// The place of the finding. There is always one: a finding about an absent flag points at the
    /// launch.
    pub span: Span,
    /// A few words that are printed under the marked place.
    pub label: String,
    /// Other places that explain the finding.
    pub related: Vec<Related>,
    /// Facts printed after the finding: the engine's exact message, numbers, sources.
    pub notes: Vec<String>,
    /// What to do, in the imperative, with the exact flag and value.
    pub help: Option<String>,
    /// Edits that do what `help` says.
    pub fix: Option<Fix>,
}

/// Another place, with a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// The place.
    pub span: Span,
    /// What the user can see there.
    pub label: String,
}

/// Whether a fix can be applied without review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// The fixed launch runs what ran before, or what the user evidently meant.
    Safe,
    /// The fix changes what runs, so the user should review it.
    Unsafe,
}

/// A set of edits that removes a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// What the edits do, in the imperative.
    pub description: String,
    /// Whether they may be applied without review.
    pub safety: Safety,
    /// The edits; they do not overlap.
    pub edits: Vec<Edit>,
}

/// A replacement of a span of the user's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The span to replace; empty for an insertion.
    pub span: Span,
    /// The new text; empty for a removal.
    pub replacement: String,
}

impl Severity {
    /// The word in output: `error`, `warning`, `info`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

#[cfg(test)]
mod tests;
