//! Matrix products by the device's own library (cuBLASLt), where it has one.

mod choice;

use std::path::PathBuf;

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

/// One of the library's ways to compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// What the library calls it. Means the same to the same version of the library only.
    pub words: [u64; 8],
    /// Bytes of workspace.
    pub workspace: usize,
}

/// A product whose algorithm has been chosen.
pub trait MatmulPlan: Send + Sync {
    /// Name and version of the library.
    fn library(&self) -> String;

    /// Bytes of workspace.
    fn workspace(&self) -> usize;

    /// At most `most` algorithms, the one that the library expects to be the fastest first.
    ///
    /// # Errors
    /// When the library has none for these shapes.
    fn algorithms(&self, most: usize) -> Result<Vec<Algorithm>, DeviceError>;

    /// Takes the algorithm of these words from now on. False where the library cannot run it: then nothing changes.
    fn choose(&mut self, words: [u64; 8]) -> bool;

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
    /// Where the choice is kept between starts.
    kept: Option<PathBuf>,
    settled: bool,
}

/// Memory of a product.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// The result.
    pub y: Slice<'a>,
    /// The input.
    pub x: Slice<'a>,
    /// The weights.
    pub w: Slice<'a>,
    /// At least [`MatmulHandle::workspace`] bytes; algorithms that need more are not searched.
    pub workspace: Slice<'a>,
}

impl MatmulHandle {
    /// Chooses the algorithm that a search of an earlier start has found, else the one that the library expects to be the
    /// fastest; `None` where the device has no matrix library.
    ///
    /// # Errors
    /// When the library has none for these shapes.
    pub fn new(device: &Device, matmul: Matmul) -> Result<Option<Self>, DeviceError> {
        let Some(mut plan) = device.driver().matmul_plan(matmul)? else { return Ok(None) };
        let kept = choice::path(device.properties(), &plan.library(), matmul);
        let known = kept.as_deref().and_then(choice::load);
        let settled = known.is_some_and(|words| plan.choose(words));
        Ok(Some(Self { matmul, plan, kept, settled }))
    }

    /// Bytes of workspace that [`run`](Self::run) needs.
    pub fn workspace(&self) -> usize {
        self.plan.workspace()
    }

    /// Whether the algorithm was found by a search, of this start or an earlier one.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Times the algorithms that the library offers, takes the fastest from now on, and keeps it on disk, so that later
    /// starts take the same without a search. Waits for the device, a few milliseconds; overwrites y and the workspace.
    ///
    /// # Errors
    /// When a slice is too short, or the device fails.
    pub fn search(&mut self, device: &Device, operands: Operands<'_>) -> Result<(), DeviceError> {
        self.check(operands)?;
        // SAFETY: checked above.
        let words = unsafe { choice::fastest(device, self.plan.as_mut(), operands)? };
        if let (Some(words), Some(kept)) = (words, &self.kept) {
            // A cache that cannot be written costs the next start a search, nothing else.
            let _ = choice::store(kept, words);
        }
        self.settled = true;
        Ok(())
    }

    /// Runs it, in order with the stream.
    ///
    /// # Errors
    /// When a slice is too short, or the device fails.
    pub fn run(&self, operands: Operands<'_>) -> Result<(), DeviceError> {
        self.check(operands)?;
        let Operands { y, x, w, workspace } = operands;
        // SAFETY: checked above.
        unsafe { self.plan.run(y.address(), x.address(), w.address(), workspace.address()) }
    }

    fn check(&self, operands: Operands<'_>) -> Result<(), DeviceError> {
        let Matmul { rows, inputs, outputs, element, result } = self.matmul;
        operands.x.check(rows * inputs * element.bytes())?;
        operands.w.check(outputs * inputs * element.bytes())?;
        operands.y.check(rows * outputs * result.bytes())?;
        operands.workspace.check(self.plan.workspace())
    }
}
