//! Free memory of the machine.

use std::fs::read_to_string;

/// Bytes that can be allocated without swapping, as the kernel estimates, bounded by the control
/// group's limit. `None` if neither can be read.
pub fn available() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    });
    let number = |path: &str| read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .zip(number("/sys/fs/cgroup/memory.current"))
        .map(|(most, used)| most.saturating_sub(used));
    // Inside a container, the machine has more memory than the process may use.
    machine.into_iter().chain(group).min()
}
