//! What the machine did while a trial ran, as far as the operating system and the GPU's driver tell. What they do not tell is
//! missing.

use serde::{Deserialize, Serialize};

use crate::record::Mark;

/// Shares from which on something is worth a mark.
const WORTH_A_MARK: f64 = 0.05;

/// What the machine did while a trial ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Load average of the last minute, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// Logical processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<usize>,
    /// Share of the processors' time that the hypervisor gave to other machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stolen: Option<f64>,
    /// Share of the processors' time that other processes used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_elsewhere: Option<f64>,
    /// Switches that took a processor from a thread of this process while it had work to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub involuntary_switches: Option<u64>,
    /// Seconds that threads of this process were ready and waited for a processor, all threads together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_queue_wait_s: Option<f64>,
    /// The GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
}

/// What a GPU's driver says of it.
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
    /// Most power in W that it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// Temperature in °C, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Why its clock is held down, at the end, in the driver's words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttle_reasons: Vec<String>,
    /// Seconds in which its clock was held down by the power limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_throttled_s: Option<f64>,
    /// Seconds in which its clock was held down because of heat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thermal_throttled_s: Option<f64>,
    /// Other processes with work on it, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_processes: Option<u32>,
}

/// The name of this host, as its users know it; empty where the system has none.
pub fn host() -> String {
    let name =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    let name = name.ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default()
}

impl Machine {
    /// What of it disturbed a trial of that many seconds.
    pub(crate) fn marks(&self, elapsed_s: f64) -> Vec<Mark> {
        let worth = |share: Option<f64>| share.filter(|share| *share > WORTH_A_MARK);
        let of_time =
            |seconds: Option<f64>| worth(seconds.filter(|_| elapsed_s > 0.0).map(|seconds| seconds / elapsed_s));
        let mut marks = Vec::new();
        marks.extend(worth(self.stolen).map(|share| Mark::Stolen { share }));
        marks.extend(of_time(self.run_queue_wait_s).map(|share| Mark::WaitedForProcessor { share }));
        // Work elsewhere takes nothing away as long as there are processors left.
        let is_full = self.load_average.zip(self.processors).is_none_or(|(load, count)| load > count as f64);
        marks.extend(worth(self.busy_elsewhere).filter(|_| is_full).map(|share| Mark::BusyElsewhere { share }));
        if let Some(gpu) = &self.gpu {
            marks.extend(of_time(gpu.thermal_throttled_s).map(|share| Mark::Throttled { share }));
            let others = gpu.other_processes.filter(|processes| *processes > 0);
            marks.extend(others.map(|processes| Mark::SharedGpu { processes }));
        }
        marks
    }
}
