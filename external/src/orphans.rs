//! Cleans up servers that a killed run left running.
//!
//! A server's mark is written to disk before the server starts, so a later run finds it in any case.

use std::{
    fs,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{ServerError, process::Mark};

/// The file with the marks of a run's servers, one per line. A server that was stopped properly is removed from it.
#[derive(Clone, Debug)]
pub struct ServerFile {
    path: PathBuf,
}

/// The name of the file in a run's folder.
const NAME: &str = "servers.txt";
/// Time for a remaining server to end by itself.
const GRACE: Duration = Duration::from_secs(5);

impl ServerFile {
    /// The file of a run's folder.
    pub fn of(folder: &Path) -> Self {
        Self { path: folder.join(NAME) }
    }

    /// Records a server that is about to start.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&self, mark: &Mark) -> Result<(), ServerError> {
        let mut file =
            fs::OpenOptions::new().create(true).append(true).open(&self.path).map_err(ServerError::file(&self.path))?;
        writeln!(file, "{}", mark.as_str()).and_then(|()| file.sync_data()).map_err(ServerError::file(&self.path))
    }

    /// Removes all servers, because none is running any more.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn clear(&self) -> Result<(), ServerError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(ServerError::file(&self.path)(error)),
            _ => Ok(()),
        }
    }

    /// Ends the servers that an earlier run left, and nothing else. Returns the number of processes.
    ///
    /// # Errors
    /// When the file cannot be read, or a process does not end.
    pub fn end_left(&self) -> Result<usize, ServerError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(ServerError::file(&self.path)(error)),
        };
        let mut ended = 0;
        // A truncated last line belongs to a server that was not started.
        for mark in text.lines().filter_map(Mark::parse) {
            let left = mark.processes().len();
            if left > 0 {
                mark.end(GRACE)?;
            }
            ended += left;
        }
        self.clear()?;
        Ok(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Launch, Server, wait};

    #[test]
    fn what_a_killed_run_has_left_is_ended_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |mark: &Mark| {
            let launch = Launch {
                program: "sleep".into(),
                args: vec!["1000".into()],
                env: vec![],
                log: folder.path().join("log"),
            };
            Server::start(&launch, mark.clone()).expect("it starts")
        };
        let file = ServerFile::of(folder.path());
        let (left, other) = (Mark::new(), Mark::new());
        file.add(&left).expect("written");
        let (mut left_server, mut other_server) = (start(&left), start(&other));
        assert!(wait(Duration::from_secs(20), || !left.processes().is_empty() && !other.processes().is_empty()));
        // In this test the parent still lives and has to reap its child; in another run the child's new parent does.
        let reaper = std::thread::spawn(move || {
            assert!(wait(Duration::from_secs(20), || left_server.ended().is_some()));
        });
        assert_eq!(file.end_left().expect("ended"), 1);
        reaper.join().expect("reaped");
        assert!(other_server.ended().is_none());
        assert_eq!(file.end_left().expect("nothing left"), 0);
    }
}
