//! Describes a running server: by its own answers, its metrics, and the launch file that the user
//! gives.

use external::{
    api::{Api, ApiKind, Metrics, ServerInfo},
    log::sglang_settings,
};
use launch::{Launch, Options};
use schemas::{
    engines::Engine,
    flags::Key,
    secrets,
    text::Source,
    tree::{NodeSource, TreeShape},
};
use serde_json::Value;

use super::{
    place,
    record::{RunningServer, ServerSetting, SettingSource},
};
use crate::system::server::most_running;

/// A setting that is shown: its name, where SGLang and vLLM tell it, the label of vLLM's cache
/// metric, and the flags of a launch.
struct ServerRow {
    name: &'static str,
    sglang: &'static str,
    vllm: &'static str,
    metric: &'static str,
    key: Option<Key>,
    flag: &'static str,
}

const fn row(
    name: &'static str,
    sglang: &'static str,
    vllm: &'static str,
    metric: &'static str,
    key: Option<Key>,
    flag: &'static str,
) -> ServerRow {
    ServerRow { name, sglang, vllm, metric, key, flag }
}

/// The settings that are shown, in order; vLLM's places are within its configuration.
const ROWS: [ServerRow; 22] = [
    row("model", "/model_path", "/model_config/model", "", Some(Key::ModelPath), "model"),
    row("algorithm", "/speculative_algorithm", "/speculative_config/method", "", Some(Key::SpeculativeAlgorithm), ""),
    row(
        "draft",
        "/speculative_draft_model_path",
        "/speculative_config/model",
        "",
        Some(Key::SpeculativeDraftModelPath),
        "",
    ),
    row("num_steps", "/speculative_num_steps", "", "", Some(Key::SpeculativeNumSteps), ""),
    row("topk", "/speculative_eagle_topk", "", "", Some(Key::SpeculativeEagleTopk), ""),
    row("num_draft_tokens", "/speculative_num_draft_tokens", "", "", Some(Key::SpeculativeNumDraftTokens), ""),
    row("num_speculative_tokens", "", "/speculative_config/num_speculative_tokens", "", None, ""),
    row("adaptive", "/speculative_adaptive", "", "", Some(Key::SpeculativeAdaptive), ""),
    row("tree shapes", "/tree_shapes", "", "", None, ""),
    row(
        "attention backend",
        "/attention_backend",
        "/attention_config/backend",
        "",
        Some(Key::AttentionBackend),
        "attention-backend",
    ),
    row("dtype", "/dtype", "/model_config/dtype", "", Some(Key::Dtype), "dtype"),
    row("quantization", "/quantization", "/model_config/quantization", "", Some(Key::Quantization), "quantization"),
    row(
        "KV cache dtype",
        "/kv_cache_dtype",
        "/cache_config/cache_dtype",
        "cache_dtype",
        Some(Key::KvCacheDtype),
        "kv-cache-dtype",
    ),
    row("page size", "/page_size", "/cache_config/block_size", "block_size", Some(Key::PageSize), "block-size"),
    row(
        "context length",
        "/context_length",
        "/model_config/max_model_len",
        "",
        Some(Key::ContextLength),
        "max-model-len",
    ),
    row(
        "max running requests",
        "/max_running_requests",
        "/scheduler_config/max_num_seqs",
        "",
        Some(Key::MaxRunningRequests),
        "max-num-seqs",
    ),
    row(
        "memory fraction",
        "/mem_fraction_static",
        "/cache_config/gpu_memory_utilization",
        "gpu_memory_utilization",
        Some(Key::MemFractionStatic),
        "gpu-memory-utilization",
    ),
    row(
        "tensor parallel size",
        "/tp_size",
        "/parallel_config/tensor_parallel_size",
        "",
        Some(Key::TpSize),
        "tensor-parallel-size",
    ),
    row(
        "data parallel size",
        "/dp_size",
        "/parallel_config/data_parallel_size",
        "",
        Some(Key::DpSize),
        "data-parallel-size",
    ),
    row(
        "capture sizes",
        "/cuda_graph_bs",
        "/compilation_config/cudagraph_capture_sizes",
        "",
        Some(Key::CudaGraphBs),
        "cudagraph-capture-sizes",
    ),
    row(
        "CUDA graphs off",
        "/disable_cuda_graph",
        "/model_config/enforce_eager",
        "",
        Some(Key::DisableCudaGraph),
        "enforce-eager",
    ),
    row("prefix cache off", "/disable_radix_cache", "", "", Some(Key::DisableRadixCache), "no-enable-prefix-caching"),
];

