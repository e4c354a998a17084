//! The training file: the head to adapt, the prompts, the tree shape, and when to stop.

mod stop;
mod training;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    stop::Stop,
    training::{LearningRateSchedule, Loss, Precision, Training},
};
use crate::{
    diagnostic::Diagnostic,
    sweep::{EngineSettings, UserTurn, within},
    text::Source,
    toml_file::{self, FieldError},
    tree::{NodeSource, TreeShape},
};

/// A training run: models, tree, prompts, answers, objective, stop. Paths are relative to the
/// file's own folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainFile {
    /// The head to train, and its target.
    pub models: TrainModels,
    /// Settings of the engine that generates answers and states, and replays.
    #[serde(default)]
    pub engine: EngineSettings,
    /// The tree shape that will be used in serving.
    pub tree: TrainTree,
    /// Sets of prompts, one table each.
    pub prompts: Vec<PromptSet>,
    /// General prompts, never used for training: they show what the head loses on other kinds.
    pub general: Option<GeneralSet>,
    /// How the target generates answers.
    #[serde(default)]
    pub answers: TrainAnswers,
    /// Training hyperparameters.
    #[serde(default)]
    pub training: Training,
    /// Stopping and evaluation.
    #[serde(default)]
    pub stop: Stop,
}

/// Target and head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Models")]
pub struct TrainModels {
    /// Folder of the target, as published on Hugging Face, or the id of one in the local Hugging
    /// Face cache.
    pub target: String,
    /// Folder of the head to start from, or its id. Omit it for the MTP layer of the target's own
    /// checkpoint (NEXTN), and with start = "random".
    #[serde(default)]
    pub draft: String,
    /// EAGLE, EAGLE3, NEXTN, DFLASH or DSPARK; checked against the head's tensors.
    pub algorithm: String,
    /// What training starts from: the head ("draft"), or random values ("random", EAGLE3 only) with
    /// a layer like the target's. A random head needs far more text than an adapted one: published
    /// heads are trained on hundreds of thousands of conversations.
    #[serde(default)]
    pub start: TrainStart,
    /// Number of tokens that a random head can propose: the most frequent ones of the answers
    /// (default: all).
    pub draft_vocabulary: Option<usize>,
}

/// What training starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Start")]
pub enum TrainStart {
    /// The head that `draft` names.
    #[default]
    Draft,
    /// Random values.
    Random,
}

/// The tree for which accept lengths count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Tree")]
pub struct TrainTree {
    /// Written as "num_steps,topk,num_draft_tokens", such as "3,1,4" or "5,4,8". A block head is
    /// trained with the block that drafts this tree: a chain's own, or the one of its config.json.
    pub shape: String,
    /// Expected batch size: rounds of this batch are timed once, to convert accept lengths into
    /// predicted tokens per second. 0 skips the timing.
    #[serde(default = "one")]
    pub batch: usize,
}

/// Prompts of one kind. Exactly one of `file`, `input_ids` and `log` says where they come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptSet {
    /// Name in the report (default: the file's name).
    pub name: Option<String>,
    /// A file of prompts in the forms that sweep files take (`workload.prompts`).
    pub file: Option<String>,
    /// A JSON file with a list of token-id lists.
    pub input_ids: Option<String>,
    /// A log of requests, written by `spectune serve --log-requests`, whose answers are reused.
    /// Requests of another target are left out, and `turn` and `chat` are refused.
    pub log: Option<String>,
    /// Maximum number of prompts, from the start of the file; of a log the newest ones.
    #[serde(default = "PromptSet::default_requests")]
    pub requests: usize,
    /// The message of the user with which a conversation ends: "first", "last" or "each", as in
    /// sweep files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<UserTurn>,
    /// Skip prompts with more tokens than this. By default, a prompt that does not fit the context
    /// is an error; in a log it is left out.
    pub max_prompt_tokens: Option<usize>,
    /// Whether prompts are wrapped in the model's chat template (default: conversations are, plain
    /// prompts are not).
    pub chat: Option<bool>,
}

/// General prompts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneralSet {
    /// As in `[[prompts]]`.
    pub file: String,
    /// Maximum number of prompts, from the start of the file.
    #[serde(default = "GeneralSet::default_requests")]
    pub requests: usize,
    /// As in `[[prompts]]`.
    pub max_prompt_tokens: Option<usize>,
    /// As in `[[prompts]]`.
    pub chat: Option<bool>,
}

