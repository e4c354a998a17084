//! A container that a server runs in. Its processes are children of the container runtime, so neither the mark nor the process
//! group of the client that started it reaches them: it is ended by its name.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{ServerError, mark::wait};

/// Time for the runtime to respond, in addition to the time that a server has to finish its work.
const LONGEST_CALL: Duration = Duration::from_secs(30);

/// Programs that run containers with Docker's command line.
const RUNTIMES: [&str; 3] = ["docker", "podman", "nerdctl"];
/// Options of `run` without a value; all others have one.
const SWITCHES: [&str; 12] = [
    "rm",
    "detach",
    "interactive",
    "tty",
    "init",
    "privileged",
    "read-only",
    "publish-all",
    "no-healthcheck",
    "sig-proxy",
    "oom-kill-disable",
    "quiet",
];
/// Letters of options of `run` without a value.
const LETTERS: &str = "ditPq";

/// A command that runs a server in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerCommand {
    /// The container, by the name that the user gave it, or else by ours.
    pub container: Container,
    /// The command, which names the container and has it removed at its end.
    pub words: Vec<String>,
    /// The image; `None` if the command has none.
    pub image: Option<String>,
    /// Whether the client would leave the server to itself (`--detach`).
    pub detaches: bool,
}

impl ContainerCommand {
    /// Reads a command such as `sudo docker run --gpus all IMAGE …`; `None` if it does not run a container. `name` is given
    /// to a container without one.
    pub fn parse(words: &[String], name: &str) -> Option<Self> {
        let program = |word: &String| word.rsplit('/').next().is_some_and(|last| RUNTIMES.contains(&last));
        let is_wrapper = |word: &String| word == "sudo" || word == "env" || word.starts_with('-') || word.contains('=');
        let at = words.iter().position(|word| !is_wrapper(word)).filter(|at| program(&words[*at]))?;
        let run = match &words[at + 1..] {
            [first, second, ..] if first == "container" && second == "run" => at + 2,
            [first, ..] if first == "run" => at + 1,
            _ => return None,
        };
        let options = Options::parse(&words[run + 1..]);
        let mut named = words[..=run].to_vec();
        if !options.has("rm") {
            named.push("--rm".into());
        }
        if options.name.is_none() {
            named.extend(["--name".into(), name.to_owned()]);
        }
        named.extend_from_slice(&words[run + 1..]);
        let container =
            Container { runtime: words[..=at].to_vec(), name: options.name.clone().unwrap_or_else(|| name.to_owned()) };
        let detaches = options.has("detach") || options.has("d");
        Some(Self { container, words: named, image: options.image, detaches })
    }

    /// Whether the runtime has the image already; `None` if the runtime does not answer.
    pub fn has_image(&self) -> Option<bool> {
        let image = self.image.as_ref()?;
        let call = |arguments: &[&str]| {
            let words: Vec<String> =
                self.container.runtime.iter().cloned().chain(arguments.iter().map(ToString::to_string)).collect();
            succeeds(&words, LONGEST_CALL)
        };
        call(&["version"]).then(|| call(&["image", "inspect", image]))
    }
}

/// The options of `run`.
#[derive(Debug, Default)]
struct Options {
    /// Without their dashes; letters of short options one by one.
    given: Vec<String>,
    name: Option<String>,
    image: Option<String>,
}

impl Options {
    fn parse(words: &[String]) -> Self {
        let mut found = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (option, joined) = match word.split_once('=') {
                Some((option, value)) => (option, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            if let Some(long) = option.strip_prefix("--") {
                found.given.push(long.to_owned());
                let value = if SWITCHES.contains(&long) { joined } else { joined.or_else(|| words.next().cloned()) };
                if long == "name" {
                    found.name = value;
                }
            } else if let Some(letters) = option.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                // `-it`, `-v A:B`, `-vA:B`.
                let switches = letters.chars().take_while(|letter| LETTERS.contains(*letter));
                found.given.extend(switches.map(String::from));
                let taken = letters.chars().take_while(|letter| LETTERS.contains(*letter)).count();
                if letters.len() == taken + 1 && joined.is_none() {
                    words.next();
                }
            } else {
                found.image = Some(word.clone());
                return found;
            }
        }
        found
    }

    fn has(&self, option: &str) -> bool {
        self.given.iter().any(|given| given == option)
    }
}

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
        // A container that was started with `--rm` may be removed twice, and the second one fails: only the result counts.
        match wait(LONGEST_CALL, || !self.exists()) {
            true => Ok(()),
            false => Err(ServerError::Container { command: self.words(&["rm", "-f"]).join(" ") }),
        }
    }

    /// Whether there is a container of its name, running or not.
    pub fn exists(&self) -> bool {
        self.call(&["container", "inspect"], LONGEST_CALL)
    }

    /// Calls the runtime with the container's name as the last word; returns whether that succeeds in time.
    fn call(&self, arguments: &[&str], longest: Duration) -> bool {
        let words = self.words(arguments);
        succeeds(&words, longest)
    }

    fn words(&self, arguments: &[&str]) -> Vec<String> {
        let arguments = arguments.iter().map(ToString::to_string);
        self.runtime.iter().cloned().chain(arguments).chain([self.name.clone()]).collect()
    }
}

/// Runs a command without input and output; returns whether it succeeds in time.
fn succeeds(words: &[String], longest: Duration) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let mut status = None;
    let ended = wait(longest, || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    });
    if !ended {
        let _ = child.kill();
        let _ = child.wait();
    }
    status.is_some_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ContainerCommand> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        ContainerCommand::parse(&words, "ours")
    }

    #[test]
    fn a_container_gets_a_name_and_is_removed_at_its_end() {
        for (text, words, runtime, name, image) in [
            (
                "docker run -it --gpus all img:1 serve",
                "docker run --rm --name ours -it --gpus all img:1 serve",
                "docker",
                "ours",
                "img:1",
            ),
            (
                "sudo -n docker run --rm --name=x -v /a:/b r/i c",
                "sudo -n docker run --rm --name=x -v /a:/b r/i c",
                "sudo -n docker",
                "x",
                "r/i",
            ),
            (
                "/usr/bin/podman container run --rm -e A=B i",
                "/usr/bin/podman container run --name ours --rm -e A=B i",
                "/usr/bin/podman",
                "ours",
                "i",
            ),
            (
                "docker run --shm-size=32g -p8000:8000 --name y -eA=1 i --name z",
                "docker run --rm --shm-size=32g -p8000:8000 --name y -eA=1 i --name z",
                "docker",
                "y",
                "i",
            ),
        ] {
            let parsed = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(parsed.words.join(" "), words);
            assert_eq!(
                (parsed.container.runtime.join(" "), parsed.container.name.as_str()),
                (runtime.to_owned(), name)
            );
            assert_eq!(parsed.image.as_deref(), Some(image), "{text}");
            assert!(!parsed.detaches, "{text}");
        }
        assert!(parse("docker run -itd i").expect("a container").detaches);
        assert!(parse("docker run --detach i").expect("a container").detaches);
    }

    #[test]
    fn other_commands_run_no_container() {
        for text in [
            "python3 -m sglang.launch_server",
            "docker compose up",
            "docker exec c serve",
            "docker",
            "",
            "run docker run i",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
