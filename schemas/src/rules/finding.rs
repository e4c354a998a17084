//! What a check finds, before the rule's own code and name are put on it.

use super::{Context, Rule};
use crate::{
    diagnostic::{Diagnostic, Edit, Fix, Related, Safety, Severity},
    model::ModelFacts,
    text::Span,
};

/// One finding in the making.
pub(super) struct Finding {
    span: Span,
    message: String,
    label: String,
    severity: Severity,
    related: Vec<Related>,
    notes: Vec<String>,
    help: Option<String>,
    fix: Option<Fix>,
}

impl Finding {
    /// A finding at a place: what will happen, in one sentence, and a few words for the place.
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
        }
    }

    /// Less grave than the rule's own severity, here.
    pub fn at_most(mut self, severity: Severity) -> Self {
        self.severity = self.severity.min(severity);
        self
    }

    /// A fact after it.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// A fact after it, where there is one.
    pub fn maybe_note(self, text: Option<String>) -> Self {
        match text {
            Some(text) => self.note(text),
            None => self,
        }
    }

    /// The engine's own words, exactly.
    pub fn engine_says(self, text: impl AsRef<str>) -> Self {
        self.note(format!("sglang says: `{}`", text.as_ref()))
    }

    /// What to do.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Another place that explains it.
    pub fn related(mut self, span: Option<Span>, label: impl Into<String>) -> Self {
        let elsewhere = span.filter(|span| *span != self.span);
        self.related.extend(elsewhere.map(|span| Related { span, label: label.into() }));
        self
    }

    /// Edits that remove it.
    pub fn fix(mut self, safety: Safety, description: impl Into<String>, edits: Vec<Edit>) -> Self {
        if !edits.is_empty() {
            self.fix = Some(Fix { description: description.into(), safety, edits });
        }
        self
    }

    /// It rests on facts of the target: says whence they are where the checkpoint itself was not read.
    pub fn on_target(self, context: &Context<'_>) -> Self {
        self.maybe_note(context.target.and_then(|facts| provenance("target", facts)))
    }

    /// It rests on facts of the draft: says whence they are where the checkpoint itself was not read.
    pub fn on_draft(self, context: &Context<'_>) -> Self {
        self.maybe_note(context.draft.and_then(|facts| provenance("draft", facts)))
    }

    /// Marks the finding as dependent on the engine's version, and notes which one was assumed if none was stated.
    pub fn by_version(self, context: &Context<'_>) -> Self {
        self.maybe_note(context.assumed_version())
    }

    /// With the rule's identity on it.
    pub(super) fn of(self, rule: &Rule) -> Diagnostic {
        Diagnostic {
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
        }
    }
}

fn provenance(who: &str, facts: &ModelFacts) -> Option<String> {
    facts.partial.then(|| format!("facts of the {who} {}: {}", facts.name, facts.origin))
}