/// How the target generates answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Answers")]
pub struct TrainAnswers {
    /// Maximum number of new tokens per answer.
    pub output_length: usize,
    /// Sampling temperature; 0 is greedy.
    pub temperature: f32,
    /// Sample from the smallest set of most likely tokens whose total probability reaches this.
    pub top_p: f32,
    /// Sample from this many most likely tokens; 0 for all.
    pub top_k: usize,
    /// Seed of sampling.
    pub seed: u64,
    /// Continue after the model's end-of-text tokens.
    pub ignore_eos: bool,
}

/// Maximum number of sets of prompts.
const MOST_SETS: usize = 256;

impl TrainFile {
    /// Reads a training file.
    ///
    /// # Errors
    /// If it is not valid TOML, or has an unknown key or an invalid value; the finding points at
    /// the place.
    pub fn read(source: &Source) -> Result<Self, Box<Diagnostic>> {
        Self::read_all(source).map_err(toml_file::first)
    }

    /// As [`read`](Self::read), with all errors that can be told, in the order of the file.
    ///
    /// # Errors
    /// At least one finding.
    pub fn read_all(source: &Source) -> Result<Self, Vec<Diagnostic>> {
        toml_file::read_checked(source, Self::check)
    }

    /// The tree shape; [`TreeShape::OFF`] if it is invalid.
    pub fn shape(&self) -> TreeShape {
        self.nodes().parse(&self.tree.shape).unwrap_or(TreeShape::OFF)
    }

    /// What fills the tree. The head's block, which is not known here, may have fewer rows.
    fn nodes(&self) -> NodeSource {
        NodeSource::named(&self.models.algorithm)
    }

    /// What is wrong with the values: an error for each table.
    fn check(&self) -> Vec<FieldError> {
        let tables = [
            self.models.check(),
            self.engine.check(),
            self.tree.check(self.nodes()),
            self.check_prompts(),
            self.general.as_ref().map_or(Ok(()), GeneralSet::check),
            self.answers.check(),
            self.training.check(self.nodes()),
            self.stop.check(),
        ];
        tables.into_iter().filter_map(Result::err).collect()
    }

    fn check_prompts(&self) -> Result<(), FieldError> {
        if self.prompts.is_empty() || self.prompts.len() > MOST_SETS {
            return Err(FieldError::at(&["prompts"], format!("expected 1 to {MOST_SETS} tables [[prompts]]")));
        }
        for (at, set) in self.prompts.iter().enumerate() {
            set.check().map_err(|wrong| wrong.element(at))?;
        }
        let names: BTreeSet<String> = self.prompts.iter().map(PromptSet::label).collect();
        if names.len() < self.prompts.len() {
            return Err(FieldError::at(
                &["prompts"],
                "two sets of prompts have the same name: give each a different name",
            ));
        }
        Ok(())
    }
}

impl TrainModels {
    /// Whether the target's own MTP layer is trained.
    pub fn is_own_layer(&self) -> bool {
        self.draft.is_empty() && self.start == TrainStart::Draft
    }

    fn check(&self) -> Result<(), FieldError> {
        const ALGORITHMS: [&str; 5] = ["EAGLE", "EAGLE3", "NEXTN", "DFLASH", "DSPARK"];
        /// Those that train the MTP layer of the target's own checkpoint.
        const OWN_LAYER: [&str; 2] = ["NEXTN", "EAGLE"];
        let algorithm = self.algorithm.to_ascii_uppercase();
        if self.target.is_empty() {
            return Err(FieldError::at(&["models", "target"], "expected the folder of a target"));
        }
        if !ALGORITHMS.contains(&algorithm.as_str()) {
            return Err(FieldError::word(&["models", "algorithm"], &self.algorithm, &ALGORITHMS));
        }
        match (self.start, self.draft.is_empty()) {
            (TrainStart::Draft, true) if !OWN_LAYER.contains(&algorithm.as_str()) => {
                let reason = "the key `draft` is missing: only NEXTN and EAGLE train the target's own MTP layer";
                Err(FieldError::at(&["models"], reason))
            }
            (TrainStart::Random, _) if algorithm != "EAGLE3" => {
                Err(FieldError::at(&["models", "start"], "start = \"random\" is supported for EAGLE3 only"))
            }
            (TrainStart::Random, false) => {
                Err(FieldError::at(&["models", "draft"], "draft has no effect with start = \"random\": remove it"))
            }
            (TrainStart::Draft, _) if self.draft_vocabulary.is_some() => {
                let reason = "draft_vocabulary has no effect without start = \"random\": a head keeps its vocabulary";
                Err(FieldError::at(&["models", "draft_vocabulary"], reason))
            }
            _ => self.draft_vocabulary.map_or(Ok(()), |size| within(&["models", "draft_vocabulary"], size)),
        }
    }
}

