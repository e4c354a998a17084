//! The guide of a sweep, made before anything is measured: acceptance, round times, predictions,
//! capture sizes. It is stored next to the journal as `guide.json`, so that a report can compare
//! predictions with measurements, and a resumed sweep can reuse it.

use std::path::Path;

use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use crate::{
    TunerError,
    files::atomic_file::{self, FormatVersion},
    prediction::text_drafts::TextDraftRow,
    trials::{
        configuration::{Configuration, ContextRange, TrialLoad},
        record::Fingerprint,
    },
};

/// The file's name in the folder of a sweep.
pub const FILE_NAME: &str = "guide.json";
/// The version of the format that this program writes.
pub const FORMAT: u32 = 1;
/// Largest guide in bytes: a few hundred bytes for each configuration and load.
const LARGEST: u64 = 256 << 20;

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guide {
    /// [`FORMAT`].
    pub format: u32,
    /// Where and with what it was computed.
    pub fingerprint: Fingerprint,
    /// The name of the draft that acceptance, round times and capture sizes are of; empty in a
    /// sweep of one draft.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub draft: String,
    /// Acceptance of each tree.
    pub acceptance: AcceptanceTable,
    /// The fitted round times.
    pub round_times: RoundTimeSummary,
    /// Predictions for the whole space, of all drafts; not measured.
    pub predictions: Vec<Prediction>,
    /// Predicted round time of each tree at every running batch.
    pub rounds_by_batch: Vec<RoundsByBatch>,
    /// Which graphs to capture, for each load and its best predicted configuration.
    pub captures: Vec<CaptureChoice>,
    /// Time spent on all this, in seconds.
    pub cost: GuideCost,
    /// The same for the other drafts of a sweep of several; their predictions are in the list
    /// above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Guide>,
}

impl Guide {
    /// Itself, then those of the other drafts.
    pub fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    /// The part about a draft.
    pub fn for_draft(&self, name: &str) -> Option<&Self> {
        self.each().find(|one| one.draft == name)
    }

    /// The guides of several drafts as one; `None` if there is none. No speculation is predicted
    /// once, by the first.
    pub fn together(guides: Vec<Self>) -> Option<Self> {
        let mut guides = guides.into_iter();
        let mut first = guides.next()?;
        for mut other in guides {
            // No speculation is the same with every draft, so it is kept once.
            let predictions = std::mem::take(&mut other.predictions);
            first.predictions.extend(predictions.into_iter().filter(|one| !one.configuration.is_off()));
            first.others.push(other);
        }
        Some(first)
    }
}

/// Acceptance by tree shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptanceTable {
    /// Where it comes from.
    pub source: AcceptanceSource,
    /// One row per shape, ascending.
    pub rows: Vec<AcceptanceRow>,
    /// What drafts from texts would accept instead, on the replayed texts; empty without them.
    #[serde(default)]
    pub text_drafts: Vec<TextDraftRow>,
}

/// Where an acceptance table comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptanceSource {
    /// The draft was run over texts of this workload: exact for them.
    Replayed {
        /// Number of texts.
        texts: usize,
        /// Output tokens of all of them.
        tokens: u64,
    },
    /// Measured elsewhere; described in the file's own words.
    Imported {
        /// The source that the file names, and the rows that were selected.
        source: String,
    },
}

/// The acceptance of a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptanceRow {
    /// The tree shape.
    pub shape: TreeShape,
    /// Output tokens / rounds, first and bonus tokens included.
    pub accept_length: f64,
    /// 95% bootstrap interval over requests: the expected range for other texts of this kind.
    /// `None` if unknown.
    pub interval: Option<[f64; 2]>,
    /// Entry k counts the request-rounds in which k drafts were accepted; empty if unknown.
    pub histogram: Vec<u64>,
}

/// The model of round times, for a reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTimeSummary {
    /// The fitted parameters.
    pub parameters: Vec<FittedParameter>,
    /// Leave-one-out errors, relative.
    pub error: GuideErrors,
    /// The timed points, each with its leave-one-out prediction.
    pub points: Vec<TimedPoint>,
}

/// A fitted parameter of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FittedParameter {
    /// Such as "weights of the target".
    pub name: String,
    /// Its value, in `unit`.
    pub value: f64,
    /// Such as "GB/s".
    pub unit: String,
}

