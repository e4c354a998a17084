//! The speculative part of TensorRT-LLM's `--config` file: a chain, a tree, or chain lengths by
//! batch size.
//!
//! Keys and bounds are those of the argument classes of TensorRT-LLM 1.4 (`llmapi/llm_args.py`),
//! which refuse other keys:
//!
//! - All classes: `max_draft_len`, `speculative_model`, `draft_len_schedule`. A key of the schedule
//!   is the largest batch size of its length, larger batches do not speculate, and the smallest key
//!   must have `max_draft_len` (before 1.3, keys were smallest batch sizes).
//! - `Eagle3DecodingConfig` and `MTPDecodingConfig`: `use_dynamic_tree`, `dynamic_tree_max_topK`,
//!   and `max_total_draft_tokens`, which does not count the root and lies between `max_draft_len`
//!   and `dynamic_tree_max_topK * max_draft_len`. Trees are not supported for sliding windows and
//!   latent attention, and those of MTP layers are verified greedily only (its page on speculative
//!   decoding). Their buffers have the size of `max_batch_size`.
//! - `cuda_graph_config`: `batch_sizes`, which count requests, and `enable_padding`.

use std::fmt::Write;

use super::{ExportError, ExportRequest, ExportRow, Exported, Remarks, Tuning, schedule::ExportSchedule, words};
use crate::{flags::Key, tree::TreeShape, version::EngineVersion};

/// The version whose classes were read.
pub const READ: EngineVersion = EngineVersion::new(1, 4, 0);

/// Keys of the file that a test compares with those that are written: class, and its keys.
pub const KEYS: &[(&str, &[&str])] = &[
    (
        "TorchLlmArgs",
        &[
            "max_seq_len",
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "trust_remote_code",
            "max_batch_size",
            "cuda_graph_config",
            "speculative_config",
        ],
    ),
    ("DecodeCudaGraphConfig", &["batch_sizes", "enable_padding", "max_batch_size", "mode"]),
    (
        "Eagle3",
        &[
            "decoding_type",
            "max_draft_len",
            "max_total_draft_tokens",
            "speculative_model",
            "draft_len_schedule",
            "use_dynamic_tree",
            "dynamic_tree_max_topK",
        ],
    ),
    (
        "MTP",
        &[
            "decoding_type",
            "max_draft_len",
            "max_total_draft_tokens",
            "draft_len_schedule",
            "use_dynamic_tree",
            "dynamic_tree_max_topK",
        ],
    ),
    ("Draft_Target", &["decoding_type", "max_draft_len", "speculative_model", "draft_len_schedule"]),
];

/// Flags with a key of the same meaning in the file.
const SAME: &[(Key, &str)] = &[
    (Key::ContextLength, "max_seq_len"),
    (Key::TpSize, "tensor_parallel_size"),
    (Key::PpSize, "pipeline_parallel_size"),
    (Key::TrustRemoteCode, "trust_remote_code"),
];

pub fn file(request: ExportRequest<'_>) -> Result<Exported, ExportError> {
    let ExportRequest { tuning, form, batch_size, version, .. } = request;
    let launch = &tuning.launch;
    let target = launch.model_path.as_deref().ok_or(ExportError::NoTarget)?;
    let schedule = schedule(request)?;
    let row = match &schedule {
        Some(_) => ExportRow { notes: Vec::new(), ..ExportRow::from_tuning(tuning, None)? },
        None => ExportRow::only(request, |shape| fits(shape).is_ok(), || Err("it contains a tree".into()))?,
    };
    let running = row.running(launch).and_then(|running| usize::try_from(running).ok());
    let mut remarks = Remarks::from_row(&row);
    let mut text = String::new();
    for flag in words::export_flags(launch) {
        if let Some((_, name)) = SAME.iter().find(|(key, _)| *key == flag.key) {
            // A switch has no value.
            let _ = writeln!(text, "{name}: {}", flag.words.first().map_or("true", String::as_str));
        }
    }
    if let Some(running) = running {
        let _ = writeln!(text, "max_batch_size: {running}");
    }
    capture(&mut text, tuning, running);
    if schedule.is_none() && row.shape.is_off() {
        remarks.notes.push(row.off());
    } else {
        speculation(&mut text, request, &row, schedule.as_ref())?;
    }
    if schedule.is_some() {
        remarks.general.push("draft_len_schedule holds the table; --batch-size N writes one row of it".into());
    }
    if row.shape.topk > 1 {
        let limits = match launch.speculative_algorithm.as_deref() {
            Some("EAGLE3") => "",
            _ => ", and sampled requests are not supported with trees of MTP layers",
        };
        remarks.notes.push(format!(
            "TensorRT-LLM does not support trees for targets with sliding windows or latent attention{limits}"
        ));
    }
    remarks.general.push("memory and kernel settings are left out: they are specific to the tuned engine".into());
    if batch_size.is_none() && text.is_empty() {
        text.push_str("{}\n");
    }
    let command = format!("trtllm-serve {} --config config.yaml\n", crate::quoting::quoted(target));
    Ok(remarks.exported(text, Some(command), form.engine(), version))
}

