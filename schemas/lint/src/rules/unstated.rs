//! Findings for launches whose engine version is not certain. A launch without a version is checked
//! for the newest one, but may be written for an older one; a version from the text around a launch
//! may be that of another launch. So each error is checked in every version that the launch may be
//! for, and becomes a warning that names the versions unless it is an error in all of them. Rules
//! are unaware of this: a rule is a function of the version and is evaluated again.

use std::cell::OnceCell;

use launch::{
    Launch,
    resolve::{Resolved, resolve},
};
use schemas::{
    diagnostic::{Fix, Severity},
    engines::Engine,
    finding::{Finding, Verdict},
    version::EngineVersion,
};

use super::{Context, LintRule};

/// The oldest versions assumed for a launch without a version, unless only older ones have all of
/// its flags, or the text around it states an older one.
const OLDEST_SGLANG: EngineVersion = EngineVersion::new(0, 5, 2);
const OLDEST_VLLM: EngineVersion = EngineVersion::new(0, 10, 0);

/// The versions that a launch may be for, with the resolved configuration of each.
pub(super) struct Candidates<'a> {
    context: Context<'a>,
    all: OnceCell<Vec<CandidateVersion>>,
}

struct CandidateVersion {
    resolved: Resolved,
    /// Whether the version has every flag of the launch.
    knows_flags: bool,
}

impl<'a> Candidates<'a> {
    pub fn new(context: &Context<'a>) -> Self {
        Self { context: *context, all: OnceCell::new() }
    }

    /// What a finding is in the versions that the launch may be for, if it has this severity in the
    /// assumed one. A fix that the text's version would take is right if the text states one.
    pub fn judge(&self, rule: &LintRule, found: &Finding, severity: Severity) -> Verdict {
        let (context, is_stated) = (&self.context, self.context.resolved.version_given);
        let is_judged = severity == Severity::Error || found.fix.is_some();
        let is_open = !context.version_is_certain() && is_judged && context.launch.engine != Engine::Spectune;
        let mut verdict = if is_open { self.compare(rule, found, severity) } else { Verdict::default() };
        verdict.assumed = if found.depends.version { context.assumed_version() } else { None };
        let versions = || if is_stated { vec![context.version()] } else { self.possible() };
        let is_taken = |fix: &Fix| versions().iter().all(|version| takes(context.launch, fix, *version));
        verdict.is_fix_wrong |= found.fix.as_ref().is_some_and(|fix| !is_taken(fix));
        verdict
    }

    /// Evaluates the rule in every version.
    fn compare(&self, rule: &LintRule, found: &Finding, severity: Severity) -> Verdict {
        let harm_in = |candidate: &CandidateVersion| {
            let context = Context { resolved: &candidate.resolved, ..self.context };
            let same = rule.look(&context).into_iter().filter(|other| other.span == found.span);
            same.map(|other| other.harm).max()
        };
        let judged: Vec<(&CandidateVersion, Option<Severity>)> =
            self.all().iter().map(|candidate| (candidate, harm_in(candidate))).collect();
        let possible = || judged.iter().filter(|(candidate, _)| candidate.knows_flags || !self.any_knows_flags());
        let holds = |least: Severity| possible().all(|(_, harm)| *harm >= Some(least));
        let is_error_in_all = holds(Severity::Error);
        let is_fix_wrong = !self.context.resolved.version_given && !holds(Severity::Info);
        let verdict = Verdict { is_error_in_all, is_fix_wrong, ..Verdict::default() };
        if severity != Severity::Error || is_error_in_all {
            return verdict;
        }
        let names = |is_error: bool| {
            let is = |harm: &Option<Severity>| (*harm == Some(Severity::Error)) == is_error;
            runs(judged.iter().map(|(candidate, harm)| (candidate.resolved.version, is(harm))))
        };
        let engine = self.context.launch.engine.reference();
        let in_which = match names(false) {
            sound if sound.is_empty() => format!("an error in {engine} {}", names(true)),
            sound => format!("an error in {engine} {}, and none in {sound}", names(true)),
        };
        let why = match self.context.version_is_inferred() {
            true => format!(
                "{engine} {} is stated elsewhere in the text and may be the version of another launch; set it with \
                 `--engine-version`",
                self.context.version()
            ),
            false => "the version is not stated; set it with `--engine-version`".into(),
        };
        Verdict { versions: vec![in_which, why], ..verdict }
    }

