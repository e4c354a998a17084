//! SGLang's command and slime's array of its flags.

use std::fmt::Write;

use super::{
    ExportError, ExportRequest, ExportRow, Exported, Form, Remarks, Tuning, adaptive_table, server, words,
    words::ExportFlag,
};
use crate::{
    drafting::sglang_flags,
    engines::SLIME_PIN,
    flags::{Key, SGLANG_ATTENTION_BACKENDS},
    launch_file::EngineName,
    quoting::quoted,
    tree::{NodeSource, TreeShape},
    tuned::ServerArgument,
    version::EngineVersion,
};

/// GPUs of the Hopper generation, for which fa3 was written.
const HOPPER: &[&str] = &["H100", "H200", "H800", "H20", "GH200"];

/// Flags that the table replaces.
const SHAPE: &[Key] = &[
    Key::SpeculativeNumSteps,
    Key::SpeculativeEagleTopk,
    Key::SpeculativeNumDraftTokens,
    Key::SpeculativeAdaptive,
    Key::SpeculativeAdaptiveConfig,
];

/// Flags that mean something else in spectune's own engine, or that depend on the machine that was
/// tuned on.
const OURS: &[Key] = &[Key::BatchInvariant, Key::Device, Key::MemFractionStatic];

/// Flags that slime itself passes to its engines.
const SLIMES_OWN: &[Key] = &[Key::ModelPath, Key::TpSize, Key::TrustRemoteCode];

/// The first flags of a launch, in the order in which they are usually written; the others follow.
const ORDER: &[Key] = &[
    Key::ModelPath,
    Key::SpeculativeAlgorithm,
    Key::SpeculativeDraftModelPath,
    Key::SpeculativeNumSteps,
    Key::SpeculativeEagleTopk,
    Key::SpeculativeNumDraftTokens,
    Key::SpeculativeAdaptive,
    Key::SpeculativeAdaptiveConfig,
    Key::Dtype,
    Key::ContextLength,
    Key::AttentionBackend,
    Key::MaxRunningRequests,
];

/// How flags are spelled, in the launch and in notes.
#[derive(Clone, Copy)]
struct SglangSpelling {
    prefix: &'static str,
    version: EngineVersion,
}

impl SglangSpelling {
    fn name(self, key: Key) -> String {
        format!("{}{}", self.prefix, key.name_in(self.version))
    }
}

pub fn command(request: ExportRequest<'_>) -> Result<Exported, ExportError> {
    let row = ExportRow::only(request, |_| true, || adaptive_table::whole(request, request.given))?;
    let spelling = SglangSpelling { prefix: "--", version: request.version };
    let mut remarks = Remarks::from_row(&row);
    let flags = flags(&row, request.tuning, spelling, &mut remarks)?;
    let text = line(request.tuning, &row, spelling, &flags);
    Ok(remarks.exported(text, None, request.form.engine(), request.version))
}

/// The server command with these flags.
fn line(tuning: &Tuning, row: &ExportRow, spelling: SglangSpelling, flags: &[ExportFlag]) -> String {
    let mut text = String::new();
    for (name, value) in &tuning.launch.environment {
        let _ = write!(text, "{name}={} ", quoted(value));
    }
    text.push_str("python3 -m sglang.launch_server");
    for flag in flags {
        let _ = write!(text, " \\\n  {}{}", spelling.name(flag.key), values(flag));
    }
    for argument in others(tuning, row) {
        let _ = write!(text, " \\\n  {}", server::written(&argument, spelling.prefix));
    }
    text.push('\n');
    text
}

/// The arguments of the measured servers that have no row in the table of flags.
fn others(tuning: &Tuning, row: &ExportRow) -> Vec<ServerArgument> {
    let (_, mut others) = server::sglang_arguments(tuning.server_of(Form::Sglang));
    others.retain(|argument| !row.shape.is_off() || !argument.name().starts_with("speculative-"));
    others
}