/// A launch file that describes the server.
pub struct DescribedFile<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// Describes a server.
///
/// # Errors
/// When the launch file has no launch, with the reason.
pub fn describe(
    api: &Api,
    info: &ServerInfo,
    metrics: Option<&Metrics>,
    file: Option<&DescribedFile<'_>>,
) -> Result<RunningServer, String> {
    let engine = match (info.is_spectune(), api.kind()) {
        (true, _) => "spectune",
        (false, ApiKind::Sglang) => "SGLang",
        (false, ApiKind::Vllm) => "vLLM",
    };
    let launch = file.map(|file| launch_of(file, api.kind(), info)).transpose()?;
    let settings = ROWS
        .iter()
        .filter(|row| is_of(row, api.kind(), info.is_spectune()))
        .map(|row| setting(row, info, metrics, launch.as_ref()))
        .collect();
    let (host, device) = place::host_and_device(api.base(), info.resolved.as_ref());
    let server = RunningServer {
        url: api.base().to_owned(),
        engine: engine.to_owned(),
        version: info.version.clone(),
        models: info.models.clone(),
        host,
        device,
        speculates: speculates(info, metrics, launch.as_ref()),
        launch: file.map(|file| file.name.to_owned()),
        ..RunningServer { settings, ..RunningServer::default() }
    };
    let of_launch = || {
        let number = |name: &str| server.setting(name)?.parse::<usize>().ok();
        // Each of vLLM's ranks has a limit of its own; SGLang divides its limit among them.
        let ranks = number("data parallel size").filter(|_| api.kind() == ApiKind::Vllm).unwrap_or(1);
        Some(number("max running requests")?.saturating_mul(ranks.max(1)))
    };
    let limit = info.resolved.as_ref().and_then(most_running).or_else(of_launch);
    Ok(RunningServer { limit, ..server })
}

/// The launch of a file: the one with the server's port if there are several.
fn launch_of(file: &DescribedFile<'_>, kind: ApiKind, info: &ServerInfo) -> Result<Launch, String> {
    let source = Source::new(file.name, file.text);
    let engine = if kind == ApiKind::Vllm { Engine::Vllm } else { Engine::Sglang };
    let version = info.version.as_deref().and_then(|version| version.parse().ok());
    let parsed = launch::parse(&source, &Options { engine: Some(engine), version, ..Options::default() });
    let found = parsed.launches.into_iter().find(|one| (one.engine == Engine::Vllm) == (kind == ApiKind::Vllm));
    found.ok_or_else(|| {
        format!("{} contains no launch of {}", file.name, if kind == ApiKind::Vllm { "vLLM" } else { "SGLang" })
    })
}

/// Whether an engine has a setting.
fn is_of(row: &ServerRow, kind: ApiKind, is_spectune: bool) -> bool {
    match kind {
        _ if row.name == "tree shapes" => is_spectune,
        ApiKind::Sglang => !row.sglang.is_empty(),
        ApiKind::Vllm => !row.vllm.is_empty() || row.flag == "no-enable-prefix-caching",
    }
}

fn setting(row: &ServerRow, info: &ServerInfo, metrics: Option<&Metrics>, launch: Option<&Launch>) -> ServerSetting {
    let reported = from_server(row, info).map(|value| (value, SettingSource::Server));
    let measured = || from_metrics(row, info, metrics).map(|value| (value, SettingSource::Metrics));
    let given = || launch.and_then(|launch| from_launch(row, launch)).map(|value| (value, SettingSource::Launch));
    let (value, from) = match reported.or_else(measured).or_else(given) {
        Some((value, from)) => (Some(value), from),
        None => (None, SettingSource::Unknown),
    };
    ServerSetting { name: row.name.to_owned(), value, from }
}

