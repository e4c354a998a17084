//! Compares what a server really runs with what was requested.

use std::{collections::BTreeSet, path::Path};

use external::{api::ServerInfo, log::sglang_settings};
use launch::{
    Options,
    resolve::{resolve, running, version_of},
};
use schemas::{
    drafting::runs_as_requested,
    engines::Engine,
    model::{ModelConfig, ModelFacts},
    text::Source,
    tree::TreeShape,
};
use serde_json::Value;

use super::{LaunchPlan, SystemError, adaptive};
use crate::{
    files::atomic_file,
    trials::configuration::{Configuration, TrialLoad},
};

/// The values that the server has rewritten: notes if it still runs the requested configuration,
/// else an error. Values that the server does not report are not checked.
pub fn differences(info: &ServerInfo, plan: &LaunchPlan, configuration: &Configuration) -> Result<Vec<String>, String> {
    let Some(resolved) = &info.resolved else { return Ok(Vec::new()) };
    let number = |name: &str| resolved.get(name).and_then(Value::as_u64).map(|number| number as usize);
    let triple = ["speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"].map(number);
    let runs = match triple {
        [Some(num_steps), Some(topk), Some(num_draft_tokens)] => {
            Some(TreeShape::whole_tree(num_steps, topk, num_draft_tokens))
        }
        _ => from_vllm(resolved),
    };
    if let Some(runs) = runs {
        // SGLang keeps the numbers of the tree even if it has dropped the algorithm.
        let speculates = resolved.get("speculative_algorithm").map_or(!runs.is_off(), |name| !name.is_null());
        let requested = adaptive::largest(configuration);
        if !speculates && !requested.is_off() {
            return Err(format!("{requested} was requested, but the server turned speculation off"));
        }
        if speculates && !requested.is_off() && !runs_as_requested(&plan.algorithm, runs, requested) {
            return Err(format!(
                "the server runs the tree {runs} instead of the requested {requested}: it rewrites its flags"
            ));
        }
        if speculates && requested.is_off() {
            return Err(format!("the server speculates with {runs} although no speculation was requested"));
        }
    }
    let mut notes = Vec::new();
    let requested = configuration.knobs.max_running_requests.unwrap_or(plan.max_running_requests);
    if let Some(runs) = most_running(resolved).filter(|runs| *runs < requested) {
        notes.push(format!(
            "{configuration}: the server runs at most {runs} requests together instead of the requested {requested}"
        ));
    }
    if sglang_settings(resolved).graphs_off {
        notes.push(format!("{configuration}: the server runs without CUDA graphs"));
    }
    Ok(notes)
}

/// The chain that vLLM reports in development mode, if any.
fn from_vllm(resolved: &Value) -> Option<TreeShape> {
    let speculation = resolved.get("vllm_config")?.get("speculative_config")?;
    match speculation["num_speculative_tokens"].as_u64().map(usize::try_from) {
        Some(Ok(tokens)) => Some(TreeShape::chain(tokens)),
        _ => speculation.is_null().then_some(TreeShape::OFF),
    }
}

/// Largest config.json that is read, in bytes.
const LARGEST_CONFIG: u64 = 4 << 20;

/// Compares what `lint --resolved` computes for a launch of SGLang with what its server reports:
/// one line for each value that differs and is not yet in `reported`, where it is then added.
pub fn beyond_the_linter(
    command: &str,
    info: &ServerInfo,
    plan: &LaunchPlan,
    reported: &mut BTreeSet<&'static str>,
) -> Vec<String> {
    let Some(answer) = info.resolved.as_ref().filter(|_| !info.is_spectune()) else {
        return Vec::new();
    };
    let version = info.version.as_deref().and_then(|version| version.parse().ok());
    // A server that was already running reports its command itself.
    let command = if command.is_empty() { running::launch_of(answer).unwrap_or_default() } else { command.to_owned() };
    let source = Source::new("<launch>", command);
    let parsed = launch::parse(&source, &Options { engine: Some(Engine::Sglang), version, ..Options::default() });
    let Some(launch) = parsed.launches.first() else { return Vec::new() };
    let (version, given) = version_of(launch, version);
    let (target, draft) = (facts(&plan.target), facts(&plan.draft));
    let resolved = resolve(launch, version, given, target.as_ref(), draft.as_ref(), None);
    let differing = running::compare(&resolved, &source, answer).into_iter().filter(|one| one.differs);
    differing
        .filter(|one| reported.insert(one.name))
        .map(|one| {
            format!(
                "{}: the server runs {} where `spectune lint --resolved` says {} for SGLang {version} ({}); the server is right, and is \
                 what was measured",
                one.name,
                one.runs,
                one.resolved.unwrap_or_default(),
                one.because
            )
        })
        .collect()
}

