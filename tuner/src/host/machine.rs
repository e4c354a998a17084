//! The machine's activity during a trial, as reported by the operating system and the GPU's driver.
//! Figures that they do not report are missing.

use std::{fs, thread, time::Duration};

use engine::backend::GpuState;
use serde::{Deserialize, Serialize};

use crate::host::mark::TrialMark;

/// Share of time above which a disturbance is marked.
const WORTH_A_MARK: f64 = 0.05;

/// The machine's activity during a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostActivity {
    /// Load average of the last minute, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// Logical processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<usize>,
    /// Share of the processors' time that the hypervisor gave to other virtual machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stolen: Option<f64>,
    /// Share of the processors' time that other processes used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_elsewhere: Option<f64>,
    /// Involuntary context switches of this process's threads: the thread still had work to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub involuntary_switches: Option<u64>,
    /// Seconds that threads of this process were ready but waited for a processor, summed over
    /// threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_queue_wait_s: Option<f64>,
    /// The GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
}

/// State of a GPU, as reported by its driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// Clock of the multiprocessors in MHz, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<u32>,
    /// Clock of the memory in MHz, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u32>,
    /// Power in W, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Power limit in W.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// Energy in J that it used during the trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<f64>,
    /// Temperature in °C, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Why its clock is throttled, at the end, in the driver's words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttle_reasons: Vec<String>,
    /// Seconds in which its clock was throttled by the power limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_throttled_s: Option<f64>,
    /// Seconds in which its clock was throttled because of heat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thermal_throttled_s: Option<f64>,
    /// Other processes that use it, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_processes: Option<u32>,
}

/// The counters at the start of a trial.
#[derive(Debug)]
pub struct Watch {
    counters: HostCounters,
    gpu: Option<GpuState>,
}

impl Watch {
    /// Reads the counters before a trial.
    pub fn begin(gpu: Option<GpuState>) -> Self {
        Self { counters: HostCounters::now(), gpu }
    }

    /// Reads them again after the trial.
    pub fn end(self, gpu: Option<GpuState>) -> HostActivity {
        let machine = self.counters.until(&HostCounters::now());
        HostActivity { gpu: gpu.map(|now| Gpu::from_before(self.gpu.as_ref(), now)), ..machine }
    }
}

/// Linux's counters; `None` on other systems.
#[derive(Clone, Debug, Default)]
struct HostCounters {
    load_average: Option<f64>,
    /// Ticks of all processors.
    processors: Option<Ticks>,
    /// Ticks of this process.
    own_ticks: Option<u64>,
    involuntary_switches: Option<u64>,
    /// Nanoseconds, summed over threads.
    run_queue_wait: Option<u64>,
}

/// Ticks of all processors together since the system started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    total: u64,
    idle: u64,
    stolen: u64,
}

impl HostCounters {
    fn now() -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        let (involuntary_switches, run_queue_wait) = threads();
        Self {
            load_average: text("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
            processors: text("/proc/stat").and_then(|text| Ticks::read(&text)),
            own_ticks: text("/proc/self/stat").and_then(|text| own_ticks(&text)),
            involuntary_switches,
            run_queue_wait,
        }
    }

    fn until(&self, now: &Self) -> HostActivity {
        let ticks =
            self.processors.zip(now.processors).map(|(before, now)| now.since(before)).filter(|ticks| ticks.total > 0);
        let share = |ticks: Ticks, part: u64| part as f64 / ticks.total as f64;
        let own = self.own_ticks.zip(now.own_ticks).map(|(before, now)| now.saturating_sub(before));
        HostActivity {
            load_average: now.load_average,
            processors: thread::available_parallelism().ok().map(usize::from),
            stolen: ticks.map(|ticks| share(ticks, ticks.stolen)),
            busy_elsewhere: ticks
                .zip(own)
                .map(|(ticks, own)| share(ticks, ticks.total.saturating_sub(ticks.idle + ticks.stolen + own))),
            // A thread that ended in the meantime takes its counts with it.
            involuntary_switches: difference(self.involuntary_switches, now.involuntary_switches),
            run_queue_wait_s: difference(self.run_queue_wait, now.run_queue_wait).map(|wait| wait as f64 / 1e9),
            gpu: None,
        }
    }
}

fn difference(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    before.zip(now).map(|(before, now)| now.saturating_sub(before))
}

impl Ticks {
    /// From `/proc/stat`: `cpu user nice system idle iowait irq softirq steal guest guest_nice`;
    /// the guest ticks are already included in the first two.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_ascii_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let at = |place: usize| ticks.get(place).copied().unwrap_or_default();
        Some(Self { total: ticks.iter().sum(), idle: at(3) + at(4), stolen: at(7) })
    }

    fn since(self, before: Self) -> Self {
        Self {
            total: self.total.saturating_sub(before.total),
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
        }
    }
}

