//! Checks the exchange of values between ranks, and that the remaining ranks stop when one dies.

use std::time::{Duration, Instant};

use kernels::{
    checks::{check_alarm, check_ranks},
    device::{Device, Element},
};

use super::{Check, EngineConfiguration, SelftestExtent, load, models::Pair, models::RandomModels, request};
use crate::{DeviceChoice, EngineError, SamplingParams};

/// Maximum time for an engine to report that a rank has died.
const SOON: Duration = Duration::from_secs(10);

/// Checks the kernels with which ranks exchange values.
pub fn check_exchanges(devices: &[(Device, String)], report: &mut dyn FnMut(Check)) {
    let devices: Vec<Device> = devices.iter().map(|(device, _)| device.clone()).collect();
    for element in [Element::F32, Element::BF16, Element::F16] {
        let name = format!("kernel sum_ranks and gather_ranks, {} ranks, {}", devices.len(), element.name());
        report(Check { name, failure: check_ranks(&devices, element).err() });
    }
    let name = "an alarm ends a rank's wait".to_owned();
    report(Check { name, failure: check_alarm(&devices).err() });
}

/// A rank that dies ends the engine with an error that names it, instead of a hang.
pub fn check_dead_rank(
    choice: DeviceChoice,
    ranks: usize,
    plan: SelftestExtent,
    report: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    let models = RandomModels::write()?;
    let (dtype, pair) = ("float32", Pair::Eagle3);
    let setting = EngineConfiguration::new(choice, ranks, dtype, pair, 16);
    let mut engine = load(&models, setting, plan, false)?;
    let dies = ranks - 1;
    engine.submit(request(0, &SamplingParams::default(), plan.tokens))?;
    engine.step(&mut |_| {})?;
    engine.kill_rank(dies);
    let since = Instant::now();
    let failure = match (engine.step(&mut |_| {}), since.elapsed()) {
        (Ok(_), _) => Some("no error was reported".to_owned()),
        (Err(_), taken) if taken > SOON => Some(format!("that took {} s", taken.as_secs())),
        (Err(error), _) if !error.to_string().contains(&format!("rank {dies}")) => Some(format!("it reports: {error}")),
        (Err(_), _) => None,
    };
    report(Check { name: format!("a rank of {ranks} that dies ends the engine with an error"), failure });
    Ok(())
}
