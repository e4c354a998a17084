//! The tuned file: the result of a sweep, for `serve`, `generate` and `export`.

mod server;
mod weights;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use server::{ServerArgument, TunedServer};

use crate::{
    algorithm::parse_algorithm,
    diagnostic::Diagnostic,
    engines::NEWEST_SGLANG,
    sweep::{LARGEST, check_second_source, each_within, within},
    text::{Source, shortened},
    toml_file::{self, FieldError},
    tree::{NodeSource, RowBudget, TreeShape},
};

/// The format version that this program writes. It reads all versions from 1 on.
pub const FORMAT: u32 = 2;

/// A tuned configuration with the measurements on which the choice is based.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunedFile {
    /// Version of this format: 2, or 1 in files of earlier versions, which lack repeats and dates.
    pub format: u32,
    /// What wrote it, such as "spectune 0.1.0".
    pub written_by: String,
    /// Caveats of the figures; `serve` and `export` repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The models. Paths are relative to the file's own folder.
    pub models: TunedModels,
    /// The engine settings.
    pub engine: TunedEngine,
    /// How the servers were started, if servers of another engine were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<TunedServer>,
    /// Which tree runs at which batch, and at which context if rows have one, ascending.
    pub policy: Vec<PolicyRow>,
    /// Where the figures were measured, and on what.
    pub measured: Provenance,
}

/// Target and draft.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunedModels {
    /// Folder of the target.
    pub target: String,
    /// Folder of the draft; omitted for the MTP layer of the target's own checkpoint.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub draft: String,
    /// As `models.algorithm` of a sweep.
    pub algorithm: String,
    /// What is looked up beside the head, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_source: Option<String>,
    /// Type of weights and activations.
    pub dtype: String,
    /// Quantisation of 16-bit weights of both at load time, if any: fp8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// How layers with weights in FP8 multiplied, if the sweep chose it: weights or products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8_compute: Option<String>,
    /// Dtype of the KV cache, if it is not that of activations: fp8_e4m3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_dtype: Option<String>,
    /// Stored dtype of the target's weights.
    pub target_dtype: Option<String>,
    /// Maximum sequence length of the draft.
    pub draft_context_length: Option<usize>,
}

/// Settings of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunedEngine {
    /// Where it ran: cpu or cuda:N.
    pub device: String,
    /// Number of GPUs over which the models were split, starting at the device, if several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tp_size: Option<usize>,
    /// Longest sequence.
    pub context_length: usize,
    /// Tokens per KV page.
    pub page_size: usize,
    /// Fraction of the device's memory for weights and KV cache.
    pub mem_fraction_static: f64,
    /// Attention kernels, if the sweep chose them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_backend: Option<String>,
    /// Maximum number of prompt tokens per prefill pass, if the sweep chose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunked_prefill_size: Option<usize>,
    /// Maximum number of running requests: the largest measured batch.
    pub max_running_requests: usize,
    /// Batch sizes for which CUDA graphs are captured; empty on the CPU.
    pub capture_sizes: Vec<usize>,
}

/// One row of the policy: up to this batch, this tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRow {
    /// Largest running batch to which the row applies; the last row also applies to all larger
    /// ones.
    pub max_running_batch: usize,
    /// Largest mean context of the running requests, in tokens, to which the row applies; omitted
    /// for any context. Rows of one batch are in ascending order of it, and the last one also
    /// applies to longer contexts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_context: Option<usize>,
    /// The batch at which the figures of this row were measured. If it is outside the row's range,
    /// the choice of this tree for the row is predicted from measurements at other batches.
    #[serde(default)]
    pub measured_batch: usize,
    /// Draft steps; 0 for no speculation.
    pub num_steps: usize,
    /// Branches per step.
    pub topk: usize,
    /// Nodes of the tree, root included.
    pub num_draft_tokens: usize,
    /// Rows that the target verifies per request on average, roots included: the likeliest nodes
    /// of all requests together. Omitted if all nodes are verified. Only spectune's own engine has
    /// such budgets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_budget: Option<RowBudget>,
    /// Output tokens per second over all requests, median over repeats.
    pub output_tokens_per_s: f64,
    /// Number of measured repeats; unknown in files of format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<usize>,
    /// The objective relative to no speculation, median over repeats; omitted if no speculation was
    /// not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup: Option<f64>,
    /// Bounds of the speed-up's interval or range; omitted with one repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup_interval: Option<[f64; 2]>,
    /// The kind of these bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_kind: Option<IntervalKind>,
    /// The probability that such an interval holds the true median, such as 0.75 for the range of
    /// three repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_level: Option<f64>,
    /// Output tokens / rounds, first and bonus tokens included.
    pub accept_length: f64,
    /// Whether speculation pays at this batch.
    pub verdict: TunedVerdict,
    /// The reason of the verdict, as a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Whether speculation pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TunedVerdict {
    /// The configuration speculates and is measurably better than no speculation.
    #[serde(alias = "speculation pays")]
    Pays,
    /// No speculation is best, or no speculating configuration is measurably better.
    #[serde(alias = "speculation does not pay here")]
    DoesNotPay,
    /// No significant difference from no speculation, and a noticeable gain is excluded.
    NoDifference,
    /// The measurements are inconclusive.
    #[serde(alias = "no speculation was not measured")]
    NotKnown,
}

