//! Progress bars on a terminal.

use std::{
    io::{IsTerminal, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar with this many steps, on a terminal.
pub fn bar(steps: usize, template: &str) -> Option<ProgressBar> {
    if !stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    // The templates are constant and valid; otherwise the default bar would do.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    Some(bar)
}

/// Runs slow work with a progress bar on a terminal.
///
/// # Errors
/// The error of the work.
pub fn waiting<R, E>(what: &str, work: impl FnOnce(&ProgressBar) -> Result<R, E>) -> Result<R, E> {
    let bar = bar(1, "{bar:32}  {elapsed} elapsed  {wide_msg}").unwrap_or_else(ProgressBar::hidden);
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    let done = work(&bar);
    bar.finish_and_clear();
    done
}
