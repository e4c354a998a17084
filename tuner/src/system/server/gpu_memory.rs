//! Whether the GPUs' memory is back after a server has ended. A driver frees the memory of a process slightly after it
//! has ended, and an overlooked process keeps it. Either would make the next server fail through no fault of its own.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// What may be in use more than before the first start, in MiB: drivers keep some.
const SLACK_MIB: u64 = 200;
/// How long it may take.
const LONGEST: Duration = Duration::from_secs(60);

/// Memory in use on the GPUs before the first start, in MiB; none where the driver's tool is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuMemory(Vec<u64>);

impl GpuMemory {
    /// What is in use now.
    pub fn now() -> Self {
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
            let over = self.over(&Self::now())?;
            if Instant::now() >= deadline {
                return Some(over);
            }
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// What is in use now beyond what was; `None` where it is back.
    fn over(&self, now: &Self) -> Option<String> {
        let mut pairs = self.0.iter().zip(&now.0).enumerate();
        pairs.find(|(_, (before, now))| **now > **before + SLACK_MIB).map(|(gpu, (before, now))| {
            format!(
                "GPU {gpu} has {now} MiB in use after the server has ended, but had {before} MiB before the first \
                 start: end the process that holds the memory, then continue with --resume"
            )
        })
    }
}

fn parse(text: &str) -> Vec<u64> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_back_within_some_slack() {
        let before = GpuMemory(parse("4\n 1000 \n"));
        assert_eq!(before.over(&GpuMemory(vec![204, 900])), None);
        let words = before.over(&GpuMemory(vec![4, 1201])).expect("too much");
        assert!(words.starts_with("GPU 1 has 1201 MiB"), "{words}");
        assert_eq!(GpuMemory::default().wait_until_back(), None);
    }
}