/// The command that starts a server with an adaptive file: `row` has its longest chain, and graphs
/// are captured for the batch sizes in `ends` too, at which the file moves to another chain.
pub fn adaptive_command(
    row: &ExportRow,
    tuning: &Tuning,
    version: EngineVersion,
    file: &str,
    ends: &[usize],
    remarks: &mut Remarks,
) -> Result<String, ExportError> {
    let spelling = SglangSpelling { prefix: "--", version };
    let mut flags = flags(row, tuning, spelling, remarks)?;
    let running = row.running(&tuning.launch).and_then(|running| usize::try_from(running).ok());
    let off = [Key::DisableCudaGraph, Key::DisableDecodeCudaGraph];
    if !flags.iter().any(|flag| off.contains(&flag.key)) {
        let given = flags.iter().find(|flag| flag.key == Key::CudaGraphBs);
        let given = given.map(|flag| flag.words.iter().filter_map(|word| word.parse().ok()).collect());
        let mut sizes: Vec<usize> = given.unwrap_or_else(|| usual_sizes(running.unwrap_or(USUAL_LARGEST)));
        // A batch is padded to the next capture size: without one at each end, a row would begin
        // too early.
        sizes.extend(ends);
        sizes.extend(running);
        sizes.retain(|size| running.is_none_or(|running| *size <= running));
        sizes.sort_unstable();
        sizes.dedup();
        // The whole list replaces both: SGLang ignores a largest size beside a list.
        flags.retain(|flag| !matches!(flag.key, Key::CudaGraphBs | Key::CudaGraphMaxBs));
        let words = sizes.iter().map(ToString::to_string).collect();
        flags.push(ExportFlag { key: Key::CudaGraphBs, words });
        remarks.general.push(format!(
            "{} has the batch sizes at which the file changes the chain: SGLang looks a batch up in the file by the \
             capture size to which it pads",
            spelling.name(Key::CudaGraphBs)
        ));
    }
    flags.push(ExportFlag { key: Key::SpeculativeAdaptive, words: Vec::new() });
    flags.push(ExportFlag { key: Key::SpeculativeAdaptiveConfig, words: vec![file.to_owned()] });
    flags.sort_by_key(place);
    Ok(line(tuning, row, spelling, &flags))
}

/// Largest of the usual sizes where the number of running requests is not known.
const USUAL_LARGEST: usize = 64;

/// The usual capture sizes up to a batch size: 1, 2, 4, then multiples of 8.
fn usual_sizes(largest: usize) -> Vec<usize> {
    [1, 2, 4].into_iter().chain((8..=largest.min(512)).step_by(8)).filter(|size| *size <= largest).collect()
}

pub fn slime(request: ExportRequest<'_>) -> Result<Exported, ExportError> {
    let ExportRequest { tuning, version, .. } = request;
    let row = ExportRow::only(request, |_| true, || adaptive_table::whole(request, Some(version)))?;
    let mut remarks = Remarks::from_row(&row);
    let mut text = String::from("SGLANG_ARGS=(\n");
    let spelling = SglangSpelling { prefix: "--sglang-", version };
    for flag in flags(&row, tuning, spelling, &mut remarks)? {
        if SLIMES_OWN.contains(&flag.key) {
            remarks.general.push(match flag.key {
                Key::ModelPath => format!("slime's own arguments name the target: --hf-checkpoint{}", values(&flag)),
                Key::TpSize => format!("tensor parallelism comes from --rollout-num-gpus-per-engine{}", values(&flag)),
                _ => format!("--{} is left out: slime always sets it", flag.key.flag().name),
            });
            continue;
        }
        let _ = writeln!(text, "   {}{}", spelling.name(flag.key), values(&flag));
    }
    for argument in others(tuning, &row) {
        let _ = writeln!(text, "   {}", server::written(&argument, spelling.prefix));
    }
    text.push_str(")\n");
    for (name, value) in &tuning.launch.environment {
        remarks.general.push(format!("set {name}={} in the environment of slime's rollout engines", quoted(value)));
    }
    let pinned = if version == SLIME_PIN { ", which slime pins" } else { "" };
    let mut exported = remarks.exported(text, None, request.form.engine(), version);
    if let Some(last) = exported.general.last_mut() {
        last.push_str(pinned);
    }
    Ok(exported)
}

