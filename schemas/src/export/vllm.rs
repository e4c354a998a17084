//! vLLM's command.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{
    ExportError, ExportRequest, ExportRow, Exported, Form, Remarks, Tuning, row::WholeTable, schedule::ExportSchedule,
    server, sglang, words,
};
use crate::{
    chain_tables::{self, VLLM_SCHEDULE},
    drafting::{VllmMethod, own_flags, vllm_method},
    flags::{Key, Takes, vllm},
    launch_file::LaunchFile,
    quoting::quoted,
};

/// Flags with a counterpart of the same meaning.
const SAME: &[(Key, &str)] = &[
    (Key::ContextLength, "max-model-len"),
    (Key::DisableCudaGraph, "enforce-eager"),
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

/// The flag for capture sizes, and the JSON of older versions.
const CAPTURE: &str = "cudagraph-capture-sizes";
/// Flags that say which sizes are captured.
const CAPTURE_FLAGS: [&str; 3] = [CAPTURE, "compilation-config", "max-cudagraph-capture-size"];

pub fn command(request: ExportRequest<'_>) -> Result<Exported, ExportError> {
    let ExportRequest { tuning, form, version, .. } = request;
    let launch = &tuning.launch;
    let target = launch.model_path.as_deref().ok_or(ExportError::NoTarget)?;
    let schedule = schedule(request);
    // With a schedule nothing of the table is omitted.
    let row = match &schedule {
        Some(_) => ExportRow { notes: Vec::new(), ..ExportRow::from_tuning(tuning, None)? },
        None => ExportRow::only(request, |shape| shape.topk == 1, || whole(request))?,
    };
    let mut remarks = Remarks::from_row(&row);
    let measured = server::vllm_arguments(tuning.server_of(Form::Vllm));
    let given: Vec<String> = measured.iter().map(server::vllm_name).collect();
    server::remark(tuning, Form::Vllm, &mut remarks);
    let mut text = String::new();
    for (name, value) in tuning.server_of(Form::Vllm).iter().flat_map(|server| &server.environment) {
        let _ = write!(text, "{name}={} ", quoted(value));
    }
    let _ = write!(text, "vllm serve {}", quoted(target));
    if schedule.is_none() && row.shape.is_off() {
        remarks.notes.push(row.off());
    } else {
        let config = speculative_config(&row, tuning, schedule.as_ref())?;
        let _ = write!(text, " \\\n  --speculative-config {}", quoted(&config));
    }
    if schedule.is_some() {
        remarks.general.push(format!(
            "{VLLM_SCHEDULE} holds the table; --batch-size N writes one row of it. vLLM follows it without data \
             parallelism only"
        ));
        if let Err(why) = chain_tables::vllm_measures(version) {
            remarks.general.push(why.to_string());
        }
    }
    flags(&mut text, request, &given, &mut remarks);
    let running = row.running(launch);
    if let Some(running) = running {
        let _ = write!(text, " \\\n  --max-num-seqs {running}");
    }
    let running = running.and_then(|running| usize::try_from(running).ok());
    let one = ExportSchedule { ranges: vec![(1, running.unwrap_or(usize::MAX), row.shape.num_steps)] };
    if !given.iter().any(|name| CAPTURE_FLAGS.contains(&name.as_str())) {
        capture(&mut text, request, schedule.as_ref().unwrap_or(&one), running, &mut remarks);
    }
    for argument in &measured {
        let _ = write!(text, " \\\n  {}", server::written(argument, "--"));
    }
    if !launch.environment.is_empty() && tuning.server_of(Form::Vllm).is_none() {
        remarks.general.push("environment variables are left out: they are specific to the tuned engine".into());
    }
    text.push('\n');
    Ok(remarks.exported(text, None, form.engine(), version))
}

/// Writes the flags of the launch that vLLM has too, but not those that the measured servers were
/// given.
fn flags(text: &mut String, request: ExportRequest<'_>, given: &[String], remarks: &mut Remarks) {
    let mut left_out = Vec::new();
    let launch = &request.tuning.launch;
    let in_json: Vec<Key> = json_flags(launch).map(|flag| flag.key).collect();
    for flag in words::export_flags(launch) {
        let name = flag.key.flag().name;
        match SAME.iter().find(|(key, _)| *key == flag.key) {
            Some((_, name)) if given.iter().any(|given| given == name) => {}
            Some((_, name)) => {
                let _ = write!(text, " \\\n  --{name}");
                for word in &flag.words {
                    let _ = write!(text, " {}", quoted(word));
                }
            }
            // The model is the command's own argument; the algorithm, its draft and the shape are
            // in the JSON.
            None if flag.key == Key::ModelPath || name.starts_with("speculative-") || in_json.contains(&flag.key) => {}
            // Written by the caller: the requested batch size takes precedence, and capture sizes
            // depend on the chain.
            None if matches!(flag.key, Key::MaxRunningRequests | Key::CudaGraphBs | Key::CudaGraphMaxBs) => {}
            None if flag.key == Key::PageSize && given.iter().any(|given| given == "block-size") => {}
            None if flag.key == Key::PageSize => match block_size(&flag.words) {
                Some(size) => {
                    let _ = write!(text, " \\\n  --block-size {size}");
                }
                None => remarks.general.push(format!(
                    "--page-size{} is left out: vLLM's --block-size takes {BLOCK_SIZES:?}",
                    sglang::values(&flag)
                )),
            },
            None if flag.key == Key::MemFractionStatic => remarks.general.push(format!(
                "--mem-fraction-static{} is left out: vLLM's --gpu-memory-utilization (0.9 unless given) is similar, \
                 but also covers activations and CUDA graphs, so the same number leaves less memory for the KV cache",
                sglang::values(&flag)
            )),
            None => left_out.push(format!("--{name}{}", sglang::values(&flag))),
        }
    }
    if !left_out.is_empty() {
        let left_out = left_out.join(", ");
        remarks.general.push(format!("left out, because vLLM has no equivalent flag: {left_out}"));
    }
}

/// Writes the capture sizes, if the tuned file has them, in tokens as vLLM counts them.
fn capture(
    text: &mut String,
    request: ExportRequest<'_>,
    schedule: &ExportSchedule,
    running: Option<usize>,
    remarks: &mut Remarks,
) {
    let sizes = request.tuning.launch.cuda_graph_bs.iter().flatten();
    let mut sizes: Vec<usize> = sizes.filter_map(|size| usize::try_from(*size).ok()).collect();
    if sizes.is_empty() {
        return;
    }
    sizes.retain(|size| running.is_none_or(|running| *size < running));
    sizes.extend(running);
    let tokens = chain_tables::vllm_capture_sizes(&sizes, &schedule.ranges);
    if vllm().spelling(CAPTURE).is_some_and(|flag| flag.exists_in(request.version)) {
        let _ = write!(text, " \\\n  --{CAPTURE}");
        tokens.iter().for_each(|size| {
            let _ = write!(text, " {size}");
        });
    } else {
        let config = json!({ "cudagraph_capture_sizes": tokens }).to_string();
        let _ = write!(text, " \\\n  --compilation-config {}", quoted(&config));
    }
    if schedule.most() > 0 {
        let batches: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        remarks.notes.push(format!(
            "vLLM's capture sizes count tokens, of which a request has its drafts and one more: they are for batches of {}",
            batches.join(", ")
        ));
    }
}

/// The table as a schedule, if it has several chain lengths, no single row is requested, and the
/// version supports it.
fn schedule(request: ExportRequest<'_>) -> Option<ExportSchedule> {
    let ExportRequest { tuning, batch_size, version, .. } = request;
    chain_tables::vllm_follows(version).ok().filter(|()| batch_size.is_none())?;
    let running = ExportRow::from_tuning(tuning, None).ok()?.running(&tuning.launch);
    let schedule =
        ExportSchedule::from_table(&tuning.table, running.and_then(|running| usize::try_from(running).ok())).ok()?;
    (schedule.ranges.len() > 1).then_some(schedule)
}

/// How the whole table is exported for vLLM, for the message of a launch with one shape.
fn whole(request: ExportRequest<'_>) -> WholeTable {
    let ExportRequest { tuning, form, version, .. } = request;
    match tuning.table.iter().find(|(_, shape)| shape.topk > 1) {
        Some((_, tree)) => Err(format!("{tree} is a tree, and vLLM drafts chains")),
        None => chain_tables::vllm_follows(version).map(|()| (form, request.given)).map_err(|why| why.to_string()),
    }
}

/// The JSON of vLLM's `config/speculative.py`: method, draft and the length of the chain, or
/// lengths by batch size.
fn speculative_config(
    row: &ExportRow,
    tuning: &Tuning,
    schedule: Option<&ExportSchedule>,
) -> Result<String, ExportError> {
    let launch = &tuning.launch;
    if row.shape.topk > 1 {
        return Err(ExportError::Tree(row.shape));
    }
    let Some(algorithm) = &launch.speculative_algorithm else { return Err(ExportError::NoAlgorithm(row.shape)) };
    let own = launch.speculative_draft_model_path.is_some();
    // Without a separate draft EAGLE means the target's MTP layer, as NEXTN does.
    let name = if algorithm == "EAGLE" && !own { "NEXTN" } else { algorithm };
    let Some(VllmMethod { name: method, needs_draft, .. }) = vllm_method(name) else {
        return Err(ExportError::Algorithm(algorithm.clone()));
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
    let tokens = schedule.map_or(row.shape.num_steps, ExportSchedule::most);
    config.insert("num_speculative_tokens".into(), tokens.into());
    if let Some(schedule) = schedule {
        let ranges = schedule.ranges.iter().copied();
        config.insert(VLLM_SCHEDULE.into(), chain_tables::vllm_schedule(ranges));
    }
    for (key, value) in tuning.server_of(Form::Vllm).iter().flat_map(|server| &server.speculative_config) {
        config.entry(key.clone()).or_insert_with(|| value.clone());
    }
    for flag in json_flags(launch) {
        let word = flag.words.concat();
        let number = match flag.key.flag().takes {
            Takes::Integer => word.parse::<i64>().ok().map(Value::from),
            Takes::Number => word.parse::<f64>().ok().map(Value::from),
            _ => None,
        };
        config.insert(flag.key.flag().name.replace('-', "_"), number.unwrap_or(Value::String(word)));
    }
    Ok(Value::Object(config).to_string())
}

/// The launch's flags that are keys of vLLM's speculative configuration for its algorithm.
fn json_flags(launch: &LaunchFile) -> impl Iterator<Item = words::ExportFlag> {
    let algorithm = launch.speculative_algorithm.as_deref().unwrap_or_default();
    let keys: Vec<Key> = own_flags(algorithm).filter(|own| own.in_vllm).map(|own| own.key).collect();
    words::export_flags(launch).into_iter().filter(move |flag| keys.contains(&flag.key))
}
