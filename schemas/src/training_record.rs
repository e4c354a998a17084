//! The record of a training run (`training.json` next to the head). `report` shows it, and `drift`
//! compares it with a request log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the format.
pub const FORMAT: u32 = 1;
/// The file that identifies the training run of a folder, finished or not.
pub const RUN_FILE: &str = "run.json";

/// A training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of spectune.
    pub spectune: String,
    /// When it ended, in seconds since 1970 (UTC).
    pub finished: f64,
    /// The models, and the device.
    pub models: RecordedModel,
    /// The tree shape for which accept lengths are computed: `3,1,4`.
    pub shape: String,
    /// Whether training started from random values.
    pub from_scratch: bool,
    /// The sets of prompts.
    pub sets: Vec<SetFacts>,
    /// The training curve; each point covers the steps since the previous one.
    pub curve: Vec<CurvePoint>,
    /// Evaluations; the first is that of the previous head.
    pub evaluations: Vec<Evaluation>,
    /// Why training stopped.
    pub stopped: String,
    /// The result of the final comparison.
    pub verdict: HeadVerdict,
    /// Comparisons on the judging prompts: all of them together, then by set.
    pub judged: Vec<HeadComparison>,
    /// The comparison on the general prompts, if any.
    pub general: Option<HeadComparison>,
    /// Time and tokens that the run took.
    pub cost: TrainingCost,
    /// Output tokens and rounds of each judging request, with the head that was written or kept.
    /// `drift` compares a log with them.
    pub baseline: Vec<(u64, u64)>,
}

/// The models of a run, and the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedModel {
    /// Name of the target.
    pub name: String,
    /// Hash of the target's files.
    pub target: String,
    /// Hash of the files of the previous head.
    pub before: Option<String>,
    /// Hash of the files of the written head; `None` if the previous head is kept.
    pub after: Option<String>,
    /// EAGLE, EAGLE3, NEXTN, DFLASH or DSPARK.
    pub algorithm: String,
    /// Number of trained parameters.
    pub parameters: u64,
    /// The device on which the engine ran.
    pub device: String,
}

/// Number of prompts and tokens of a set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetFacts {
    /// Name of the set.
    pub name: String,
    /// Number of training prompts.
    pub training: usize,
    /// Number of held-out prompts that choose among checkpoints.
    pub choosing: usize,
    /// Number of held-out prompts that judge the chosen checkpoint.
    pub judging: usize,
    /// Answer tokens of the training prompts.
    pub training_tokens: u64,
    /// Number of repeated prompts, which were skipped.
    pub repeated: usize,
}

/// A point of the training curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Number of steps so far.
    pub step: usize,
    /// Token loss by unrolled draft step, in nats.
    pub loss: Vec<f64>,
    /// Fraction of rows in which draft and target agree on the most likely token, by unrolled draft
    /// step.
    pub agreement: Vec<f64>,
    /// The learning rate.
    pub learning_rate: f64,
    /// Mean norm of the gradients before clipping.
    pub gradient: f64,
    /// Trained rows per second.
    pub rows_per_s: f64,
}

/// An evaluation on the choosing prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Number of steps so far; 0 is the previous head.
    pub step: usize,
    /// Replayed accept length over all choosing prompts.
    pub accept_length: f64,
    /// Replayed accept length by set.
    pub by_set: BTreeMap<String, f64>,
    /// Loss on the choosing prompts in nats: the weighted sum over the unrolled steps.
    pub loss: f64,
    /// The same on the general prompts.
    pub general_loss: Option<f64>,
    /// Accept length on the general prompts.
    pub general_accept_length: Option<f64>,
}

/// Which head is written, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadVerdict {
    /// Whether the trained head is written.
    pub better: bool,
    /// The step of the chosen checkpoint; 0 if none had a longer accept length than the previous
    /// head.
    pub step: usize,
    /// The reason, as a sentence.
    pub because: String,
}

/// The previous head and the chosen checkpoint on the same texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadComparison {
    /// Name of the set.
    pub name: String,
    /// Number of prompts.
    pub prompts: usize,
    /// Acceptance with the previous head.
    pub before: AcceptFigures,
    /// Acceptance with the chosen checkpoint.
    pub after: AcceptFigures,
    /// Accept length `after` / `before`, with an interval over prompts.
    pub ratio: RatioInterval,
}

/// Acceptance along texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcceptFigures {
    /// Output tokens.
    pub tokens: u64,
    /// Verify rounds.
    pub rounds: u64,
    /// Entry k counts the rounds in which k drafts are accepted.
    pub histogram: Vec<u64>,
    /// Predicted tokens per second of the batch, from the accept length and the measured time of a
    /// round.
    pub predicted_tokens_per_s: Option<f64>,
}

/// A ratio of accept lengths, with an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioInterval {
    /// The ratio over all texts.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that such an interval contains the true ratio.
    pub coverage: f64,
}

/// Time and tokens of a training run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingCost {
    /// Number of answer tokens, generated by the target or reused from a log.
    pub answer_tokens: u64,
    /// Number of trained rows: one per position and pass over it.
    pub rows: u64,
    /// Seconds spent on the target's answers.
    pub answers_s: f64,
    /// Seconds spent on the target's states.
    pub states_s: f64,
    /// Seconds spent on training steps.
    pub training_s: f64,
    /// Seconds spent on evaluations and the final comparison.
    pub evaluation_s: f64,
    /// Floating-point operations of training, counted from the matrices.
    pub flops: f64,
}

impl AcceptFigures {
    /// Output tokens / rounds.
    pub fn accept_length(&self) -> Option<f64> {
        (self.rounds > 0).then(|| self.tokens as f64 / self.rounds as f64)
    }

    /// Fractions of the rounds in which at least 1, 2, … drafts are accepted.
    pub fn by_position(&self) -> Vec<f64> {
        let rounds: u64 = self.histogram.iter().sum();
        let reached = |at: usize| self.histogram[at..].iter().sum::<u64>() as f64 / rounds.max(1) as f64;
        (1..self.histogram.len()).map(reached).collect()
    }
}

impl TrainingRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// A message if the text is not a record or has another format.
    pub fn parse(text: &str) -> Result<Self, String> {
        let record: Self =
            serde_json::from_str(text).map_err(|error| format!("not a record of a training run: {error}"))?;
        if record.format == FORMAT {
            return Ok(record);
        }
        Err(format!("format {} of another version of spectune; this version reads format {FORMAT}", record.format))
    }

    /// The JSON text of the record.
    pub fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}
