//! # SD206: visible-devices
//!
//! The environment shows fewer GPUs than the launch needs on this node.
//!
//! ## What it does
//!
//! Counts the devices in `CUDA_VISIBLE_DEVICES` (or `HIP_VISIBLE_DEVICES`, `ROCR_VISIBLE_DEVICES`,
//! `ASCEND_RT_VISIBLE_DEVICES`), where the launch or the text before it sets the variable, and
//! compares them with the ranks of one node: tensor parallelism × pipeline parallelism, divided
//! among the nodes, × replicas. Ranks of DP attention are part of the tensor parallelism.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It starts one process for each rank, which takes the device of its number. A process whose
//! device does not exist stops, and the server with it: `CUDA error: invalid device ordinal`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! CUDA_VISIBLE_DEVICES=0 sglang serve --model-path target --tp-size 2
//! ```
//!
//! ```launch bad version:0.5.23
//! CUDA_VISIBLE_DEVICES=0,1 sglang serve --model-path target --tp-size 2 --dp-size 2
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! CUDA_VISIBLE_DEVICES=0,1 sglang serve --model-path target --tp-size 2
//! ```
//!
//! Of two nodes each has half of the ranks:
//!
//! ```launch good version:0.5.23
//! CUDA_VISIBLE_DEVICES=0,1 sglang serve --model-path target --tp-size 4 --nnodes 2 --node-rank 0 \
//!   --dist-init-addr host:5000
//! ```
//!
//! ## Versions
//!
//! Read in 0.4.7 to 0.5.23. Before 0.5.4 the stages of a replica share devices with the next one.
//!
//! ## Source
//!
//! sglang `entrypoints/engine.py`, `managers/data_parallel_controller.py`,
//! `model_executor/model_runner.py`.

use launch::{Argument, Launcher};
use schemas::{diagnostic::Severity, engines::Engine, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, devices};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD206",
    name: "visible-devices",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

/// Flags with which ranks are elsewhere, or take other devices.
const ELSEWHERE: [&str; 4] = ["encoder-only", "elastic-ep-join-mode", "elastic-ep-rejoin", "use-ray"];

/// The first version read in which each replica has devices of its own for all of its stages, for
/// certain.
const STAGES_APART: EngineVersion = EngineVersion::new(0, 5, 4);

/// With it each process sees one device.
const ONE_DEVICE: &str = "SGLANG_ONE_VISIBLE_DEVICE_PER_PROCESS";

fn check(context: &Context<'_>) -> Option<Finding> {
    let launch = context.launch;
    let is_server = matches!(launch.launcher, Launcher::Own | Launcher::Benchmark | Launcher::Dynamo);
    if !is_server || launch.engine == Engine::Slime || launch.environment.contains_key(ONE_DEVICE) {
        return None;
    }
    if ELSEWHERE.iter().any(|name| context.argument(name).is_some()) {
        return None;
    }
    let (visible, finding) = devices::too_few(context, needed(context)?)?;
    let finding =
        finding.related(context.span(Key::TpSize), "these ranks").related(context.span(Key::DpSize), "replicas");
    let is_cuda = visible.variable == "CUDA_VISIBLE_DEVICES" && launch.engine == Engine::Sglang;
    Some(if is_cuda { finding.sglang_says("CUDA error: invalid device ordinal") } else { finding })
}

