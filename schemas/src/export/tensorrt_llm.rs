//! The speculative part of TensorRT-LLM's `--config` file: one chain, or chain lengths by batch size (TensorRT-LLM 1.4,
//! `llmapi/llm_args.py`; its documentation of `draft_len_schedule`).

use std::fmt::Write;

use super::{ExportError, Exported, Row, Tuning, schedule::Schedule, words};
use crate::flags::Key;

/// Flags with a key of the same meaning in the file.
const SAME: &[(Key, &str)] = &[
    (Key::ContextLength, "max_seq_len"),
    (Key::TpSize, "tensor_parallel_size"),
    (Key::PpSize, "pipeline_parallel_size"),
    (Key::TrustRemoteCode, "trust_remote_code"),
];

pub fn file(tuning: &Tuning, batch_size: Option<usize>) -> Result<Exported, ExportError> {
    let launch = &tuning.launch;
    let target = launch.model_path.as_deref().ok_or(ExportError::NoTarget)?;
    let row = Row::of(tuning, batch_size)?;
    let running = row.running(launch).and_then(|running| usize::try_from(running).ok());
    let schedule = match batch_size {
        // One row for all batch sizes.
        Some(_) if row.shape.topk > 1 => return Err(ExportError::Tree(row.shape)),
        Some(batch) => Schedule { ranges: vec![(1, running.unwrap_or(batch), row.shape.num_steps)] },
        None => Schedule::of(tuning, running)?,
    };
    let mut notes = vec![format!("start with: trtllm-serve {} --config FILE", crate::launch::quoted(target))];
    if batch_size.is_some() {
        notes.extend(row.notes.iter().cloned());
    }
    let mut text = String::new();
    for flag in words::of(launch) {
        if let Some((_, name)) = SAME.iter().find(|(key, _)| *key == flag.key) {
            // A switch has no value.
            let _ = writeln!(text, "{name}: {}", flag.words.first().map_or("true", String::as_str));
        }
    }
    if let Some(running) = running {
        let _ = writeln!(text, "max_batch_size: {running}");
    }
    if schedule.most() == 0 {
        notes.push("the file does not configure speculation: no speculation was the best choice".into());
        return Ok(Exported { text: if text.is_empty() { "{}\n".into() } else { text }, notes });
    }
    speculation(&mut text, tuning, &schedule)?;
    if schedule.ranges.len() > 1 || schedule.ranges.iter().any(|range| range.2 == 0) {
        notes.push(
            "draft_len_schedule is written for TensorRT-LLM 1.4, where a key is the largest batch size of its length and larger \
             batches do not speculate; before 1.3 keys were smallest batch sizes"
                .into(),
        );
    }
    notes.push("memory and kernel settings are left out: they are specific to the tuned engine".into());
    Ok(Exported { text, notes })
}

fn speculation(text: &mut String, tuning: &Tuning, schedule: &Schedule) -> Result<(), ExportError> {
    let launch = &tuning.launch;
    let algorithm = launch.speculative_algorithm.clone().unwrap_or_default();
    let draft = launch.speculative_draft_model_path.as_deref();
    let (kind, needs_draft) = match algorithm.as_str() {
        "EAGLE3" => ("Eagle3", true),
        "STANDALONE" => ("Draft_Target", true),
        "NEXTN" => ("MTP", false),
        "EAGLE" if draft.is_none() => ("MTP", false),
        _ => return Err(ExportError::TensorRtAlgorithm(algorithm)),
    };
    if needs_draft && draft.is_none() {
        return Err(ExportError::NoDraft(algorithm));
    }
    let _ = writeln!(text, "speculative_config:\n  decoding_type: {kind}\n  max_draft_len: {}", schedule.most());
    if let Some(draft) = draft.filter(|_| needs_draft) {
        // JSON strings are valid YAML.
        let _ = writeln!(text, "  speculative_model: {}", serde_json::Value::from(draft));
    }
    // Batches beyond the last key do not speculate.
    let end = schedule.ranges.iter().rposition(|range| range.2 > 0).map_or(0, |last| last + 1);
    if schedule.ranges.len() > 1 {
        let _ = writeln!(text, "  draft_len_schedule:");
        for (_, last, tokens) in &schedule.ranges[..end] {
            let _ = writeln!(text, "    {last}: {tokens}");
        }
    }
    Ok(())
}
