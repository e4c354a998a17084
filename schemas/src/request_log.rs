//! The request log that a server writes with `--log-requests`, one JSON object per line. It
//! contains the tokens that clients sent and received, which are private data.

use serde::{Deserialize, Serialize};

/// The version of the format.
pub const FORMAT: u32 = 1;

/// A finished request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedRequest {
    /// [`FORMAT`].
    pub format: u32,
    /// When it ended, in seconds since 1970 (UTC).
    pub time: f64,
    /// Hash of the target's files.
    pub target: String,
    /// Hash of the draft's files; absent if the server does not speculate.
    #[serde(default)]
    pub draft: Option<String>,
    /// The tree shapes by running batch: `3,1,4`, or `8:5,4,8 64:3,1,4` for a table.
    pub shapes: String,
    /// Token ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Token ids of the answer.
    pub output_ids: Vec<u32>,
    /// Sampling temperature; 0 is greedy.
    pub temperature: f32,
    /// Number of verify rounds.
    pub rounds: usize,
    /// Entry k counts the rounds in which k drafts were accepted.
    pub accept_histogram: Vec<u64>,
    /// Whether the logits were changed before tokens were chosen (penalties, biases, a grammar).
    /// The target alone would then not generate this answer.
    #[serde(default)]
    pub adjusted: bool,
    /// Whether acceptance was simulated.
    #[serde(default)]
    pub simulated: bool,
    /// OpenAI's `finish_reason`.
    pub finish_reason: String,
}

impl LoggedRequest {
    /// Parses one line of the log.
    ///
    /// # Errors
    /// A message if the line is not such an object or has another format.
    pub fn parse(line: &str) -> Result<Self, String> {
        let request: Self = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if request.format == FORMAT {
            return Ok(request);
        }
        Err(format!("format {} of another version of spectune; this version reads format {FORMAT}", request.format))
    }

    /// The line for the log, without a line end.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