impl TrainTree {
    fn check(&self, nodes: NodeSource) -> Result<(), FieldError> {
        let wrong = |reason: String| FieldError::at(&["tree", "shape"], format!("{:?}: {reason}", self.shape));
        let shape = nodes.parse(&self.shape).map_err(|error| wrong(error.to_string()))?;
        if shape.is_off() {
            return Err(wrong("this is not speculation: nothing would be accepted".into()));
        }
        if self.batch > crate::sweep::LARGEST {
            return Err(FieldError::at(&["tree", "batch"], format!("expected at most {}", crate::sweep::LARGEST)));
        }
        Ok(())
    }
}

impl PromptSet {
    /// The name of the set in the report: `name`, by default the file's name.
    pub fn label(&self) -> String {
        let path = [&self.file, &self.input_ids, &self.log].into_iter().flatten().next();
        let stem = path.map(|path| {
            let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
            file.split('.').next().unwrap_or(file).to_owned()
        });
        self.name.clone().or(stem).unwrap_or_default()
    }

    /// An error of the table, or of a key of it.
    fn check(&self) -> Result<(), FieldError> {
        let wrong = |reason: &str| FieldError::at(&["prompts"], reason);
        let sources = [self.file.is_some(), self.input_ids.is_some(), self.log.is_some()];
        if sources.iter().filter(|given| **given).count() != 1 {
            return Err(wrong("give exactly one of file, input_ids and log"));
        }
        within(&["prompts"], self.requests).map_err(|wrong| wrong.key("requests"))?;
        if let Some(most) = self.max_prompt_tokens {
            within(&["prompts"], most).map_err(|wrong| wrong.key("max_prompt_tokens"))?;
        }
        if self.label().is_empty() {
            return Err(wrong("expected a name").key("name"));
        }
        Ok(())
    }

    fn default_requests() -> usize {
        1024
    }
}

impl GeneralSet {
    fn check(&self) -> Result<(), FieldError> {
        within(&["general", "requests"], self.requests)?;
        self.max_prompt_tokens.map_or(Ok(()), |most| within(&["general", "max_prompt_tokens"], most))
    }

    fn default_requests() -> usize {
        32
    }
}

impl TrainAnswers {
    fn check(&self) -> Result<(), FieldError> {
        within(&["answers", "output_length"], self.output_length)?;
        if self.output_length < 4 {
            return Err(FieldError::at(
                &["answers", "output_length"],
                "expected at least 4: a draft looks two tokens ahead",
            ));
        }
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(FieldError::at(&["answers", "temperature"], "expected a number of at least 0"));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(FieldError::at(&["answers", "top_p"], "expected a number above 0 and at most 1"));
        }
        Ok(())
    }
}

impl Default for TrainAnswers {
    fn default() -> Self {
        Self { output_length: 256, temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0, ignore_eos: false }
    }
}

