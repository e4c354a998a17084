//! The log of finished requests, which `spectune train` and `spectune drift` read. Off by default,
//! since it contains prompts and outputs.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::mpsc::{SyncSender, TrySendError, sync_channel},
    thread::JoinHandle,
    time::SystemTime,
};

use engine::{Adjustments, Completion, Engine, Request, RequestId, ShapePolicy, options::ShapeRow};
use schemas::request_log::{FORMAT, LoggedRequest};

/// Maximum number of lines that wait for the disk; further ones are dropped, so that the engine
/// never waits.
const WAITING: usize = 1024;

/// Writes finished requests to a file, on a separate thread.
pub struct RequestLog {
    /// `None` once the writer has failed.
    lines: Option<SyncSender<String>>,
    writer: Option<JoinHandle<()>>,
    open: HashMap<RequestId, OpenRequest>,
    target: String,
    draft: Option<String>,
    shapes: String,
    simulated: bool,
    left_out: u64,
}

/// Data kept for a running request.
struct OpenRequest {
    prompt_ids: Vec<u32>,
    temperature: f32,
    adjusted: bool,
}

impl RequestLog {
    /// Opens the file for appending. On Unix a new file is readable only by its owner.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path, engine: &Engine) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        let (lines, received) = sync_channel::<String>(WAITING);
        let shown = path.display().to_string();
        let writer = std::thread::spawn(move || {
            if let Err(error) = write_all(file, &received) {
                tracing::warn!("{shown} cannot be written, and no further request is logged: {error}");
            }
        });
        let (identity, options) = (engine.identity(), engine.options());
        Ok(Self {
            lines: Some(lines),
            writer: Some(writer),
            open: HashMap::new(),
            target: identity.target.clone(),
            draft: identity.draft.clone().filter(|_| options.policy.speculates()),
            shapes: shapes(&options.policy),
            simulated: options.makes_up_acceptance(),
            left_out: 0,
        })
    }

    /// Records that the weights changed. Requests in progress are not logged, since they ran with
    /// both.
    pub fn weights_changed(&mut self, engine: &Engine) {
        self.open.clear();
        self.target = engine.identity().target.clone();
        self.draft = engine.identity().draft.clone().filter(|_| engine.options().policy.speculates());
    }

    /// Records a request that was accepted.
    pub fn begin(&mut self, id: RequestId, request: &Request) {
        let adjusted = request.sampling.adjustments != Adjustments::default();
        let (prompt_ids, temperature) = (request.input_ids.clone(), request.sampling.temperature);
        self.open.insert(id, OpenRequest { prompt_ids, temperature, adjusted });
    }

    /// Writes a request that has ended, including cancelled and failed ones.
    pub fn end(&mut self, id: RequestId, completion: &Completion) {
        let Some(OpenRequest { prompt_ids, temperature, adjusted }) = self.open.remove(&id) else { return };
        let Some(lines) = &self.lines else { return };
        let logged = LoggedRequest {
            format: FORMAT,
            time: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64()),
            target: self.target.clone(),
            draft: self.draft.clone(),
            shapes: self.shapes.clone(),
            prompt_ids,
            output_ids: completion.output_ids.clone(),
            temperature,
            rounds: completion.rounds,
            accept_histogram: completion.accept_histogram.clone(),
            adjusted,
            simulated: self.simulated,
            finish_reason: completion.finish_reason.word().to_owned(),
        };
        // Without waiting for the disk, since this is the engine's thread.
        match lines.try_send(logged.line() + "\n") {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.left_out += 1;
                // Ever more rarely, so that a slow disk does not fill the program's log too.
                if self.left_out.is_power_of_two() {
                    tracing::warn!(
                        "the request log is written too slowly: {} requests are missing from it so far",
                        self.left_out
                    );
                }
            }
            Err(TrySendError::Disconnected(_)) => self.lines = None,
        }
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        self.lines = None;
        // A writer that has panicked has nothing left to write.
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

fn write_all(mut file: File, lines: &std::sync::mpsc::Receiver<String>) -> io::Result<()> {
    lines.iter().try_for_each(|line| file.write_all(line.as_bytes()))
}

/// A policy as text: `3,1,4`, or `8:5,4,8 64:3,1,4` for a table by running batch. A row that holds
/// up to a mean context has it after the batch: `8@4096:5,4,8`.
fn shapes(policy: &ShapePolicy) -> String {
    let row = |row: &ShapeRow| match row.context {
        usize::MAX => format!("{}:{}", row.batch, row.shape),
        context => format!("{}@{context}:{}", row.batch, row.shape),
    };
    match policy.rows() {
        [one] => one.shape.to_string(),
        rows => rows.iter().map(row).collect::<Vec<_>>().join(" "),
    }
}