/// The flags of the launch, with the row's shape and the values that must not be left to defaults.
fn flags(
    row: &ExportRow,
    tuning: &Tuning,
    spelling: SglangSpelling,
    remarks: &mut Remarks,
) -> Result<Vec<ExportFlag>, ExportError> {
    let launch = &tuning.launch;
    if launch.model_path.is_none() {
        return Err(ExportError::NoTarget);
    }
    // Flags that were tuned on SGLang are kept as they are: they are known to work there.
    let (measured, _) = server::sglang_arguments(tuning.server_of(Form::Sglang));
    let foreign = !matches!(launch.engine, Some(EngineName::Sglang | EngineName::Slime))
        && tuning.server_of(Form::Sglang).is_none();
    let mut flags = words::export_flags(launch);
    flags.retain(|flag| measured.iter().all(|other| other.key != flag.key));
    flags.extend(measured);
    server::remark(tuning, Form::Sglang, remarks);
    let mut left_out = Vec::new();
    flags.retain(|flag| {
        let unknown_backend = foreign
            && matches!(
                flag.key,
                Key::AttentionBackend
                    | Key::PrefillAttentionBackend
                    | Key::DecodeAttentionBackend
                    | Key::SpeculativeDraftAttentionBackend
            )
            && !flag.words.iter().all(|word| SGLANG_ATTENTION_BACKENDS.contains(&word.as_str()));
        let dropped = (foreign && OURS.contains(&flag.key)) || unknown_backend;
        if dropped {
            left_out.push(format!("--{}{}", flag.key.flag().name, values(flag)));
        }
        !dropped && !SHAPE.contains(&flag.key)
    });
    if !left_out.is_empty() {
        let left_out = left_out.join(", ");
        remarks.general.push(format!("left out, because they are specific to the tuned engine: {left_out}"));
    }
    if row.shape.is_off() {
        // A draft without steps would be loaded, and never run.
        flags.retain(|flag| !flag.key.flag().name.starts_with("speculative-"));
        remarks.notes.push(row.off());
    } else {
        speculation(row.shape, tuning, &mut flags)?;
    }
    // Servers that were measured with a page size ran the tree with it.
    let pages = tuning.launch.page_size.is_some_and(|size| size > 1) && tuning.server_of(Form::Sglang).is_none();
    if row.shape.topk > 1 && pages {
        flags.retain(|flag| flag.key != Key::PageSize);
        let page_size = spelling.name(Key::PageSize);
        remarks.notes.push(format!("{page_size} is left out: most attention backends need 1 for a tree"));
    }
    fill_in(row, tuning, spelling, &mut flags, remarks);
    let paths = [&launch.model_path, &launch.speculative_draft_model_path];
    if paths.into_iter().flatten().any(|path| path.starts_with("./") || path.starts_with("../")) {
        let relative = "paths are relative to the tuned file's folder: start the engine there, or use absolute paths";
        remarks.general.push(relative.into());
    }
    flags.sort_by_key(place);
    Ok(flags)
}

/// The position of a flag in the command.
fn place(flag: &ExportFlag) -> usize {
    ORDER.iter().position(|key| *key == flag.key).unwrap_or(ORDER.len())
}

fn speculation(shape: TreeShape, tuning: &Tuning, flags: &mut Vec<ExportFlag>) -> Result<(), ExportError> {
    let Some(algorithm) = &tuning.launch.speculative_algorithm else { return Err(ExportError::NoAlgorithm(shape)) };
    // EAGLE and NEXTN may draft with an MTP layer of the target's own checkpoint.
    let is_block = matches!(NodeSource::named(algorithm), NodeSource::Block(_));
    let needs_draft = is_block || matches!(algorithm.as_str(), "EAGLE3" | "STANDALONE");
    if needs_draft && tuning.launch.speculative_draft_model_path.is_none() {
        return Err(ExportError::NoDraft(algorithm.clone()));
    }
    let numbers = sglang_flags(algorithm, shape).ok_or_else(|| match is_block {
        true => ExportError::BlockTree(shape),
        false => ExportError::TextChain(algorithm.clone()),
    })?;
    flags.extend(numbers.into_iter().map(|(key, number)| ExportFlag { key, words: vec![number.to_string()] }));
    Ok(())
}