    fn all(&self) -> &[CandidateVersion] {
        self.all.get_or_init(|| {
            let (launch, registered) = (self.context.launch, self.context.launch.engine.registered());
            let oldest = if launch.engine == Engine::Vllm { OLDEST_VLLM } else { OLDEST_SGLANG };
            let oldest = if self.context.version_is_inferred() { oldest.min(self.context.version()) } else { oldest };
            let Context { target, draft, gpu_memory, .. } = self.context;
            let knows = |version: EngineVersion| launch.has_flags_of(version);
            let (older, recent): (Vec<EngineVersion>, Vec<EngineVersion>) =
                registered.versions().iter().partition(|version| **version < oldest);
            let fitting: Vec<EngineVersion> =
                if recent.iter().any(|version| knows(*version)) { Vec::new() } else { older };
            let fitting = fitting.into_iter().filter(|version| knows(*version));
            let candidate = |version: EngineVersion| CandidateVersion {
                resolved: resolve(launch, version, true, target, draft, gpu_memory),
                knows_flags: knows(version),
            };
            fitting.chain(recent).map(candidate).collect()
        })
    }

    fn any_knows_flags(&self) -> bool {
        self.all().iter().any(|candidate| candidate.knows_flags)
    }

    /// The versions that have every flag of the launch; all if none does.
    fn possible(&self) -> Vec<EngineVersion> {
        let any = self.any_knows_flags();
        let known = self.all().iter().filter(|candidate| candidate.knows_flags || !any);
        known.map(|candidate| candidate.resolved.version).collect()
    }
}

/// Whether a version has every flag that a fix writes.
fn takes(launch: &Launch, fix: &Fix, version: EngineVersion) -> bool {
    let registered = launch.engine.registered();
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let texts = fix.edits.iter().map(|edit| edit.replacement.as_str());
    let words = texts.flat_map(|text| text.split(|letter| !is_word(letter)));
    let names = words.map(|word| word.trim_start_matches('-').trim_start_matches("sglang-").replace('_', "-"));
    let spellings = names.filter(|name| name.contains('-')).filter_map(|name| registered.spelling(&name));
    spellings.into_iter().all(|spelling| spelling.exists_in(version))
}

