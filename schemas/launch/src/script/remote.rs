//! `ssh HOST WORDS…`: the words are joined with blanks, and a shell on the host reads them again.

use super::{
    super::{
        compose::Composed,
        shell::{ShellWord, SimpleCommand},
    },
    Interpreter, Used,
};
use crate::programs;

/// Options of ssh without a value.
const SWITCHES: &str = "46AaCfGgKkMNnqsTtVvXxYy";

impl<'a> Interpreter<'a> {
    /// Keeps the command that several words of `ssh` become, if the second reading changes them.
    /// False if it does not, or if it starts no engine.
    pub(super) fn run_remotely(&mut self, command: &SimpleCommand<'a>, used: &mut Used<'a>) -> bool {
        let Some(words) = remote_words(&command.words).filter(|words| words.len() > 1) else { return false };
        let is_read_twice = |word: &ShellWord<'a>| {
            let written = self.source.slice(word.span);
            written.starts_with(['"', '\'', '\\']) && written.contains(['{', '\'', '\\', '['])
        };
        if !words.iter().any(is_read_twice) {
            return false;
        }
        let mut text = Composed::default();
        for word in words {
            let split = self.split_value(word.span, used);
            if split.is_open {
                return false;
            }
            text.space();
            text.append(&split.literal);
        }
        let surroundings = self.surroundings(&command.assignments);
        self.run_later(text, surroundings, used)
    }
}

/// The words that ssh runs on the host.
fn remote_words<'w, 'a>(words: &'w [ShellWord<'a>]) -> Option<&'w [ShellWord<'a>]> {
    let mut at = words.iter().position(|word| word.text().map(programs::base) == Some("ssh"))? + 1;
    while let Some(option) = words.get(at).and_then(ShellWord::text).and_then(|text| text.strip_prefix('-')) {
        let takes_value = option.len() == 1 && !SWITCHES.contains(option);
        at += 1 + usize::from(takes_value);
    }
    words.get(at + 1..)
}
