//! Turns a tuned configuration into the launch of another engine.
//!
//! A tuned configuration is a launch without a tree shape and a table of shapes by running batch. What an engine cannot
//! express is omitted with a note, or is an error if omitting it would run something other than what was tuned.

mod adaptive;
mod schedule;
mod sglang;
mod tensorrt_llm;
mod vllm;
mod words;

use std::{fmt, str::FromStr};

use crate::{
    launch::file::LaunchFile,
    resolve::{NEWEST_SGLANG, NEWEST_VLLM, SLIME_PIN},
    text::nearest,
    tree::TreeShape,
    tuned::TunedFile,
    version::EngineVersion,
};

/// The format of the exported launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// SGLang's server command.
    Sglang,
    /// slime's `SGLANG_ARGS=( … )`.
    Slime,
    /// vLLM's server command with a `--speculative-config`.
    Vllm,
    /// The file for SGLang's `--speculative-adaptive-config`.
    SglangAdaptive,
    /// The speculative part of TensorRT-LLM's `--config` file.
    TensorRtLlm,
}

/// A tuned configuration to export.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// Models and engine flags. A tree shape in it is ignored in favour of the table.
    pub launch: LaunchFile,
    /// `(largest running batch, shape)`, ascending; the last row also applies to larger batches.
    pub table: Vec<(usize, TreeShape)>,
    /// Stored dtype of the target's weights, if known. A launch with dtype auto must state it, so that the draft is cast to
    /// it.
    pub target_dtype: Option<String>,
    /// Maximum sequence length of the draft, if known: a launch must not exceed it.
    pub draft_context_length: Option<usize>,
    /// Name of the GPU that the configuration was tuned on, if any.
    pub gpu: Option<String>,
    /// The engine and device that were measured, if known.
    pub measured: Option<Measured>,
}

/// The engine and device whose measurements chose the shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Engine and version, such as "spectune 0.1.0".
    pub engine: String,
    /// Name of the processor or GPU.
    pub device: String,
}

/// An exported launch, and notes on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The text, which ends with a line end.
    pub text: String,
    /// What was omitted or filled in, one sentence per note.
    pub notes: Vec<String>,
}

/// Why the launch cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The batch size is 0.
    #[error("a batch has at least one request: give --batch-size 1 or more")]
    EmptyBatch,
    /// The table has no row.
    #[error("the tuned file's table is empty: there is no tree shape to export")]
    EmptyTable,
    /// No target is named.
    #[error("the tuned file has no target: add a model_path")]
    NoTarget,
    /// The shape speculates, but no algorithm is named.
    #[error("the shape {0} speculates, but the tuned file has no speculative_algorithm")]
    NoAlgorithm(TreeShape),
    /// The algorithm needs a draft, but none is given.
    #[error("{0} needs a draft, but the tuned file has no speculative_draft_model_path")]
    NoDraft(String),
    /// The engine verifies chains only.
    #[error(
        "vLLM and TensorRT-LLM's policies draft chains, not trees: {0} has topk {topk}; sweep with topk 1 or export \
         for SGLang",
        topk = .0.topk
    )]
    Tree(TreeShape),
    /// vLLM has no such algorithm.
    #[error("vLLM has no counterpart of the algorithm {0} (known: EAGLE, EAGLE3, NEXTN, STANDALONE)")]
    Algorithm(String),
    /// TensorRT-LLM has no such algorithm in its PyTorch backend.
    #[error("TensorRT-LLM has no counterpart of the algorithm {0} (known: EAGLE3, NEXTN, STANDALONE)")]
    TensorRtAlgorithm(String),
    /// SGLang's adaptive speculation supports chains only.
    #[error(
        "SGLang's adaptive speculation needs topk 1 throughout: {0} is a tree; sweep with topk 1, or export one row \
         with --to sglang"
    )]
    AdaptiveTree(TreeShape),
    /// SGLang's adaptive speculation supports two algorithms only.
    #[error("SGLang's adaptive speculation supports EAGLE and EAGLE3, not {0}")]
    AdaptiveAlgorithm(String),
    /// This version of SGLang has no adaptive speculation.
    #[error("SGLang {0} has no --speculative-adaptive, which 0.5.12.post1 has; export one row with --to sglang")]
    AdaptiveVersion(EngineVersion),
    /// No row of the table speculates.
    #[error("no row of the table speculates, so there is nothing to adapt")]
    NothingToAdapt,
    /// The text does not name a format.
    #[error("'{0}' is not a launch format (expected sglang, slime, vllm, sglang-adaptive or tensorrt-llm{1})")]
    Form(String, String),
}