fn from_server(row: &ServerRow, info: &ServerInfo) -> Option<String> {
    let vllm = info.resolved.as_ref().and_then(|answer| answer.get("vllm_config"));
    let found = match (&info.resolved, vllm) {
        (_, Some(config)) if row.vllm.starts_with("/speculative_config") && config["speculative_config"].is_null() => {
            return (row.name == "algorithm").then(|| "off".to_owned());
        }
        (_, Some(config)) => config.pointer(row.vllm).filter(|_| !row.vllm.is_empty()),
        (Some(answer), None) => {
            let own = match row.name {
                "max running requests" => most_running(answer).map(|most| most.to_string()),
                "capture sizes" | "CUDA graphs off" => of_graphs(row.name, answer),
                _ => None,
            };
            if own.is_some() {
                return own;
            }
            answer.pointer(row.sglang).filter(|_| !row.sglang.is_empty())
        }
        (None, None) => None,
    };
    let listed = || match row.name {
        "model" => info.root.clone(),
        "context length" => info.context_length.map(|tokens| tokens.to_string()),
        _ => None,
    };
    match found {
        // A server that does not speculate tells an empty algorithm.
        Some(Value::Null) if row.name == "algorithm" => Some("off".to_owned()),
        Some(Value::Null) | None => listed().or_else(|| from_shapes(row, info.resolved.as_ref()?)),
        Some(value) => Some(secrets::masked_text(&plain(value))),
    }
}

