//! The severity of a finding: its harm, lowered by doubts and by versions in which it is not an
//! error. Notes say why.

use super::{Depends, Doubt, Finding};
use crate::diagnostic::{Diagnostic, Severity};

/// What is known of a finding in the versions that a launch may be for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is an error in every version that has the launch's flags.
    pub is_error_in_all: bool,
    /// Notes that name the versions in which it is an error, if that is not all of them.
    pub versions: Vec<String>,
    /// A note that names the version that was assumed.
    pub assumed: Option<String>,
    /// Whether one of the versions would not accept the fix, or lacks the finding.
    pub is_fix_wrong: bool,
}

/// What a doubt does to a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DoubtEffect {
    Nothing,
    /// The severity is at most this. A note says why, where the finding itself does not.
    AtMost(Severity, Option<&'static str>),
    /// It is no finding.
    Drops,
}

/// The table of doubts and what findings depend on.
fn effect(doubt: Doubt, depends: Depends) -> DoubtEffect {
    const WARNING: DoubtEffect = DoubtEffect::AtMost(Severity::Warning, None);
    match doubt {
        Doubt::OtherEngine => DoubtEffect::AtMost(Severity::Info, None),
        Doubt::Shown if depends.plugin => DoubtEffect::AtMost(Severity::Info, None),
        Doubt::Fork if depends.unknown_name => DoubtEffect::AtMost(Severity::Info, None),
        Doubt::Fork if depends.engine => WARNING,
        Doubt::FlagOfFork => DoubtEffect::Drops,
        Doubt::OtherRelease | Doubt::SetElsewhere | Doubt::OtherRuntime | Doubt::OtherImage => WARNING,
        Doubt::ModelByName => {
            DoubtEffect::AtMost(Severity::Warning, Some("the class of the target or the draft is taken from its name"))
        }
        Doubt::OtherSplitter if depends.lines => WARNING,
        Doubt::OtherFormat if depends.lines || depends.words || depends.quoting => {
            DoubtEffect::AtMost(Severity::Info, None)
        }
        Doubt::OtherQuoting if depends.quoting => DoubtEffect::Drops,
        Doubt::OwnFlags | Doubt::Wrapper if depends.unknown_name => DoubtEffect::Drops,
        Doubt::Wrapper if !depends.lines => {
            let note = "the program that takes these flags is not known: they may mean something else to it";
            DoubtEffect::AtMost(Severity::Warning, Some(note))
        }
        Doubt::Untaken => {
            let note = "a condition excludes this with the values in the text: it is so where others are set";
            DoubtEffect::AtMost(Severity::Warning, Some(note))
        }
        Doubt::Template => {
            let note = "a template decides which of these flags are given";
            DoubtEffect::AtMost(Severity::Warning, Some(note))
        }
        Doubt::Shown => {
            let note = "the text shows this launch: it may not be run as it is written there";
            DoubtEffect::AtMost(Severity::Warning, Some(note))
        }
        Doubt::Fork
        | Doubt::OtherSplitter
        | Doubt::OtherFormat
        | Doubt::OtherQuoting
        | Doubt::OwnFlags
        | Doubt::Wrapper => DoubtEffect::Nothing,
    }
}

/// The diagnostic of a finding; `None` if its doubts leave nothing of it. `judge` compares the
/// versions that the launch may be for; it is asked with the severity that the doubts about the
/// engine leave, and only for findings of rules.
pub fn settle(finding: Finding, judge: impl FnOnce(&Finding, Severity) -> Verdict) -> Option<Diagnostic> {
    let (mut severity, mut notes) = (finding.harm, Vec::new());
    let apply = |doubts: &mut dyn Iterator<Item = Doubt>, severity: &mut Severity, notes: &mut Vec<String>| {
        for doubt in doubts {
            match effect(doubt, finding.depends) {
                DoubtEffect::Nothing => {}
                DoubtEffect::Drops => return false,
                DoubtEffect::AtMost(most, note) => {
                    notes.extend(note.filter(|_| *severity > most).map(str::to_owned));
                    *severity = most.min(*severity);
                }
            }
        }
        true
    };
    // What the engine is comes before its version; who runs the text comes last.
    let of_text = |doubt: &Doubt| matches!(doubt, Doubt::Wrapper | Doubt::Untaken | Doubt::Template | Doubt::Shown);
    if !apply(&mut finding.doubts.iter().copied().filter(|doubt| !of_text(doubt)), &mut severity, &mut notes) {
        return None;
    }
    let verdict = judge(&finding, severity);
    if severity == Severity::Error && finding.depends.abbreviation && verdict.is_error_in_all {
        severity = Severity::Warning;
        notes.push("a version that is older than those that are known may have one such flag only".into());
    }
    let names_versions = severity == Severity::Error && !verdict.versions.is_empty();
    if names_versions {
        severity = Severity::Warning;
        notes.extend(verdict.versions);
    } else if finding.depends.version {
        // A list of versions replaces the note about the assumed one.
        notes.extend(verdict.assumed);
    }
    if !apply(&mut finding.doubts.iter().copied().filter(of_text), &mut severity, &mut notes) {
        return None;
    }
    let mut found = finding.certain();
    found.severity = severity;
    found.notes.extend(notes);
    found.fix = found.fix.filter(|_| !verdict.is_fix_wrong);
    Some(found)
}

