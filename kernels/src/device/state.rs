//! The state of a GPU at one moment: clocks, load, limits.

use std::time::Duration;

/// What the driver says of a GPU; what it does not say is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuState {
    /// Clock of the multiprocessors in MHz.
    pub clock_mhz: Option<u32>,
    /// Clock of the memory in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Power in W.
    pub power_w: Option<f64>,
    /// Most power in W that it may take.
    pub power_limit_w: Option<f64>,
    /// Temperature in °C.
    pub temperature_c: Option<u32>,
    /// Why its clock is below its highest.
    pub throttle_reasons: Vec<&'static str>,
    /// For how long its clock has been held down by the power limit, since the driver was loaded.
    pub power_throttled: Option<Duration>,
    /// The same because of heat.
    pub thermal_throttled: Option<Duration>,
    /// Other processes with work on it, as far as this one may see them.
    pub other_processes: Option<u32>,
}
