//! vLLM's command.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::{ExportError, Exported, Row, Tuning, schedule::Schedule, sglang, words};
use crate::{flags::Key, launch::quoted, version::EngineVersion};

/// Flags with a counterpart of the same meaning.
const SAME: &[(Key, &str)] = &[
    (Key::ContextLength, "max-model-len"),
    (Key::Dtype, "dtype"),
    (Key::KvCacheDtype, "kv-cache-dtype"),
    (Key::PpSize, "pipeline-parallel-size"),
    (Key::Quantization, "quantization"),
    (Key::TokenizerPath, "tokenizer"),
    (Key::TpSize, "tensor-parallel-size"),
    (Key::TrustRemoteCode, "trust-remote-code"),
];

/// Block sizes that vLLM accepts, in tokens (`config/cache.py`).
const BLOCK_SIZES: &[i64] = &[1, 8, 16, 32, 64, 128, 256];

fn block_size(words: &[String]) -> Option<i64> {
    let size = words.first()?.parse().ok()?;
    BLOCK_SIZES.contains(&size).then_some(size)
}

/// The first version in which the schedule of draft tokens by batch size is a list.
const FIRST_WITH_LIST: EngineVersion = EngineVersion::new(0, 33, 0);

pub fn command(row: &Row, tuning: &Tuning, version: EngineVersion) -> Result<Exported, ExportError> {
    let launch = &tuning.launch;
    let target = launch.model_path.as_deref().ok_or(ExportError::NoTarget)?;
    let schedule = schedule(row, tuning, version);
    // With a schedule nothing of the table is omitted.
    let mut notes = if schedule.is_some() { Vec::new() } else { row.notes.clone() };
    let mut text = format!("vllm serve {}", quoted(target));
    if let Some(schedule) = &schedule {
        let config = speculative_config(row, tuning, Some(schedule))?;
        let _ = write!(text, " \\\n  --speculative-config {}", quoted(&config));
        notes.push(
            "num_speculative_tokens_per_batch_size holds the table; --batch-size N writes one row of it. vLLM follows it without data \
             parallelism only"
                .into(),
        );
    } else if row.shape.is_off() {
        notes.push("the launch does not speculate: no speculation was the best choice at this batch size".into());
    } else {
        let config = speculative_config(row, tuning, None)?;
        let _ = write!(text, " \\\n  --speculative-config {}", quoted(&config));
    }
    for flag in words::of(launch) {
        let name = flag.key.flag().name;
        match SAME.iter().find(|(key, _)| *key == flag.key) {
            Some((_, name)) => {
                let _ = write!(text, " \\\n  --{name}");
                for word in &flag.words {
                    let _ = write!(text, " {}", quoted(word));
                }
            }
            // The model is the command's own argument; the algorithm, its draft and the shape are in the JSON.
            None if flag.key == Key::ModelPath || name.starts_with("speculative-") => {}
            // Written below, since the requested batch size takes precedence.
            None if flag.key == Key::MaxRunningRequests => {}
            None if flag.key == Key::PageSize => match block_size(&flag.words) {
                Some(size) => {
                    let _ = write!(text, " \\\n  --block-size {size}");
                }
                None => notes.push(format!(
                    "--page-size{} is left out: vLLM's --block-size takes {BLOCK_SIZES:?}",
                    sglang::values(&flag)
                )),
            },
            None if flag.key == Key::MemFractionStatic => notes.push(format!(
                "--mem-fraction-static{} is left out: vLLM's --gpu-memory-utilization (0.9 unless given) is similar, \
                 but also covers activations and CUDA graphs, so the same number leaves less memory for the KV cache",
                sglang::values(&flag)
            )),
            None => notes.push(format!("--{name} is left out: vLLM has no equivalent flag")),
        }
    }
    if let Some(running) = row.running(launch) {
        let _ = write!(text, " \\\n  --max-num-seqs {running}");
    }
    if !launch.environment.is_empty() {
        notes.push("environment variables are left out: they are specific to the tuned engine".into());
    }
    text.push('\n');
    Ok(Exported { text, notes })
}

/// The table as a schedule, if it has several chain lengths, no single row is requested, and the version supports it.
fn schedule(row: &Row, tuning: &Tuning, version: EngineVersion) -> Option<Schedule> {
    let running = row.running(&tuning.launch).and_then(|running| usize::try_from(running).ok());
    let schedule = Schedule::of(tuning, running).ok()?;
    (row.asked.is_none() && version >= FIRST_WITH_LIST && schedule.ranges.len() > 1).then_some(schedule)
}

/// The JSON of vLLM's `config/speculative.py`: method, draft and the length of the chain, or lengths by batch size.
fn speculative_config(row: &Row, tuning: &Tuning, schedule: Option<&Schedule>) -> Result<String, ExportError> {
    let launch = &tuning.launch;
    if row.shape.topk > 1 {
        return Err(ExportError::Tree(row.shape));
    }
    let Some(algorithm) = &launch.speculative_algorithm else { return Err(ExportError::NoAlgorithm(row.shape)) };
    let own = launch.speculative_draft_model_path.is_some();
    let (method, needs_draft) = match algorithm.as_str() {
        "EAGLE" if own => ("eagle", true),
        "EAGLE3" => ("eagle3", true),
        // Without a separate draft EAGLE means the target's MTP layer, as NEXTN does.
        "EAGLE" | "NEXTN" => ("mtp", false),
        "STANDALONE" => ("draft_model", true),
        _ => return Err(ExportError::Algorithm(algorithm.clone())),
    };
    let mut config = Map::new();
    config.insert("method".into(), method.into());
    match &launch.speculative_draft_model_path {
        Some(draft) => {
            config.insert("model".into(), draft.as_str().into());
        }
        None if needs_draft => return Err(ExportError::NoDraft(algorithm.clone())),
        None => {}
    }
    let tokens = schedule.map_or(row.shape.num_steps, Schedule::most);
    config.insert("num_speculative_tokens".into(), tokens.into());
    if let Some(schedule) = schedule {
        let ranges = schedule.ranges.iter().map(|(first, last, tokens)| Value::from(vec![*first, *last, *tokens]));
        config.insert("num_speculative_tokens_per_batch_size".into(), ranges.collect());
    }
    Ok(Value::Object(config).to_string())
}