/// The versions that are paired with true, as text, with neighbours merged into ranges.
fn runs(versions: impl Iterator<Item = (EngineVersion, bool)>) -> String {
    let mut runs: Vec<(EngineVersion, EngineVersion)> = Vec::new();
    let mut goes_on = false;
    for (version, is_so) in versions {
        match runs.last_mut() {
            Some((_, last)) if is_so && goes_on => *last = version,
            _ if is_so => runs.push((version, version)),
            _ => {}
        }
        goes_on = is_so;
    }
    let shown: Vec<String> = runs
        .iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first} to {last}") })
        .collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use launch::{Options, parse, resolve::version_of};
    use schemas::{diagnostic::Diagnostic, text::Source};

    use super::*;
    use crate::rules::{Selection, lint};

    /// The findings of the only launch of a text, with the version that it states, if any.
    fn found(name: &str, text: &str) -> Vec<Diagnostic> {
        found_with(&Options::default(), name, text)
    }

    fn found_with(options: &Options, name: &str, text: &str) -> Vec<Diagnostic> {
        let parsed = parse(&Source::new(name, text), options);
        let launch = parsed.launches.first().expect("a launch");
        let (version, given) = version_of(launch, options.version);
        let resolved = resolve(launch, version, given, None, None, None);
        lint(&Context::alone(launch, &resolved), None, &Selection::default())
    }

    fn check(text: &str, code: &str, severity: Severity, notes: &[&str]) {
        check_in("run.sh", text, code, severity, notes);
    }

    #[track_caller]
    fn check_in(name: &str, text: &str, code: &str, severity: Severity, notes: &[&str]) {
        let found = found(name, text);
        let one = found.iter().find(|one| one.code == code).unwrap_or_else(|| panic!("{code} in {found:?}"));
        assert_eq!(one.severity, severity, "{one:?}");
        for note in notes {
            assert!(one.notes.iter().any(|own| own.contains(note)), "'{note}' in {one:?}");
        }
    }

    #[test]
    fn an_error_of_some_versions_is_a_warning_that_names_them() {
        // No version has both flags.
        check(
            "python3 -m sglang.launch_server --model-path m --max-running-requests 16 --cuda-graph-max-bs 16 \
             --speculative-algorithm NGRAM --enable-http-worker-reuseport",
            "SD086",
            Severity::Warning,
            &["an error in sglang 0.5.20 to 0.5.23, and none in 0.5.2 to 0.5.19"],
        );
    }

    #[test]
    fn a_finding_that_names_versions_does_not_also_name_an_assumed_one() {
        let old = "python3 -m sglang.launch_server --model-path m --max-running-requests 16 --cuda-graph-max-bs 16 \
                   --speculative-algorithm NGRAM --enable-http-worker-reuseport";
        let found = found("run.sh", old);
        let one = found.iter().find(|one| one.code == "SD086").expect("a finding");
        let of_versions = one.notes.iter().filter(|note| note.contains("sglang 0.5")).count();
        assert_eq!(of_versions, 1, "{:?}", one.notes);
    }

    #[test]
    fn an_error_of_every_version_that_knows_the_flags_stays_one() {
        let launch = "python3 -m sglang.launch_server --model-path m --max-running-requests 16 \
                      --speculative-algorithm EAGLE --speculative-num-steps 3";
        check(launch, "SD021", Severity::Error, &[]);
        // The flag was added in 0.5.14, so older versions do not count.
        check(&format!("{launch} --cuda-graph-bs-decode 1 2"), "SD021", Severity::Error, &[]);
    }

    #[test]
    fn a_version_that_may_be_of_another_launch_gives_a_warning_unless_every_version_has_the_error() {
        // Renamed in 0.5.20.
        let old = "python3 -m sglang.launch_server --model-path m --max-running-requests 16 --cuda-graph-max-bs 16 \
                   --speculative-algorithm NGRAM";
        let (tag, note) = ("lmsysorg/sglang:v0.5.23", "sglang 0.5.23 is stated elsewhere in the text");
        for (name, text) in [
            ("a.md", format!("Image: `{tag}`\n\n```bash\n{old}\n```\n")),
            ("a.md", format!("# A\n```bash\ndocker pull {tag}\n```\n```bash\n{old}\n```\n")),
        ] {
            check_in(name, &text, "SD086", Severity::Warning, &[note]);
        }
        // Prose and a folder's name count for nothing if their version lacks the flag.
        check_in("run.sh", &format!("# Tested with SGLang v0.5.23.\n{old}\n"), "SD086", Severity::Info, &[]);
        check_in("v0.5.23/run.sh", old, "SD086", Severity::Info, &[]);
        for (name, text) in [
            ("a.md", format!("```bash\ndocker pull {tag}\n{old}\n```\n")),
            ("a.md", format!("```bash\ndocker run --gpus all {tag} {old}\n```\n")),
            ("run.sh", format!("docker pull {tag}\n{old}\n")),
        ] {
            check_in(name, &text, "SD086", Severity::Error, &[]);
        }
        let steps = "python3 -m sglang.launch_server --model-path m --max-running-requests 16 \
                     --speculative-algorithm EAGLE --speculative-num-steps 3";
        check_in("a.md", &format!("Image: `{tag}`\n\n```bash\n{steps}\n```\n"), "SD021", Severity::Error, &[]);
        // The user's word ends all doubt.
        let page = format!("Image: `{tag}`\n\n```bash\n{old}\n```\n");
        let stated = Options { version: Some(EngineVersion::new(0, 5, 23)), ..Options::default() };
        let found = found_with(&stated, "a.md", &page);
        assert!(found.iter().any(|one| one.code == "SD086" && one.severity == Severity::Error), "{found:?}");
    }

    #[test]
    fn neighbours_are_drawn_together() {
        let version = |patch| EngineVersion::new(0, 5, patch);
        let shown =
            runs([(version(2), true), (version(6), true), (version(9), false), (version(10), true)].into_iter());
        assert_eq!(shown, "0.5.2 to 0.5.6, 0.5.10");
    }
}
