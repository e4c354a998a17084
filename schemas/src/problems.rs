//! Problems of a launch text, found before any rule runs, and of the files that spectune reads.

use crate::{diagnostic::Severity, finding::Finding, text::Span};

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
        $(#[doc = $summary] pub const $constant: Problem =
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
    VLLM_UNREAD = "LT07" "vllm-unread" Info "in a vLLM launch, combinations of flags are checked only in the speculative configuration and where vLLM refuses them at start";
    STRAY_VALUE = "LT08" "stray-value" Error "a word follows a switch that takes no value";
    UNKNOWN_FLAG = "LT09" "unknown-flag" Error "no version of the engine knows a flag";
    UNUSED_SUPPRESSION = "LT10" "unused-suppression" Warning "a suppression comment matches no finding";
    WRONG_SUPPRESSION = "LT11" "wrong-suppression" Warning "a suppression comment names an unknown rule";
    YAML_SYNTAX = "LT12" "invalid-yaml" Error "a YAML file is not valid";
    BAD_VALUE = "LT13" "bad-value" Error "a flag that takes a number or a JSON object has something else, or a key of vLLM's JSON a value of another type";
    JSON_SYNTAX = "LT14" "invalid-json" Error "the JSON of a flag cannot be read";
    ODD_BLANK = "LT15" "odd-blank" Error "a no-break space or another odd blank joins words that it seems to separate, or a typographic dash or quote is written where a plain one is meant";
    IMAGE_ENTRY_POINT = "LT16" "image-entry-point" Error "a container image does not take the command after it: its entry point is the server itself, or runs a flag as a program";
    NO_SHELL = "LT17" "no-shell" Error "arguments that no shell reads are written as for a shell: a flag and its value in one item, a comment, a backslash at the end of a line; or a shell keeps them as parameters of its script";
    NEWER_VERSION = "LT18" "newer-version" Info "the engine's version is newer than all that are known: what changed since is not";
    WITHOUT_MODEL = "LT19" "without-model" Error "a server is started without the model that its parser requires";
    NOT_CHECKED = "LT20" "not-checked" Error "a file or a folder that is to be checked cannot be read, or has no launch";
}

impl Problem {
    /// A finding of this kind.
    pub fn at(&self, span: Span, message: impl Into<String>, label: impl Into<String>) -> Finding {
        Finding::new(span, message, label).with_code(self.code, self.name, self.severity)
    }
}
