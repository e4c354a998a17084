//! Waits for the GPUs' memory after a server has ended. A driver frees the memory of a process
//! slightly after its end, and an overlooked process keeps it. In both cases the next server would
//! fail for a reason unrelated to itself.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::host::nvidia_smi;

/// Allowed increase over the memory in use before the first start, in MiB: drivers keep some.
const SLACK_MIB: u64 = 200;
/// Maximum time to wait.
const LONGEST: Duration = Duration::from_secs(120);
/// The driver's figures: one line for each GPU.
const IN_USE: &str = "--query-gpu=memory.used";

/// Memory in use on some GPUs before the first start.
#[derive(Clone, Debug)]
pub struct ServerGpuMemory {
    /// In MiB by GPU number; empty if nvidia-smi is missing.
    before: BTreeMap<usize, u64>,
    query: fn(&str) -> Option<String>,
    longest: Duration,
}

impl ServerGpuMemory {
    /// Memory now in use on these GPUs. A server does not affect the others.
    pub fn now(gpus: impl IntoIterator<Item = usize>) -> Self {
        Self::from_gpus(gpus, nvidia_smi::query, LONGEST)
    }

    /// As [`now`](Self::now), with the program that reports it, and the maximum time to wait.
    pub(super) fn from_gpus(
        gpus: impl IntoIterator<Item = usize>,
        query: fn(&str) -> Option<String>,
        longest: Duration,
    ) -> Self {
        let all = parse(&query(IN_USE).unwrap_or_default());
        let before = gpus.into_iter().filter_map(|gpu| Some((gpu, *all.get(&gpu)?))).collect();
        Self { before, query, longest }
    }

    /// Waits until no GPU has more memory in use than before the first start; returns a message if
    /// this does not happen.
    pub fn wait_until_back(&self, interrupted: &AtomicBool) -> Option<String> {
        if self.before.is_empty() {
            return None;
        }
        let deadline = Instant::now() + self.longest;
        loop {
            // If nvidia-smi stops answering, there is nothing to wait for.
            let over = self.over(&parse(&(self.query)(IN_USE).unwrap_or_default()))?;
            if interrupted.load(Ordering::Relaxed) {
                return None;
            }
            if Instant::now() >= deadline {
                return Some(over);
            }
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// A message about the GPU that has more memory in use than before; `None` if there is none.
    fn over(&self, now: &BTreeMap<usize, u64>) -> Option<String> {
        let mut pairs = self.before.iter().filter_map(|(gpu, before)| Some((gpu, before, now.get(gpu)?)));
        pairs.find(|(_, before, now)| **now > **before + SLACK_MIB).map(|(gpu, before, now)| {
            format!(
                "GPU {gpu} has {now} MiB in use after the server has ended, but had {before} MiB before the first \
                 start: end the process that holds the memory, then continue with --resume"
            )
        })
    }
}

fn parse(text: &str) -> BTreeMap<usize, u64> {
    text.lines().enumerate().filter_map(|(gpu, line)| Some((gpu, line.trim().parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_back_within_some_slack() {
        let memory = |before: &str| ServerGpuMemory { before: parse(before), query: |_| None, longest: Duration::ZERO };
        let before = memory("4\n 1000 \n");
        assert_eq!(before.over(&parse("204\n900")), None);
        let words = before.over(&parse("4\n1201")).expect("too much");
        assert!(words.starts_with("GPU 1 has 1201 MiB"), "{words}");
        // Memory of another program, on a GPU that the server does not use.
        let first = ServerGpuMemory::from_gpus([0], |_| Some("4\n10".into()), Duration::ZERO);
        assert_eq!(first.over(&parse("4\n70000")), None);
        assert_eq!(memory("").wait_until_back(&AtomicBool::new(false)), None);
        let full = ServerGpuMemory { query: |_| Some("900".into()), ..first };
        assert!(full.wait_until_back(&AtomicBool::new(false)).is_some());
        assert_eq!(full.wait_until_back(&AtomicBool::new(true)), None);
    }
}
