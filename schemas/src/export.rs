//! Turns a tuned configuration into the launch of another engine.
//!
//! A tuned configuration is a launch without a tree shape and a table of shapes by running batch.
//! What an engine cannot express is omitted with a note, or is an error if omitting it would run
//! something other than what was tuned.

mod adaptive;
mod adaptive_table;
mod error;
mod row;
mod schedule;
mod server;
mod sglang;
mod tensorrt_llm;
mod vllm;
mod words;

use std::{fmt, str::FromStr};

pub use error::{ExportError, RowsDiffer};
use row::ExportRow;
pub use tensorrt_llm::KEYS as TENSORRT_LLM_KEYS;

use crate::{
    engines::{Engine, NEWEST_SGLANG, NEWEST_VLLM, SLIME_PIN},
    launch_file::LaunchFile,
    model::ModelFacts,
    sweep::EngineSettings,
    text::{nearest, shortened},
    tree::TreeShape,
    tuned::{TunedFile, TunedServer, TunedVerdict},
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
    /// Whether speculation pays, by the largest running batch of a row; rows without one are not
    /// commented on.
    pub verdicts: Vec<(usize, TunedVerdict)>,
    /// Stored dtype of the target's weights, if known. A launch with dtype auto must state it, so
    /// that the draft is cast to it.
    pub target_dtype: Option<String>,
    /// Maximum sequence length of the draft, if known: a launch must not exceed it.
    pub draft_context_length: Option<usize>,
    /// Name of the GPU that the configuration was tuned on, if any.
    pub gpu: Option<String>,
    /// The engine and device that were measured, if known.
    pub measured: Option<Measured>,
    /// How the servers that were measured were started, if it was servers.
    pub server: Option<TunedServer>,
}

/// The engine and device whose measurements chose the shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Engine and version, such as "spectune 0.1.0".
    pub engine: String,
    /// Name of the processor or GPU.
    pub device: String,
}

/// An exported launch, and remarks on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The command, or the file that the engine reads; ends with a line end.
    pub text: String,
    /// The command that starts the engine with the file; `None` if the text is a command or an
    /// array of flags.
    pub command: Option<String>,
    /// Remarks on this row, one sentence each.
    pub notes: Vec<String>,
    /// Remarks that are the same for every row of the tuned file, one sentence each: who shows
    /// several rows shows these once.
    pub general: Vec<String>,
    /// The version for which it is written.
    pub version: EngineVersion,
}

/// Writes a tuned configuration as a launch of another engine.
///
/// A launch runs one tree shape: the row for `batch_size`, which also limits the running requests,
/// so that the shape runs at the batch sizes for which it is best. Without a `batch_size`, a table
/// of chains is written whole into SGLang's adaptive file and the schedules of vLLM and
/// TensorRT-LLM; for other forms and versions its rows must agree. The adaptive file with a
/// `batch_size` omits the rows for larger batches. `version` is the engine's; see
/// [`Tuning::version`] for the default.
///
/// # Errors
/// If the engine cannot run the shape, the rows of the table differ, or the tuned file lacks a
/// model: see [`ExportError`].
pub fn export(
    tuning: &Tuning,
    form: Form,
    batch_size: Option<usize>,
    version: Option<EngineVersion>,
) -> Result<Exported, ExportError> {
    if batch_size == Some(0) {
        return Err(ExportError::EmptyBatch);
    }
    // Without the second source the figures of the file would not hold.
    if tuning.launch.speculative_second_source.is_some() {
        return Err(ExportError::SecondSource);
    }
    if let Some((_, shape)) = tuning.table.iter().find(|(_, shape)| shape.row_budget.is_some()) {
        return Err(ExportError::RowBudget(*shape));
    }
    // Flags of spectune alone: of the first a note says what the other engine does instead.
    let launch = LaunchFile { fp8_compute: None, speculative_row_budget: None, ..tuning.launch.clone() };
    let written = &Tuning { launch, ..tuning.clone() };
    let version_of = tuning.version(form, version);
    let request = ExportRequest { tuning: written, form, batch_size, given: version, version: version_of };
    let mut exported = match form {
        Form::Sglang => sglang::command(request),
        Form::Slime => sglang::slime(request),
        Form::Vllm => vllm::command(request),
        Form::SglangAdaptive => adaptive::file(request),
        Form::TensorRtLlm => tensorrt_llm::file(request),
    }?;
    if let Some(note) = whose_figures(tuning.measured.as_ref(), form.engine()) {
        exported.general.insert(0, note);
    }
    exported.general.extend(how_fp8_multiplies(tuning.launch.fp8_compute.as_deref(), form.engine()));
    exported.general.extend(form.unknown_version(version_of));
    Ok(exported)
}

