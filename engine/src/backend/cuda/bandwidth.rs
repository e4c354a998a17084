//! Measures the device's memory bandwidth.

use kernels::device::Device;

use crate::error::EngineError;

/// Maximum size of each of the two buffers in bytes: far more than caches hold.
const BYTES: u64 = 2 << 30;
/// Number of copies; the fastest counts.
const COPIES: usize = 5;

/// Bytes per second that a plain copy within the device reads and writes together, measured now.
pub fn copy_bandwidth(device: &Device) -> Result<f64, EngineError> {
    let (free, _) = device.memory()?;
    let bytes = BYTES.min(free / 4) as usize / 256 * 256;
    let (from, to) = (device.zeros(bytes.max(256))?, device.zeros(bytes.max(256))?);
    let (begin, end) = (device.event()?, device.event()?);
    let mut best = f64::INFINITY;
    for _ in 0..=COPIES {
        device.record(&begin)?;
        device.copy(to.slice(), from.slice())?;
        device.record(&end)?;
        end.wait()?;
        // The fastest, since everything that disturbs a copy makes it longer.
        best = best.min(end.since(&begin)?.as_secs_f64());
    }
    // Each byte is read and written.
    Ok(2.0 * bytes as f64 / best)
}