/// Adds values for which SGLang's defaults would consider only the target, or be silently small.
fn fill_in(
    row: &ExportRow,
    tuning: &Tuning,
    spelling: SglangSpelling,
    flags: &mut Vec<ExportFlag>,
    remarks: &mut Remarks,
) {
    let given = |flags: &[ExportFlag], key: Key| flags.iter().any(|flag| flag.key == key);
    let filled_in = |key: Key, word: &str, why: &str| format!("{} {word} is filled in: {why}", spelling.name(key));
    let Remarks { notes, general } = remarks;
    let speculates = !row.shape.is_off();
    if tuning.launch.dtype.as_deref().is_none_or(|dtype| dtype == "auto")
        && let Some(dtype) = &tuning.target_dtype
        && speculates
    {
        flags.retain(|flag| flag.key != Key::Dtype);
        general.push(filled_in(Key::Dtype, dtype, "the target's dtype, so that the draft is cast to it"));
        flags.push(ExportFlag { key: Key::Dtype, words: vec![dtype.clone()] });
    }
    if let Some(draft) = tuning.draft_context_length
        && tuning
            .launch
            .context_length
            .and_then(|length| usize::try_from(length).ok())
            .is_none_or(|length| length > draft)
        && speculates
    {
        flags.retain(|flag| flag.key != Key::ContextLength);
        let length = draft.to_string();
        general.push(filled_in(Key::ContextLength, &length, "the draft was not trained for longer sequences"));
        flags.push(ExportFlag { key: Key::ContextLength, words: vec![length] });
    }
    let backends = [Key::AttentionBackend, Key::DecodeAttentionBackend];
    if row.shape.topk > 1 && !backends.into_iter().any(|key| given(flags, key)) {
        let hopper = tuning.gpu.as_ref().is_some_and(|gpu| HOPPER.iter().any(|name| gpu.contains(name)));
        let (backend, why) = if hopper {
            ("fa3", "flashinfer, SGLang's default for a tree, is reported to crash when it pads a batch")
        } else {
            (
                "triton",
                "flashinfer, SGLang's default for a tree, is reported to crash when it pads a batch; on Hopper fa3 \
                 is the faster choice",
            )
        };
        notes.push(filled_in(Key::AttentionBackend, backend, why));
        flags.push(ExportFlag { key: Key::AttentionBackend, words: vec![backend.into()] });
    }
    let mut add = |flags: &mut Vec<ExportFlag>, key: Key, word: String, why: &str| {
        notes.push(filled_in(key, &word, why));
        flags.push(ExportFlag { key, words: vec![word] });
    };
    let Some(running) = row.running(&tuning.launch) else { return };
    let request = row.request.is_some() && tuning.launch.max_running_requests != Some(running);
    if request || (speculates && !given(flags, Key::MaxRunningRequests)) {
        flags.retain(|flag| flag.key != Key::MaxRunningRequests);
        let why =
            if request { "the requested batch size" } else { "the largest batch measured; SGLang's default is 48" };
        add(flags, Key::MaxRunningRequests, running.to_string(), why);
    }
    capture(running, flags, &mut add);
}

/// Captures a graph for every running batch, and none beyond the largest.
fn capture(limit: i64, flags: &mut Vec<ExportFlag>, add: &mut impl FnMut(&mut Vec<ExportFlag>, Key, String, &str)) {
    let off = [Key::DisableCudaGraph, Key::DisableDecodeCudaGraph];
    if flags.iter().any(|flag| off.contains(&flag.key)) {
        return;
    }
    if let Some(sizes) = flags.iter_mut().find(|flag| flag.key == Key::CudaGraphBs) {
        // Graphs above the limit cost memory, and never run.
        sizes.words.retain(|word| word.parse::<i64>().is_ok_and(|size| size < limit));
        sizes.words.push(limit.to_string());
    // A largest size that is given is a decision, for example about memory.
    } else if !flags.iter().any(|flag| flag.key == Key::CudaGraphMaxBs) {
        add(flags, Key::CudaGraphMaxBs, limit.to_string(), "so that every running batch size has a graph");
    }
}

/// The values of a flag, quoted for a shell, each preceded by a blank.
pub(super) fn values(flag: &ExportFlag) -> String {
    flag.words.iter().fold(String::new(), |mut text, word| {
        let _ = write!(text, " {}", quoted(word));
        text
    })
}
