//! Measurements of a device, and what changes rounds for the sake of one.

use std::time::Duration;

use super::{Describe, ExpertReads, GpuState};
use crate::{error::EngineError, played::Simulated};

/// Measures a device and the parts of its rounds.
pub trait Measure: Describe {
    /// The state that the GPU's driver reports now; `None` on a CPU, or if the driver reports none.
    fn gpu_state(&self) -> Option<GpuState> {
        None
    }

    /// Memory bandwidth of the device in bytes per second, measured now in free memory.
    ///
    /// # Errors
    /// When the device fails.
    fn measure_bandwidth(&self) -> Result<f64, EngineError>;

    /// Floating-point operations per second that products with weights can sustain; `None` where
    /// that is not known.
    fn product_rate(&self) -> Option<f64> {
        None
    }

    /// Total time of graph capture so far; `None` on a device without graphs.
    fn capture_time(&self) -> Option<Duration> {
        None
    }

    /// Simulates acceptance from now on. `None` restores the target's decisions. Only while no slot
    /// is open. Shapes that are [prepared](super::Decode::prepare) later must be among those of
    /// texts that are played.
    ///
    /// # Errors
    /// When the device fails, or memory for what is played is missing.
    fn simulate_acceptance(&mut self, simulated: Option<Simulated>) -> Result<(), EngineError>;

    /// Turns timing of the parts of rounds on or off
    /// ([`RoundTiming::verify`](super::RoundTiming::verify) is `Some` while it is on). A device
    /// that holds a round in one graph splits it into several meanwhile, so rounds take slightly
    /// longer; a device that always measures the parts ignores this. Only while no round is in
    /// flight.
    fn time_parts(&mut self, _on: bool) {}

    /// Starts to count the experts that rounds read, or stops, and returns what was counted since
    /// it was started. Meanwhile a device that holds rounds in graphs runs them kernel by kernel,
    /// and the host reads what routers have chosen, so rounds take longer. Only while no slot is
    /// open.
    fn count_experts(&mut self, _on: bool) -> Option<ExpertReads> {
        None
    }
}
