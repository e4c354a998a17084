//! # VL47: too-few-devices
//!
//! The environment shows fewer GPUs than the launch needs on this node.
//!
//! ## What it does
//!
//! Counts the devices in `CUDA_VISIBLE_DEVICES` (or `HIP_VISIBLE_DEVICES`, `ROCR_VISIBLE_DEVICES`,
//! `ASCEND_RT_VISIBLE_DEVICES`), where the launch or the text before it sets the variable, and
//! compares them with tensor parallelism × pipeline parallelism × the data-parallel ranks of this
//! node. Launches over several nodes, with Ray or with `--device-ids` are not checked.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What vLLM does
//!
//! It stops: `ValueError: World size (2) is larger than the number of available GPUs (1) in this
//! node.` If only the data-parallel ranks are too many, those whose devices do not exist stop. Older
//! versions look for more devices with Ray.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! CUDA_VISIBLE_DEVICES=0 vllm serve target --tensor-parallel-size 2
//! ```
//!
//! ```launch bad version:0.33.0
//! CUDA_VISIBLE_DEVICES=0,1 vllm serve target --tensor-parallel-size 2 --data-parallel-size 2
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! CUDA_VISIBLE_DEVICES=0,1 vllm serve target --tensor-parallel-size 2
//! ```
//!
//! ## Versions
//!
//! Read in 23 versions from 0.10.2 to 0.33.0. Before 0.11.2 vLLM starts Ray where the devices do
//! not suffice for one replica, which is a warning.
//!
//! ## Source
//!
//! vLLM `config/parallel.py`, `v1/engine/utils.py`, `v1/worker/gpu_worker.py`.

use launch::Launcher;
use schemas::{diagnostic::Severity, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, devices};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL47",
    name: "too-few-devices",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The first version read that does not look for more devices with Ray.
const WITHOUT_RAY: EngineVersion = EngineVersion::new(0, 11, 2);

/// Flags with which ranks are on other nodes, or take other devices.
const ELSEWHERE: [&str; 8] = [
    "data-parallel-backend",
    "data-parallel-external-lb",
    "data-parallel-rank",
    "data-parallel-start-rank",
    "device-ids",
    "enable-elastic-ep",
    "headless",
    "nnodes",
];

fn check(context: &Context<'_>) -> Option<Finding> {
    let launch = context.launch;
    let is_server = matches!(launch.launcher, Launcher::Own | Launcher::Benchmark | Launcher::Dynamo);
    if !is_server || !launch.is_complete() || ELSEWHERE.iter().any(|name| launch.argument(name).is_some()) {
        return None;
    }
    let backend = launch.argument("distributed-executor-backend");
    if backend.is_some_and(|backend| backend.known() != Some("mp")) {
        return None;
    }
    let size = |name: &str| match launch.argument(name) {
        Some(argument) if argument.in_branch => Some(1),
        Some(argument) => Some(argument.known().and_then(|text| text.parse::<usize>().ok()).unwrap_or(1).max(1)),
        None => None,
    };
    let world = ["tensor-parallel-size", "pipeline-parallel-size", "prefill-context-parallel-size"]
        .iter()
        .try_fold(1_usize, |world, name| world.checked_mul(size(name).unwrap_or(1)))?;
    let local = size("data-parallel-size-local").or_else(|| size("data-parallel-size")).unwrap_or(1);
    // A class starts the ranks of one replica.
    let replicas = if launch.callee.is_some() { 1 } else { local };
    let needed = world.checked_mul(replicas)?;
    let (visible, finding) = devices::too_few(context, needed)?;
    let place = |name: &str| launch.argument(name).map(|argument| argument.span);
    let finding = finding
        .related(place("tensor-parallel-size"), "these ranks")
        .related(place("data-parallel-size"), "replicas")
        .by_version();
    let says =
        format!("ValueError: World size ({world}) is larger than the number of available GPUs ({})", visible.count);
    let is_stopped = context.version() >= WITHOUT_RAY || backend.is_some() || visible.count >= world;
    let is_stated = visible.count < world && backend.is_none() && visible.variable == "CUDA_VISIBLE_DEVICES";
    Some(match (is_stopped, is_stated) {
        (true, true) => finding.vllm_says(says),
        (true, false) => finding,
        (false, _) => finding.note("this version looks for more devices with Ray").at_most(Severity::Warning),
    })
}

#[cfg(test)]
mod tests {
    use crate::rules::examples::found_in;

    fn check(devices: &str, flags: &str, expected: &str) {
        let text = format!("CUDA_VISIBLE_DEVICES={devices} vllm serve target {flags}");
        let found = found_in(&text, "0.33.0", "", "");
        let own = found.iter().find(|found| found.code == "VL47");
        assert_eq!(own.map_or("", |own| own.severity.word()), expected, "{text}");
    }

    #[test]
    fn ranks_of_a_node_are_counted_as_the_engine_does() {
        for (devices, flags, expected) in [
            ("0", "--tensor-parallel-size 2", "error"),
            ("0", "-tp 2", "error"),
            ("0,1", "-tp 2", ""),
            ("0,1", "-tp 2 -pp 2", "error"),
            ("0,1", "-dp 4", "error"),
            ("0,1", "-dp 4 -dpl 2", ""),
            ("0,1", "-dp 4 --data-parallel-backend ray", ""),
            ("0,1", "-dp 4 -dpb ray", ""),
            ("0,1", "-dp 4 -dpr 2", ""),
            ("0", "-tp 2 --distributed-executor-backend ray", ""),
            ("0", "-tp 2 --distributed-executor-backend mp", "error"),
            ("0", "-tp 2 --nnodes 2", ""),
            ("0", "-tp 2 $MORE", ""),
            ("0", "-tp $TP", ""),
            ("$IDS", "-tp 2", ""),
        ] {
            check(devices, flags, expected);
        }
    }
}