/// The facts of a folder's config.json; `None` if there is none.
fn facts(folder: &str) -> Option<ModelFacts> {
    let path = Path::new(folder).join("config.json");
    let text = atomic_file::read(&path, LARGEST_CONFIG).ok()?;
    let config = ModelConfig::parse(&text).ok()?;
    Some(ModelFacts { name: folder.to_owned(), origin: path.display().to_string(), config, ..ModelFacts::default() })
}

/// Fails if a batch of the closed loop would not run together.
///
/// # Errors
/// A message with both numbers.
pub fn check_room(info: &ServerInfo, load: TrialLoad) -> Result<(), SystemError> {
    let most = info.resolved.as_ref().and_then(most_running);
    match (load.batch_size(), most) {
        (Some(batch), Some(most)) if batch > most => Err(SystemError::Unsupported(format!(
            "the server runs at most {most} requests together, so a trial with a batch of {batch} would be mislabelled: give it \
             more memory, or lower batch.sizes or engine.context_length"
        ))),
        _ => Ok(()),
    }
}

/// Maximum number of requests that the server runs together, on all its data-parallel ranks.
pub fn most_running(resolved: &Value) -> Option<usize> {
    let reported = || resolved["max_running_requests"].as_u64();
    let vllm = || {
        let config = resolved.get("vllm_config")?;
        // Each rank has a scheduler of its own.
        let ranks = config["parallel_config"]["data_parallel_size"].as_u64().unwrap_or(1);
        Some(config["scheduler_config"]["max_num_seqs"].as_u64()?.saturating_mul(ranks.max(1)))
    };
    let most = running::most_running(resolved).or_else(reported).or_else(vllm)?;
    usize::try_from(most).ok()
}

#[cfg(test)]
mod tests {
    use schemas::sweep::SystemKind;
    use serde_json::json;

    use super::*;
    use crate::trials::configuration::Knobs;

    fn plan() -> LaunchPlan {
        LaunchPlan {
            drafts: Vec::new(),
            kind: SystemKind::Sglang,
            target: String::new(),
            draft: String::new(),
            algorithm: "EAGLE3".into(),
            dtype: "auto".into(),
            quantization: None,
            kv_cache_dtype: None,
            context_length: None,
            max_running_requests: 64,
            tp_size: 1,
            knobs: Knobs::default(),
            acceptance: None,
            version: None,
            is_own: false,
            capture_flag: "cuda-graph-bs",
            tables: Ok(()),
        }
    }

    fn check(resolved: Value, shape: &str) -> Result<Vec<String>, String> {
        let info = ServerInfo { resolved: Some(resolved), ..ServerInfo::default() };
        differences(&info, &plan(), &Configuration::from_shape(shape.parse().expect("a shape")))
    }

    #[test]
    fn a_rewritten_tree_is_another_configuration() {
        let runs = |steps: usize, topk: usize, tokens: usize| {
            json!({"speculative_algorithm": "EAGLE3", "speculative_num_steps": steps, "speculative_eagle_topk": topk,
                   "speculative_num_draft_tokens": tokens})
        };
        assert_eq!(check(runs(3, 1, 4), "3,1,4"), Ok(vec![]));
        assert!(check(runs(3, 1, 4), "5,4,8").is_err_and(|words| words.contains("runs the tree 3,1,4")));
        assert!(check(runs(3, 1, 4), "0,1,1").is_err());
        let off = json!({"speculative_algorithm": null, "speculative_num_steps": 3, "speculative_eagle_topk": 1,
                         "speculative_num_draft_tokens": 4});
        assert_eq!(check(off, "0,1,1"), Ok(vec![]));
        assert_eq!(check(json!({}), "3,1,4"), Ok(vec![]));
    }