/// SGLang's settings of the graphs of rounds, which versions from 0.5.14 on tell within the
/// settings of all phases; `None` if it does not tell them.
fn of_graphs(name: &str, answer: &Value) -> Option<String> {
    let settings = sglang_settings(answer);
    if name == "CUDA graphs off" {
        let is_reported = ["disable_cuda_graph", "disable_decode_cuda_graph", "cuda_graph_config"]
            .iter()
            .any(|name| !answer[*name].is_null());
        return is_reported.then(|| settings.graphs_off.to_string());
    }
    let words: Vec<String> = settings.captured.iter().map(ToString::to_string).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// A number of the trees that spectune's own server runs by a table: that of each of them which
/// speculates, once.
fn from_shapes(row: &ServerRow, answer: &Value) -> Option<String> {
    let number: fn(&TreeShape) -> usize = match row.name {
        "num_steps" => |shape| shape.num_steps,
        "topk" => |shape| shape.topk,
        "num_draft_tokens" => |shape| shape.num_draft_tokens,
        _ => return None,
    };
    let shapes = answer["tree_shapes"].as_array()?.iter();
    let shapes = shapes.map(|shape| NodeSource::parse_any(shape.as_str()?).ok()).collect::<Option<Vec<TreeShape>>>()?;
    let mut numbers: Vec<usize> = Vec::new();
    for number in shapes.iter().filter(|shape| !shape.is_off()).map(number) {
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    (!words.is_empty()).then(|| words.join(" or "))
}

fn from_metrics(row: &ServerRow, info: &ServerInfo, metrics: Option<&Metrics>) -> Option<String> {
    let metrics = metrics.filter(|_| info.resolved.is_none())?;
    match row.name {
        "num_speculative_tokens" => draft_positions(metrics).map(|positions| positions.to_string()),
        _ if !row.metric.is_empty() => {
            metrics.label("vllm:cache_config_info", row.metric).filter(|value| value != "None")
        }
        _ => None,
    }
}

fn from_launch(row: &ServerRow, launch: &Launch) -> Option<String> {
    if launch.engine == Engine::Vllm {
        let speculation = launch.vllm_speculation();
        return match row.name {
            "algorithm" if speculation.is_none() => Some("off".to_owned()),
            "algorithm" => speculation?.method,
            "draft" => speculation?.model,
            "num_speculative_tokens" => speculation?.num_speculative_tokens.map(|tokens| tokens.to_string()),
            "model" => launch.text(Key::ModelPath).map(|text| text.value.to_owned()),
            _ if row.flag.is_empty() => None,
            _ => words(&launch.argument(row.flag)?.values),
        };
    }
    words(&launch.setting(row.key?)?.values)
}

/// The values of a flag; a switch is `true`.
fn words(values: &[schemas::text::Located<launch::Value>]) -> Option<String> {
    if values.is_empty() {
        return Some("true".to_owned());
    }
    let words: Option<Vec<&str>> = values.iter().map(|value| value.value.known()).collect();
    Some(words?.join(" "))
}

/// Whether the server speculates, if anything tells it.
fn speculates(info: &ServerInfo, metrics: Option<&Metrics>, launch: Option<&Launch>) -> Option<bool> {
    if let Some(answer) = &info.resolved {
        if let Some(config) = answer.get("vllm_config") {
            return Some(!config["speculative_config"].is_null());
        }
        if let Some(algorithm) = answer.get("speculative_algorithm") {
            // A table may speculate at some batches only.
            let is_off = algorithm.is_null()
                || answer["tree_shapes"].as_array().is_some_and(|all| all.iter().all(|one| one == "0,1,1"));
            return Some(!is_off);
        }
    }
    // vLLM has the counters of its drafts from the start, and only if it speculates; with
    // `--disable-log-stats` it has no counters at all.
    let counted = metrics.filter(|metrics| info.resolved.is_none() && metrics.has_any("vllm:"));
    let reported = counted.map(|metrics| draft_positions(metrics).is_some());
    let of_launch =
        || launch.map(|launch| launch.vllm_speculation().is_some() || launch.has(Key::SpeculativeAlgorithm));
    reported.or_else(of_launch)
}

fn draft_positions(metrics: &Metrics) -> Option<usize> {
    metrics.values_of("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position")
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn described(kind: ApiKind, info: &ServerInfo, metrics: &str, launch: Option<&str>) -> RunningServer {
        let api = Api::new(kind, "http://elsewhere.example:8000", None, Duration::from_secs(1));
        let file = launch.map(|text| DescribedFile { name: "run.sh", text });
        describe(&api, info, Some(&Metrics::parse(metrics)), file.as_ref()).expect("a description")
    }

    const COUNTERS: &str = "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"0\"} 1\n\
                            vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"1\"} 0\n\
                            vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\"} 1\n";

    #[test]
    fn a_vllm_without_development_mode_tells_the_number_of_drafts_and_nothing_else_about_them() {
        let info = ServerInfo {
            version: Some("0.26.0".into()),
            models: vec!["m".into()],
            root: Some("org/model".into()),
            context_length: Some(4096),
            ..ServerInfo::default()
        };
        let server = described(ApiKind::Vllm, &info, COUNTERS, None);
        let reported = |name: &str| server.settings.iter().find(|one| one.name == name).expect("a row").clone();
        assert_eq!(
            (reported("num_speculative_tokens").value.as_deref(), reported("num_speculative_tokens").from),
            (Some("2"), SettingSource::Metrics)
        );
        for name in ["algorithm", "draft", "attention backend", "max running requests"] {
            assert_eq!((reported(name).value, reported(name).from), (None, SettingSource::Unknown), "{name}");
        }
        assert_eq!(
            (reported("model").value.as_deref(), reported("page size").value.as_deref()),
            (Some("org/model"), Some("16"))
        );
        assert_eq!((server.speculates, server.limit), (Some(true), None));
        assert_eq!(server.place(), "elsewhere.example, GPU not told");

        let launch = "vllm serve org/model --max-num-seqs 48 --speculative-config '{\"method\": \"eagle3\", \"model\": \"d\", \"num_speculative_tokens\": 2}'";
        let server = described(ApiKind::Vllm, &info, COUNTERS, Some(launch));
        let reported = |name: &str| server.settings.iter().find(|one| one.name == name).expect("a row").clone();
        assert_eq!(
            (reported("algorithm").value.as_deref(), reported("algorithm").from),
            (Some("eagle3"), SettingSource::Launch)
        );
        assert_eq!((reported("draft").value.as_deref(), server.limit), (Some("d"), Some(48)));
    }

    #[test]
    fn without_counters_a_launch_says_whether_vllm_speculates() {
        let info = ServerInfo { models: vec!["m".into()], ..ServerInfo::default() };
        let launch = "vllm serve m --disable-log-stats --max-num-seqs 48 --data-parallel-size 2 \
                      --speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 2}'";
        let process = "process_resident_memory_bytes 1\n";
        let of = |metrics: &str, launch| described(ApiKind::Vllm, &info, metrics, launch);
        assert_eq!(of(process, None).speculates, None);
        let server = of(process, Some(launch));
        assert_eq!((server.speculates, server.limit), (Some(true), Some(96)));
        assert_eq!(of("vllm:num_requests_running 0\n", None).speculates, Some(false));
    }

    #[test]
    fn graphs_of_rounds_are_read_in_all_forms() {
        let of = |answer: Value| {
            let info = ServerInfo { resolved: Some(answer), ..ServerInfo::default() };
            let server = described(ApiKind::Sglang, &info, "", None);
            ["capture sizes", "CUDA graphs off"].map(|name| server.setting(name).map(ToOwned::to_owned))
        };
        let expected = |sizes: Option<&str>, off: &str| [sizes.map(str::to_owned), Some(off.to_owned())];
        let config = json!({"decode": {"backend": "full", "bs": [1, 8]}, "prefill": {"backend": "disabled"}});
        assert_eq!(
            of(json!({"cuda_graph_config": config, "disable_cuda_graph": false})),
            expected(Some("1 8"), "false")
        );
        assert_eq!(
            of(json!({"disable_cuda_graph": false, "cuda_graph_config": {"decode": {"backend": "disabled"}}})),
            expected(None, "true")
        );
        let states = json!([{"decode_cuda_graph_bs": [2, 4]}]);
        assert_eq!(of(json!({"internal_states": states, "disable_cuda_graph": false})), expected(Some("2 4"), "false"));
        assert_eq!(of(json!({"model_path": "m"})), [None, None]);
    }

    #[test]
    fn a_table_of_trees_tells_their_numbers() {
        let of = |shapes: Value| {
            let answer = json!({
                "speculative_algorithm": "EAGLE3", "speculative_num_steps": null, "speculative_eagle_topk": null,
                "speculative_num_draft_tokens": null, "tree_shapes": shapes,
            });
            let info = ServerInfo { resolved: Some(answer), ..ServerInfo::default() };
            let server = described(ApiKind::Sglang, &info, "", None);
            ["num_steps", "topk", "num_draft_tokens"].map(|name| server.setting(name).map(ToOwned::to_owned))
        };
        let expected = ["3 or 1", "2 or 1", "6 or 2"].map(|words| Some(words.to_owned()));
        assert_eq!(of(json!(["3,2,6~2.5", "1,1,2", "0,1,1"])), expected);
        assert_eq!(of(json!(["0,1,1"])), [None, None, None]);
        assert_eq!(of(json!(["a tree"])), [None, None, None]);
    }

    #[test]
    fn sglang_tells_its_flags_and_its_limit() {
        let answer = json!({
            "model_path": "/m", "speculative_algorithm": "EAGLE3", "speculative_num_steps": 3, "attention_backend": "fa3",
            "max_running_requests": 64, "api_key": "sk-secret", "quantization": null,
            "internal_states": [{"effective_max_running_requests_per_dp": 48}, {"effective_max_running_requests_per_dp": 48}],
        });
        let info = ServerInfo { resolved: Some(answer), ..ServerInfo::default() };
        let server = described(ApiKind::Sglang, &info, "", None);
        assert_eq!((server.setting("algorithm"), server.setting("num_steps")), (Some("EAGLE3"), Some("3")));
        assert_eq!((server.limit, server.speculates, server.setting("quantization")), (Some(96), Some(true), None));
        assert_eq!(server.setting("max running requests"), Some("96"), "that of all ranks");
        let off = ServerInfo {
            resolved: Some(json!({"model_path": "/m", "speculative_algorithm": null})),
            ..ServerInfo::default()
        };
        let server = described(ApiKind::Sglang, &off, "", None);
        assert_eq!((server.setting("algorithm"), server.speculates), (Some("off"), Some(false)));
    }
}
