//! Problems of a launch text, found before any rule runs.

use super::{Parsed, shell::Trouble};
use crate::{
    diagnostic::{Diagnostic, Edit, Fix, Safety, Severity},
    text::{Source, Span},
};

/// A kind of problem with the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Permanent, like the rules' codes.
    pub code: &'static str,
    /// A name in kebab case.
    pub name: &'static str,
    /// The maximum severity of its findings.
    pub severity: Severity,
    /// One line for the table of codes.
    pub summary: &'static str,
}

macro_rules! problems {
    ($($constant:ident = $code:literal $name:literal $severity:ident $summary:literal;)*) => {
        $(pub(crate) const $constant: Problem =
            Problem { code: $code, name: $name, severity: Severity::$severity, summary: $summary };)*

        /// Every kind of problem, by code.
        pub const PROBLEMS: &[Problem] = &[$($constant),*];
    };
}

problems! {
    TOO_LARGE = "LT01" "text-too-large" Error "the text is too large to be a launch";
    NO_LAUNCH = "LT02" "no-launch" Error "no launch was found in the text";
    UNCLOSED = "LT03" "unclosed-quote" Warning "a quote, a substitution or an array is not closed";
    BROKEN_LINE = "LT04" "broken-continuation" Error "the command ends before its flags";
    MISSING_VALUE = "LT05" "missing-value" Error "a flag that takes a value has no value";
    TOML_SYNTAX = "LT06" "invalid-toml" Error "a configuration file is not valid TOML, or has a wrong key or value";
    VLLM_UNREAD = "LT07" "vllm-unread" Info "in a vLLM launch, each flag and the speculative configuration are checked, but not combinations of other flags";
    STRAY_VALUE = "LT08" "stray-value" Error "a word follows a switch that takes no value";
    UNKNOWN_FLAG = "LT09" "unknown-flag" Error "no version of the engine knows a flag";
    UNUSED_SUPPRESSION = "LT10" "unused-suppression" Warning "a suppression comment matches no finding";
    WRONG_SUPPRESSION = "LT11" "wrong-suppression" Warning "a suppression comment names an unknown rule";
    YAML_SYNTAX = "LT12" "invalid-yaml" Error "a YAML file is not valid";
    BAD_VALUE = "LT13" "bad-value" Error "a flag that takes a number has something else, or a key of vLLM's JSON a value of another type";
    JSON_SYNTAX = "LT14" "invalid-json" Error "the JSON of vLLM's speculative configuration cannot be read";
    ODD_BLANK = "LT15" "odd-blank" Error "a no-break space or another odd blank joins words that it seems to separate";
    IMAGE_ENTRY_POINT = "LT16" "image-entry-point" Error "a container image does not take the command after it: its entry point is the server itself, or runs a flag as a program";
    NO_SHELL = "LT17" "no-shell" Error "arguments that no shell reads are written as for a shell: a flag and its value in one item, a comment, a backslash at the end of a line";
}

impl Problem {
    /// A finding of this kind.
    pub(crate) fn at(&self, span: Span, message: impl Into<String>, label: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code: self.code,
            name: self.name,
            severity: self.severity,
            message: message.into(),
            span,
            label: label.into(),
            related: Vec::new(),
            notes: Vec::new(),
            help: None,
            fix: None,
        }
    }
}

pub(super) fn too_large(source: &Source) -> Parsed {
    let message =
        format!("the text has {} bytes; the limit for a launch text is {}", source.text().len(), super::LONGEST_TEXT);
    let mut diagnostic = TOO_LARGE.at(Span::default(), message, "not read");
    diagnostic.help = Some("give the script or command line that starts the engine, not its log".into());
    Parsed { launches: Vec::new(), diagnostics: vec![diagnostic] }
}

/// Limits a finding to a warning, since a fork may differ.
pub(super) fn at_most_warning(mut found: Diagnostic) -> Diagnostic {
    found.severity = found.severity.min(Severity::Warning);
    found
}

pub(super) fn too_many_words(first: Span, most: usize) -> Diagnostic {
    let message = format!("the launch has more than {most} words; the rest is not read");
    let mut diagnostic = TOO_LARGE.at(first, message, "not read from here on");
    diagnostic.help = Some("give the script or command line that starts the engine, not its log".into());
    diagnostic
}

pub(super) fn of_trouble(trouble: Trouble) -> Diagnostic {
    match trouble {
        Trouble::Unclosed(span) => {
            UNCLOSED.at(span, "this quote or substitution is not closed", "read as plain text from here")
        }
        Trouble::UnclosedArray(span) => {
            let mut diagnostic = UNCLOSED.at(span, "this array is not closed", "no `)` ends it");
            diagnostic.help = Some("write `)` on the line after its last flag".into());
            diagnostic
        }
        Trouble::BlankAfterBackslash { span, is_odd } => {
            let blank = if is_odd { "a no-break space (U+00A0)" } else { "a space" };
            let message = format!("{blank} after the backslash: the line is not continued, so the command ends here");
            let mut diagnostic = BROKEN_LINE.at(span, message, "the backslash must be the last character of the line");
            diagnostic.help = Some("remove the space after the backslash".into());
            let edit = Edit { span: Span::new(span.start + 1, span.end), replacement: String::new() };
            let description = "remove the space after the backslash".into();
            diagnostic.fix = Some(Fix { description, safety: Safety::Safe, edits: vec![edit] });
            diagnostic
        }
        Trouble::CommentAfterBackslash(span) => {
            let message = "a comment after the backslash: the line is not continued, so the command ends here";
            let mut diagnostic = BROKEN_LINE.at(span, message, "the backslash must be the last character of the line");
            diagnostic.help = Some("move the comment out of the command".into());
            diagnostic
        }
    }
}
