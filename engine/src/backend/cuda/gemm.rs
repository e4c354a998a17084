//! Chooses the kernel for a GEMM: one of our weight-streaming kernels or the device's matrix library; and when the
//! fastest is searched.

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

/// Rows up to which the streaming kernels run where nothing has been timed: weights are all that they wait for.
const FEW_ROWS: usize = 32;
/// Bytes of weights from which a search is worth its time: fewer are read in two microseconds, and most of what such a
/// product takes is its launch.
const LEAST_SEARCHED: usize = 8 << 20;

/// Part of the weights that a round reads, from which a product of it is worth comparing in whole rounds.
const LEAST_SHARE: f64 = 0.02;
/// Rows up to which it is: with more a round is as long as power lets it be, and differs by more from one run to the next.
const MOST_COMPARED_ROWS: usize = 64;

/// What runs products, by shape.
pub struct GemmDispatch {
    plans: Mutex<HashMap<Matmul, GemmPlan>>,
    workspace: Buffer,
    /// Names the streaming kernels, so that what was timed with others is not used.
    streaming: String,
    /// Whether a shape that was never timed is, before it runs.
    searches: AtomicBool,
    /// Where ranks agree on kernels: bits of what each computes for itself depend on them.
    meeting: Option<Meeting>,
}

/// A shape of products.
struct GemmPlan {
    /// None where the device has no matrix library.
    handle: Option<MatmulHandle>,
    /// How often it ran while fastest kernels were searched.
    uses: usize,
}

/// A product `y = x · wᵀ` that the library may run.
#[derive(Clone, Copy)]
pub struct Gemm<'a> {
    pub y: Slice<'a>,
    /// Takes up the library's result instead, unless that is left in parts.
    pub onto: Option<Slice<'a>>,
    /// Takes the result if it is left in parts.
    pub parts: Slice<'a>,
    pub x: Slice<'a>,
    pub w: Slice<'a>,
    /// Runs it by a streaming kernel, which may leave the result elsewhere.
    pub stream: KernelLaunch<'a>,
    /// Whether that may be the fastest.
    pub may_stream: bool,
    /// What makes the library's whole result that of the streaming kernel.
    pub behind_library: Option<KernelLaunch<'a>>,
    /// The consumer of a result in this many split-K partials, if that is allowed. Runs only to be timed.
    pub user: Option<&'a dyn Fn(usize) -> Result<(), DeviceError>>,
    /// A short kernel without effect, like those between two products.
    pub neighbour: KernelLaunch<'a>,
    /// Overwrites x with realistic values: identical rows, such as padding, take less power and time.
    pub prepare: KernelLaunch<'a>,
}

/// Who runs a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GemmOutcome {
    /// The library has, and left it in this many partials.
    Done(usize),
    /// The library has, and added it to what takes it up.
    Added,
    /// The streaming kernel is to.
    Stream,
}

impl GemmDispatch {
    /// Workspace that cuBLASLt asks for at most.
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

    /// Does `work`, and searches the fastest kernel for each shape that it multiplies. For what is recorded and then runs
    /// often; the shapes of prompts, of which there are many, take what is known or what the library advises.
    pub fn searching<R>(&self, work: impl FnOnce() -> R) -> R {
        self.plans().values_mut().for_each(|plan| plan.uses = 0);
        self.searches.store(true, Ordering::Relaxed);
        let done = work();
        self.searches.store(false, Ordering::Relaxed);
        done
    }

    /// Runs a product by the library, or says that the streaming kernel is faster.
    pub fn run(&self, device: &Device, matmul: Matmul, product: Gemm<'_>) -> Result<GemmOutcome, DeviceError> {
        let mut plans = self.plans();
        let plan = match plans.entry(matmul) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(GemmPlan { handle: self.planned(device, matmul)?, uses: 0 }),
        };
        let searches = self.searches.load(Ordering::Relaxed);
        plan.uses += usize::from(searches);
        let Some(plan) = &mut plan.handle else { return Ok(GemmOutcome::Stream) };
        let Gemm { y, onto, parts, x, w, stream, may_stream, behind_library, user, neighbour, prepare } = product;
        let operands = Operands { y, onto, parts, x, w, workspace: self.workspace.slice() };
        let worth = matmul.inputs * matmul.outputs * matmul.element.bytes() >= LEAST_SEARCHED;
        if searches && worth && plan.fastest().is_none() {
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
            None if matmul.rows <= FEW_ROWS => Ok(GemmOutcome::Stream),
            None | Some(Fastest::Library { .. }) => {
                let parts = plan.run(operands)?;
                if parts == 1 && onto.is_some() {
                    return Ok(GemmOutcome::Added);
                }
                behind_library.filter(|_| parts == 1).map_or(Ok(()), |behind| behind())?;
                Ok(GemmOutcome::Done(parts))
            }
        }
    }

    /// The plan of a shape: what rank 0 knows of it, or its library advises.
    fn planned(&self, device: &Device, matmul: Matmul) -> Result<Option<MatmulHandle>, DeviceError> {
        let kept = self.leads().then_some(self.streaming.as_str());
        let Some(mut plan) = MatmulHandle::new(device, matmul, kept)? else { return Ok(None) };
        let (fastest, advice) = self.agree((plan.fastest(), plan.advice()))?;
        if !self.leads() {
            plan.follow(fastest, advice);
        }
        Ok(Some(plan))
    }

    /// Whether this device's word on kernels counts.
    fn leads(&self) -> bool {
        self.meeting.as_ref().is_none_or(Meeting::leads)
    }

    /// Rank 0's word.
    fn agree<V: Clone + Send + 'static>(&self, value: V) -> Result<V, DeviceError> {
        self.meeting.as_ref().map_or(Ok(value.clone()), |meeting| meeting.agree(value))
    }

    /// Whether it is known that the streaming kernel is the fastest of a product.
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

    /// GemmDispatch of the last work that was [`searching`](Self::searching) with more than one kernel that may be the fastest, those
    /// first that read the most, and these kernels: first the one that is chosen.
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
        open.sort_by_key(|(read, matmul, _)| (Reverse(*read), matmul.rows));
        drop(plans);
        self.agree(open.into_iter().map(|(_, matmul, finalists)| (matmul, finalists)).collect())
    }

    /// Takes one of these kernels from now on; false where it cannot run.
    pub fn choose(&self, matmul: Matmul, fastest: Fastest) -> bool {
        self.plans().get_mut(&matmul).and_then(|plan| plan.handle.as_mut()).is_some_and(|plan| plan.choose(fastest))
    }

    /// Ends all searches: what is chosen is kept for later starts.
    pub fn settle(&self) {
        self.plans().values_mut().filter_map(|plan| plan.handle.as_mut()).for_each(MatmulHandle::settle);
    }

    fn plans(&self) -> MutexGuard<'_, HashMap<Matmul, GemmPlan>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory that a kernel without effect may write.
    pub fn scratch(&self) -> Slice<'_> {
        self.workspace.range(0..16)
    }
}
