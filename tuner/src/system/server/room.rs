//! Checks that the GPUs have room for a server before it starts. A server that does not fit fails
//! after minutes of loading, with a message about memory that does not say who holds it.

use std::{collections::BTreeMap, fs, path::Path};

use external::{
    ServerError,
    failure::{FailureClass, ServerFailure},
};
use schemas::sweep::{SystemKind, SystemSettings};

use super::{SystemError, launch::LaunchPlan};
use crate::host::nvidia_smi;

/// Share of a GPU that vLLM takes by default, and refuses to start without.
const VLLM_SHARE: f64 = 0.9;
/// Share of a GPU that SGLang plans with if it does not choose one by itself; it keeps the rest
/// free.
const SGLANG_SHARE: f64 = 0.85;

/// The memory of a GPU in MiB, and who holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ServerMemory {
    uuid: String,
    free: u64,
    total: u64,
    holders: Vec<Holder>,
}

/// A process with memory on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    pid: u32,
    mib: u64,
}

/// Why a server does not fit on these GPUs: the reason, with the processes that hold the memory and
/// what to do. `None` if it fits, or if the memory is unknown.
pub fn refusal(plan: &LaunchPlan, settings: &SystemSettings, gpus: &[usize]) -> Option<SystemError> {
    let weights = weight_mib(Path::new(&plan.target)) + weight_mib(Path::new(&plan.draft));
    let share = share(plan, settings);
    let memory = parse(
        &nvidia_smi::query("--query-gpu=index,uuid,memory.free,memory.total")?,
        // Only for the message, which does without it.
        &nvidia_smi::query("--query-compute-apps=gpu_uuid,pid,used_memory").unwrap_or_default(),
    );
    // Tensor parallelism divides the weights about evenly.
    let of_one = weights / gpus.len().max(1) as u64;
    gpus.iter().find_map(|gpu| {
        let memory = memory.get(gpu)?;
        let needed = needed_mib(plan.kind, share, of_one, memory.total);
        (memory.free < needed).then(|| error(memory, needed, words(*gpu, memory, needed)))
    })
}

/// A server that needs more than the GPU has is the configuration's fault. Otherwise another
/// process holds the memory, also if the driver does not show it, as inside a container.
fn error(memory: &ServerMemory, needed: u64, evidence: String) -> SystemError {
    if memory.holders.is_empty() && needed > memory.total {
        return SystemError::Unsupported(evidence);
    }
    not_free(evidence)
}

/// Memory held by another process is a reason to stop the sweep: no other configuration would
/// start.
pub fn not_free(evidence: String) -> SystemError {
    ServerError::Failed(ServerFailure { class: FailureClass::GpuNotFree, evidence, log_tail: String::new() }).into()
}

/// MiB of one GPU that a start needs: vLLM refuses to start unless its share is free; SGLang needs
/// the weights and what it keeps free.
fn needed_mib(kind: SystemKind, share: Option<f64>, weights: u64, total: u64) -> u64 {
    let of_total = |share: f64| (total as f64 * share) as u64;
    match kind {
        SystemKind::Vllm => of_total(share.unwrap_or(VLLM_SHARE)).max(weights),
        SystemKind::Sglang | SystemKind::Spectune => weights + of_total(1.0 - share.unwrap_or(SGLANG_SHARE)),
    }
}

/// The share of a GPU that the start states, if it does.
fn share(plan: &LaunchPlan, settings: &SystemSettings) -> Option<f64> {
    let names = ["--mem-fraction-static", "--gpu-memory-utilization"];
    let words: Vec<&String> = settings.command.iter().chain(&settings.extra_args).collect();
    // Both servers read flags with argparse, where the last of several counts.
    let stated = words.iter().enumerate().rev().find_map(|(at, word)| match word.split_once('=') {
        Some((name, value)) => names.contains(&name).then(|| value.to_owned()),
        None => names.contains(&word.as_str()).then(|| words.get(at + 1).map(|value| (*value).clone()))?,
    });
    let stated = stated.and_then(|value| value.parse().ok());
    stated.or(plan.knobs.mem_fraction_static.map(|share| share.0)).filter(|share| (0.0..=1.0).contains(share))
}