/// Writes a tuned configuration as a launch of another engine. The first note says which engine was measured, unless it
/// is the launched one.
///
/// SGLang's command runs one shape: the row for `batch_size`, by default the last row, which has the largest batch. A
/// given `batch_size` also limits the running requests, so that the shape runs at the batch sizes for which it is best.
/// A table that contains only chains is written whole into SGLang's adaptive file and the schedules of vLLM and
/// TensorRT-LLM. With a `batch_size`, the schedules are replaced by its row, and the adaptive file omits the rows for
/// larger batches. `version` is the engine's, since flags were renamed (default: the newest known of SGLang and vLLM,
/// slime's pin).
///
/// # Errors
/// If the engine cannot run the shape, or the tuned file lacks a model: see [`ExportError`].
pub fn export(
    tuning: &Tuning,
    form: Form,
    batch_size: Option<usize>,
    version: Option<EngineVersion>,
) -> Result<Exported, ExportError> {
    if batch_size == Some(0) {
        return Err(ExportError::EmptyBatch);
    }
    let mut exported = match form {
        Form::Sglang => sglang::command(&Row::of(tuning, batch_size)?, tuning, version.unwrap_or(NEWEST_SGLANG)),
        Form::Slime => sglang::slime(&Row::of(tuning, batch_size)?, tuning, version.unwrap_or(SLIME_PIN)),
        Form::Vllm => vllm::command(&Row::of(tuning, batch_size)?, tuning, version.unwrap_or(NEWEST_VLLM)),
        Form::SglangAdaptive => adaptive::file(tuning, batch_size, version.unwrap_or(NEWEST_SGLANG)),
        Form::TensorRtLlm => tensorrt_llm::file(tuning, batch_size),
    }?;
    if let Some(note) = whose_figures(tuning.measured.as_ref(), form.engine()) {
        exported.notes.insert(0, note);
    }
    Ok(exported)
}

/// The note on which engine was measured; `None` if it is the launched one.
fn whose_figures(measured: Option<&Measured>, engine: &str) -> Option<String> {
    let not_measured = format!("{engine} was not measured: another engine may rank the same shapes differently");
    let Some(Measured { engine: measured, device }) = measured else { return Some(not_measured) };
    let name = measured.split_whitespace().next().unwrap_or_default();
    if name.eq_ignore_ascii_case(engine) {
        return None;
    }
    let own = if name == "spectune" { "spectune's own engine " } else { "" };
    let version = if own.is_empty() { measured.as_str() } else { measured.trim_start_matches("spectune ") };
    Some(format!("chosen from measurements of {own}{version} on {device}; {not_measured}"))
}

/// The row of the table that a launch with one fixed shape runs.
struct Row {
    shape: TreeShape,
    /// The batch size that the user gives.
    asked: Option<usize>,
    /// The largest batch of the table.
    largest: Option<usize>,
    notes: Vec<String>,
}

