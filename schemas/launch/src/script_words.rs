//! `sh -c SCRIPT …`: what follows the script are its parameters, wherever the words are written.

use schemas::{finding::Finding, text::Span};

use crate::problems::NO_SHELL;

/// Whether an option of a shell takes the script that follows it: `-c`, `-lc`, `-euxc`.
pub(crate) fn takes_script(option: &str) -> bool {
    let letters = option.strip_prefix('-').and_then(|letters| letters.strip_suffix('c'));
    letters.is_some_and(|letters| letters.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// The place of the script among the words after the name of a shell, if an option takes one. Words
/// that are not known are `None`.
pub(crate) fn script_place<'w>(words: impl IntoIterator<Item = Option<&'w str>>) -> Option<usize> {
    let mut words = words.into_iter().enumerate();
    let (option, word) =
        words.find(|(_, word)| word.is_none_or(|word| !word.starts_with('-') || takes_script(word)))?;
    word.is_some_and(takes_script).then_some(option + 1)
}

/// The first flag among the words after the script of `sh -c`, which does not use them.
pub(crate) fn kept<'w>(script: &str, parameters: impl IntoIterator<Item = (&'w str, Span)>) -> Option<Finding> {
    let uses_them = ["$@", "$*", "${@", "${*", "$0", "$1", "${1", "$2", "shift"];
    if uses_them.iter().any(|own| script.contains(own)) {
        return None;
    }
    let (word, span) = parameters.into_iter().find(|(word, _)| word.starts_with("--"))?;
    let flag = word.split(['=', ' ']).next().unwrap_or_default();
    let message = format!("the shell keeps `{flag}` as a parameter of its script, so the engine does not get it");
    let help = "write it into the script, or end the script with `\"$@\"` and put a name for `$0` before it";
    Some(NO_SHELL.at(span, message, "a parameter of the script").help(help))
}
