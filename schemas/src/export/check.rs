//! Lints what is exported.

use super::{Exported, Form};
use crate::{
    diagnostic::{Diagnostic, Severity, tidy},
    flags::Key,
    launch::{self, Options},
    model::ModelFacts,
    resolve::resolve,
    rules::{Context, Selection, lint},
    text::Source,
};

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

/// Lints an exported launch for its version, with what is known of the models. A file is linted by the command that
/// starts the engine with it. TensorRT-LLM's configuration is not linted: there are no rules for it.
pub fn check(exported: &Exported, form: Form, target: Option<&ModelFacts>, draft: Option<&ModelFacts>) -> Checked {
    let text = exported.command.as_ref().unwrap_or(&exported.text);
    let source = Source::new(format!("<export to {form}>"), text.clone());
    if form == Form::TensorRtLlm {
        return Checked { source, findings: Vec::new() };
    }
    let version = exported.version;
    let parsed = launch::parse(&source, &Options { version: Some(version), ..Options::default() });
    let mut findings = parsed.diagnostics;
    for launch in &parsed.launches {
        // A launch that does not speculate loads no draft.
        let speculates = launch.has(Key::SpeculativeAlgorithm) || launch.vllm_speculation().is_some();
        let draft = draft.filter(|_| speculates);
        let resolved = resolve(launch, version, true, target, draft, None);
        let context =
            Context { launch, resolved: &resolved, target, draft, expected_concurrency: None, gpu_memory: None };
        findings.extend(lint(&context, &Selection::default()));
    }
    findings.retain(|finding| finding.severity > Severity::Info);
    tidy(&mut findings);
    Checked { source, findings }
}
