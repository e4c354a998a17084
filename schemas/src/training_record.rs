//! The record of a training run (`training.json` next to the head): shown by `report`, and compared with a log by `drift`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the format.
pub const FORMAT: u32 = 1;

/// A training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of spectune.
    pub spectune: String,
    /// When it ended, in seconds since 1970 (UTC).
    pub finished: f64,
    /// What was trained, on what.
    pub models: ModelFacts,
    /// The tree for which accept lengths count: `3,1,4`.
    pub shape: String,
    /// Whether training started from random values.
    pub from_scratch: bool,
    /// The prompts, set by set.
    pub sets: Vec<SetFacts>,
    /// Steps of training, each over the steps since the one before.
    pub curve: Vec<CurvePoint>,
    /// Evaluations, the first one of the previous head.
    pub evaluations: Vec<Evaluation>,
    /// Why training stopped.
    pub stopped: String,
    /// The judgement.
    pub verdict: Verdict,
    /// What the held-out prompts that chose nothing say, set by set; all of them together first.
    pub judged: Vec<Comparison>,
    /// On prompts of all kinds.
    pub general: Option<Comparison>,
    /// What it took.
    pub cost: Cost,
    /// Accept figures of the head that was written or kept, one of each judging request: output tokens and rounds. What a
    /// log is compared with.
    pub baseline: Vec<(u64, u64)>,
}

/// The models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Name of the target.
    pub name: String,
    /// Hash of the target's files.
    pub target: String,
    /// Hash of the files of the previous head.
    pub before: Option<String>,
    /// Hash of the files of the written head; none where the old one stays.
    pub after: Option<String>,
    /// EAGLE, EAGLE3 or NEXTN.
    pub algorithm: String,
    /// Values that train.
    pub parameters: u64,
    /// Where the engine ran.
    pub device: String,
}

/// A set of prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetFacts {
    /// Its name.
    pub name: String,
    /// Prompts that train.
    pub training: usize,
    /// Held-out prompts that choose among checkpoints.
    pub choosing: usize,
    /// Held-out prompts that judge the chosen one.
    pub judging: usize,
    /// Answer tokens of those that train.
    pub training_tokens: u64,
    /// Repeated prompts that were skipped.
    pub repeated: usize,
}

/// A stretch of training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Steps made.
    pub step: usize,
    /// Loss of tokens by step of the unrolled draft, in nats.
    pub loss: Vec<f64>,
    /// Share of rows in which draft and target agree on the likeliest token, by step of the unrolled draft.
    pub agreement: Vec<f64>,
    /// The learning rate.
    pub learning_rate: f64,
    /// Norm of the gradients before clipping, mean.
    pub gradient: f64,
    /// Trained rows a second.
    pub rows_per_s: f64,
}

/// An evaluation on the choosing prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Steps made; 0 is the previous head.
    pub step: usize,
    /// Replayed accept length of all choosing prompts.
    pub accept_length: f64,
    /// By set.
    pub by_set: BTreeMap<String, f64>,
    /// Loss on the choosing prompts, summed over the unrolled steps with their weights, in nats.
    pub loss: f64,
    /// The same on the general prompts.
    pub general_loss: Option<f64>,
    /// Accept length on the general prompts.
    pub general_accept_length: Option<f64>,
}

/// Which head is written, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the trained head is written.
    pub better: bool,
    /// The step of the chosen checkpoint; 0 where none was longer than the previous head.
    pub step: usize,
    /// In a sentence.
    pub because: String,
}

/// Before and after on the same texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The set.
    pub name: String,
    /// Prompts.
    pub prompts: usize,
    /// With the previous head.
    pub before: AcceptFigures,
    /// With the chosen checkpoint.
    pub after: AcceptFigures,
    /// Accept length after over before, with an interval by prompts.
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
    /// Predicted tokens per second of the batch: accept length over the measured time of a round.
    pub predicted_tokens_per_s: Option<f64>,
}

/// A ratio of accept lengths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioInterval {
    /// Of all texts together.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How often such an interval holds the true ratio.
    pub coverage: f64,
}

/// Time and tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Answer tokens that the target generated, and those that a log had already.
    pub answer_tokens: u64,
    /// Rows that trained, one a position and pass over it.
    pub rows: u64,
    /// Seconds of the target's answers.
    pub answers_s: f64,
    /// Seconds of the target's states.
    pub states_s: f64,
    /// Seconds of training steps.
    pub training_s: f64,
    /// Seconds of evaluations and of the judgement.
    pub evaluation_s: f64,
    /// Floating-point operations of training, counted from the matrices.
    pub flops: f64,
}

impl AcceptFigures {
    /// Output tokens / rounds.
    pub fn accept_length(&self) -> Option<f64> {
        (self.rounds > 0).then(|| self.tokens as f64 / self.rounds as f64)
    }

    /// The share of rounds in which at least this many drafts are accepted, from one on.
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
    /// A message, when it is not a record or has another format.
    pub fn parse(text: &str) -> Result<Self, String> {
        let record: Self =
            serde_json::from_str(text).map_err(|error| format!("not a record of a training run: {error}"))?;
        if record.format == FORMAT {
            return Ok(record);
        }
        Err(format!("format {} of another version of spectune; this version reads format {FORMAT}", record.format))
    }

    /// Its text.
    pub fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}
