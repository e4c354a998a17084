//! What people see: errors, colour, progress, the log. Data goes to stdout, words go to stderr.

use std::io::{IsTerminal, Write, stderr, stdout};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use crate::setup::WrongFile;

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

/// Prints an error with its causes, in one paragraph; of a file that is wrong, the place in its text.
pub fn print_error(error: &anyhow::Error) {
    if let Some(wrong) = error.downcast_ref::<WrongFile>() {
        return note(wrong.shown(stderr_is_coloured()).trim_end());
    }
    let (start, end) = if stderr_is_coloured() { ("\u{1b}[1;31m", "\u{1b}[0m") } else { ("", "") };
    let mut text = format!("{start}error{end}: {error}\n");
    let mut shown = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Many errors print their source themselves: say nothing twice.
        if !shown.contains(&cause) {
            text.push_str(&format!("  caused by: {cause}\n"));
            shown = cause;
        }
    }
    let _ = stderr().write_all(text.as_bytes());
}

/// Prints a remark for the user.
pub fn note(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

/// A bar of so many steps, on a terminal.
pub fn bar(steps: usize, template: &str) -> Option<ProgressBar> {
    if !stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    // The templates are ours and valid; a default bar would do as well.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    Some(bar)
}

/// Prints data; a closed pipe is an error that [`is_broken_pipe`] knows.
///
/// # Errors
/// When stdout cannot be written.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Whether an error only says that nobody reads any more.
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

/// Columns of the terminal; 100 where stdout is none.
pub fn width() -> usize {
    comfy_table::Table::new().width().map_or(100, usize::from)
}

fn colour_is_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
