//! `sh -c SCRIPT …`: what follows the script are its parameters, wherever the words are written.

use schemas::{finding::Finding, text::Span};

use crate::problems::NO_SHELL;

/// Whether an option of a shell takes the script that follows it: `-c`, `-lc`, `-euxc`.
pub(crate) fn takes_script(option: &str) -> bool {
    let letters = option.strip_prefix('-').and_then(|letters| letters.strip_suffix('c'));
    letters.is_some_and(|letters| letters.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// Whether a script uses its parameters.
pub(crate) fn uses_parameters(script: &str) -> bool {
    let uses_them = ["$@", "$*", "${@", "${*", "$0", "$1", "${1", "$2", "shift"];
    uses_them.iter().any(|own| script.contains(own))
}

/// A flag after the script of `sh -c`.
pub(crate) fn kept(flag: &str, span: Span) -> Finding {
    let message = format!("the shell keeps `{flag}` as a parameter of its script, so the engine does not get it");
    let help = "write it into the script, or end the script with `\"$@\"` and put a name for `$0` before it";
    NO_SHELL.at(span, message, "a parameter of the script").help(help)
}
