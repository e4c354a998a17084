//! Whether the GPUs' memory is back after a server has ended. A driver frees the memory of a process slightly after it
//! has ended, and an overlooked process keeps it. Either would make the next server fail for no reason of its own.

use std::{
    collections::BTreeMap,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// What may be in use more than before the first start, in MiB: drivers keep some.
const SLACK_MIB: u64 = 200;
/// How long it may take.
const LONGEST: Duration = Duration::from_secs(60);

/// Memory in use on some GPUs before the first start, in MiB by their numbers; none where the driver's tool is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuMemory(BTreeMap<usize, u64>);

impl GpuMemory {
    /// What is in use now on GPUs of these numbers. What happens on others is none of a server's doing.
    pub fn now(gpus: impl IntoIterator<Item = usize>) -> Self {
        let all = Self::of_all();
        Self(gpus.into_iter().filter_map(|gpu| Some((gpu, *all.0.get(&gpu)?))).collect())
    }

    fn of_all() -> Self {
        let arguments = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"];
        let output = Command::new("nvidia-smi").args(arguments).output();
        let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        Self(parse(&String::from_utf8_lossy(&text.unwrap_or_default())))
    }

    /// Waits until no GPU has more in use than then; what is wrong where that does not happen.
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

    /// What is in use now beyond what was; `None` where it is back.
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
        // Another program's, on a GPU that the server does not use.
        let first = GpuMemory(BTreeMap::from([(0, 4)]));
        assert_eq!(first.over(&GpuMemory(parse("4\n70000"))), None);
        assert_eq!(GpuMemory::default().wait_until_back(), None);
    }
}
