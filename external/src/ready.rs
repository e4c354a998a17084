//! Waits until a started server is ready.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    ServerError,
    api::Api,
    failure::{Failure, FailureClass, of_end, of_silence},
    process::Server,
};

/// Polling interval while a server starts.
const ASK: Duration = Duration::from_millis(200);

/// Waits until a server started by us responds and is identified as ours. Returns the time that its start took.
///
/// # Errors
/// When it ends, does not become ready within `longest`, or another server responds on its port; when `interrupted` is
/// set.
pub fn wait_until_ready(
    server: &mut Server,
    api: &Api,
    longest: Duration,
    interrupted: &AtomicBool,
) -> Result<Duration, ServerError> {
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return Err(ServerError::Interrupted);
        }
        if let Some(ended) = server.ended() {
            return Err(ServerError::Failed(of_end(ended, false, &server.log())));
        }
        // A server that has just bound its port may respond with errors for a while.
        if api.is_ready().unwrap_or(false) {
            // Checked only now: a foreign server on the port would be ready at once.
            return match api.is_own()? {
                true => Ok(server.started().elapsed()),
                false => Err(ServerError::Failed(Failure {
                    class: FailureClass::ForeignServer,
                    evidence: format!(
                        "{} is ready but serves a different model than the one that was started",
                        api.base()
                    ),
                    log_tail: String::new(),
                })),
            };
        }
        if server.started().elapsed() >= longest {
            let words = format!("not ready after {:.0} s", longest.as_secs_f64());
            return Err(ServerError::Failed(of_silence(&words, &server.log())));
        }
        thread::sleep(ASK.min(longest));
    }
}

/// The failure of a server when a request fails: its end if it has ended, else that it does not respond.
pub fn failure_while_serving(server: &mut Server, error: &ServerError) -> Failure {
    // A dying process closes its connections slightly before its end can be observed.
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        if let Some(ended) = server.ended() {
            return of_end(ended, true, &server.log());
        }
        thread::sleep(Duration::from_millis(50));
    }
    of_silence(&error.to_string(), &server.log())
}
