//! Waits for the GPUs' memory after a server has ended. A driver frees the memory of a process slightly after its end,
//! and an overlooked process keeps it. In both cases the next server would fail for a reason unrelated to itself.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use crate::nvidia_smi;

/// Allowed increase over the memory in use before the first start, in MiB: drivers keep some.
const SLACK_MIB: u64 = 200;
/// Maximum time to wait.
const LONGEST: Duration = Duration::from_secs(60);

/// Memory in use on some GPUs before the first start, in MiB by GPU number; empty if nvidia-smi is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuMemory(BTreeMap<usize, u64>);

impl GpuMemory {
    /// Memory now in use on these GPUs. A server does not affect the others.
    pub fn now(gpus: impl IntoIterator<Item = usize>) -> Self {
        let all = Self::of_all();
        Self(gpus.into_iter().filter_map(|gpu| Some((gpu, *all.0.get(&gpu)?))).collect())
    }

    fn of_all() -> Self {
        Self(parse(&nvidia_smi::query("--query-gpu=memory.used").unwrap_or_default()))
    }

    /// Waits until no GPU has more memory in use than at the start; returns a message if this does not happen.
    pub fn wait_until_back(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let deadline = Instant::now() + LONGEST;
        loop {
            let over = self.over(&Self::of_all())?;
            if Instant::now() >= deadline {
                return Some(over);
            }
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// A message about the GPU that has more memory in use than before; `None` if there is none.
    fn over(&self, now: &Self) -> Option<String> {
        let mut pairs = self.0.iter().filter_map(|(gpu, before)| Some((gpu, before, now.0.get(gpu)?)));
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
        let before = GpuMemory(parse("4\n 1000 \n"));
        assert_eq!(before.over(&GpuMemory(parse("204\n900"))), None);
        let words = before.over(&GpuMemory(parse("4\n1201"))).expect("too much");
        assert!(words.starts_with("GPU 1 has 1201 MiB"), "{words}");
        // Memory of another program, on a GPU that the server does not use.
        let first = GpuMemory(BTreeMap::from([(0, 4)]));
        assert_eq!(first.over(&GpuMemory(parse("4\n70000"))), None);
        assert_eq!(GpuMemory::default().wait_until_back(), None);
    }
}