/// Ticks of this process from `/proc/self/stat`: user and system time, fields 14 and 15. The name,
/// field 2, may contain any characters.
fn own_ticks(text: &str) -> Option<u64> {
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Involuntary switches and nanoseconds of waiting for a processor, summed over the threads of this
/// process.
fn threads() -> (Option<u64>, Option<u64>) {
    let threads = || fs::read_dir("/proc/self/task").into_iter().flatten().flatten().map(|entry| entry.path());
    let sum = |of: &dyn Fn(&std::path::Path) -> Option<u64>| {
        let all: Vec<u64> = threads().filter_map(|path| of(&path)).collect();
        (!all.is_empty()).then(|| all.iter().sum())
    };
    let switches = |path: &std::path::Path| switches(&fs::read_to_string(path.join("status")).ok()?);
    let wait = |path: &std::path::Path| waited(&fs::read_to_string(path.join("schedstat")).ok()?);
    (sum(&switches), sum(&wait))
}

fn switches(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// The second field of `schedstat`: nanoseconds on a processor, nanoseconds of waiting for one,
/// number of time slices.
fn waited(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}

impl Gpu {
    fn from_before(before: Option<&GpuState>, now: GpuState) -> Self {
        let seconds = |of: fn(&GpuState) -> Option<Duration>| {
            let before = before.and_then(of);
            Some(of(&now)?.saturating_sub(before?).as_secs_f64())
        };
        Self {
            power_throttled_s: seconds(|state| state.power_throttled),
            thermal_throttled_s: seconds(|state| state.thermal_throttled),
            clock_mhz: now.clock_mhz,
            memory_clock_mhz: now.memory_clock_mhz,
            power_w: now.power_w,
            power_limit_w: now.power_limit_w,
            energy_j: before.and_then(|before| now.energy_since(before)),
            temperature_c: now.temperature_c,
            throttle_reasons: now.throttle_reasons.iter().map(ToString::to_string).collect(),
            other_processes: now.other_processes,
        }
    }
}

/// The name of this host; empty if the system has none.
pub fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| fs::read_to_string("/etc/hostname"));
    let name = name.ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default()
}

impl HostActivity {
    /// The disturbances of a trial that took this many seconds.
    pub(crate) fn marks(&self, elapsed_s: f64) -> Vec<TrialMark> {
        let worth = |share: Option<f64>| share.filter(|share| *share > WORTH_A_MARK);
        let of_time =
            |seconds: Option<f64>| worth(seconds.filter(|_| elapsed_s > 0.0).map(|seconds| seconds / elapsed_s));
        let mut marks = Vec::new();
        marks.extend(worth(self.stolen).map(|share| TrialMark::Stolen { share }));
        marks.extend(of_time(self.run_queue_wait_s).map(|share| TrialMark::WaitedForProcessor { share }));
        // Other work does not disturb as long as there are idle processors.
        let is_full = self.load_average.zip(self.processors).is_none_or(|(load, count)| load > count as f64);
        marks.extend(worth(self.busy_elsewhere).filter(|_| is_full).map(|share| TrialMark::BusyElsewhere { share }));
        if let Some(gpu) = &self.gpu {
            marks.extend(of_time(gpu.thermal_throttled_s).map(|share| TrialMark::Throttled { share }));
            let others = gpu.other_processes.filter(|processes| *processes > 0);
            marks.extend(others.map(|processes| TrialMark::SharedGpu { processes }));
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_counts_is_read() {
        let stat = "cpu  100 1 50 700 20 3 4 30 9 0\ncpu0 1 1 1 1\nintr 5\n";
        assert_eq!(Ticks::read(stat), Some(Ticks { total: 908, idle: 720, stolen: 30 }));
        assert_eq!(Ticks::read("cpu x"), None);
        let own = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 31 11 0 0";
        assert_eq!(own_ticks(own), Some(42));
        assert_eq!(switches("Name:\ta\nnonvoluntary_ctxt_switches:\t17\n"), Some(17));
        assert_eq!((waited("5 8 2"), waited("")), (Some(8), None));
    }

    #[test]
    fn shares_are_those_of_the_time_between() {
        let ticks = |total, idle, stolen| Some(Ticks { total, idle, stolen });
        let before = HostCounters { processors: ticks(1000, 500, 0), own_ticks: Some(10), ..HostCounters::default() };
        let now = HostCounters { processors: ticks(1200, 550, 20), own_ticks: Some(110), ..HostCounters::default() };
        let machine = before.until(&now);
        assert_eq!((machine.stolen, machine.busy_elsewhere), (Some(0.1), Some(0.15)));
        assert_eq!(machine.involuntary_switches, None);
    }

    #[test]
    fn only_what_matters_is_a_mark() {
        let quiet = HostActivity {
            stolen: Some(0.01),
            run_queue_wait_s: Some(0.04),
            busy_elsewhere: Some(0.3),
            load_average: Some(3.0),
            processors: Some(8),
            ..HostActivity::default()
        };
        assert_eq!(quiet.marks(1.0), []);
        let full = HostActivity { load_average: Some(9.0), run_queue_wait_s: Some(0.5), ..quiet };
        assert_eq!(
            full.marks(1.0),
            [TrialMark::WaitedForProcessor { share: 0.5 }, TrialMark::BusyElsewhere { share: 0.3 }]
        );
        let gpu = Gpu {
            thermal_throttled_s: Some(0.4),
            power_throttled_s: Some(0.9),
            other_processes: Some(2),
            ..Gpu::default()
        };
        let hot = HostActivity { gpu: Some(gpu), ..HostActivity::default() };
        assert_eq!(hot.marks(1.0), [TrialMark::Throttled { share: 0.4 }, TrialMark::SharedGpu { processes: 2 }]);
    }
}
