//! The state of a GPU at one moment: clocks, load, limits.

use std::time::Duration;

/// What the driver reports about a GPU; what it does not report is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuState {
    /// Clock of the multiprocessors in MHz.
    pub clock_mhz: Option<u32>,
    /// Clock of the memory in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Power in W.
    pub power_w: Option<f64>,
    /// Power limit in W.
    pub power_limit_w: Option<f64>,
    /// Temperature in °C.
    pub temperature_c: Option<u32>,
    /// Reasons why its clock is below its maximum.
    pub throttle_reasons: Vec<&'static str>,
    /// Time for which its clock has been limited by power, since the driver was loaded.
    pub power_throttled: Option<Duration>,
    /// The same for heat.
    pub thermal_throttled: Option<Duration>,
    /// Other processes with work on it, as far as this one can see them.
    pub other_processes: Option<u32>,
}