/// MiB of the weights in a folder; 0 if it is not a folder.
fn weight_mib(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_weights = |path: &Path| {
        path.extension().is_some_and(|extension| extension == "safetensors" || extension == "bin" || extension == "pt")
    };
    let sizes = entries.filter(|entry| is_weights(&entry.path())).filter_map(|entry| fs::metadata(entry.path()).ok());
    sizes.map(|metadata| metadata.len()).sum::<u64>() >> 20
}

fn words(gpu: usize, memory: &ServerMemory, needed: u64) -> String {
    let holders: Vec<String> = memory
        .holders
        .iter()
        .map(|holder| format!("process {} ({}) holds {} MiB", holder.pid, command(holder.pid), holder.mib))
        .collect();
    let way_out = if holders.is_empty() {
        "end what holds it, lower the memory fraction, use a smaller model, or choose another GPU with \
         CUDA_VISIBLE_DEVICES"
            .to_owned()
    } else {
        format!(
            "{}. End it, or, if it is the server to measure, measure it as it is with `spectune tune --url` or [system] url",
            holders.join(", ")
        )
    };
    format!(
        "GPU {gpu} has {} of {} MiB free, but a server needs about {needed} MiB: {way_out}",
        memory.free, memory.total
    )
}

/// A process's program and first arguments; its values may be secrets, so the rest is not shown.
fn command(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> =
        words.split(|byte| *byte == 0).take(3).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let text = words.join(" ").trim().to_owned();
    if text.is_empty() { "of another container or user".into() } else { text }
}

/// The memory of each GPU by its number. Values that the driver does not report (`[N/A]`) drop the
/// line.
fn parse(gpus: &str, apps: &str) -> BTreeMap<usize, ServerMemory> {
    let fields = |line: &str| line.split(',').map(|field| field.trim().to_owned()).collect::<Vec<_>>();
    let mut found = BTreeMap::new();
    for line in gpus.lines() {
        if let [number, uuid, free, total] = fields(line).as_slice()
            && let (Ok(number), Ok(free), Ok(total)) = (number.parse(), free.parse(), total.parse())
        {
            found.insert(number, ServerMemory { uuid: uuid.clone(), free, total, holders: Vec::new() });
        }
    }
    for line in apps.lines() {
        if let [uuid, pid, mib] = fields(line).as_slice()
            && let (Ok(pid), Some(memory)) = (pid.parse(), found.values_mut().find(|memory| memory.uuid == *uuid))
        {
            // A process is named even if the driver does not report its memory.
            memory.holders.push(Holder { pid, mib: mib.parse().unwrap_or(0) });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_gpu_and_its_holders_are_read_from_nvidia_smi() {
        let own = std::process::id();
        let found =
            parse("0, GPU-a, 1000, 81559\n1, GPU-b, [N/A], 81559\n", &format!("GPU-a, {own}, 80000\nGPU-c, 7, 1\n"));
        assert_eq!(found.len(), 1);
        let reported = words(0, &found[&0], 9000);
        assert!(
            reported.starts_with("GPU 0 has 1000 of 81559 MiB free, but a server needs about 9000 MiB"),
            "{reported}"
        );
        assert!(
            reported.contains(&format!("process {own} ("))
                && reported.contains("holds 80000 MiB")
                && reported.contains("--url"),
            "{reported}"
        );
        assert!(words(0, &ServerMemory::default(), 1).contains("CUDA_VISIBLE_DEVICES"));
        let class = |memory: &ServerMemory, needed| {
            super::super::failure_of(&error(memory, needed, String::new())).map(|failure| failure.class)
        };
        let unseen = ServerMemory { holders: Vec::new(), ..found[&0].clone() };
        assert_eq!(class(&found[&0], 9000), Some(FailureClass::GpuNotFree));
        assert_eq!((class(&unseen, 9000), class(&unseen, 90_000)), (Some(FailureClass::GpuNotFree), None));
    }

    #[test]
    fn vllm_needs_its_share_and_sglang_the_weights_and_the_rest() {
        assert_eq!(needed_mib(SystemKind::Vllm, None, 16_000, 80_000), 72_000);
        assert_eq!(needed_mib(SystemKind::Vllm, Some(0.1), 16_000, 80_000), 16_000);
        assert_eq!(needed_mib(SystemKind::Sglang, Some(0.75), 16_000, 80_000), 36_000);
    }
}