/// What is exported, and in which form.
#[derive(Clone, Copy)]
struct ExportRequest<'a> {
    tuning: &'a Tuning,
    form: Form,
    batch_size: Option<usize>,
    /// The version that the user gives.
    given: Option<EngineVersion>,
    version: EngineVersion,
}

/// Remarks on an export: on its row, and those that are the same for every row.
#[derive(Default)]
struct Remarks {
    notes: Vec<String>,
    general: Vec<String>,
}

impl Remarks {
    /// The remarks of a row.
    fn from_row(row: &ExportRow) -> Self {
        Self { notes: row.notes.clone(), general: Vec::new() }
    }

    /// The export with these remarks and one on its version.
    fn exported(mut self, text: String, command: Option<String>, engine: &str, version: EngineVersion) -> Exported {
        self.general.push(format!("written for {engine} {version}"));
        Exported { text, command, notes: self.notes, general: self.general, version }
    }
}

impl Tuning {
    /// The version that a form is written for: the given one, else that of the measured engine,
    /// else the newest known. slime pins its own version of SGLang.
    pub fn version(&self, form: Form, given: Option<EngineVersion>) -> EngineVersion {
        let newest = if form == Form::Slime { SLIME_PIN } else { form.known_versions().1 };
        // slime pins its version of SGLang, whichever one was measured.
        let measured = self.measured.as_ref().filter(|_| form != Form::Slime);
        let measured = measured.and_then(|measured| {
            let (name, version) = measured.engine.split_once(' ')?;
            if name.eq_ignore_ascii_case(form.engine()) { version.parse().ok() } else { None }
        });
        given.or(measured).unwrap_or(newest)
    }

    /// Fills in what the tuned file does not record, from the checkpoints.
    #[must_use]
    pub fn with_facts(mut self, target: Option<&ModelFacts>, draft: Option<&ModelFacts>) -> Self {
        let dtype = || target?.config.weights_dtype().map(ToOwned::to_owned);
        self.target_dtype = self.target_dtype.or_else(dtype);
        let length = || {
            let draft = draft.filter(|draft| draft.config.states_context_length())?;
            Some(draft.config.derived_context_length())
        };
        self.draft_context_length = self.draft_context_length.or_else(length);
        self
    }
}

/// The note on the mode of layers in FP8, if the tuned file names one.
fn how_fp8_multiplies(mode: Option<&str>, engine: &str) -> Option<String> {
    match mode? {
        "products" => Some(format!(
            "fp8_compute products is left out: {engine} too multiplies weights in fp8 with activations rounded to fp8"
        )),
        mode => Some(format!(
            "fp8_compute {mode} is left out: {engine} rounds activations to fp8 where weights are in fp8, which changes \
             outputs slightly"
        )),
    }
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
    // The engine's name is the program's, which the sentence names already.
    let version = if own.is_empty() { measured.as_str() } else { measured.trim_start_matches("spectune ") };
    Some(format!("chosen from measurements of {own}{version} on {device}; {not_measured}"))
}

