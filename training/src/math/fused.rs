//! Row operations and optimiser steps on a GPU with the kernels of the crate `kernels`. These read
//! memory once or twice, where candle's chains of elementwise operations read it six to ten times.
//! They run on candle's stream and memory.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{
    DType, Error, Result, Storage, Tensor, backend::BackendStorage, cuda_backend::cudarc::driver::CudaStream,
};
use half::{bf16, f16};
use kernels::{
    device::{Device, DeviceError, Element, Foreign, Slice},
    launch::{AdamStep, Kernels},
};

use super::gradient::{for_both, with_gradient};

/// The kernels for tensors of one type on one device.
#[derive(Clone)]
pub struct Fused {
    kernels: Kernels,
    stream: Arc<CudaStream>,
}

/// Kernels by the address of their stream.
static KNOWN: Mutex<Vec<(usize, Element, Fused)>> = Mutex::new(Vec::new());

impl Fused {
    /// The kernels for a tensor; `None` on the CPU, and for unsupported types.
    ///
    /// # Errors
    /// When the device cannot be opened.
    pub fn from_tensor(x: &Tensor) -> Result<Option<Self>> {
        let element = match x.dtype() {
            DType::F32 => Element::F32,
            DType::BF16 => Element::BF16,
            DType::F16 => Element::F16,
            _ => return Ok(None),
        };
        let Ok(device) = x.device().as_cuda_device() else { return Ok(None) };
        let stream = device.cuda_stream();
        let place = stream.cu_stream() as usize;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., fused)) = known.iter().find(|(at, of, _)| (*at, *of) == (place, element)) {
            return Ok(Some(fused.clone()));
        }
        // One device for all types: each has its own cache of compiled kernels.
        let device = match known.iter().find(|(at, ..)| *at == place) {
            Some((.., fused)) => fused.kernels.device().clone(),
            None => Device::on_stream(stream.clone()).map_err(failed)?,
        };
        let fused = Self { kernels: Kernels::new(device, element), stream };
        known.push((place, element, fused.clone()));
        Ok(Some(fused))
    }

    /// Like [`super::rms_norm`], for rows.
    pub fn rms_norm(self, rows: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
        let size: [usize; 2] = rows.dims2()?.into();
        let (x, factors) = (plain(rows)?, plain(weight)?);
        let y = x.zeros_like()?;
        self.run([&y, &x, &factors], |[y, x, weight]| self.kernels.norm_to_train(y, x, (weight, epsilon), size))?;
        for_both(rows, weight, y, move |x, weight, gradient| {
            let (x, weight, gradient) = (plain(x)?, plain(weight)?, plain(gradient)?);
            let of_x = x.zeros_like()?;
            let of_weight = Tensor::zeros((Kernels::TRAINING_BLOCKS, size[1]), DType::F32, x.device())?;
            self.run([&of_x, &of_weight, &x, &weight, &gradient], |[of_x, of_weight, x, weight, gradient]| {
                self.kernels.norm_gradient((of_x, of_weight), x, (weight, epsilon), gradient, size)
            })?;
            Ok((of_x, of_weight.sum(0)?.to_dtype(weight.dtype())?))
        })
    }

    /// Like [`super::causal_softmax`], for `[groups, rows, keys]`.
    pub fn causal_softmax(self, scores: &Tensor) -> Result<Tensor> {
        let (groups, rows, keys) = scores.dims3()?;
        let from = plain(scores)?;
        let weights = from.zeros_like()?;
        self.run([&weights, &from], |[out, scores]| self.kernels.causal_softmax(out, scores, [groups, rows, keys]))?;
        with_gradient(scores, weights, move |_, weights, gradient| {
            let (weights, gradient) = (plain(weights)?, plain(gradient)?);
            let out = weights.zeros_like()?;
            self.run([&out, &weights, &gradient], |[out, weights, gradient]| {
                self.kernels.softmax_gradient(out, weights, gradient, [groups * rows, keys])
            })?;
            Ok(out)
        })
    }

    /// Like [`super::divergence`].
    pub fn divergence(self, logits: &Tensor, p: &Tensor, negative_entropy: &Tensor) -> Result<Tensor> {
        let (rows, columns) = logits.dims2()?;
        let (from, p, negative_entropy) = (plain(logits)?, plain(p)?, plain(negative_entropy)?);
        let value = Tensor::zeros(rows, DType::F32, logits.device())?;
        let log_sums = value.zeros_like()?;
        self.run([&value, &log_sums, &from, &p, &negative_entropy], |[value, log_sums, logits, p, entropy]| {
            self.kernels.divergence((value, log_sums), logits, (p, entropy), [rows, columns])
        })?;
        with_gradient(logits, value, move |logits, _, gradient| {
            let (logits, gradient) = (plain(logits)?, plain(gradient)?);
            let out = logits.zeros_like()?;
            self.run([&out, &logits, &log_sums, &p, &gradient], |[out, logits, log_sums, p, gradient]| {
                self.kernels.divergence_gradient(out, (logits, log_sums), p, gradient, [rows, columns])
            })?;
            Ok(out)
        })
    }

    /// Softmax of logits `[rows, columns]` in float32, and `Σ p log p`, `[rows, 1]`. Without
    /// gradients.
    pub fn softmax(&self, logits: &Tensor) -> Result<(Tensor, Tensor)> {
        let (rows, columns) = logits.dims2()?;
        let logits = plain(logits)?;
        let p = Tensor::zeros((rows, columns), DType::F32, logits.device())?;
        let negative_entropy = Tensor::zeros((rows, 1), DType::F32, logits.device())?;
        self.run([&p, &negative_entropy, &logits], |[p, negative_entropy, logits]| {
            self.kernels.softmax(p, negative_entropy, logits, [rows, columns])
        })?;
        Ok((p, negative_entropy))
    }

    /// The index of the largest value of each row, `[rows]`.
    pub fn largest(&self, x: &Tensor) -> Result<Tensor> {
        let (rows, columns) = x.dims2()?;
        let x = plain(x)?;
        let out = Tensor::zeros(rows, DType::U32, x.device())?;
        self.run([&out, &x], |[out, x]| self.kernels.largest(out, x, [rows, columns]))?;
        Ok(out)
    }

    /// A step of AdamW, in place.
    pub fn adam(
        &self,
        value: &Tensor,
        (first, second): (&Tensor, &Tensor),
        gradient: &Tensor,
        step: AdamStep,
    ) -> Result<()> {
        let gradient = plain(gradient)?;
        self.run([value, first, second, &gradient], |[value, first, second, gradient]| {
            self.kernels.adam(value, (first, second), gradient, gradient.bytes() / 4, step)
        })
    }

    /// The sum of the squares of float32 values, a scalar.
    pub fn squares(&self, x: &Tensor) -> Result<Tensor> {
        let x = plain(x)?;
        let parts = Tensor::zeros(Kernels::TRAINING_BLOCKS, DType::F32, x.device())?;
        self.run([&parts, &x], |[parts, x]| self.kernels.squares(parts, x, x.bytes() / 4))?;
        parts.sum_all()
    }

    /// Launches a kernel over the memory of contiguous tensors.
    fn run<const COUNT: usize>(
        &self,
        tensors: [&Tensor; COUNT],
        launch: impl FnOnce([Slice<'_>; COUNT]) -> std::result::Result<(), DeviceError>,
    ) -> Result<()> {
        // Locks on the tensors' memory, which must outlive the launch.
        let held = tensors.map(Tensor::storage_and_layout);
        let mut memory = Vec::with_capacity(COUNT);
        for (storage, layout) in &held {
            let Storage::Cuda(storage) = &**storage else {
                return Err(Error::Msg("a tensor is not on the GPU".into()));
            };
            let Some((begin, end)) = layout.contiguous_offsets() else {
                return Err(Error::Msg("a tensor is not contiguous".into()));
            };
            let dtype = storage.dtype();
            let whole = match dtype {
                DType::F32 => Foreign::new(storage.as_cuda_slice::<f32>()?, &self.stream),
                DType::U32 => Foreign::new(storage.as_cuda_slice::<u32>()?, &self.stream),
                DType::BF16 => Foreign::new(storage.as_cuda_slice::<bf16>()?, &self.stream),
                DType::F16 => Foreign::new(storage.as_cuda_slice::<f16>()?, &self.stream),
                other => return Err(Error::Msg(format!("no kernel supports {other:?}"))),
            };
            let bytes = dtype.size_in_bytes();
            memory.push((whole, begin * bytes..end * bytes));
        }
        let slices = std::array::from_fn(|at| memory[at].0.slice().range(memory[at].1.clone()));
        launch(slices).map_err(failed)
    }
}

/// A tensor's values, contiguous and without gradient.
fn plain(x: &Tensor) -> Result<Tensor> {
    x.detach().contiguous()
}

fn failed(error: DeviceError) -> Error {
    Error::Msg(error.to_string())
}
