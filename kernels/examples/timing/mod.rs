//! Times of work on a device, for the other examples.

use kernels::device::{Device, DeviceError};

/// The median of the seconds that `runs` runs of one graph of this work take, after a first run
/// outside a graph.
pub fn median(device: &Device, runs: usize, work: impl Fn() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
    work()?;
    let graph = device.capture(work)?;
    let mut seconds = Vec::new();
    for _ in 0..runs {
        let start = device.event()?;
        device.run(&graph)?;
        let end = device.event()?;
        end.wait()?;
        seconds.push(end.since(&start)?.as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[runs / 2])
}
