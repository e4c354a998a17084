//! The device and the precision of training steps.

use candle_core::{DType, Device};
use schemas::train::Precision;

use crate::error::TrainingError;

/// Where training steps run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepsOn {
    /// On the CPU.
    #[default]
    Processor,
    /// On the GPU with this index, in a build with CUDA.
    Cuda(usize),
}

/// The device of tensors, and the type that layers compute in.
#[derive(Clone, Debug)]
pub struct Compute {
    /// The device.
    pub device: Device,
    /// The type.
    pub dtype: DType,
}

impl StepsOn {
    /// Opens the device.
    ///
    /// # Errors
    /// When it does not exist, this build does not support it, or it does not support the
    /// precision.
    pub fn open(self, precision: Precision) -> Result<Compute, TrainingError> {
        let dtype = match (self, precision) {
            (_, Precision::Float32) | (Self::Processor, Precision::Auto) => DType::F32,
            (Self::Cuda(_), Precision::Auto | Precision::Bfloat16) => DType::BF16,
            (Self::Processor, Precision::Bfloat16) => {
                return Err(TrainingError::Configuration(
                    "training.precision = \"bfloat16\" needs a GPU: steps on the CPU use float32; remove it".into(),
                ));
            }
        };
        let device = match self {
            Self::Processor => Device::Cpu,
            Self::Cuda(number) => cuda(number)?,
        };
        Ok(Compute { device, dtype })
    }
}

#[cfg(feature = "cuda")]
fn cuda(number: usize) -> Result<Device, TrainingError> {
    kernels::device::keep_pooled_memory(number).map_err(|error| TrainingError::Configuration(error.to_string()))?;
    Ok(Device::new_cuda(number)?)
}

#[cfg(not(feature = "cuda"))]
fn cuda(number: usize) -> Result<Device, TrainingError> {
    Err(TrainingError::Configuration(format!(
        "this build runs steps on the CPU only, not on cuda:{number}: build training/cuda (see docs/training.md)"
    )))
}

impl Compute {
    /// On the CPU, in float32.
    pub fn processor() -> Self {
        Self { device: Device::Cpu, dtype: DType::F32 }
    }

    /// Type and device for creating tensors.
    pub fn tensors(&self) -> (DType, &Device) {
        (self.dtype, &self.device)
    }

    /// Used device memory in bytes, by all processes, and total memory; `None` on the CPU. Memory
    /// that steps have freed counts as used, since it stays reserved for later steps.
    pub fn memory(&self) -> Option<(usize, usize)> {
        #[cfg(feature = "cuda")]
        if let Ok(device) = self.device.as_cuda_device() {
            let (free, all) = device.cuda_stream().context().mem_get_info().ok()?;
            return Some((all - free, all));
        }
        None
    }

    /// A description for users.
    pub fn name(&self) -> String {
        let kind = match self.dtype {
            DType::BF16 => "bfloat16 products, float32 values",
            _ => "float32",
        };
        match &self.device {
            Device::Cpu => format!("processor, {kind}"),
            _ => format!("GPU, {kind}"),
        }
    }
}
