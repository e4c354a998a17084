//! Commands inside of quoted words: `bash -c "…"`, `ssh host '…'`.

use super::{
    super::shell::{Command, Reader, Word},
    Interpreter,
};
use crate::text::Span;

/// How often a quoted command is looked into (`ssh host "bash -c '…'"`).
const NESTING: usize = 2;

/// Commands that say or look for what they are given, and run nothing of it.
const TALKERS: &[&str] = &[
    "[", "[[", "abort", "awk", "cat", "debug", "die", "echo", "egrep", "error", "fail", "fatal", "fgrep", "grep",
    "info", "kill", "killall", "message", "msg", "note", "notice", "pgrep", "pkill", "print", "printf", "ps", "rg",
    "say", "sed", "test", "usage", "warn", "warning",
];

/// Commands that run what they are given.
const RUNNERS: &[&str] = &[
    "apptainer",
    "ash",
    "bash",
    "dash",
    "docker",
    "eval",
    "exec",
    "kubectl",
    "mpirun",
    "nohup",
    "parallel",
    "pdsh",
    "podman",
    "ray",
    "sbatch",
    "screen",
    "sh",
    "singularity",
    "srun",
    "ssh",
    "su",
    "sudo",
    "timeout",
    "tmux",
    "watch",
    "xargs",
    "zsh",
];

/// What a text that is a command begins with.
const BEGINNINGS: &[&str] = &[
    "cd",
    "env",
    "export",
    "launch_server.py",
    "numactl",
    "python",
    "set",
    "sglang",
    "source",
    "spectune",
    "torchrun",
    "uv",
    "vllm",
];

/// Whether a command runs nothing of what it is given.
pub fn only_talks(command: &str) -> bool {
    let name = command.rsplit('/').next().unwrap_or_default();
    TALKERS.binary_search(&name).is_ok() || name.starts_with("log")
}

impl<'a> Interpreter<'a> {
    /// Runs what is quoted in a command.
    pub(super) fn look_inside(&mut self, command: &Command<'a>, nesting: usize) {
        if nesting >= NESTING {
            return;
        }
        let name = |word: &Word<'a>| word.text().and_then(|text| text.rsplit('/').next().map(str::to_owned));
        let runs = command.words.iter().filter_map(name).any(|name| RUNNERS.binary_search(&name.as_str()).is_ok());
        for word in &command.words {
            let Some(inside) = self.inside(word.span) else { continue };
            let text = self.source.slice(inside);
            let quote = self.source.slice(word.span).as_bytes().first().copied();
            if names_an_engine(text) && (runs || begins_as_command(text)) {
                let reader = Reader::new(self.source.text(), inside);
                self.run(quote.into_iter().fold(reader, Reader::in_quotes), nesting + 1);
            }
        }
    }

    /// What is between the quotes that a word begins and ends with, if there are blanks in it.
    fn inside(&self, span: Span) -> Option<Span> {
        let text = self.source.slice(span);
        let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        let inside = text.get(1..)?.strip_suffix(quote)?;
        inside.contains(char::is_whitespace).then(|| Span::new(span.start + 1, span.end - 1))
    }
}

/// Whether a quoted text could hold the launch of an engine.
fn names_an_engine(text: &str) -> bool {
    ["sglang", "vllm", "spectune", "--speculative"].iter().any(|name| text.contains(name))
}

/// Whether the first word that is no assignment is a program's.
fn begins_as_command(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let first = words.find(|word| word.starts_with('-') || !word.contains('=')).unwrap_or_default();
    let name = first.rsplit('/').next().unwrap_or_default();
    BEGINNINGS.binary_search(&name).is_ok() || RUNNERS.binary_search(&name).is_ok() || name.starts_with("python")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted() {
        for list in [TALKERS, RUNNERS, BEGINNINGS] {
            assert!(list.is_sorted(), "{list:?}");
        }
    }
}
