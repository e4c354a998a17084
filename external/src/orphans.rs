//! Cleans up servers that a killed run left running.
//!
//! A server is written to disk before it starts, so a later run finds it in any case.

use std::{
    fs,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{ServerError, container::Container, mark::ProcessMark};

/// The file with a run's servers, one per line. A server that was stopped properly is removed from
/// it.
#[derive(Clone, Debug)]
pub struct ServerFile {
    path: PathBuf,
}

/// By what a server can be ended, also by another process than the one that started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanHandle {
    /// The mark of its processes.
    pub mark: ProcessMark,
    /// Its container, if it runs in one.
    pub container: Option<Container>,
}

/// The name of the file in a run's folder.
const NAME: &str = "servers.txt";
/// Time for a remaining server to end by itself.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

impl OrphanHandle {
    /// Reads a line that [`line`](Self::line) has written; `None` if it is not whole.
    pub fn parse(line: &str) -> Option<Self> {
        let (mark, container) = match line.split_once(' ') {
            Some((mark, container)) => (mark, Some(serde_json::from_str(container).ok()?)),
            None => (line, None),
        };
        Some(Self { mark: ProcessMark::parse(mark)?, container })
    }

    /// On one line: the mark, and the container as JSON.
    pub fn line(&self) -> String {
        let container = self.container.as_ref().and_then(|container| serde_json::to_string(container).ok());
        container.map_or_else(|| self.mark.as_str().to_owned(), |json| format!("{} {json}", self.mark.as_str()))
    }

    /// Ends the server: SIGTERM, `grace`, SIGKILL. Returns the number of processes and containers
    /// that were there.
    ///
    /// # Errors
    /// When a process or the container does not end.
    pub fn end(&self, grace: Duration) -> Result<usize, ServerError> {
        let container = self.container.as_ref().filter(|container| container.exists());
        if let Some(container) = container {
            container.stop(grace);
        }
        let processes = self.mark.processes().len();
        if processes > 0 || !self.mark.has_ended() {
            self.mark.end(grace)?;
        }
        // Its client may have been killed between creating the container and starting it.
        if let Some(container) = &self.container {
            container.remove()?;
        }
        Ok(processes + usize::from(container.is_some()))
    }
}

impl ServerFile {
    /// The file of a run's folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self { path: folder.join(NAME) }
    }

    /// Records a server that is about to start.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&self, server: &OrphanHandle) -> Result<(), ServerError> {
        let mut file =
            fs::OpenOptions::new().create(true).append(true).open(&self.path).map_err(ServerError::file(&self.path))?;
        writeln!(file, "{}", server.line()).and_then(|()| file.sync_data()).map_err(ServerError::file(&self.path))
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

    /// Ends the servers that an earlier run left, and nothing else. Returns the number of processes
    /// and containers.
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
        for server in text.lines().filter_map(OrphanHandle::parse) {
            ended += server.end(GRACE)?;
        }
        self.clear()?;
        Ok(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        mark::wait,
        process::{ProcessLaunch, Server},
    };

    #[test]
    fn what_a_killed_run_has_left_is_ended_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |mark: &ProcessMark| {
            let launch = ProcessLaunch {
                program: "sleep".into(),
                args: vec!["1000".into()],
                env: vec![],
                log: folder.path().join("log"),
                container: None,
            };
            Server::start(&launch, mark.clone()).expect("it starts")
        };
        let file = ServerFile::in_folder(folder.path());
        let (left, other) = (ProcessMark::new(), ProcessMark::new());
        file.add(&OrphanHandle { mark: left.clone(), container: None }).expect("written");
        let (mut left_server, mut other_server) = (start(&left), start(&other));
        assert!(wait(Duration::from_secs(20), || !left.processes().is_empty() && !other.processes().is_empty()));
        // In this test the parent still lives and has to reap its child; in another run the child's
        // new parent does.
        let reaper = std::thread::spawn(move || {
            assert!(wait(Duration::from_secs(20), || left_server.ended().is_some()));
        });
        assert_eq!(file.end_left().expect("ended"), 1);
        reaper.join().expect("reaped");
        assert!(other_server.ended().is_none());
        assert_eq!(file.end_left().expect("nothing left"), 0);
    }

    #[test]
    fn a_server_is_one_line_and_a_part_of_it_is_none() {
        let container = Container { runtime: vec!["sudo".into(), "docker".into()], name: "spectune-1-2".into() };
        for container in [None, Some(container)] {
            let whole = OrphanHandle { mark: ProcessMark::new(), container };
            assert_eq!(OrphanHandle::parse(&whole.line()), Some(whole.clone()));
        }
        for text in ["", "1-2 {\"runtime\":[\"dock", "1-2 ", "name"] {
            assert_eq!(OrphanHandle::parse(text), None, "{text:?}");
        }
    }
}
