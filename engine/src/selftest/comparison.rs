//! A setting whose output must be that of plain decoding, and whose rounds in float32 must be those
//! of the CPU.

use schemas::tree::TreeShape;

use super::{Check, EngineConfiguration, alone, difference};
use crate::{Completion, DeviceChoice, Engine, EngineError, Request, ShapePolicy};

/// An engine, and one on the CPU if rounds are compared.
pub struct CpuComparison {
    engine: Engine,
    cpu: Option<Engine>,
    /// The first difference of each kind.
    changed: Option<String>,
    unlike_cpu: Option<String>,
}

impl CpuComparison {
    /// Loads both. In other types than float32 sums differ too much to accept the same, and a CPU
    /// is not compared with itself.
    ///
    /// # Errors
    /// When a model cannot be loaded.
    pub fn load(
        setting: EngineConfiguration,
        load: impl Fn(EngineConfiguration) -> Result<Engine, EngineError>,
    ) -> Result<Self, EngineError> {
        let engine = load(setting)?;
        let compares = setting.dtype == "float32" && engine.device().device != "cpu";
        // With pages of one size prompts end in the same steps.
        let cpu = EngineConfiguration::new(DeviceChoice::Cpu, 1, setting.dtype, setting.pair, setting.page_size);
        Ok(Self { engine, cpu: compares.then(|| load(cpu)).transpose()?, changed: None, unlike_cpu: None })
    }

    /// Outputs without speculation. The CPU runs the same, since look-ups find what ran before.
    ///
    /// # Errors
    /// When the device fails.
    pub fn plain(&mut self, requests: &[Request]) -> Result<Vec<Completion>, EngineError> {
        if let Some(cpu) = &mut self.cpu {
            alone(cpu, requests)?;
        }
        alone(&mut self.engine, requests)
    }

    /// Runs the requests together with a shape, and compares outputs, and if `compares_rounds` what
    /// rounds accepted.
    ///
    /// # Errors
    /// When the shape cannot run, or the device fails.
    pub fn run(
        &mut self,
        shape: TreeShape,
        requests: &[Request],
        plain: &[Completion],
        compares_rounds: bool,
    ) -> Result<(), EngineError> {
        self.engine.set_policy(ShapePolicy::fixed(shape))?;
        let found = self.engine.run(requests.to_vec())?;
        let say = |difference: String| format!("shape {shape}, batch {}, {difference}", requests.len());
        if self.changed.is_none() {
            self.changed = difference(plain, &found).map(say);
        }
        if let Some(cpu) = self.cpu.as_mut().filter(|_| compares_rounds) {
            cpu.set_policy(ShapePolicy::fixed(shape))?;
            let expected = cpu.run(requests.to_vec())?;
            if self.unlike_cpu.is_none() {
                self.unlike_cpu = other_rounds(&found, &expected).map(say);
            }
        }
        Ok(())
    }

    /// Reports the checks of output and of rounds, by these names.
    pub fn report(self, [output, rounds]: [String; 2], report: &mut dyn FnMut(Check)) {
        report(Check { name: output, failure: self.changed });
        if self.cpu.is_some() {
            report(Check { name: rounds, failure: self.unlike_cpu });
        }
    }
}

/// The first request whose rounds differ from those of the CPU.
fn other_rounds(found: &[Completion], cpu: &[Completion]) -> Option<String> {
    let of = |one: &Completion| (one.output_ids.clone(), one.accept_histogram.clone());
    let at = found.iter().zip(cpu).position(|(found, cpu)| of(found) != of(cpu))?;
    Some(format!("request {at}: {:?}, on the CPU {:?}", of(&found[at]), of(&cpu[at])))
}