/// The kind of the bounds of a median.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IntervalKind {
    /// Minimum and maximum, with too few repeats for a 95% interval.
    Range,
    /// A confidence interval of at least 95%.
    Confidence,
}

/// Where the figures come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Name of the machine, or names, if shards ran on several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Name of the processor or GPU.
    pub device_name: String,
    /// Driver of a GPU; empty on the CPU.
    pub driver: String,
    /// The engine that was measured, and its version.
    pub engine: String,
    /// Hash of the target's files.
    pub target_hash: String,
    /// Hash of the draft's files.
    pub draft_hash: String,
    /// Hash of prompts, lengths and sampling.
    pub workload_hash: String,
    /// The loads that were measured, such as "batch 8" and "4 requests/s".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<String>,
    /// When the first trial ended, in UTC, such as "2026-11-25 12:40".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub first_trial: String,
    /// When the last trial ended, in UTC.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_trial: String,
    /// What was optimised: throughput, latency, goodput or pareto.
    pub objective: String,
    /// How the space was searched, and why the search ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub search: String,
}

impl TunedFile {
    /// Reads a tuned file.
    ///
    /// # Errors
    /// If it is not valid TOML, has another format version, an unknown key or an invalid value.
    pub fn read(source: &Source) -> Result<Self, Box<Diagnostic>> {
        let check = |file: &Self| file.check().err().into_iter().collect();
        toml_file::read_checked(source, check).map_err(toml_file::first)
    }