/// The fewest devices of a node that the ranks of the launch take: a size that is not known is at
/// least 1. `None` if the number of nodes is not known.
fn needed(context: &Context<'_>) -> Option<usize> {
    let nodes = size_of(context, "nnodes").filter(|nodes| *nodes > 0)?;
    let of_key = |key: Key| context.launch.count(key).map_or(1, |size| size.value.max(1));
    let (tensor, pipeline) = (of_key(Key::TpSize), of_key(Key::PpSize));
    let is_split = context.launch.has(Key::EnableDpAttention) || context.launch.has(Key::AttnDpSize);
    let may_be_split = context.launch.perhaps.contains(&Key::EnableDpAttention) || !is_certain(context);
    // Replicas on several nodes are divided in another way in each version.
    let replicas = if is_split || may_be_split || nodes > 1 { 1 } else { of_key(Key::DpSize) };
    let of_one = tensor.checked_mul(pipeline)?.div_ceil(nodes);
    // The stages of older versions share devices with those of the next replica.
    let apart = if context.version() < STAGES_APART { tensor } else { of_one };
    let ranks = apart.checked_mul(replicas - 1)?.checked_add(of_one)?;
    let first = size_of(context, "base-gpu-id").unwrap_or_default();
    let step = size_of(context, "gpu-id-step").filter(|step| pipeline == 1 && replicas == 1 && *step > 1).unwrap_or(1);
    (ranks - 1).checked_mul(step)?.checked_add(first)?.checked_add(1)
}

/// Whether all flags are visible.
fn is_certain(context: &Context<'_>) -> bool {
    context.is_absent(Key::EnableDpAttention) && context.is_absent(Key::AttnDpSize)
}

/// The value of a flag without a key: its default if it is certainly not given, `None` if it is not
/// known.
fn size_of(context: &Context<'_>, name: &str) -> Option<usize> {
    let default = usize::from(name != "base-gpu-id");
    match context.argument(name) {
        Some(argument) => Some(argument).filter(|one| !one.in_branch).and_then(Argument::known)?.parse().ok(),
        // It may be among the words of a variable.
        None => context.launch.is_complete().then_some(default),
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::examples::found_in;

    fn check(command: &str, is_found: bool) {
        let found = found_in(command, "0.5.23", "", "");
        assert_eq!(found.iter().any(|found| found.code == "SD206"), is_found, "{command}");
    }

    #[test]
    fn ranks_of_a_node_are_counted_as_the_engine_does() {
        let with = |devices: &str, flags: &str| {
            format!("CUDA_VISIBLE_DEVICES={devices} sglang serve --model-path target {flags}")
        };
        for (devices, flags, is_found) in [
            ("0", "--tp-size 2", true),
            ("0,1", "--tp-size 2", false),
            ("0,1,2", "--tp 2 --pp-size 2", true),
            ("0,1", "--tp 1 --dp 3", true),
            ("0,1", "--tp 2 --dp 2 --enable-dp-attention", false),
            ("0,1", "--tp 4 --nnodes 2", false),
            ("0", "--tp 4 --nnodes 2", true),
            ("0", "--tp 4 --nnodes $N", false),
            ("0", "--tp 2 $EXTRA", false),
            ("0", "--tp $TP", false),
            ("0", "--base-gpu-id 1", true),
            ("0,1,2", "--tp 2 --gpu-id-step 2", false),
            ("0,1", "--tp 2 --gpu-id-step 2", true),
            ("0", "--tp 2 --use-ray", false),
            ("$IDS", "--tp 2", false),
            ("GPU-a", "--tp 2", true),
        ] {
            check(&with(devices, flags), is_found);
        }
    }

    #[test]
    fn the_variable_is_the_one_of_the_process() {
        let launch = "sglang serve --model-path target --tp 2";
        for (before, is_found) in [
            ("export CUDA_VISIBLE_DEVICES=0\n", true),
            ("export CUDA_VISIBLE_DEVICES=0\ndocker run --gpus all lmsysorg/sglang:v0.5.9 ", false),
            ("docker run -e CUDA_VISIBLE_DEVICES=0 lmsysorg/sglang:v0.5.9 ", true),
            ("HIP_VISIBLE_DEVICES=0 ", true),
            ("ASCEND_RT_VISIBLE_DEVICES=0 ", true),
        ] {
            check(&format!("{before}{launch}"), is_found);
        }
        check("CUDA_VISIBLE_DEVICES=0 sglang serve --model-path target --tp 2 --device npu", false);
        check(
            "CUDA_VISIBLE_DEVICES=0 python3 train.py --sglang-model-path target --rollout-num-gpus-per-engine 2",
            false,
        );
        check("CUDA_VISIBLE_DEVICES=0 spectune serve --model-path target --tp-size 2", true);
    }
}
