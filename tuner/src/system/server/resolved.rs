//! What a server really runs, held against what it was asked for.

use external::api::ServerInfo;
use schemas::tree::TreeShape;
use serde_json::Value;

use super::{LaunchPlan, SystemError};
use crate::configuration::{Configuration, Load};

/// What the server has rewritten: notes where it is still the configuration that was asked for, else an error. A figure that
/// the server does not tell is not judged.
pub fn differences(info: &ServerInfo, plan: &LaunchPlan, configuration: &Configuration) -> Result<Vec<String>, String> {
    let Some(resolved) = &info.resolved else { return Ok(Vec::new()) };
    let number = |name: &str| resolved.get(name).and_then(Value::as_u64).map(|number| number as usize);
    let triple = ["speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"].map(number);
    if let [Some(num_steps), Some(topk), Some(num_draft_tokens)] = triple {
        let runs = TreeShape { num_steps, topk, num_draft_tokens };
        let speculates = resolved.get("speculative_algorithm").is_some_and(|name| !name.is_null());
        let asked = configuration.shape;
        if speculates && !asked.is_off() && runs != asked {
            return Err(format!("the server runs the tree {runs} instead of the requested {asked}: it rewrites its flags"));
        }
        if speculates && asked.is_off() {
            return Err(format!("the server speculates with {runs} although no speculation was requested"));
        }
    }
    let mut notes = Vec::new();
    let asked = configuration.knobs.max_running_requests.unwrap_or(plan.max_running_requests);
    if let Some(runs) = most_running(resolved).filter(|runs| *runs < asked) {
        notes.push(format!(
            "{configuration}: the server runs at most {runs} requests together instead of the requested {asked}"
        ));
    }
    if resolved.get("disable_cuda_graph").and_then(Value::as_bool) == Some(true) {
        notes.push(format!("{configuration}: the server runs without CUDA graphs"));
    }
    Ok(notes)
}

/// Fails where a batch of the closed loop would not run together.
///
/// # Errors
/// With both numbers.
pub fn check_room(info: &ServerInfo, load: Load) -> Result<(), SystemError> {
    let most = info.resolved.as_ref().and_then(most_running);
    match (load.batch_size(), most) {
        (Some(batch), Some(most)) if batch > most => Err(SystemError::Unsupported(format!(
            "the server runs at most {most} requests together, so that a batch of {batch} would be measured under a wrong name: give it \
             more memory, or lower batch.sizes or engine.context_length"
        ))),
        _ => Ok(()),
    }
}

/// Most requests that the server runs together.
fn most_running(resolved: &Value) -> Option<usize> {
    let effective = &resolved["internal_states"][0]["effective_max_running_requests_per_dp"];
    let most = effective.as_u64().or_else(|| resolved["max_running_requests"].as_u64())?;
    usize::try_from(most).ok()
}

#[cfg(test)]
mod tests {
    use schemas::sweep::SystemKind;
    use serde_json::json;

    use super::*;
    use crate::configuration::Knobs;

    fn check(resolved: Value, shape: &str) -> Result<Vec<String>, String> {
        let plan = LaunchPlan {
            kind: SystemKind::Sglang,
            target: String::new(),
            draft: String::new(),
            algorithm: "EAGLE3".into(),
            dtype: "auto".into(),
            quantization: None,
            context_length: None,
            max_running_requests: 64,
            tp_size: 1,
            capture_sizes: vec![],
            knobs: Knobs::default(),
        };
        let info = ServerInfo { resolved: Some(resolved), ..ServerInfo::default() };
        differences(&info, &plan, &Configuration::of(shape.parse().expect("a shape")))
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
    fn fewer_running_requests_are_told_and_refused_for_larger_batches() {
        let resolved = json!({"max_running_requests": 64,
                              "internal_states": [{"effective_max_running_requests_per_dp": 48}]});
        let notes = check(resolved.clone(), "0,1,1").expect("the same configuration");
        assert!(notes[0].contains("at most 48"), "{notes:?}");
        let info = ServerInfo { resolved: Some(resolved), ..ServerInfo::default() };
        assert!(check_room(&info, Load::BatchSize(48)).is_ok());
        assert!(check_room(&info, Load::BatchSize(64)).is_err());
    }
}