    /// The text of the file.
    ///
    /// # Errors
    /// If a number cannot be written as TOML.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        // TOML comments must not contain control characters such as line ends.
        let writer: String = self.written_by.chars().filter(|character| !character.is_control()).collect();
        Ok(format!("# Written by {writer}. Run it: spectune serve tuned.toml\n{}", toml::to_string(self)?))
    }

    /// Caveats for every use of this file: its own warnings, and remarks on rows whose figures
    /// support little.
    pub fn caveats(&self) -> Vec<String> {
        let mut caveats = self.warnings.clone();
        if self.format < FORMAT {
            caveats.push(format!(
                "it has format {}, which does not record the number of repeats: its verdicts may rest on a single repeat; \
                 `spectune report` of the sweep's folder shows what its trials support",
                self.format
            ));
        }
        let batches = |rows: Vec<&PolicyRow>| {
            let batches: Vec<String> = rows.iter().map(|row| row.max_running_batch.to_string()).collect();
            (!batches.is_empty()).then(|| batches.join(", "))
        };
        let single = self.policy.iter().filter(|row| row.repeats == Some(1)).collect();
        caveats.extend(batches(single).map(|batches| {
            format!("up to batch {batches}: measured once, so how much the figures scatter is not known")
        }));
        let unknown = self.policy.iter().filter(|row| row.verdict == TunedVerdict::NotKnown);
        caveats.extend(unknown.map(|row| {
            // The first format gave no reasons, only the verdict as a sentence.
            let why = row.reason.strip_prefix("not known: ").filter(|_| self.format > 1);
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            let context = row.max_context.map_or_else(String::new, |longest| format!(" and context {longest}"));
            format!("up to batch {}{context}: whether speculation pays is not known{why}", row.max_running_batch)
        }));
        caveats
    }

    /// What an export for another engine loses: trees that depend on the context. `None` if none
    /// does.
    pub fn export_caveat(&self) -> Option<String> {
        let batches: Vec<String> = self.batches_that_depend_on_context().iter().map(ToString::to_string).collect();
        (!batches.is_empty()).then(|| {
            format!(
                "up to batch {}, the tree depends on the context, which spectune's own engine follows: tables of other \
                 engines have no context, so an export contains the rows for one context (--context N), by default the \
                 shortest",
                batches.join(", ")
            )
        })
    }

    /// The largest running batches of rows whose trees differ by context.
    pub fn batches_that_depend_on_context(&self) -> Vec<usize> {
        // Rows are in ascending order, so those of one batch lie side by side.
        let of_batch = self.policy.chunk_by(|a, b| a.max_running_batch == b.max_running_batch);
        let differ = |rows: &&[PolicyRow]| rows.iter().any(|row| row.shape() != rows[0].shape());
        of_batch.filter(differ).map(|rows| rows[0].max_running_batch).collect()
    }

    /// The same file with one row for each batch: the one that holds at a mean context, in tokens.
    #[must_use]
    pub fn at_context(&self, context: usize) -> Self {
        let of_batch = self.policy.chunk_by(|a, b| a.max_running_batch == b.max_running_batch);
        let holds = |row: &&PolicyRow| row.max_context.is_none_or(|longest| longest >= context);
        // Beyond the longest measured context its row is the nearest one.
        let row = |rows: &[PolicyRow]| rows.iter().find(holds).or(rows.last()).cloned();
        let policy = of_batch.filter_map(row).map(|row| PolicyRow { max_context: None, ..row }).collect();
        Self { policy, ..self.clone() }
    }

    /// The policy as `(largest running batch, shape)`, for the shortest contexts.
    pub fn shapes(&self) -> Vec<(usize, TreeShape)> {
        shortest_context_rows(self.policy.iter().map(|row| (row.max_running_batch, row.shape())))
    }

    /// The policy as `(largest running batch, largest mean context, shape)`.
    pub fn shapes_by_context(&self) -> Vec<(usize, usize, TreeShape)> {
        let context = |row: &PolicyRow| row.max_context.unwrap_or(usize::MAX);
        self.policy.iter().map(|row| (row.max_running_batch, context(row), row.shape())).collect()
    }

    /// The row for a running batch; `None` only if the policy is empty.
    pub fn row(&self, batch: usize) -> Option<&PolicyRow> {
        self.policy.iter().find(|row| batch <= row.max_running_batch).or(self.policy.last())
    }

    fn check(&self) -> Result<(), FieldError> {
        if !(1..=FORMAT).contains(&self.format) {
            let found = self.format;
            let reason = format!(
                "it has format {found}, but this program reads 1 to {FORMAT}: it was written by another version of spectune"
            );
            return Err(FieldError::at(&["format"], reason));
        }
        let algorithm = self.models.algorithm.as_str();
        // Look-ups are no algorithms of SGLang, but the own engine has them.
        let looks_up = matches!(NodeSource::named(algorithm), NodeSource::Text(_));
        if parse_algorithm(algorithm, NEWEST_SGLANG).is_none() && !looks_up {
            let shown = shortened(algorithm);
            return Err(FieldError::at(
                &["models", "algorithm"],
                format!("'{shown}' is not an algorithm (such as EAGLE, EAGLE3 or NEXTN)"),
            ));
        }
        check_second_source(self.models.second_source.as_deref(), algorithm)?;
        let share = self.engine.mem_fraction_static;
        if !(share > 0.0 && share <= 1.0) {
            return Err(FieldError::at(&["engine", "mem_fraction_static"], "expected more than 0 and at most 1"));
        }
        let TunedEngine { context_length, page_size, chunked_prefill_size, max_running_requests, .. } = self.engine;
        if context_length == 0 {
            return Err(FieldError::at(&["engine", "context_length"], "expected at least 1"));
        }
        within(&["engine", "page_size"], page_size)?;
        within(&["engine", "chunked_prefill_size"], chunked_prefill_size.unwrap_or(1))?;
        within(&["engine", "max_running_requests"], max_running_requests)?;
        each_within(&["engine", "capture_sizes"], &self.engine.capture_sizes, LARGEST)?;
        if self.policy.is_empty() {
            return Err(FieldError::at(&["policy"], "expected at least one row"));
        }
        // Readers take the first row that holds, so the order decides which one that is.
        let place = |row: &PolicyRow| (row.max_running_batch, row.max_context.unwrap_or(usize::MAX));
        let descends = |rows: &[PolicyRow]| place(&rows[0]) >= place(&rows[1]);
        if let Some(at) = self.policy.windows(2).position(descends) {
            let reason = "rows must be in ascending order of max_running_batch, and those of one batch of max_context";
            let wrong = FieldError::at(&["policy"], reason);
            return Err(wrong.element(at + 1));
        }
        for (at, row) in self.policy.iter().enumerate() {
            (NodeSource::named(algorithm).check(row.shape()))
                .map_err(|error| FieldError::at(&["policy"], error.to_string()).element(at))?;
            row.check().map_err(|reason| FieldError::at(&["policy"], reason).element(at))?;
        }
        Ok(())
    }
}

