//! Terminal output: errors, colour, progress, the log. Data goes to stdout, messages go to stderr.

use std::io::{IsTerminal, Write, stderr, stdout};

use anyhow::Context;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use crate::wrong_file::WrongFile;

/// Starts the log on stderr; `SPECTUNE_LOG` sets its level (default: warnings).
pub fn start_log() {
    let filter = EnvFilter::builder()
        .with_env_var("SPECTUNE_LOG")
        .with_default_directive(LevelFilter::WARN.into())
        .from_env_lossy();
    // A second start (in tests) keeps the first log.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr_is_coloured())
        .without_time()
        .with_target(false)
        .try_init();
}

/// Prints an error with its causes; for an invalid file, with the place in its text.
pub fn print_error(error: &anyhow::Error) {
    if let Some(wrong) = error.downcast_ref::<WrongFile>() {
        return lines(wrong.shown(stderr_is_coloured()).trim_end());
    }
    let (start, end) = if stderr_is_coloured() { ("\u{1b}[1;31m", "\u{1b}[0m") } else { ("", "") };
    let mut shown = printable(&error.to_string());
    let mut text = format!("{start}error{end}: {shown}\n");
    for cause in error.chain().skip(1).map(|cause| printable(&cause.to_string())) {
        // Many errors include their source in their message, which is not repeated.
        if !shown.contains(&cause) {
            text.push_str(&format!("  caused by: {cause}\n"));
            shown = cause;
        }
    }
    note(text.trim_end());
}

/// Prints a remark for the user; on a terminal its lines wrap between words.
pub fn note(text: &str) {
    lines(&wrapped_for_stderr(text));
}

/// A text that may hold what a server or a file says, without characters that a terminal would
/// obey.
fn printable(text: &str) -> String {
    let shown = |character: char| match character {
        '\n' | '\t' => character.to_string(),
        control if control.is_control() => control.escape_default().to_string(),
        other => other.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Prints lines without wrapping: excerpts of files, diagrams.
pub fn lines(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

/// Text wrapped to the width of the terminal on standard error; unchanged if it is not a terminal.
pub fn wrapped_for_stderr(text: &str) -> String {
    match terminal_size::terminal_size_of(stderr()) {
        Some((terminal_size::Width(width), _)) => wrapped(text, usize::from(width)),
        None => text.to_owned(),
    }
}

/// Text wrapped at `width` characters; a longer word gets its own line. Continuation lines have the
/// indentation of the first.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let (mut now, mut used) = (line[..indent].to_owned(), indent);
        for (at, word) in line.trim_start().split(' ').enumerate() {
            let length = shown_length(word);
            if at > 0 && used + 1 + length > width && used > indent {
                lines.push(std::mem::replace(&mut now, " ".repeat(indent)));
                used = indent;
            } else if at > 0 {
                now.push(' ');
                used += 1;
            }
            now.push_str(word);
            used += length;
        }
        lines.push(now);
    }
    lines.join("\n")
}

/// Displayed width of a word: colour codes take no columns.
fn shown_length(word: &str) -> usize {
    let mut hidden = false;
    let shown = word.chars().filter(|character| {
        let starts = *character == '\u{1b}';
        let ends = hidden && *character == 'm';
        let shows = !hidden && !starts;
        hidden = (hidden || starts) && !ends;
        shows
    });
    shown.count()
}

/// Prints data. For a closed pipe it returns an error that [`is_broken_pipe`] recognises.
///
/// # Errors
/// When stdout cannot be written.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Whether the error is a broken pipe.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Whether stdout takes colour: a terminal, and `NO_COLOR` not set.
pub fn stdout_is_coloured() -> bool {
    stdout().is_terminal() && colour_is_wanted()
}

/// Whether stderr takes colour: a terminal, and `NO_COLOR` not set.
pub fn stderr_is_coloured() -> bool {
    stderr().is_terminal() && colour_is_wanted()
}

/// Columns of the terminal; 100 if stdout is not a terminal.
#[cfg(feature = "engine")]
pub fn width() -> usize {
    terminal_size::terminal_size_of(stdout()).map_or(100, |(columns, _)| usize::from(columns.0))
}

fn colour_is_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let check = |text: &str, width: usize, expected: &str| assert_eq!(wrapped(text, width), expected, "{text}");
        check("num_steps and topk go together", 20, "num_steps and topk\ngo together");
        check("  caused by: a file of that name", 16, "  caused by: a\n  file of that\n  name");
        check("see /a/path/that/is/longer/than/all now", 12, "see\n/a/path/that/is/longer/than/all\nnow");
        check("one\n\ntwo", 80, "one\n\ntwo");
        check("\u{1b}[1;31merror\u{1b}[0m: no", 9, "\u{1b}[1;31merror\u{1b}[0m: no");
        check("", 10, "");
    }

    #[test]
    fn no_line_is_longer_than_it_must_be() {
        let text = "a bb ccc dddd eeeee ffffff ggggggg";
        for width in 1..40 {
            for line in wrapped(text, width).lines() {
                assert!(line.chars().count() <= width.max(7), "{width}: {line}");
            }
            assert_eq!(wrapped(text, width).split_whitespace().collect::<Vec<_>>().join(" "), text);
        }
    }
}