/// Relative errors, as shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuideErrors {
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The largest error.
    pub largest: f64,
}

/// A timed round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedPoint {
    /// The tree shape.
    pub shape: TreeShape,
    /// Number of running requests.
    pub batch: usize,
    /// Tokens of each of them.
    pub context: usize,
    /// Median of the timed rounds in ms.
    pub measured_ms: f64,
    /// The prediction of a model fitted without this point, in ms.
    pub left_out_ms: f64,
}

/// The predicted figures of a configuration under a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The configuration.
    pub configuration: Configuration,
    /// How requests arrive.
    pub load: TrialLoad,
    /// Output tokens / rounds.
    pub accept_length: f64,
    /// Mean time of a round in ms.
    pub round_ms: f64,
    /// Output tokens per second of all requests together.
    pub output_tokens_per_s: f64,
    /// Output tokens per second as one request sees it: median over requests.
    pub tokens_per_s_per_user: f64,
    /// Median time of a whole request, in ms.
    pub latency_ms: f64,
    /// Median time to the first token, in ms.
    pub time_to_first_token_ms: f64,
    /// The quantities outside the timed range, in words; `None` if everything is interpolated.
    pub extrapolated: Option<String>,
}

/// Predicted round times of a tree at each running batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundsByBatch {
    /// The context bucket of the requests; `None` for all requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contexts: Option<ContextRange>,
    /// The tree shape.
    pub shape: TreeShape,
    /// Output tokens / rounds.
    pub accept_length: f64,
    /// Entry k is the time in ms of a round with k + 1 requests, padded to the next captured graph,
    /// halfway through the workload's requests.
    pub round_ms: Vec<f64>,
}

/// The graphs to capture for a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaptureChoice {
    /// The configuration that runs.
    pub configuration: Configuration,
    /// How requests arrive.
    pub load: TrialLoad,
    /// Entry k is the predicted number of rounds with k + 1 requests.
    pub running_batch: Vec<f64>,
    /// The chosen list and commonly used lists, each with its predicted cost.
    pub lists: Vec<GuideCaptureList>,
    /// Least time by number of graphs, from one up: shows from which number on more graphs do not
    /// help.
    pub curve: Vec<CapturePoint>,
}

/// A list of capture sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuideCaptureList {
    /// Such as "chosen", "SGLang's default", "slime's wide list".
    pub name: String,
    /// The sizes, ascending.
    pub sizes: Vec<usize>,
    /// Predicted time of all rounds in s.
    pub seconds: f64,
    /// Share of the rows that are padding.
    pub padding: f64,
}

/// The cost of the best list with this many graphs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapturePoint {
    /// Number of graphs.
    pub graphs: usize,
    /// Predicted time of all rounds in s.
    pub seconds: f64,
}

/// Seconds spent on each part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuideCost {
    /// Running the workload without speculation for its texts.
    pub texts_s: f64,
    /// Replaying the draft over them.
    pub replay_s: f64,
    /// Timing rounds, graph capture included.
    pub timing_s: f64,
}

/// The guide of a folder, if it exists.
///
/// # Errors
/// A message, when it cannot be read or has another format.
pub fn read(folder: &Path) -> Result<Option<Guide>, String> {
    text(folder)?.map(|text| parse(&text)).transpose()
}

/// The contents of a folder's guide file, to be copied unchanged; `None` if there is none.
///
/// # Errors
/// A message, when it cannot be read.
pub(crate) fn text(folder: &Path) -> Result<Option<String>, String> {
    atomic_file::read_if_there(&folder.join(FILE_NAME), LARGEST).map_err(|error| error.to_string())
}

/// Writes a guide into a folder atomically.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(guide: &Guide, folder: &Path) -> Result<(), TunerError> {
    let text = serde_json::to_vec(guide).map_err(|error| TunerError::Configuration(error.to_string()))?;
    atomic_file::write(folder, FILE_NAME, &text)
}

/// Parses a guide.
///
/// # Errors
/// A message, when it is not a guide or has another format.
pub(crate) fn parse(text: &str) -> Result<Guide, String> {
    // The version first: other formats would fail with an error about some missing field.
    let version: FormatVersion = serde_json::from_str(text).map_err(|error| error.to_string())?;
    version.expect(FORMAT)?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}