/// Rows of a table by batch and context, in the order of a tuned file, without their contexts: of
/// each batch only the first one.
pub fn shortest_context_rows(rows: impl Iterator<Item = (usize, TreeShape)>) -> Vec<(usize, TreeShape)> {
    let mut shapes: Vec<(usize, TreeShape)> = rows.collect();
    // The first row of a batch is the one of its shortest context.
    shapes.dedup_by_key(|(batch, _)| *batch);
    shapes
}

impl PolicyRow {
    /// Checks that the batch and the figures are valid.
    fn check(&self) -> Result<(), String> {
        if self.max_running_batch == 0 {
            return Err("max_running_batch is 0, but a batch has at least one request".into());
        }
        if self.max_context == Some(0) {
            return Err("max_context is 0, but a context has at least one token".into());
        }
        let ends = self.speedup_interval.into_iter().flatten().map(|end| ("speedup_interval", end));
        let speedup = self.speedup.map(|speedup| ("speedup", speedup));
        let always = [("output_tokens_per_s", self.output_tokens_per_s), ("accept_length", self.accept_length)];
        for (name, figure) in always.into_iter().chain(speedup).chain(ends) {
            if !figure.is_finite() || figure < 0.0 {
                return Err(format!("{name} is {figure}, which is not a possible measurement"));
            }
        }
        Ok(())
    }