/// The diagnostics of a reader's findings, which depend on no version.
pub fn settle_all(findings: Vec<Finding>) -> Vec<Diagnostic> {
    findings.into_iter().filter_map(|finding| settle(finding, |_, _| Verdict::default())).collect()
}

impl Finding {
    /// The diagnostic of a finding that has no doubts, such as one about a file of spectune itself.
    pub fn certain(self) -> Diagnostic {
        let Self { code, name, harm: severity, message, span, label, related, notes, help, fix, .. } = self;
        Diagnostic { code, name, severity, message, span, label, related, notes, help, fix }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{finding::Finding, text::Span};

    fn settled(depends: Depends, doubts: &[Doubt], verdict: Verdict) -> Option<(Severity, Vec<String>)> {
        let mut finding =
            Finding::new(Span::default(), "it fails", "here").with_code("SD000", "a-rule", Severity::Error);
        finding.depends = depends;
        finding.doubts.extend(doubts);
        settle(finding, |_, _| verdict).map(|found| (found.severity, found.notes))
    }

    const ALL: [Doubt; 16] = [
        Doubt::OtherEngine,
        Doubt::Fork,
        Doubt::FlagOfFork,
        Doubt::OtherRelease,
        Doubt::SetElsewhere,
        Doubt::OtherSplitter,
        Doubt::OtherFormat,
        Doubt::OtherQuoting,
        Doubt::OwnFlags,
        Doubt::OtherRuntime,
        Doubt::OtherImage,
        Doubt::ModelByName,
        Doubt::Wrapper,
        Doubt::Untaken,
        Doubt::Template,
        Doubt::Shown,
    ];

    /// Rows are doubts, columns what the finding depends on: nothing of these, the engine's flags,
    /// an unknown name, lines, words, quoting, names of plugins.
    #[test]
    fn each_doubt_lowers_what_depends_on_it() {
        let none = Depends::default();
        let columns = [
            none,
            Depends { engine: true, ..none },
            Depends { unknown_name: true, ..none },
            Depends { lines: true, ..none },
            Depends { words: true, ..none },
            Depends { quoting: true, ..none },
            Depends { plugin: true, ..none },
        ];
        let table = [
            "info    info    info    info    info    info    info",
            "error   warning info    error   error   error   error",
            "-       -       -       -       -       -       -",
            "warning warning warning warning warning warning warning",
            "warning warning warning warning warning warning warning",
            "error   error   error   warning error   error   error",
            "error   error   error   info    info    info    error",
            "error   error   error   error   error   -       error",
            "error   error   -       error   error   error   error",
            "warning warning warning warning warning warning warning",
            "warning warning warning warning warning warning warning",
            "warning warning warning warning warning warning warning",
            "warning warning -       error   warning warning warning",
            "warning warning warning warning warning warning warning",
            "warning warning warning warning warning warning warning",
            "warning warning warning warning warning warning info",
        ];
        for (doubt, row) in ALL.iter().zip(table) {
            let expected: Vec<&str> = row.split_whitespace().collect();
            let found = columns.iter().map(|depends| settled(*depends, &[*doubt], Verdict::default()));
            let found: Vec<&str> = found.map(|found| found.map_or("-", |(severity, _)| severity.word())).collect();
            assert_eq!(found, expected, "{doubt:?}");
        }
        assert_eq!(settled(none, &[], Verdict::default()), Some((Severity::Error, Vec::new())));
    }

    #[test]
    fn a_note_says_why_once() {
        let found = settled(Depends::default(), &[Doubt::Shown, Doubt::Wrapper], Verdict::default());
        let (severity, notes) = found.expect("a finding");
        assert_eq!((severity, notes.len()), (Severity::Warning, 1), "{notes:?}");
    }

    #[test]
    fn versions_without_the_error_make_it_a_warning_that_names_them() {
        let versions = vec!["an error in 2, and none in 1".to_owned()];
        let verdict =
            Verdict { versions: versions.clone(), assumed: Some("checked for 2".into()), ..Verdict::default() };
        let by_version = Depends { version: true, ..Depends::default() };
        assert_eq!(settled(by_version, &[], verdict.clone()), Some((Severity::Warning, versions)));
        // A finding that is no error anyway names the assumed version.
        let found = settled(by_version, &[Doubt::OtherRelease], verdict);
        assert_eq!(found, Some((Severity::Warning, vec!["checked for 2".to_owned()])));
    }

    #[test]
    fn an_abbreviation_may_be_clear_to_an_older_version() {
        let verdict = Verdict { is_error_in_all: true, ..Verdict::default() };
        let depends = Depends { abbreviation: true, ..Depends::default() };
        assert_eq!(settled(depends, &[], verdict).map(|(severity, _)| severity), Some(Severity::Warning));
    }

    #[test]
    fn doubts_are_ordered_as_in_the_table() {
        assert!(ALL.is_sorted());
    }
}