    #[test]
    fn vllm_tells_a_chain_or_nothing() {
        let runs = |speculation: Value| json!({"vllm_config": {"speculative_config": speculation, "scheduler_config": {"max_num_seqs": 32}}});
        let three = json!({"method": "eagle3", "num_speculative_tokens": 3});
        assert!(check(runs(three.clone()), "3,1,4").is_ok_and(|notes| notes[0].contains("at most 32")));
        assert!(check(runs(three.clone()), "5,1,6").is_err_and(|words| words.contains("runs the tree 3,1,4")));
        assert!(check(runs(three), "0,1,1").is_err());
        assert!(check(runs(Value::Null), "3,1,4").is_err_and(|words| words.contains("turned speculation off")));
        assert!(check(runs(Value::Null), "0,1,1").is_ok());
    }

    #[test]
    fn what_the_linter_says_otherwise_is_reported_once() {
        let command = "python3 -m sglang.launch_server --model-path /none --page-size 16 --speculative-algorithm EAGLE3 \
                       --speculative-draft-model-path /draft --speculative-num-steps 3 --speculative-eagle-topk 1 \
                       --speculative-num-draft-tokens 4 --max-running-requests 8";
        let answer = |page_size: usize| {
            let resolved = json!({"model_path": "/none", "page_size": page_size, "speculative_num_steps": 3,
                                  "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4});
            ServerInfo { resolved: Some(resolved), version: Some("0.5.16".into()), ..ServerInfo::default() }
        };
        let mut reported = BTreeSet::new();
        assert_eq!(beyond_the_linter(command, &answer(16), &plan(), &mut reported), Vec::<String>::new());
        let lines = beyond_the_linter(command, &answer(64), &plan(), &mut reported);
        assert!(lines.len() == 1 && lines[0].starts_with("page_size: the server runs 64 where"), "{lines:?}");
        assert_eq!(beyond_the_linter(command, &answer(64), &plan(), &mut reported), Vec::<String>::new());
    }

    #[test]
    fn fewer_running_requests_are_reported_and_refused_for_larger_batches() {
        let resolved = json!({"max_running_requests": 64,
                              "internal_states": [{"effective_max_running_requests_per_dp": 48}]});
        let notes = check(resolved.clone(), "0,1,1").expect("the same configuration");
        assert!(notes[0].contains("at most 48"), "{notes:?}");
        let info = ServerInfo { resolved: Some(resolved), ..ServerInfo::default() };
        assert!(check_room(&info, TrialLoad::BatchSize(48)).is_ok());
        assert!(check_room(&info, TrialLoad::BatchSize(64)).is_err());
    }

    #[test]
    fn data_parallel_ranks_run_their_requests_together() {
        let each = json!({"effective_max_running_requests_per_dp": 32});
        let sglang = json!({"max_running_requests": 64, "internal_states": [each, each]});
        assert_eq!(check(sglang.clone(), "0,1,1"), Ok(vec![]));
        let vllm = json!({"vllm_config": {
            "speculative_config": null, "scheduler_config": {"max_num_seqs": 32},
            "parallel_config": {"data_parallel_size": 2},
        }});
        assert_eq!(check(vllm.clone(), "0,1,1"), Ok(vec![]));
        for resolved in [sglang, vllm] {
            let info = ServerInfo { resolved: Some(resolved), ..ServerInfo::default() };
            assert!(check_room(&info, TrialLoad::BatchSize(64)).is_ok());
            assert!(check_room(&info, TrialLoad::BatchSize(65)).is_err());
        }
    }

    #[test]
    fn a_server_without_graphs_of_rounds_is_noted_in_all_forms() {
        for answer in [
            json!({"disable_cuda_graph": true}),
            json!({"disable_cuda_graph": false, "disable_decode_cuda_graph": true}),
            json!({"cuda_graph_config": {"decode": {"backend": "disabled"}}}),
        ] {
            let notes = check(answer, "0,1,1").expect("the same configuration");
            assert!(notes.iter().any(|note| note.contains("without CUDA graphs")), "{notes:?}");
        }
        let on = json!({"cuda_graph_config": {"decode": {"backend": "full"}, "prefill": {"backend": "disabled"}}});
        assert_eq!(check(on, "0,1,1"), Ok(vec![]));
    }
}
