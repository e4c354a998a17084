//! The guide of a sweep, made before it measures: acceptance, round times, predictions, capture sizes. Kept next to the
//! journal as `guide.json`, so that a report can compare predictions with measurements, and a resumed sweep can
//! reuse it.

use std::path::Path;

use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use crate::{
    TunerError,
    atomic_file::{self, Version},
    configuration::{Configuration, Load},
    record::Fingerprint,
};

/// The file's name in the folder of a sweep.
pub const FILE_NAME: &str = "guide.json";
/// The version of the format that this program writes.
pub const FORMAT: u32 = 1;
/// Largest guide in bytes: some hundred bytes for each configuration and load.
const LARGEST: u64 = 256 << 20;

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guide {
    /// [`FORMAT`].
    pub format: u32,
    /// Where and on what.
    pub fingerprint: Fingerprint,
    /// What each tree accepts.
    pub acceptance: AcceptanceTable,
    /// How long rounds take.
    pub round_times: RoundTimeSummary,
    /// The whole space; predicted, not measured.
    pub predictions: Vec<Prediction>,
    /// The time of a round of each tree at every running batch; predicted.
    pub rounds_by_batch: Vec<RoundsByBatch>,
    /// Which graphs to capture, for each load and its best predicted configuration.
    pub captures: Vec<CaptureChoice>,
    /// Time that went into all this, in seconds.
    pub cost: Cost,
}

/// Acceptance by tree shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptanceTable {
    /// Where it comes from.
    pub source: AcceptanceSource,
    /// One a shape, ascending.
    pub rows: Vec<AcceptanceRow>,
}

/// Where an acceptance table comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptanceSource {
    /// The draft was run over texts of this workload: exact for them.
    Replayed {
        /// How many.
        texts: usize,
        /// Output tokens of all of them.
        tokens: u64,
    },
    /// Measured elsewhere; on what, in the file's own words.
    Imported {
        /// The source that the file names, and what was picked of it.
        source: String,
    },
}

/// What a tree accepts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptanceRow {
    /// The tree.
    pub shape: TreeShape,
    /// Output tokens / rounds, first and bonus tokens included.
    pub accept_length: f64,
    /// 95% bootstrap interval over requests: how far other texts of the kind may lie. `None` where it is unknown.
    pub interval: Option<[f64; 2]>,
    /// Entry k counts the request-rounds in which k drafts were accepted; empty where it is unknown.
    pub histogram: Vec<u64>,
}

/// The model of round times, for a reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTimeSummary {
    /// What the model consists of.
    pub parameters: Vec<Parameter>,
    /// Relative leave-one-out errors.
    pub error: CrossValidation,
    /// The timed points, each with its leave-one-out prediction.
    pub points: Vec<TimedPoint>,
}

/// A number of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Such as "weights of the target".
    pub name: String,
    /// The number.
    pub value: f64,
    /// Such as "GB/s".
    pub unit: String,
}

/// Relative errors, as shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CrossValidation {
    /// Half are below.
    pub median: f64,
    /// Nine of ten are below.
    pub p90: f64,
    /// The worst.
    pub largest: f64,
}

/// A timed round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedPoint {
    /// The tree.
    pub shape: TreeShape,
    /// Running requests.
    pub batch: usize,
    /// Tokens of each of them.
    pub context: usize,
    /// Median of the timed rounds in ms.
    pub measured_ms: f64,
    /// What the model says without this point.
    pub left_out_ms: f64,
}

/// What a configuration is going to do under a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// What runs.
    pub configuration: Configuration,
    /// How requests come.
    pub load: Load,
    /// Output tokens / rounds.
    pub accept_length: f64,
    /// Mean time of a round in ms.
    pub round_ms: f64,
    /// All requests together.
    pub output_tokens_per_s: f64,
    /// As one user sees it: median over requests.
    pub tokens_per_s_per_user: f64,
    /// Median time of a whole request.
    pub latency_ms: f64,
    /// Median time to the first token.
    pub time_to_first_token_ms: f64,
    /// What lies outside of what was timed, in words; `None` where all is interpolated.
    pub extrapolated: Option<String>,
}

/// What a tree is predicted to do at each running batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundsByBatch {
    /// The tree.
    pub shape: TreeShape,
    /// Output tokens / rounds.
    pub accept_length: f64,
    /// Entry k is the time in ms of a round in which k + 1 requests run, padded to the next captured graph, halfway
    /// through the workload's requests.
    pub round_ms: Vec<f64>,
}

/// The graphs to capture for a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaptureChoice {
    /// The configuration that runs.
    pub configuration: Configuration,
    /// How requests come.
    pub load: Load,
    /// Entry k counts the rounds in which k + 1 requests run, as predicted.
    pub running_batch: Vec<f64>,
    /// The chosen list, and the lists that people use, each with what it costs.
    pub lists: Vec<CaptureList>,
    /// Least time by number of graphs, from one on: where more graphs stop to help.
    pub curve: Vec<CapturePoint>,
}

/// A list of capture sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaptureList {
    /// Such as "chosen", "SGLang's default", "slime's wide list".
    pub name: String,
    /// The sizes, ascending.
    pub sizes: Vec<usize>,
    /// Predicted time of all rounds in s.
    pub seconds: f64,
    /// Share of the rows that are padding.
    pub padding: f64,
}

/// The best list of N sizes graphs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapturePoint {
    /// How many graphs.
    pub graphs: usize,
    /// Predicted time of all rounds in s.
    pub seconds: f64,
}

/// Seconds of each part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Running the workload without speculation for its texts.
    pub texts_s: f64,
    /// Running the draft over them.
    pub replay_s: f64,
    /// Timing rounds, graph capture included.
    pub timing_s: f64,
}

/// The guide of a folder, if it exists.
///
/// # Errors
/// In words, when it cannot be read or is of another format.
pub fn read(folder: &Path) -> Result<Option<Guide>, String> {
    text(folder)?.map(|text| parse(&text)).transpose()
}

/// The text of a folder's guide, so that it can be copied as it is; `None` where there is none.
///
/// # Errors
/// In words, when it cannot be read.
pub(crate) fn text(folder: &Path) -> Result<Option<String>, String> {
    atomic_file::read_if_there(&folder.join(FILE_NAME), LARGEST).map_err(|error| error.to_string())
}

/// Writes a guide into a folder, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(guide: &Guide, folder: &Path) -> Result<(), TunerError> {
    let text = serde_json::to_vec(guide).map_err(|error| TunerError::Configuration(error.to_string()))?;
    atomic_file::write(folder, FILE_NAME, &text)
}

/// Reads the text of a guide.
///
/// # Errors
/// A message, when it is not a guide or has another format.
pub(crate) fn parse(text: &str) -> Result<Guide, String> {
    let version: Version = serde_json::from_str(text).map_err(|error| error.to_string())?;
    version.expect(FORMAT)?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}
