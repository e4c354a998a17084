//! Findings, and the fixes that go with them.

use crate::text::Span;

/// How bad a finding is. `Info` never fails a run of the linter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Info,
    /// It starts, and is not what the user thinks, or is slow, or is fragile.
    Warning,
    /// It will not start, crashes, or gives wrong output.
    Error,
}

/// One finding of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The rule's code, such as `SD070`; the codes are stable.
    pub code: &'static str,
    /// The rule's name, such as `dtype-mismatch`.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence, lower case, without a full stop: what will happen.
    pub message: String,
    /// The place that the finding is about. Never missing: a finding about an absent flag points at the launch.
    pub span: Span,
    /// A few words under the marked place.
    pub label: String,
    /// Other places that explain the finding.
    pub related: Vec<Related>,
    /// Facts behind the finding: the engine's exact message, numbers, the source of a fact.
    pub notes: Vec<String>,
    /// What to do, in the imperative, with the exact flag and value.
    pub help: Option<String>,
    /// An edit that does it.
    pub fix: Option<Fix>,
}

/// A second place with its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// Where.
    pub span: Span,
    /// What is to be seen there.
    pub label: String,
}

/// Whether a fix can be applied without a human look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// What runs afterwards is what ran before, or what the user evidently meant.
    Safe,
    /// What runs changes in a way that the user should see.
    Unsafe,
}

/// A set of edits that removes a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// What the edits do, in the imperative.
    pub description: String,
    /// Whether they may be applied unseen.
    pub safety: Safety,
    /// The edits; they do not overlap.
    pub edits: Vec<Edit>,
}

/// Replace a span of the user's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What goes; empty for an insertion.
    pub span: Span,
    /// What comes.
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
