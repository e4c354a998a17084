//! Values with an explicit gradient.

use std::sync::{Mutex, PoisonError};

use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, CustomOp2, Error, Layout, Result, Shape, Storage, Tensor,
    backend::BackendStorage,
};

/// Computes the gradient of the argument from the argument, the value and the value's gradient.
type Backward = dyn Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor> + Send + Sync;
/// Computes the gradients of two arguments from these and the value's gradient.
type BackwardOfBoth = dyn Fn(&Tensor, &Tensor, &Tensor) -> Result<(Tensor, Tensor)> + Send + Sync;

/// A value that was computed outside of the graph.
struct TensorValue(Mutex<Option<Tensor>>);

struct OfOne {
    value: TensorValue,
    backward: Box<Backward>,
}

struct OfBoth {
    value: TensorValue,
    backward: Box<BackwardOfBoth>,
}

/// A value that depends on an argument, with its gradient:
/// `backward(argument, value, gradient of value)`.
///
/// # Errors
/// When the value cannot be copied.
pub fn with_gradient(
    argument: &Tensor,
    value: Tensor,
    backward: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    argument.apply_op1(OfOne { value: TensorValue::from_tensor(&value)?, backward: Box::new(backward) })
}

/// A value that depends on two arguments, with its gradients:
/// `backward(first, second, gradient of value)`.
///
/// # Errors
/// As [`with_gradient`].
pub fn for_both(
    first: &Tensor,
    second: &Tensor,
    value: Tensor,
    backward: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<(Tensor, Tensor)> + Send + Sync + 'static,
) -> Result<Tensor> {
    first.apply_op2(second, OfBoth { value: TensorValue::from_tensor(&value)?, backward: Box::new(backward) })
}

impl TensorValue {
    fn from_tensor(value: &Tensor) -> Result<Self> {
        Ok(Self(Mutex::new(Some(value.detach().contiguous()?))))
    }

    /// Takes its storage, which is possible once: then the graph owns it.
    fn take<S>(&self, storage: impl Fn(&Storage, &Layout) -> Result<S>) -> Result<(S, Shape)> {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let value = value.ok_or_else(|| Error::Msg("a value was taken twice".into()))?;
        let (from, layout) = value.storage_and_layout();
        Ok((storage(&from, layout)?, layout.shape().clone()))
    }

    fn cpu(&self) -> Result<(CpuStorage, Shape)> {
        self.take(|storage, layout| match storage {
            Storage::Cpu(storage) => storage.try_clone(layout),
            _ => Err(elsewhere()),
        })
    }

    fn cuda(&self) -> Result<(CudaStorage, Shape)> {
        self.take(|storage, layout| match storage {
            Storage::Cuda(storage) => storage.try_clone(layout),
            _ => Err(elsewhere()),
        })
    }
}

fn elsewhere() -> Error {
    Error::Msg("a value is not on the device of its argument".into())
}

impl CustomOp1 for OfOne {
    fn name(&self) -> &'static str {
        "with-gradient"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.value.cpu()
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        self.value.cuda()
    }

    fn bwd(&self, argument: &Tensor, value: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        // Detached: no one needs the gradient of a gradient.
        (self.backward)(&argument.detach(), &value.detach(), gradient).map(Some)
    }
}

impl CustomOp2 for OfBoth {
    fn name(&self) -> &'static str {
        "with-gradients"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.value.cpu()
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        self.value.cuda()
    }

    fn bwd(
        &self,
        first: &Tensor,
        second: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (first, second) = (self.backward)(&first.detach(), &second.detach(), gradient)?;
        Ok((Some(first), Some(second)))
    }
}
