//! The request log of a server as a workload: its prompts, and how requests usually are.

use std::path::Path;

use anyhow::{Context, bail};
use schemas::request_log::LoggedRequest;

/// How the requests of a log usually are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logged {
    /// Median number of generated tokens.
    pub output_length: usize,
    /// Median sampling temperature.
    pub temperature: f32,
}

impl Logged {
    /// Reads a log.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is not a logged request.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let read = |(at, line): (usize, &str)| {
            LoggedRequest::parse(line).map_err(|reason| {
                anyhow::anyhow!("{}, line {}: not a logged request: {reason}", path.display(), at + 1)
            })
        };
        let requests: Vec<LoggedRequest> = lines.map(read).collect::<Result<_, _>>()?;
        let mut lengths: Vec<usize> = requests.iter().map(|request| request.output_ids.len().max(1)).collect();
        let mut temperatures: Vec<f32> = requests.iter().map(|request| request.temperature).collect();
        lengths.sort_unstable();
        temperatures.sort_by(f32::total_cmp);
        match (lengths.get(lengths.len() / 2), temperatures.get(temperatures.len() / 2)) {
            (Some(length), Some(temperature)) => Ok(Self { output_length: *length, temperature: *temperature }),
            _ => bail!("{} has no request", path.display()),
        }
    }
}
