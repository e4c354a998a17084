//! What the linter says of a launch that is tuned: before the first start, once the engine's
//! version is known, and of the shapes that would be tried.

use std::cell::RefCell;

use launch::Launch;
use schemas::{
    diagnostic::{Diagnostic, Findings, Format, Severity, render},
    engines::{Engine, newest_known},
    sweep::Space,
    text::{Source, Span},
    tree::TreeShape,
    version::EngineVersion,
};
use tuner::{
    TunerError,
    from_launch::{LaunchDraft, rewrite},
    trials::configuration::Configuration,
};

use crate::{commands::lint, terminal};

/// The linter's findings in a launch.
pub struct Checks<'a> {
    source: &'a Source,
    launch: &'a Launch,
    /// Whether errors are ignored.
    force: bool,
    /// What was shown already. A warning for all versions may be an error in the one that runs.
    shown: RefCell<Vec<(&'static str, Span, Severity)>>,
}

impl<'a> Checks<'a> {
    /// Of a launch.
    pub fn from_source(source: &'a Source, launch: &'a Launch, force: bool) -> Self {
        Self { source, launch, force, shown: RefCell::default() }
    }

    /// Shows what is found in the launch, for the version that the text states; false if that has
    /// errors that stop.
    ///
    /// # Errors
    /// When a settings file of the linter is wrong.
    pub fn is_sound(&self) -> anyhow::Result<bool> {
        unknown_version(self.launch, None).iter().for_each(|note| terminal::note(note));
        let errors = self.show(None)?;
        if errors > 0 && !self.force {
            terminal::note(
                "the launch has errors, so it is not started: correct them, or start it anyway with --force",
            );
        }
        Ok(errors == 0 || self.force)
    }

    /// Shows what is found in addition for the version that runs.
    ///
    /// # Errors
    /// When the launch has errors in this version, unless they are ignored.
    pub fn for_version(&self, version: EngineVersion) -> Result<(), TunerError> {
        unknown_version(self.launch, Some(version)).iter().for_each(|note| terminal::note(note));
        let errors = self.show(Some(version)).map_err(|error| TunerError::Configuration(error.to_string()))?;
        if errors == 0 || self.force {
            return Ok(());
        }
        Err(TunerError::Configuration(format!(
            "the launch has errors for {} {version}, the version that runs: correct them, or measure it anyway with --force",
            self.launch.engine
        )))
    }

    /// Prints findings that were not printed yet; returns the number of errors among them.
    fn show(&self, version: Option<EngineVersion>) -> anyhow::Result<usize> {
        let mut shown = self.shown.borrow_mut();
        let mut findings = within(lint::findings_of(self.source, version)?, self.launch.span);
        let key = |finding: &Diagnostic| (finding.code, finding.span, finding.severity);
        findings.retain(|finding| !shown.contains(&key(finding)));
        shown.extend(findings.iter().map(key));
        if findings.is_empty() {
            return Ok(0);
        }
        if let Some(version) = version {
            terminal::note(&format!("{} {version} runs; for this version the linter adds:", self.launch.engine));
        }
        let found = [Findings { source: self.source, diagnostics: &findings }];
        terminal::note(render(&found, Format::Full, terminal::stderr_is_coloured()).trim_end());
        Ok(findings.iter().filter(|finding| finding.severity == Severity::Error).count())
    }

    /// Removes the shapes that the engine would refuse in this launch, and says which, with the
    /// linter's reason.
    ///
    /// # Errors
    /// When a settings file of the linter is wrong.
    pub fn keep_sound_shapes(&self, space: &mut Space, draft: &LaunchDraft) -> anyhow::Result<Vec<String>> {
        let mut refused = Vec::new();
        let mut kept = Vec::new();
        for text in std::mem::take(&mut space.shapes) {
            match text.parse().ok().map(|shape| self.refusal(shape, draft)).transpose()?.flatten() {
                Some(reason) => refused.push(format!("{text}: {reason}")),
                None => kept.push(text),
            }
        }
        // What all are refused for is measured if the user asks for that.
        if !(kept.is_empty() && self.force) {
            space.shapes = kept;
            return Ok(refused);
        }
        space.shapes = refused.iter().filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect();
        Ok(Vec::new())
    }

