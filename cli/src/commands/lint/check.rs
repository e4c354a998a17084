//! Checks one text: parses it, resolves launches, runs the rules, and applies suppression comments.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use launch::{Launch, resolve::Resolved};
use lint::{
    report::{self, report},
    rules::{Selection, Unchecked},
};
use schemas::{
    diagnostic::{Diagnostic, Findings},
    engines::Engine,
    text::{Source, Span},
    version::EngineVersion,
};

use super::{Arguments, model_facts::ModelFactsCache, ours, settings::AppliedSettings};

/// Checks texts.
pub(super) struct Linter<'a> {
    arguments: &'a Arguments,
    /// Facts are read by one thread at a time, so that each checkpoint is read once.
    known: Mutex<ModelFactsCache>,
    settings: AppliedSettings,
    /// What the server given with --url is.
    runs: RunningEngine,
}

/// The engine that runs launches, as far as it is known.
#[derive(Clone, Copy, Default)]
pub(super) struct RunningEngine {
    /// Which one it is.
    pub kind: Option<Engine>,
    /// Its version, which is the default for checking launches.
    pub version: Option<EngineVersion>,
}

/// Settings for checking a file.
pub(super) struct CheckSettings {
    pub selection: Selection,
    pub engine: Option<Engine>,
    pub engine_version: Option<EngineVersion>,
    pub gpu_memory: Option<u64>,
    pub expected_concurrency: Option<usize>,
    /// Whether it was found in a folder, so that it need not contain a launch.
    pub found: bool,
}

/// The branches of a script that lead to a launch: the flags that they add to it, each with its
/// line.
pub(super) struct CheckBranch(Vec<(String, usize)>);

impl CheckBranch {
    fn from_launch(launch: &Launch, source: &Source) -> Self {
        let added = launch.arguments.iter().filter(|argument| argument.in_branch && !argument.is_positional());
        let place = |argument: &launch::Argument| source.position(argument.span.start).line;
        Self(added.map(|argument| (argument.flag.value.clone(), place(argument))).collect())
    }

    /// As a phrase; empty if the launch is the same in every branch.
    pub fn in_words(&self) -> String {
        let Some((flag, line)) = self.0.first() else { return String::new() };
        match self.0.len() - 1 {
            0 => format!(" (with `{flag}` of line {line})"),
            more => format!(" (with `{flag}` of line {line} and {more} more flags in branches)"),
        }
    }
}

/// One checked text and its findings.
pub(super) struct CheckedText {
    pub source: Source,
    pub diagnostics: Vec<Diagnostic>,
    /// What its launches resolve to, each with its branches of the script.
    pub resolved: Vec<(CheckBranch, Resolved)>,
    /// The rules that could not be checked in each launch, if they are listed.
    pub unchecked: Vec<(Span, Vec<Unchecked>)>,
    /// Whether there is a launch that cannot be edited.
    pub has_composed: bool,
    /// Whether there was nothing to check: no launch, in a text that need not have one.
    pub passed_over: bool,
}

impl CheckedText {
    fn nothing(source: Source) -> Self {
        Self {
            source,
            diagnostics: Vec::new(),
            resolved: Vec::new(),
            unchecked: Vec::new(),
            has_composed: false,
            passed_over: false,
        }
    }

    pub fn findings(&self) -> Findings<'_> {
        Findings { source: &self.source, diagnostics: &self.diagnostics }
    }
}

impl<'a> Linter<'a> {
    pub fn new(arguments: &'a Arguments, runs: RunningEngine) -> anyhow::Result<Self> {
        Ok(Self {
            arguments,
            known: Mutex::new(ModelFactsCache::new(arguments)?),
            settings: AppliedSettings::new(arguments.config.as_deref(), arguments.isolated)?,
            runs,
        })
    }

    /// The settings from the command line, else from the file's settings.
    pub fn settings_of(&self, file: &Path) -> anyhow::Result<CheckSettings> {
        let Arguments { select, ignore, engine, engine_version, gpu_memory, expected_concurrency, .. } = self.arguments;
        let lint = self.settings.for_file(file)?;
        let select = if select.is_empty() { &lint.select } else { select };
        // --ignore adds to the file's settings, while --select replaces them.
        let ignore: Vec<&String> = lint.ignore.iter().chain(ignore).collect();
        let select: Vec<&String> = select.iter().collect();
        Ok(CheckSettings {
            selection: Selection::new(&select, &ignore)?.of_server(self.runs.kind),
            engine: engine.or(lint.engine()),
            // What a server runs is known; the settings only say what is expected to run.
            engine_version: engine_version.or(self.runs.version).or(lint.engine_version()),
            gpu_memory: gpu_memory.or(lint.gpu_memory).map(|memory| memory.0),
            expected_concurrency: expected_concurrency.or(lint.expected_concurrency),
            found: false,
        })
    }

    /// Checks a text.
    pub fn check(&self, source: Source, settings: &CheckSettings) -> CheckedText {
        if let Some(mut diagnostics) = ours::findings(&source) {
            diagnostics.retain(|finding| settings.selection.admits_finding(finding));
            return CheckedText { diagnostics, ..CheckedText::nothing(source) };
        }
        let options =
            launch::Options { engine: settings.engine, version: settings.engine_version, ..launch::Options::default() };
        let parsed = launch::parse(&source, &options);
        let mut checked = CheckedText::nothing(source);
        if parsed.launches.is_empty() && (self.arguments.allow_no_launch || settings.found) {
            return CheckedText { passed_over: true, ..checked };
        }
        checked.has_composed = parsed.launches.iter().any(|launch| !launch.is_editable());
        let branches: Vec<CheckBranch> =
            parsed.launches.iter().map(|launch| CheckBranch::from_launch(launch, &checked.source)).collect();
        let facts = |launch: &Launch| self.known.lock().unwrap_or_else(PoisonError::into_inner).for_launch(launch);
        let options = report::ReportOptions {
            selection: settings.selection.clone(),
            version: settings.engine_version,
            gpu_memory: settings.gpu_memory,
            expected_concurrency: settings.expected_concurrency,
            unchecked: self.arguments.unchecked,
        };
        let report = report(&checked.source, parsed, facts, &options);
        checked.diagnostics = report.findings;
        checked.unchecked = report.unchecked;
        checked.resolved = branches.into_iter().zip(report.resolved).collect();
        checked
    }
}
