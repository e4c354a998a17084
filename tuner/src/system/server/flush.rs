//! Flushes of a server's prefix cache.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use external::ServerError;

use super::SystemError;

/// Maximum time until a server notices that its last request has ended.
pub const LONGEST: Duration = Duration::from_secs(10);

/// Flushes until the server has done it, for this time at most; also true if the user requests a
/// stop, which ends the trial.
///
/// # Errors
/// When it does not respond.
pub fn succeeds(
    flush: &mut dyn FnMut() -> Result<bool, ServerError>,
    longest: Duration,
    interrupted: &AtomicBool,
) -> Result<bool, ServerError> {
    let begin = Instant::now();
    loop {
        if flush()? || interrupted.load(Ordering::Relaxed) {
            return Ok(true);
        }
        if begin.elapsed() >= longest {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Flushes before a trial, which `must` be flushed if it would find what was sent before.
///
/// # Errors
/// When it must, and the server does not within this time.
pub fn before_a_trial(
    must: bool,
    flush: &mut dyn FnMut() -> Result<bool, ServerError>,
    longest: Duration,
    interrupted: &AtomicBool,
) -> Result<(), SystemError> {
    if succeeds(flush, if must { longest } else { Duration::ZERO }, interrupted)? || !must {
        return Ok(());
    }
    Err(SystemError::Unsupported(format!(
        "the server did not flush its prefix cache within {} s, so the trial might find its own prompts in it: end other \
         requests to this server, let it flush (vLLM in a container: VLLM_SERVER_DEV_MODE=1 inside of it), or set \
         system.keep_prefix_cache = false",
        longest.as_secs()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_never_succeeds_is_no_success() {
        let never = AtomicBool::new(false);
        let (mut calls, mut late) = (0, || Ok(false));
        assert!(!succeeds(&mut late, Duration::ZERO, &never).expect("an answer"));
        let mut second = || {
            calls += 1;
            Ok(calls == 2)
        };
        assert!(succeeds(&mut second, LONGEST, &never).expect("an answer"));
        assert!(succeeds(&mut late, LONGEST, &AtomicBool::new(true)).expect("an answer"), "an interrupt ends it");
        let before = |must| before_a_trial(must, &mut || Ok(false), Duration::ZERO, &never);
        assert!(before(false).is_ok());
        assert!(before(true).is_err_and(|error| error.to_string().contains("VLLM_SERVER_DEV_MODE=1")));
    }
}