    /// Why the launch would not run a shape; `None` if it would, or if it cannot be written with
    /// it.
    fn refusal(&self, shape: TreeShape, draft: &LaunchDraft) -> anyhow::Result<Option<String>> {
        let Some(text) = rewrite(self.source, self.launch, draft, &Configuration::from_shape(shape)).text else {
            return Ok(None);
        };
        let end = self.launch.span.end + text.len().saturating_sub(self.source.text().len());
        let place = Span::new(self.launch.span.start, end);
        let changed = Source::new(self.source.name(), text);
        let known = self.shown.borrow();
        let found = within(lint::findings_of(&changed, None)?, place);
        let error = found.into_iter().find(|finding| {
            finding.severity == Severity::Error && !known.iter().any(|(code, ..)| *code == finding.code)
        });
        Ok(error.map(|finding| format!("{} ({})", finding.message, finding.code)))
    }
}

/// A warning if nothing is known of the version of a launch's engine: of the one that runs, else of
/// the one that the launch states.
fn unknown_version(launch: &Launch, runs: Option<EngineVersion>) -> Option<String> {
    let engine = launch.engine.reference();
    // slime pins its version, and spectune's own server is this program.
    if matches!(launch.engine, Engine::Spectune) {
        return None;
    }
    let stated = runs.or(launch.engine_version.as_ref().map(|version| version.value));
    let Some(version) = stated else {
        let image = launch.image.as_deref().filter(|_| launch.engine != Engine::Slime)?;
        return Some(format!(
            "warning: the image {image} does not say its version of {engine}: until a server tells it, flags and defaults are \
             those of {}, the newest one that is known",
            newest_known(engine)
        ));
    };
    let known = engine.registered().versions();
    if known.contains(&version) {
        return None;
    }
    let nearest = known.iter().rev().find(|known| **known <= version).or(known.first())?;
    Some(format!(
        "warning: {engine} {version} is not known: its flags and defaults are taken to be those of {nearest}, the nearest \
         known version, so what is said of them may be wrong"
    ))
}

/// The warnings and errors of a launch.
fn within(mut findings: Vec<Diagnostic>, launch: Span) -> Vec<Diagnostic> {
    findings.retain(|finding| {
        let is_inside = launch.start <= finding.span.start && finding.span.end <= launch.end;
        is_inside && finding.severity >= Severity::Warning
    });
    findings
}

#[cfg(test)]
mod tests {
    use launch::{Options, parse};

    use super::*;

    /// Adaptive steps are a flag of newer versions.
    const LAUNCH: &str = "python3 -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3 \
                          --speculative-draft-model-path d --speculative-num-steps 3 --speculative-eagle-topk 1 \
                          --speculative-num-draft-tokens 4 --speculative-adaptive\n";

    fn check(versions: &[&str], force: bool, expected: Result<(), &str>) {
        let source = Source::new("run.sh", LAUNCH);
        let parsed = parse(&source, &Options::default());
        let checks = Checks::from_source(&source, parsed.launches.first().expect("a launch"), force);
        assert!(checks.is_sound().expect("no settings"), "without a version there are warnings at most");
        let for_version = |version: &&str| checks.for_version(version.parse().expect("a version"));
        match (versions.iter().try_for_each(for_version), expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
            (found, expected) => panic!("{versions:?}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn a_version_that_is_not_known_is_reported_with_the_nearest_one() {
        let reported = |text: &str, runs: Option<&str>| {
            let parsed = parse(&Source::new("run.sh", text), &Options::default());
            let runs = runs.map(|version| version.parse().expect("a version"));
            unknown_version(parsed.launches.first().expect("a launch"), runs).unwrap_or_default()
        };
        assert!(
            reported(LAUNCH, Some("0.9.99")).contains("sglang 0.9.99 is not known"),
            "{}",
            reported(LAUNCH, Some("0.9.99"))
        );
        assert!(reported(LAUNCH, Some("0.9.99")).contains(&newest_known(Engine::Sglang).to_string()));
        assert_eq!((reported(LAUNCH, None), reported(LAUNCH, Some("0.5.9"))), (String::new(), String::new()));
        let container = "docker run --gpus all vllm/vllm-openai:TAG --model m\n";
        assert!(reported(&container.replace("TAG", "latest"), None).contains("does not say its version"));
        assert!(reported(&container.replace("TAG", "v0.99.9"), None).contains("vllm 0.99.9 is not known"));
    }

    #[test]
    fn the_version_that_runs_decides_about_errors() {
        check(&["0.5.23"], false, Ok(()));
        check(&["0.5.6"], false, Err("sglang 0.5.6, the version that runs"));
        check(&["0.5.6"], true, Ok(()));
        check(&["0.5.23", "0.5.6"], false, Err("0.5.6"));
    }
}