impl From<&TunedFile> for Tuning {
    fn from(tuned: &TunedFile) -> Self {
        let TunedFile { models, engine, .. } = tuned;
        let integer = |count: usize| i64::try_from(count).ok();
        // A server that speaks the API of another engine has flags of its own.
        let name = tuned.measured.engine.split_whitespace().next().unwrap_or_default();
        let is_of = |server: &&TunedServer| server::engine(server.kind).eq_ignore_ascii_case(name);
        let server = tuned.server.as_ref().filter(is_of);
        let settings = EngineSettings::default();
        let share = Some(engine.mem_fraction_static);
        let sizes: Vec<i64> = engine.capture_sizes.iter().filter_map(|size| integer(*size)).collect();
        // Relative paths stay as written: they are relative to the tuned file, which may move.
        let launch = LaunchFile {
            model_path: Some(models.target.clone()),
            speculative_algorithm: Some(models.algorithm.clone()),
            speculative_second_source: models.second_source.clone(),
            speculative_draft_model_path: (!models.draft.is_empty()).then(|| models.draft.clone()),
            dtype: Some(models.dtype.clone()),
            quantization: models.quantization.clone(),
            fp8_compute: models.fp8_compute.clone(),
            kv_cache_dtype: models.kv_cache_dtype.clone(),
            // What a sweep leaves at the default is not passed on to servers.
            device: Some(engine.device.clone()).filter(|_| server.is_none()),
            attention_backend: engine.attention_backend.clone().filter(|_| server.is_some()),
            chunked_prefill_size: engine.chunked_prefill_size.filter(|_| server.is_some()).and_then(integer),
            tp_size: engine.tp_size.and_then(integer),
            context_length: integer(engine.context_length),
            // One token per page is the default of every engine.
            page_size: integer(engine.page_size).filter(|size| *size > 1),
            mem_fraction_static: share.filter(|share| server.is_none() || *share != settings.mem_fraction_static),
            max_running_requests: integer(engine.max_running_requests),
            cuda_graph_bs: (!sizes.is_empty()).then_some(sizes),
            environment: server.map(|server| server.environment.clone()).unwrap_or_default(),
            ..LaunchFile::default()
        };
        Self {
            launch,
            table: tuned.shapes(),
            verdicts: tuned.policy.iter().map(|row| (row.max_running_batch, row.verdict)).collect(),
            target_dtype: models.target_dtype.clone(),
            draft_context_length: models.draft_context_length,
            // A processor's name has nothing to say about attention backends.
            gpu: (engine.device.starts_with("cuda") || engine.device == "gpu")
                .then(|| tuned.measured.device_name.clone()),
            measured: Some(Measured {
                engine: tuned.measured.engine.clone(),
                device: tuned.measured.device_name.clone(),
            }),
            server: server.cloned(),
        }
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

    /// The oldest and the newest version of the engine whose launches are known.
    fn known_versions(self) -> (EngineVersion, EngineVersion) {
        let (engine, newest) = match self {
            Self::Sglang | Self::Slime | Self::SglangAdaptive => (Engine::Sglang, NEWEST_SGLANG),
            Self::Vllm => (Engine::Vllm, NEWEST_VLLM),
            Self::TensorRtLlm => return (tensorrt_llm::READ, tensorrt_llm::READ),
        };
        (engine.registered().versions().first().copied().unwrap_or(newest), newest)
    }

    /// The remark on a version that is outside of the known ones, as the linter has it for a newer
    /// one.
    fn unknown_version(self, version: EngineVersion) -> Option<String> {
        let (oldest, newest) = self.known_versions();
        let (differs, known) = match version {
            _ if version > newest => (format!("newer than {newest}, the newest"), newest),
            _ if version < oldest => (format!("older than {oldest}, the oldest"), oldest),
            _ => return None,
        };
        let engine = self.engine();
        Some(format!(
            "{engine} {version} is {differs} that is known: flags may be other ones than those of {known}; check the \
             number, or look for a newer version of spectune"
        ))
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
            ExportError::Form(shortened(text), near)
        })
    }
}
