//! Products of the device's matrix library, by shape: which algorithm runs, and when the fastest is searched.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use kernels::device::{
    Buffer, Device, DeviceError, Slice,
    matmul::{Matmul, MatmulHandle, Operands},
};

/// Products of cuBLASLt, by shape.
pub struct Products {
    plans: Mutex<HashMap<Matmul, Option<MatmulHandle>>>,
    workspace: Buffer,
    /// Whether an algorithm that was never timed is, before it is used.
    searches: AtomicBool,
}

impl Products {
    /// Workspace that cuBLASLt asks for at most.
    pub const WORKSPACE: usize = 32 << 20;

    pub fn new(device: &Device) -> Result<Self, DeviceError> {
        let bytes = if device.properties().emulated { 16 } else { Self::WORKSPACE };
        Ok(Self { plans: Mutex::default(), workspace: device.allocate(bytes)?, searches: AtomicBool::new(false) })
    }

    /// Does `work`, and searches the fastest algorithm for each shape that it multiplies. For what is recorded and then
    /// runs often; the shapes of prompts, of which there are many, take what is known or what the library advises.
    pub fn searching<R>(&self, work: impl FnOnce() -> R) -> R {
        self.searches.store(true, Ordering::Relaxed);
        let done = work();
        self.searches.store(false, Ordering::Relaxed);
        done
    }

    /// Runs `y = x · wᵀ`; `false` where the device has no matrix library.
    pub fn run(
        &self,
        device: &Device,
        matmul: Matmul,
        y: Slice<'_>,
        x: Slice<'_>,
        w: Slice<'_>,
    ) -> Result<bool, DeviceError> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.entry(matmul) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(MatmulHandle::new(device, matmul)?),
        };
        let Some(plan) = plan else { return Ok(false) };
        let operands = Operands { y, x, w, workspace: self.workspace.slice() };
        if !plan.is_settled() && self.searches.load(Ordering::Relaxed) {
            plan.search(device, operands)?;
        }
        plan.run(operands).map(|()| true)
    }
}