fn one() -> usize {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[models]
target = "target"
draft = "draft"
algorithm = "EAGLE3"

[tree]
shape = "3,1,4"

[[prompts]]
file = "docs/python.jsonl"
"#;

    fn check(from: &str, to: &str) -> Result<TrainFile, (usize, String)> {
        let source = Source::new("train.toml", GOOD.replacen(from, to, 1));
        TrainFile::read(&source).map_err(|finding| (source.position(finding.span.start).line, finding.message))
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let file = check("", "").expect("a good file");
        assert_eq!((file.shape(), file.prompts[0].label()), (TreeShape::chain(3), "python".to_owned()));
        assert_eq!((file.training.unroll(), file.training.decay(None), file.training.loss), (5, 0.8, Loss::Kl));
    }

    #[test]
    fn a_number_that_is_too_large_is_reported_at_its_line() {
        let after_prompts = |text: &str| format!("file = \"docs/python.jsonl\"\n{text}");
        for (text, expected) in [
            ("requests = 9999999999", "9999999999 is out of range, expected 1 to 1048576"),
            ("requests = 9223372036854775808", "9223372036854775808 is out of range, expected 1 to 1048576"),
            ("requests = 99999999999999999999", "99999999999999999999 is too large"),
            ("max_prompt_tokens = 9999999999", "9999999999 is out of range, expected 1 to 1048576"),
        ] {
            let found = check("file = \"docs/python.jsonl\"", &after_prompts(text));
            assert_eq!(found, Err((12, expected.to_owned())), "{text}");
        }
        let found = check("[tree]", "[engine]\ncontext_length = 9_223_372_036_854_775_808\n[tree]");
        assert_eq!(found.expect_err("too large").0, 8);
    }

    #[test]
    fn a_block_head_has_its_own_shapes_and_settings() {
        const DFLASH: &str = "\"DFLASH\"\n[training]\nanchors = 64";
        let file = check("\"EAGLE3\"", DFLASH).expect("a good file");
        assert_eq!((file.training.anchors(), file.training.unroll()), (64, 5));
        for (rows, gamma) in [(8, 4.0), (16, 7.0)] {
            assert_eq!(file.training.decay(Some(rows)), f64::exp(-1.0 / gamma));
        }
        // More nodes than beams could fill.
        let text = GOOD.replace("\"EAGLE3\"", DFLASH).replace("3,1,4", "3,2,15");
        let wide = TrainFile::read(&Source::new("train.toml", text)).expect("a good file");
        assert_eq!(wide.shape(), TreeShape::whole_tree(3, 2, 15));
        for (to, line, message) in [
            ("\"DFLASH\"\n[training]\nunroll = 3", 7, "in one pass: remove it"),
            ("\"DFLASH\"\n[training]\nanchors = 0", 7, "0 is out of range"),
            ("\"STANDALONE\"", 5, "not one of EAGLE, EAGLE3, NEXTN, DFLASH, DSPARK"),
        ] {
            let (found, words) = check("\"EAGLE3\"", to).expect_err(to);
            assert!(found == line && words.contains(message), "{to}: line {found}, {words}");
        }
        let text = GOOD.replace("\"EAGLE3\"", "\"DFLASH\"").replace("draft = \"draft\"\n", "");
        assert!(
            TrainFile::read(&Source::new("train.toml", text)).is_err_and(|error| error.message.contains("`draft`"))
        );
    }

    #[test]
    fn errors_point_at_the_place() {
        for (from, to, line, message) in [
            ("\"3,1,4\"", "\"3,1,5\"", 8, "num_draft_tokens must be num_steps + 1 = 4"),
            ("\"3,1,4\"", "\"0,1,1\"", 8, "not speculation"),
            ("file = ", "flie = ", 11, "unknown key `flie`"),
            ("file = ", "log = \"x\"\nfile = ", 10, "exactly one of file, input_ids and log"),
            ("draft = \"draft\"\n", "", 2, "`draft` is missing"),
            ("\"EAGLE3\"", "\"MEDUSA\"", 5, "not one of EAGLE, EAGLE3, NEXTN, DFLASH, DSPARK"),
            ("[tree]", "[training]\nanchors = 64\n[tree]", 8, "remove it"),
            ("draft = \"draft\"", "draft = \"draft\"\nstart = \"random\"", 4, "remove it"),
            ("[tree]", "[training]\nlearning_rate = 0\n[tree]", 8, "above 0"),
            ("[tree]", "[training]\nbatch_size = 0\n[tree]", 8, "0 is out of range"),
            ("[tree]", "[stop]\nheld_out = 0.9\n[tree]", 8, "at most 0.5"),
            ("[tree]", "[answers]\noutput_length = 2\n[tree]", 8, "at least 4"),
        ] {
            let (found, words) = check(from, to).expect_err(to);
            assert!(words.contains(message), "{to}: {words}");
            assert_eq!(found, line, "{to}: {words}");
        }
    }
}
