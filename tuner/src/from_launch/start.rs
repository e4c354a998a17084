//! Commands by which a user starts and ends what is not one process of this machine: a job, several
//! nodes, a router with its workers.

use crate::system::stop_command;

/// The user's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchStart {
    /// Starts the servers: a line of shell, which gets the flags of a configuration in place of
    /// `{flags}`, or at its end.
    pub start: String,
    /// Ends them; without it, the start command runs until it is ended itself.
    pub stop: Option<String>,
    /// Where they answer; `None` if the start command passes `--host` and `--port` on.
    pub address: Option<String>,
}

impl LaunchStart {
    /// The words that start a server, before its flags. They are one process that ends the servers
    /// when it is terminated, whoever terminates it.
    pub fn command(&self) -> Vec<String> {
        let start = match self.start.contains("{flags}") {
            true => self.start.replace("{flags}", "\"$@\""),
            false => format!("{} \"$@\"", self.start),
        };
        let script = match &self.stop {
            None => start,
            Some(stop) => stop_command::script(&start, stop),
        };
        ["sh", "-c", &script, "start"].map(str::to_owned).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        process::{Command, Stdio},
        thread::sleep,
        time::{Duration, Instant},
    };

    use super::*;

    fn start(start: &str, stop: Option<&str>) -> LaunchStart {
        LaunchStart { start: start.into(), stop: stop.map(str::to_owned), address: None }
    }

    #[test]
    fn flags_replace_their_placeholder_or_follow() {
        assert_eq!(start("srun ./serve.sh", None).command(), ["sh", "-c", "srun ./serve.sh \"$@\"", "start"]);
        assert_eq!(start("a {flags} b", None).command()[2], "a \"$@\" b");
    }

    #[test]
    fn what_returned_is_ended_by_the_stop_command_and_a_failure_keeps_its_code() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let shell = |start: LaunchStart| {
            let words = start.command();
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).arg("--flag").current_dir(folder.path()).stdin(Stdio::null());
            command.spawn().expect("a shell")
        };
        let mut running = shell(start("echo {flags} > started; :", Some("echo ended > ended")));
        let begin = Instant::now();
        while fs::read_to_string(path("started")).unwrap_or_default().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it starts");
            sleep(Duration::from_millis(10));
        }
        let pid = running.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().is_ok_and(|status| status.success()));
        assert!(running.wait().expect("it ends").success());
        assert_eq!(fs::read_to_string(path("started")).expect("a file").trim(), "--flag");
        assert_eq!(fs::read_to_string(path("ended")).expect("a file").trim(), "ended");
        let failed = shell(start("sh -c 'exit 7'", Some("rm ended"))).wait().expect("it ends");
        assert_eq!((failed.code(), path("ended").exists()), (Some(7), false));
    }
}
