//! A container that a server runs in. Its processes are children of the container runtime, so
//! neither the mark nor the process group of the client that started it reaches them: it is ended
//! by its name.

use std::{process::Command, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{ServerError, brief_call::exit_code, mark::wait};

/// Time for the runtime to respond, in addition to the time that a server has to finish its work.
const LONGEST_CALL: Duration = Duration::from_secs(30);

/// A container with a name of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// The words that call the runtime, such as `docker`, or `sudo` and `podman`.
    pub runtime: Vec<String>,
    /// Its name.
    pub name: String,
}

impl Container {
    /// Stops it: SIGTERM to its server, `grace`, then SIGKILL. Does nothing if it does not run.
    pub fn stop(&self, grace: Duration) {
        if self.exists() {
            let seconds = grace.as_secs().to_string();
            self.call(&["stop", "-t", &seconds], grace + LONGEST_CALL);
        }
    }

    /// Removes it, and kills what runs in it.
    ///
    /// # Errors
    /// When it is still there afterwards.
    pub fn remove(&self) -> Result<(), ServerError> {
        if !self.exists() {
            return Ok(());
        }
        self.call(&["rm", "-f"], LONGEST_CALL);
        // A container that was started with `--rm` may be removed twice, and the second one fails:
        // only the result counts.
        match wait(LONGEST_CALL, || !self.exists()) {
            true => Ok(()),
            false => Err(ServerError::Container { command: self.words(&["rm", "-f"]).join(" ") }),
        }
    }

    /// Whether there is a container of its name, running or not.
    pub fn exists(&self) -> bool {
        self.call(&["container", "inspect"], LONGEST_CALL)
    }

    /// Whether the runtime has an image already; `None` if the runtime does not answer.
    pub fn has_image(&self, image: &str) -> Option<bool> {
        let call = |arguments: &[&str]| {
            let arguments = arguments.iter().map(ToString::to_string);
            succeeds(&self.runtime.iter().cloned().chain(arguments).collect::<Vec<_>>(), LONGEST_CALL)
        };
        call(&["version"]).then(|| call(&["image", "inspect", image]))
    }

    /// Calls the runtime with the container's name as the last word; returns whether that succeeds
    /// in time.
    fn call(&self, arguments: &[&str], longest: Duration) -> bool {
        let words = self.words(arguments);
        succeeds(&words, longest)
    }

    fn words(&self, arguments: &[&str]) -> Vec<String> {
        let arguments = arguments.iter().map(ToString::to_string);
        self.runtime.iter().cloned().chain(arguments).chain([self.name.clone()]).collect()
    }
}

/// Runs a command; returns whether it succeeds in time.
fn succeeds(words: &[String], longest: Duration) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    exit_code(Command::new(program).args(arguments), longest) == Some(0)
}
