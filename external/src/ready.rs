//! Waits until a started server is ready.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    ServerError,
    api::Api,
    failure::{FailureClass, ServerFailure, from_end, from_silence},
    process::Server,
};

/// Polling interval while a server starts.
const ASK: Duration = Duration::from_millis(200);
/// Longest time in which neither an interrupt nor the end of the server is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until a server started by us responds and is identified as ours. Returns the time that its
/// start took.
///
/// # Errors
/// When it ends, does not become ready within `longest`, or another server responds on its port;
/// when `interrupted` is set.
pub fn wait_until_ready(
    server: &mut Server,
    api: &Api,
    longest: Duration,
    interrupted: &AtomicBool,
) -> Result<Duration, ServerError> {
    let answers = asking(api.clone());
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return Err(ServerError::Interrupted);
        }
        if let Some(ended) = server.ended() {
            return Err(ServerError::Failed(from_end(ended, false, &server.log())));
        }
        // Briefly, so that an end of the process or a stop is seen soon.
        let answered = match answers.recv_timeout(LOOK.min(longest)) {
            Ok(own) => own?,
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let words = "the thread that asks the server whether it is ready has ended";
                return Err(ServerError::Failed(from_silence(words, &server.log())));
            }
        };
        match answered {
            Some(true) => return Ok(server.started().elapsed()),
            Some(false) => {
                return Err(ServerError::Failed(ServerFailure {
                    class: FailureClass::ForeignServer,
                    evidence: format!(
                        "{} is ready but serves a different model than the one that was started",
                        api.base()
                    ),
                    log_tail: String::new(),
                }));
            }
            None if server.started().elapsed() >= longest => {
                let words = format!("not ready after {:.0} s", longest.as_secs_f64());
                return Err(ServerError::Failed(from_silence(&words, &server.log())));
            }
            None => {}
        }
    }
}

/// Asks a server until it is ready, and then whether it is our own; `None` while it is not ready.
/// In a thread, because a server that is still starting may accept a connection and not respond for
/// long. The thread ends once its answer is not wanted any more.
fn asking(api: Api) -> Receiver<Result<Option<bool>, ServerError>> {
    let (sender, answers) = mpsc::sync_channel(0);
    thread::spawn(move || {
        loop {
            // A server that has just bound its port may respond with errors for a while. Whose it
            // is is checked only once it is ready: a foreign server on the port would be ready at
            // once.
            let is_ready = api.is_ready().unwrap_or(false);
            let answer = if is_ready { api.is_own().map(Some) } else { Ok(None) };
            if sender.send(answer).is_err() || is_ready {
                return;
            }
            thread::sleep(ASK);
        }
    });
    answers
}

/// The failure of a server when a request fails: its end if it has ended, else that it does not
/// respond.
pub fn failure_while_serving(server: &mut Server, error: &ServerError) -> ServerFailure {
    // A dying process closes its connections slightly before its end can be observed.
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        if let Some(ended) = server.ended() {
            return from_end(ended, true, &server.log());
        }
        thread::sleep(Duration::from_millis(50));
    }
    from_silence(&error.to_string(), &server.log())
}