/// The table as a schedule, if it contains several chain lengths and no single row is requested.
fn schedule(request: ExportRequest<'_>) -> Result<Option<ExportSchedule>, ExportError> {
    let ExportRequest { tuning, batch_size, version, .. } = request;
    if batch_size.is_some() || tuning.table.iter().any(|(_, shape)| shape.topk > 1) {
        return Ok(None);
    }
    let running = ExportRow::from_tuning(tuning, None)?.running(&tuning.launch);
    let schedule =
        ExportSchedule::from_table(&tuning.table, running.and_then(|running| usize::try_from(running).ok()))?;
    if schedule.ranges.len() < 2 {
        return Ok(None);
    }
    if version < READ {
        return Err(ExportError::TensorRtVersion(
            version,
            "a table by batch size (export one row with --batch-size N)",
        ));
    }
    let first = schedule.ranges.first().map_or(0, |range| range.2);
    if first < schedule.most() {
        return Err(ExportError::TensorRtSchedule(first, schedule.most()));
    }
    Ok(Some(schedule))
}

/// Checks that a tree is one that the engine can draft.
fn fits(shape: TreeShape) -> Result<(), ExportError> {
    let drafts = shape.drafts();
    let fits = shape.topk < 2 || (shape.num_steps..=shape.topk.saturating_mul(shape.num_steps)).contains(&drafts);
    if fits { Ok(()) } else { Err(ExportError::TensorRtTree(shape)) }
}

/// Writes the batch sizes with a CUDA graph, if the tuned file has them.
fn capture(text: &mut String, tuning: &Tuning, running: Option<usize>) {
    let sizes = tuning.launch.cuda_graph_bs.iter().flatten();
    let mut sizes: Vec<usize> = sizes.filter_map(|size| usize::try_from(*size).ok()).collect();
    if sizes.is_empty() {
        return;
    }
    sizes.retain(|size| running.is_none_or(|running| *size < running));
    sizes.extend(running);
    let _ = writeln!(text, "cuda_graph_config:\n  enable_padding: true\n  batch_sizes: {sizes:?}");
}

fn speculation(
    text: &mut String,
    request: ExportRequest<'_>,
    row: &ExportRow,
    schedule: Option<&ExportSchedule>,
) -> Result<(), ExportError> {
    let launch = &request.tuning.launch;
    let shape = row.shape;
    let Some(algorithm) = launch.speculative_algorithm.clone() else { return Err(ExportError::NoAlgorithm(shape)) };
    let draft = launch.speculative_draft_model_path.as_deref();
    let (kind, needs_draft, has_trees) = match algorithm.as_str() {
        "EAGLE3" => ("Eagle3", true, true),
        "STANDALONE" => ("Draft_Target", true, false),
        "NEXTN" => ("MTP", false, true),
        "EAGLE" if draft.is_none() => ("MTP", false, true),
        _ => return Err(ExportError::TensorRtAlgorithm(algorithm)),
    };
    if needs_draft && draft.is_none() {
        return Err(ExportError::NoDraft(algorithm));
    }
    let steps = schedule.map_or(shape.num_steps, ExportSchedule::most);
    let _ = writeln!(text, "speculative_config:\n  decoding_type: {kind}\n  max_draft_len: {steps}");
    if let Some(draft) = draft.filter(|_| needs_draft) {
        // JSON strings are valid YAML.
        let _ = writeln!(text, "  speculative_model: {}", serde_json::Value::from(draft));
    }
    if shape.topk > 1 {
        fits(shape)?;
        if !has_trees {
            return Err(ExportError::TensorRtTreeAlgorithm(algorithm));
        }
        if request.version < READ {
            return Err(ExportError::TensorRtVersion(request.version, "trees"));
        }
        let (topk, drafts) = (shape.topk, shape.drafts());
        let _ = writeln!(
            text,
            "  use_dynamic_tree: true\n  dynamic_tree_max_topK: {topk}\n  max_total_draft_tokens: {drafts}"
        );
    }
    if let Some(schedule) = schedule {
        let _ = writeln!(text, "  draft_len_schedule:");
        // Batches beyond the last key do not speculate.
        let end = schedule.ranges.iter().rposition(|range| range.2 > 0).map_or(0, |last| last + 1);
        for (_, last, tokens) in &schedule.ranges[..end] {
            let _ = writeln!(text, "    {last}: {tokens}");
        }
    }
    Ok(())
}
