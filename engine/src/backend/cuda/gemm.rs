//! Chooses the kernel for each GEMM, one of our weight-streaming kernels or the device's matrix
//! library, and decides when to search for the fastest.

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::Entry},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use kernels::{
    device::{
        Buffer, Device, DeviceError, Slice,
        matmul::{Fastest, KernelLaunch, Matmul, MatmulHandle, Operands, SearchSetup},
    },
    launch::linear_version,
};

use super::meeting::Meeting;

/// Maximum number of rows for which the streaming kernels run if nothing was timed: they are bound
/// by reading weights.
const FEW_ROWS: usize = 32;
/// Minimum size of the weights in bytes for a search: fewer are read within two microseconds, and
/// launch time dominates.
const LEAST_SEARCHED: usize = 8 << 20;

/// Minimum fraction of the weights read in a round for which a GEMM is compared within whole
/// rounds.
const LEAST_SHARE: f64 = 0.02;
/// Maximum number of rows for such a comparison: with more rows, the power limit determines a
/// round's time, and noise is higher.
const MOST_COMPARED_ROWS: usize = 64;

/// Runs GEMMs, with a plan for each shape.
pub struct GemmDispatch {
    plans: Mutex<HashMap<Matmul, GemmPlan>>,
    workspace: Buffer,
    /// Identifies the streaming kernels, so that timings of other versions are not used.
    streaming: String,
    /// Whether a shape that was never timed is timed before it runs.
    searches: AtomicBool,
    /// Makes ranks agree on kernels, since the bits of their results depend on the choice.
    meeting: Option<Meeting>,
}

/// The plan of one GEMM shape.
struct GemmPlan {
    /// `None` if the device has no matrix library.
    handle: Option<MatmulHandle>,
    /// Number of runs during the last search.
    uses: usize,
}

/// A product `y = x · wᵀ`, and the ways to run it.
#[derive(Clone, Copy)]
pub struct Gemm<'a> {
    pub y: Slice<'a>,
    /// The library adds its result to this instead of writing `y`, unless it leaves split-K
    /// partials.
    pub onto: Option<Slice<'a>>,
    /// Receives the split-K partials, if there are any.
    pub parts: Slice<'a>,
    pub x: Slice<'a>,
    pub w: Slice<'a>,
    /// The scales of x and w if they are in FP8.
    pub scales: Option<[Slice<'a>; 2]>,
    /// Runs the product with a streaming kernel, which may write the result elsewhere.
    pub stream: KernelLaunch<'a>,
    /// Whether the streaming kernel may be the fastest.
    pub may_stream: bool,
    /// Runs after the library's complete result, to make it equal to that of the streaming kernel.
    pub behind_library: Option<KernelLaunch<'a>>,
    /// The consumer of a result in this many split-K partials, if partials are allowed. Runs only
    /// when timing.
    pub user: Option<&'a dyn Fn(usize) -> Result<(), DeviceError>>,
    /// A short kernel without effect, like those that run between two GEMMs.
    pub neighbour: KernelLaunch<'a>,
    /// Overwrites x with realistic values: identical rows, such as padding, take less power and
    /// time.
    pub prepare: KernelLaunch<'a>,
}

/// How a product was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GemmOutcome {
    /// The library ran it, and left the result in this many partials.
    Done(usize),
    /// The library ran it, and added the result to `onto`.
    Added,
    /// The caller must run the streaming kernel.
    Stream,
}

impl GemmDispatch {
    /// Maximum workspace for cuBLASLt, in bytes.
    pub const WORKSPACE: usize = 32 << 20;

    pub fn new(device: &Device, meeting: Option<Meeting>) -> Result<Self, DeviceError> {
        let bytes = if device.properties().emulated { 16 } else { Self::WORKSPACE };
        Ok(Self {
            plans: Mutex::default(),
            workspace: device.allocate(bytes)?,
            streaming: linear_version(),
            searches: AtomicBool::new(false),
            meeting,
        })
    }

    /// Runs `work`, and searches for the fastest kernel for each GEMM shape in it. For work that is
    /// captured and then runs often; the many shapes of prompts use known results or the library's
    /// heuristic.
    pub fn searching<R>(&self, work: impl FnOnce() -> R) -> R {
        self.plans().values_mut().for_each(|plan| plan.uses = 0);
        self.searches.store(true, Ordering::Relaxed);
        let done = work();
        self.searches.store(false, Ordering::Relaxed);
        done
    }

