//! The findings of a check, before the rule's code and name are added.

use super::{Context, Rule};
use crate::{
    diagnostic::{Diagnostic, Edit, Fix, Related, Safety, Severity},
    model::ModelFacts,
    text::Span,
};

/// A finding under construction.
pub(super) struct Finding {
    span: Span,
    message: String,
    label: String,
    severity: Severity,
    related: Vec<Related>,
    notes: Vec<String>,
    help: Option<String>,
    fix: Option<Fix>,
    depends: Depends,
}

/// The parts of the context that a finding depends on and that may be uncertain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Depends {
    /// The engine's version: if none is stated, a note says which one was assumed.
    pub version: bool,
    /// An abbreviation that stands for several flags: a version older than the known ones may have only one of them.
    pub abbreviation: bool,
}

impl Finding {
    /// A finding at a place, with a one-sentence message and a short label for the place.
    pub fn new(span: Span, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
            label: label.into(),
            severity: Severity::Error,
            related: Vec::new(),
            notes: Vec::new(),
            help: None,
            fix: None,
            depends: Depends::default(),
        }
    }

    /// Caps the severity, for cases that are less severe than the rule's own.
    pub fn at_most(mut self, severity: Severity) -> Self {
        self.severity = self.severity.min(severity);
        self
    }

    /// Adds a note.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Adds a note, if there is one.
    pub fn maybe_note(self, text: Option<String>) -> Self {
        match text {
            Some(text) => self.note(text),
            None => self,
        }
    }

    /// Adds a note that quotes the engine's exact message.
    pub fn engine_says(self, text: impl AsRef<str>) -> Self {
        self.note(format!("sglang says: `{}`", text.as_ref()))
    }

    /// Adds advice.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Adds another place that explains the finding.
    pub fn related(mut self, span: Option<Span>, label: impl Into<String>) -> Self {
        let elsewhere = span.filter(|span| *span != self.span);
        self.related.extend(elsewhere.map(|span| Related { span, label: label.into() }));
        self
    }

    /// Adds edits that remove the finding.
    pub fn fix(mut self, safety: Safety, description: impl Into<String>, edits: Vec<Edit>) -> Self {
        if !edits.is_empty() {
            self.fix = Some(Fix { description: description.into(), safety, edits });
        }
        self
    }

    /// Marks the finding as based on facts of the target, and notes their source if the checkpoint itself was not read.
    pub fn on_target(self, context: &Context<'_>) -> Self {
        self.maybe_note(context.target.and_then(|facts| provenance("target", facts)))
    }

    /// Marks the finding as based on facts of the draft, and notes their source if the checkpoint itself was not read.
    pub fn on_draft(self, context: &Context<'_>) -> Self {
        self.maybe_note(context.draft.and_then(|facts| provenance("draft", facts)))
    }

    /// Marks the finding as dependent on the engine's version.
    pub fn by_version(mut self) -> Self {
        self.depends.version = true;
        self
    }

    /// Marks the finding as dependent on the flags that an abbreviation may stand for.
    pub fn by_abbreviation(mut self) -> Self {
        self.depends.abbreviation = true;
        self
    }

    /// The diagnostic, with the rule's code and name, and what it depends on.
    pub(super) fn of(self, rule: &Rule) -> (Diagnostic, Depends) {
        let diagnostic = Diagnostic {
            code: rule.code,
            name: rule.name,
            severity: self.severity.min(rule.severity),
            message: self.message,
            span: self.span,
            label: self.label,
            related: self.related,
            notes: self.notes,
            help: self.help,
            fix: self.fix,
        };
        (diagnostic, self.depends)
    }
}

fn provenance(who: &str, facts: &ModelFacts) -> Option<String> {
    facts.partial.then(|| format!("facts of the {who} {}: {}", facts.name, facts.origin))
}
