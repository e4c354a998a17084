//! Matrix products by the device's own library (cuBLASLt), where it has one.

use super::{Device, DeviceError, Element, Slice};

/// `y = x · wᵀ`: x is `[rows, inputs]`, w `[outputs, inputs]`, y `[rows, outputs]`, all row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// Rows of x and y.
    pub rows: usize,
    /// Width of x.
    pub inputs: usize,
    /// Width of y.
    pub outputs: usize,
    /// Type of x and w.
    pub element: Element,
    /// Type of y.
    pub result: Element,
}

/// A product whose algorithm has been chosen.
pub trait MatmulPlan: Send + Sync {
    /// Bytes of workspace.
    fn workspace(&self) -> usize;

    /// Runs it, in order with the stream.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Safety
    /// The addresses are of memory as long as the shapes and the workspace say.
    unsafe fn run(&self, y: u64, x: u64, w: u64, workspace: u64) -> Result<(), DeviceError>;
}

/// A plan with its shapes.
pub struct MatmulHandle {
    matmul: Matmul,
    plan: Box<dyn MatmulPlan>,
}

impl MatmulHandle {
    /// Chooses an algorithm; `None` where the device has no matrix library.
    ///
    /// # Errors
    /// When the library has none for these shapes.
    pub fn new(device: &Device, matmul: Matmul) -> Result<Option<Self>, DeviceError> {
        Ok(device.driver().matmul_plan(matmul)?.map(|plan| Self { matmul, plan }))
    }

    /// Bytes of workspace that [`run`](Self::run) needs.
    pub fn workspace(&self) -> usize {
        self.plan.workspace()
    }

    /// Runs it, in order with the stream.
    ///
    /// # Errors
    /// When a slice is too short, or the device fails.
    pub fn run(&self, y: Slice<'_>, x: Slice<'_>, w: Slice<'_>, workspace: Slice<'_>) -> Result<(), DeviceError> {
        let Matmul { rows, inputs, outputs, element, result } = self.matmul;
        x.check(rows * inputs * element.bytes())?;
        w.check(outputs * inputs * element.bytes())?;
        y.check(rows * outputs * result.bytes())?;
        workspace.check(self.plan.workspace())?;
        // SAFETY: checked above.
        unsafe { self.plan.run(y.address(), x.address(), w.address(), workspace.address()) }
    }
}
