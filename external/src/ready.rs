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

/// Waits until a server that was started here answers as itself. Returns how long its start has taken.
///
/// # Errors
/// When it ends, does not become ready within `longest`, or another server answers on its port; when `interrupted` is set.
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
        // A server that has just been bound may answer with errors for a while.
        if api.is_ready().unwrap_or(false) {
            // Only then is it known who answers: a foreign server on the port is ready at once.
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

/// The failure of a server with which a request went wrong: its end where it has ended, else its silence.
pub fn failure_while_serving(server: &mut Server, error: &ServerError) -> Failure {
    // A process that dies closes its connections slightly before it can be seen to have ended.
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        if let Some(ended) = server.ended() {
            return of_end(ended, true, &server.log());
        }
        thread::sleep(Duration::from_millis(50));
    }
    of_silence(&error.to_string(), &server.log())
}