    /// Runs a product with the library, or returns that the streaming kernel is to run.
    pub fn run(&self, device: &Device, matmul: Matmul, product: Gemm<'_>) -> Result<GemmOutcome, DeviceError> {
        let mut plans = self.plans();
        let plan = match plans.entry(matmul) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(GemmPlan { handle: self.planned(device, matmul)?, uses: 0 }),
        };
        let searches = self.searches.load(Ordering::Relaxed);
        plan.uses += usize::from(searches);
        let Some(plan) = &mut plan.handle else { return Ok(GemmOutcome::Stream) };
        let Gemm { y, onto, parts, x, w, scales, stream, may_stream, behind_library, user, neighbour, prepare } =
            product;
        let operands = Operands { y, onto, parts, x, w, scales, workspace: self.workspace.slice() };
        let worth = matmul.inputs * matmul.outputs * matmul.element.bytes() >= LEAST_SEARCHED;
        if searches && worth && plan.fastest().is_none() {
            // One rank times and the others take its result: kernels differ in their order of sums,
            // and all ranks must compute the same bits.
            if self.leads() {
                prepare()?;
                let own_kernels: &[KernelLaunch<'_>] = if may_stream { &[stream] } else { &[] };
                plan.search(device, operands, SearchSetup { own_kernels, neighbour, behind_library, user })?;
            }
            let found = self.agree(plan.fastest())?;
            if let Some(found) = found.filter(|_| !self.leads()) {
                plan.choose(found);
            }
        }
        match plan.fastest() {
            Some(Fastest::Own(_)) => Ok(GemmOutcome::Stream),
            // Never timed: with few rows weights are all that is read, and the streaming kernels
            // are made for that.
            None if matmul.rows <= FEW_ROWS => Ok(GemmOutcome::Stream),
            None | Some(Fastest::Library { .. }) => {
                let parts = plan.run(operands)?;
                // In parts the result cannot be added yet: the consumer sums the parts.
                if parts == 1 && onto.is_some() {
                    return Ok(GemmOutcome::Added);
                }
                behind_library.filter(|_| parts == 1).map_or(Ok(()), |behind| behind())?;
                Ok(GemmOutcome::Done(parts))
            }
        }
    }

    /// The plan of a shape: from rank 0's stored results, or else its library's heuristic.
    fn planned(&self, device: &Device, matmul: Matmul) -> Result<Option<MatmulHandle>, DeviceError> {
        let kept = self.leads().then_some(self.streaming.as_str());
        let plan = match MatmulHandle::new(device, matmul, kept) {
            // A library of an earlier version, or for another device, may have no such product: our
            // kernels do.
            Err(_) if matmul.fp8.is_some() => None,
            plan => plan?,
        };
        let Some(mut plan) = plan else { return Ok(None) };
        let (fastest, advice) = self.agree((plan.fastest(), plan.advice()))?;
        if !self.leads() {
            plan.follow(fastest, advice);
        }
        Ok(Some(plan))
    }

    /// Whether this device's choice of kernels is used by all ranks.
    fn leads(&self) -> bool {
        self.meeting.as_ref().is_none_or(Meeting::leads)
    }

    /// Returns rank 0's value on all ranks.
    fn agree<V: Clone + Send + 'static>(&self, value: V) -> Result<V, DeviceError> {
        self.meeting.as_ref().map_or(Ok(value.clone()), |meeting| meeting.agree(value))
    }

    /// Whether the streaming kernel runs this product.
    pub fn streams(&self, matmul: Matmul) -> bool {
        match self.plans().get(&matmul) {
            Some(GemmPlan { handle: Some(plan), .. }) => match plan.fastest() {
                Some(fastest) => matches!(fastest, Fastest::Own(_)),
                None => matmul.rows <= FEW_ROWS,
            },
            Some(GemmPlan { handle: None, .. }) => true,
            None => false,
        }
    }

    /// GEMMs of the last [`searching`](Self::searching) for which several kernels may be the
    /// fastest, ordered by the weights that they read, largest first. Each comes with these
    /// kernels, the chosen one first.
    pub fn undecided(&self) -> Result<Vec<(Matmul, Vec<Fastest>)>, DeviceError> {
        let plans = self.plans();
        let read = |matmul: &Matmul, plan: &GemmPlan| plan.uses * matmul.inputs * matmul.outputs;
        let all: usize = plans.iter().map(|(matmul, plan)| read(matmul, plan)).sum();
        let mut open: Vec<(usize, Matmul, Vec<Fastest>)> = plans
            .iter()
            .filter(|(matmul, _)| matmul.rows <= MOST_COMPARED_ROWS)
            .filter_map(|(matmul, plan)| {
                let handle = plan.handle.as_ref().filter(|handle| !handle.others().is_empty())?;
                let finalists = handle.fastest().into_iter().chain(handle.others().iter().copied()).collect();
                Some((read(matmul, plan), *matmul, finalists))
            })
            .filter(|(read, ..)| *read as f64 >= all as f64 * LEAST_SHARE)
            .collect();
        // The largest first: later ones are compared in a graph that has the kernels chosen before.
        open.sort_by_key(|(read, matmul, _)| (Reverse(*read), matmul.rows));
        drop(plans);
        // All ranks record the same graphs in the same order, since their rounds wait for each
        // other.
        self.agree(open.into_iter().map(|(_, matmul, finalists)| (matmul, finalists)).collect())
    }

    /// Uses this kernel from now on; false if it cannot run.
    pub fn choose(&self, matmul: Matmul, fastest: Fastest) -> bool {
        self.plans().get_mut(&matmul).and_then(|plan| plan.handle.as_mut()).is_some_and(|plan| plan.choose(fastest))
    }

    /// Ends all searches and stores the chosen kernels for later starts.
    pub fn settle(&self) {
        self.plans().values_mut().filter_map(|plan| plan.handle.as_mut()).for_each(MatmulHandle::settle);
    }

    fn plans(&self) -> MutexGuard<'_, HashMap<Matmul, GemmPlan>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory that a kernel without effect may write to.
    pub fn scratch(&self) -> Slice<'_> {
        self.workspace.range(0..16)
    }
}
