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
    /// Energy that it has used since the driver was loaded, in J. The counter advances in steps of
    /// up to 0.1 s.
    pub energy_j: Option<f64>,
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

impl GpuState {
    /// Energy in J that the GPU has used since an earlier state; `None` if its driver does not
    /// tell, or its counter has not advanced.
    pub fn energy_since(&self, before: &Self) -> Option<f64> {
        let used = self.energy_j? - before.energy_j?;
        (used > 0.0).then_some(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_a_difference_of_a_counter_that_advances() {
        let state = |energy_j| GpuState { energy_j, ..GpuState::default() };
        assert_eq!(state(Some(5.5)).energy_since(&state(Some(3.0))), Some(2.5));
        for (now, before) in [(None, Some(1.0)), (Some(1.0), None), (Some(1.0), Some(1.0)), (Some(1.0), Some(2.0))] {
            assert_eq!(state(now).energy_since(&state(before)), None);
        }
    }
}
