//! Which kernel computes a product: one of ours that stream the weights, or the device's matrix library; and when the
//! fastest is searched.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use kernels::{
    device::{
        Buffer, Device, DeviceError, Element, Slice,
        matmul::{Fastest, Matmul, MatmulHandle, Operands, Rival},
    },
    launch::{LinearBlocks, linear_version},
};

/// Rows up to which the streaming kernels read the weights about as fast as memory gives them: they run where nothing has
/// been timed.
const FEW_ROWS: usize = 16;
/// Rows up to which they may be the fastest.
const MOST_STREAMED_ROWS: usize = 64;

/// Bytes of weights from which a search is worth its time: fewer are read in two microseconds, and most of what such a
/// product takes is its launch.
const LEAST_SEARCHED: usize = 8 << 20;

/// What runs products, by shape.
pub struct Products {
    plans: Mutex<HashMap<Matmul, Option<MatmulHandle>>>,
    workspace: Buffer,
    /// Names the streaming kernels, so that what was timed with others is not used.
    streaming: String,
    /// Whether a shape that was never timed is, before it runs.
    searches: AtomicBool,
}

/// Memory of a product `y = x · wᵀ`.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    pub y: Slice<'a>,
    pub x: Slice<'a>,
    pub w: Slice<'a>,
}

/// Who has to run a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The library has.
    Done,
    /// The streaming kernel with these blocks is to.
    Stream(LinearBlocks),
}

impl Products {
    /// Workspace that cuBLASLt asks for at most.
    pub const WORKSPACE: usize = 32 << 20;

    pub fn new(device: &Device) -> Result<Self, DeviceError> {
        let bytes = if device.properties().emulated { 16 } else { Self::WORKSPACE };
        Ok(Self {
            plans: Mutex::default(),
            workspace: device.allocate(bytes)?,
            streaming: linear_version(),
            searches: AtomicBool::new(false),
        })
    }

    /// Does `work`, and searches the fastest kernel for each shape that it multiplies. For what is recorded and then runs
    /// often; the shapes of prompts, of which there are many, take what is known or what the library advises.
    pub fn searching<R>(&self, work: impl FnOnce() -> R) -> R {
        self.searches.store(true, Ordering::Relaxed);
        let done = work();
        self.searches.store(false, Ordering::Relaxed);
        done
    }

    /// Runs a product by the library, or says which of the streaming kernels is faster; `stream` runs one of them, to be
    /// timed.
    pub fn run(
        &self,
        device: &Device,
        matmul: Matmul,
        product: Product<'_>,
        stream: impl Fn(LinearBlocks) -> Result<(), DeviceError>,
    ) -> Result<Outcome, DeviceError> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.entry(matmul) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(MatmulHandle::new(device, matmul, &self.streaming)?),
        };
        let Some(plan) = plan else { return Ok(Outcome::Stream(LinearBlocks::Narrow)) };
        let Product { y, x, w } = product;
        let operands = Operands { y, x, w, workspace: self.workspace.slice() };
        let streaming = streaming_kernels(matmul);
        let worth = matmul.inputs * matmul.outputs * matmul.element.bytes() >= LEAST_SEARCHED;
        if worth && plan.fastest().is_none() && self.searches.load(Ordering::Relaxed) {
            let run: Vec<_> = streaming.iter().map(|blocks| || stream(*blocks)).collect();
            let rivals: Vec<Rival<'_>> = run.iter().map(|run| run as Rival<'_>).collect();
            plan.search(device, operands, &rivals)?;
        }
        match plan.fastest() {
            Some(Fastest::Rival(number)) => {
                Ok(Outcome::Stream(streaming.get(number).copied().unwrap_or(LinearBlocks::Narrow)))
            }
            None if matmul.rows <= FEW_ROWS => Ok(Outcome::Stream(LinearBlocks::Narrow)),
            None | Some(Fastest::Library(_)) => plan.run(operands).map(|()| Outcome::Done),
        }
    }
}

/// The streaming kernels that may be the fastest for a shape. Their order is kept on disk.
fn streaming_kernels(matmul: Matmul) -> &'static [LinearBlocks] {
    if matmul.element == Element::F32 {
        &[LinearBlocks::Narrow]
    } else if matmul.rows <= FEW_ROWS {
        &[LinearBlocks::Narrow, LinearBlocks::Wide]
    } else if matmul.rows <= MOST_STREAMED_ROWS {
        &[LinearBlocks::Wide]
    } else {
        &[]
    }
}
