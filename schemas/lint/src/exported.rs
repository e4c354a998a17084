//! Lints what is exported.

use launch::Launch;
use schemas::{
    diagnostic::{Diagnostic, Severity},
    export::{Exported, Form},
    flags::Key,
    model::ModelFacts,
    text::Source,
};

use crate::report::{ReportOptions, report};

/// An exported launch as text, and the linter's findings on it.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The command or array of flags, with the name that findings give it.
    pub source: Source,
    /// Errors and warnings.
    pub findings: Vec<Diagnostic>,
}

impl Checked {
    /// Whether the engine would not run the launch as it is written.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// Lints an exported launch for its version, with what is known of the models. A file is linted by
/// the command that starts the engine with it. TensorRT-LLM's configuration is not linted: there
/// are no rules for it.
pub fn check(exported: &Exported, form: Form, target: Option<&ModelFacts>, draft: Option<&ModelFacts>) -> Checked {
    let text = exported.command.as_ref().unwrap_or(&exported.text);
    let source = Source::new(format!("<export to {form}>"), text.clone());
    if form == Form::TensorRtLlm {
        return Checked { source, findings: Vec::new() };
    }
    let version = exported.version;
    let parsed = launch::parse(&source, &launch::Options { version: Some(version), ..launch::Options::default() });
    let models = |launch: &Launch| {
        // A launch that does not speculate loads no draft.
        let speculates = launch.has(Key::SpeculativeAlgorithm) || launch.vllm_speculation().is_some();
        (target.cloned(), draft.filter(|_| speculates).cloned())
    };
    let options = ReportOptions { version: Some(version), ..ReportOptions::default() };
    let mut findings = report(&source, parsed, models, &options).findings;
    findings.retain(|finding| finding.severity > Severity::Info);
    Checked { source, findings }
}

#[cfg(test)]
mod tests;
