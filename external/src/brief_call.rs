//! Commands that only have to end: without input and output, and within a time.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use crate::mark::wait;

/// The exit code of a command; `None` if it does not run, or does not end in time.
pub(crate) fn exit_code(command: &mut Command, longest: Duration) -> Option<i32> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let mut status = None;
    let ended = wait(longest, || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    });
    if !ended {
        // It may have ended in between; either way it is not waited for any longer.
        let _ = child.kill();
        let _ = child.wait();
    }
    status?.code()
}