impl Row {
    fn of(tuning: &Tuning, batch_size: Option<usize>) -> Result<Self, ExportError> {
        let last = tuning.table.last().ok_or(ExportError::EmptyTable)?;
        let chosen =
            batch_size.and_then(|batch| tuning.table.iter().find(|(largest, _)| *largest >= batch)).unwrap_or(last);
        let shape = chosen.1;
        let others: Vec<String> = tuning
            .table
            .iter()
            .filter(|row| row.1 != shape)
            .map(|(largest, shape)| {
                let shape = if shape.is_off() { "no speculation".into() } else { shape.to_string() };
                if *largest == usize::MAX { format!("{shape} above") } else { format!("{shape} up to batch {largest}") }
            })
            .collect();
        let mut notes = Vec::new();
        if !others.is_empty() {
            notes.push(format!(
                "one launch runs one tree shape: {} of the table was left out ({})",
                if others.len() == 1 { "a row" } else { "the rest" },
                others.join("; ")
            ));
        }
        let finite = tuning.table.iter().map(|(largest, _)| *largest).filter(|largest| *largest != usize::MAX).max();
        if let Some((asked, largest)) = batch_size.zip(finite).filter(|(asked, largest)| asked > largest) {
            notes.push(format!(
                "batch {asked} is outside the measured range (up to {largest}): the shape of the largest measured \
                 batch is used, which may not be the fastest there"
            ));
        }
        Ok(Self { shape, asked: batch_size, largest: finite, notes })
    }
}

impl From<&TunedFile> for Tuning {
    fn from(tuned: &TunedFile) -> Self {
        let TunedFile { models, engine, .. } = tuned;
        let integer = |count: usize| i64::try_from(count).ok();
        let sizes: Vec<i64> = engine.capture_sizes.iter().filter_map(|size| integer(*size)).collect();
        // Relative paths stay as written: they are relative to the tuned file, which may move.
        let launch = LaunchFile {
            model_path: Some(models.target.clone()),
            speculative_algorithm: Some(models.algorithm.clone()),
            speculative_draft_model_path: (!models.draft.is_empty()).then(|| models.draft.clone()),
            dtype: Some(models.dtype.clone()),
            quantization: models.quantization.clone(),
            device: Some(engine.device.clone()),
            tp_size: engine.tp_size.and_then(integer),
            context_length: integer(engine.context_length),
            // One token per page is the default of every engine.
            page_size: integer(engine.page_size).filter(|size| *size > 1),
            mem_fraction_static: Some(engine.mem_fraction_static),
            max_running_requests: integer(engine.max_running_requests),
            cuda_graph_bs: (!sizes.is_empty()).then_some(sizes),
            ..LaunchFile::default()
        };
        Self {
            launch,
            table: tuned.shapes(),
            target_dtype: models.target_dtype.clone(),
            draft_context_length: models.draft_context_length,
            gpu: engine.device.starts_with("cuda").then(|| tuned.measured.device_name.clone()),
            measured: Some(Measured {
                engine: tuned.measured.engine.clone(),
                device: tuned.measured.device_name.clone(),
            }),
        }
    }
}

impl Row {
    /// Maximum number of running requests: the batch size that the user gives, else the launch's limit, else the table's
    /// largest batch.
    fn running(&self, launch: &LaunchFile) -> Option<i64> {
        let integer = |count: usize| i64::try_from(count).ok();
        self.asked.and_then(integer).or(launch.max_running_requests).or(self.largest.and_then(integer))
    }
}

impl Form {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Sglang, Self::Slime, Self::Vllm, Self::SglangAdaptive, Self::TensorRtLlm];

    /// The engine that runs the exported launch.
    pub fn engine(self) -> &'static str {
        match self {
            Self::Sglang | Self::Slime | Self::SglangAdaptive => "SGLang",
            Self::Vllm => "vLLM",
            Self::TensorRtLlm => "TensorRT-LLM",
        }
    }

    /// The format's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Slime => "slime",
            Self::Vllm => "vllm",
            Self::SglangAdaptive => "sglang-adaptive",
            Self::TensorRtLlm => "tensorrt-llm",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Form {
    type Err = ExportError;

    fn from_str(text: &str) -> Result<Self, ExportError> {
        let form = Self::ALL.into_iter().find(|form| form.name() == text);
        form.ok_or_else(|| {
            let near = nearest(text, &Self::ALL.map(Self::name));
            let near = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
            ExportError::Form(text.chars().take(64).collect(), near)
        })
    }
}

#[cfg(test)]
mod tests;