    /// The tree shape of the row.
    pub fn shape(&self) -> TreeShape {
        let (num_steps, topk, num_draft_tokens) = (self.num_steps, self.topk, self.num_draft_tokens);
        TreeShape { num_steps, topk, num_draft_tokens, row_budget: self.row_budget }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::{Form, Tuning, export};

    fn file() -> TunedFile {
        let row = |max_running_batch, shape: TreeShape| PolicyRow {
            max_running_batch,
            max_context: None,
            measured_batch: max_running_batch,
            num_steps: shape.num_steps,
            topk: shape.topk,
            num_draft_tokens: shape.num_draft_tokens,
            row_budget: shape.row_budget,
            output_tokens_per_s: 100.5,
            repeats: Some(7),
            speedup: Some(1.25),
            speedup_interval: Some([1.2, 1.3]),
            interval_kind: Some(IntervalKind::Confidence),
            interval_level: Some(0.984375),
            accept_length: 2.5,
            verdict: TunedVerdict::Pays,
            reason: String::new(),
        };
        TunedFile {
            format: FORMAT,
            written_by: "spectune 0.1.0".into(),
            warnings: vec!["the machine was busy".into()],
            models: TunedModels {
                target: "target".into(),
                draft: "draft".into(),
                algorithm: "EAGLE3".into(),
                second_source: None,
                dtype: "auto".into(),
                quantization: None,
                fp8_compute: None,
                kv_cache_dtype: None,
                target_dtype: Some("bfloat16".into()),
                draft_context_length: None,
            },
            engine: TunedEngine {
                device: "cpu".into(),
                tp_size: None,
                context_length: 2048,
                page_size: 1,
                mem_fraction_static: 0.8,
                attention_backend: None,
                chunked_prefill_size: None,
                max_running_requests: 8,
                capture_sizes: Vec::new(),
            },
            server: None,
            policy: vec![row(1, TreeShape::chain(3)), row(8, TreeShape::OFF)],
            measured: Provenance {
                hosts: vec!["node-1".into()],
                device_name: "a \"processor\"".into(),
                driver: String::new(),
                engine: "spectune 0.1.0".into(),
                target_hash: "a".into(),
                draft_hash: "b".into(),
                workload_hash: "c".into(),
                loads: vec!["batch 1".into(), "batch 8".into()],
                first_trial: "2026-11-25 12:40".into(),
                last_trial: "2026-11-25 12:44".into(),
                objective: "throughput".into(),
                search: String::new(),
            },
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let text = file().text().expect("it can be written");
        assert_eq!(TunedFile::read(&Source::new("tuned.toml", text)), Ok(file()));
    }

    #[test]
    fn rows_by_context_are_read_in_order_and_exports_have_the_shortest() {
        let mut file = file();
        let long = PolicyRow { max_context: None, num_steps: 5, num_draft_tokens: 6, ..file.policy[0].clone() };
        file.policy[0].max_context = Some(4096);
        file.policy.insert(1, long);
        let text = file.text().expect("it can be written");
        let read = TunedFile::read(&Source::new("tuned.toml", text)).expect("it is read");
        let [short, long, off] = [TreeShape::chain(3), TreeShape::chain(5), TreeShape::OFF];
        assert_eq!(read.shapes(), [(1, short), (8, off)]);
        assert_eq!(read.shapes_by_context(), [(1, 4096, short), (1, usize::MAX, long), (8, usize::MAX, off)]);
        let warns = |file: &TunedFile| file.export_caveat().is_some();
        assert!(read.export_caveat().is_some_and(|caveat| caveat.starts_with("up to batch 1, ")));
        // The engine itself follows the context, so that whoever runs the file loses nothing.
        assert!(read.caveats().iter().all(|caveat| !caveat.contains("context")), "{:?}", read.caveats());
        let at = |context| read.at_context(context);
        assert_eq!([at(1).shapes(), at(4096).shapes()], [read.shapes(), read.shapes()]);
        assert_eq!(at(4097).shapes(), [(1, TreeShape::chain(5)), (8, off)]);
        assert!(!warns(&at(4097)) && at(4097).policy.iter().all(|row| row.max_context.is_none()));
        // Rows that agree lose nothing when they are exported.
        let mut same = read.clone();
        (same.policy[1].num_steps, same.policy[1].num_draft_tokens) = (3, 4);
        assert!(!warns(&same));
        file.policy.swap(0, 1);
        let text = file.text().expect("it can be written");
        let error = TunedFile::read(&Source::new("tuned.toml", text)).expect_err("descending").message.clone();
        assert!(error.contains("of max_context"), "{error}");
    }

    #[test]
    fn files_of_the_first_format_are_read_and_said_to_tell_less() {
        let first = r#"
format = 1
written_by = "spectune 0.1.0"
models = { target = "t", draft = "d", algorithm = "EAGLE3", dtype = "auto" }
engine = { device = "cpu", context_length = 9, page_size = 1, mem_fraction_static = 0.8, max_running_requests = 8, capture_sizes = [] }
measured = { device_name = "x", driver = "", engine = "spectune 0.1.0", target_hash = "a", draft_hash = "b", workload_hash = "c", objective = "latency" }
[[policy]]
max_running_batch = 8
num_steps = 3
topk = 1
num_draft_tokens = 4
output_tokens_per_s = 100.0
speedup = 1.5
speedup_interval = [1.4, 1.6]
accept_length = 2.5
verdict = "speculation does not pay here"
"#;
        let file = TunedFile::read(&Source::new("tuned.toml", first)).expect("it is read");
        assert_eq!((file.policy[0].verdict, file.policy[0].repeats), (TunedVerdict::DoesNotPay, None));
        assert!(file.caveats()[0].starts_with("it has format 1"), "{:?}", file.caveats());
    }

    #[test]
    fn caveats_name_the_rows_that_tell_little() {
        let mut file = file();
        assert_eq!(file.caveats(), ["the machine was busy"]);
        file.policy[0].repeats = Some(1);
        file.policy[1].verdict = TunedVerdict::NotKnown;
        let caveats = file.caveats().join("\n");
        assert!(
            caveats.contains("up to batch 1: measured once") && caveats.contains("up to batch 8: whether"),
            "{caveats}"
        );
    }

    #[test]
    fn a_writer_with_line_ends_does_not_end_the_comment() {
        let file = TunedFile { written_by: "a\nformat = 2\u{0}".into(), ..file() };
        let text = file.text().expect("it can be written");
        assert_eq!(TunedFile::read(&Source::new("tuned.toml", text)), Ok(file));
    }

    proptest! {
        #[test]
        fn no_broken_file_panics(at in 0..1600_usize, cut in 0..40_usize, put in "[\\[\\]{}=\"',.#a-z0-9\n äé-]{0,12}") {
            let text = file().text().expect("it can be written");
            let (from, to) = (at.min(text.len()), (at + cut).min(text.len()));
            let broken = format!("{}{put}{}", &text[..from], &text[to..]);
            if let Ok(file) = TunedFile::read(&Source::new("tuned.toml", broken)) {
                let _ = file.caveats();
                for form in Form::ALL {
                    let _ = export(&Tuning::from(&file), form, Some(3), None);
                }
            }
        }
    }

    #[test]
    fn rows_hold_up_to_their_batch_and_the_last_one_beyond() {
        let shapes = [1, 2, 8, 99].map(|batch| file().row(batch).map(PolicyRow::shape));
        assert_eq!(
            shapes,
            [Some(TreeShape::chain(3)), Some(TreeShape::OFF), Some(TreeShape::OFF), Some(TreeShape::OFF)]
        );
    }

    #[test]
    fn other_formats_and_impossible_shapes_are_refused_at_their_place() {
        for (from, to, expected) in [
            ("format = 2", "format = 3", "it has format 3, but this program reads 1 to 2"),
            ("format = 2", "format = 0", "it has format 0"),
            ("num_draft_tokens = 4", "num_draft_tokens = 9", "must be num_steps + 1"),
            ("max_running_batch = 1", "max_running_batch = 9", "ascending"),
            ("page_size = 1", "page_size = 0", "0 is out of range, expected 1 to 1048576"),
            ("max_running_requests = 8", "max_running_requests = 9223372036854775807", "out of range"),
            ("capture_sizes = []", "capture_sizes = [1, 9999999]", "9999999 is out of range"),
            ("context_length = 2048", "context_length = 0", "at least 1"),
            ("algorithm = \"EAGLE3\"", "algorithm = \"EAGEL\"", "'EAGEL' is not an algorithm"),
            ("dtype = \"auto\"", "dtype = \"auto\"\nsecond_source = \"NGRAM\"", "PROMPT_LOOKUP"),
            ("algorithm = \"EAGLE3\"", "algorithm = \"SUFFIX\"\nsecond_source = \"PROMPT_LOOKUP\"", "has none"),
            ("mem_fraction_static = 0.8", "mem_fraction_static = nan", "more than 0 and at most 1"),
            ("mem_fraction_static = 0.8", "mem_fraction_static = 1.5", "more than 0 and at most 1"),
            ("speedup = 1.25", "speedup = nan", "speedup is NaN"),
            ("accept_length = 2.5", "accept_length = inf", "accept_length is inf"),
            ("output_tokens_per_s = 100.5", "output_tokens_per_s = -1.0", "output_tokens_per_s is -1"),
            ("max_running_batch = 1", "max_running_batch = 0", "at least one request"),
            // A wrong number is not a missing one, whatever else is wrong.
            ("max_running_batch = 1", "max_running_batch = -1", "expected a whole number"),
            ("num_steps = 3\ntopk = 1", "num_steps = 1.5\ntopk = -1", "expected a whole number"),
        ] {
            let text = file().text().expect("it can be written").replacen(from, to, 1);
            let error = TunedFile::read(&Source::new("tuned.toml", text)).expect_err("a bad file");
            assert!(error.message.contains(expected), "{}", error.message);
            assert!(error.span.end > 0);
        }
    }
}
