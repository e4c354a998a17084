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
    /// Parts of the inputs whose sums may be left apart, in float, instead of y; 1 where y is needed.
    pub most_parts: usize,
}

/// What the library calls an algorithm. Means the same to the same version of the library only.
pub type Words = [u64; 8];

/// One of the library's ways to compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// What the library calls it.
    pub words: Words,
    /// Bytes of workspace.
    pub workspace: usize,
}

/// In what algorithms of one kind differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Rows and columns of the result that a block computes.
    Tile,
    /// Blocks that share what they read.
    Cluster,
}

/// A product, whole or in parts, whose algorithm has been chosen.
pub trait MatmulPlan: Send + Sync {
    /// Name and version of the library.
    fn library(&self) -> String;

    /// Bytes of workspace.
    fn workspace(&self) -> usize;

    /// The algorithm that is chosen.
    fn words(&self) -> Words;

    /// At most `most` algorithms, the one that the library expects to be the fastest first.
    ///
    /// # Errors
    /// When the library has none for these shapes.
    fn algorithms(&self, most: usize) -> Result<Vec<Algorithm>, DeviceError>;

    /// The algorithm of these words with everything else that the library has on an axis, whole where it splits the inputs. The
    /// library may refuse many of them.
    fn variants(&self, words: Words, axis: Axis) -> Vec<Words>;

    /// How often an algorithm fills the device, as the library counts it; `None` where it cannot run it.
    fn waves(&self, words: Words) -> Option<f32>;

    /// Takes the algorithm of these words from now on. False where the library cannot run it: then nothing changes.
    fn choose(&mut self, words: Words) -> bool;

    /// Runs it, in order with the stream: y takes the result, or if it `adds`, takes it up. In parts, y is float `[parts, rows,
    /// outputs]`.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Safety
    /// The addresses are of memory as long as the shapes and the workspace say.
    unsafe fn run(&self, y: u64, adds: bool, x: u64, w: u64, workspace: u64) -> Result<(), DeviceError>;
}

/// What was the fastest for a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fastest {
    /// The library.
    Library {
        /// In how many parts.
        parts: usize,
        /// By which algorithm.
        words: Words,
    },
    /// One of the other timed kernels, by index.
    Own(usize),
}

/// Plans with their shapes.
pub struct MatmulHandle {
    matmul: Matmul,
    /// Of one part, of two, and so on.
    plans: Vec<Box<dyn MatmulPlan>>,
    /// Where the choice is kept between starts.
    kept: Option<PathBuf>,
    fastest: Option<Fastest>,
    /// Those that may be faster in a pass than the fastest alone.
    others: Vec<Fastest>,
    /// Whether a search has found what is not kept yet.
    unkept: bool,
}

/// A kernel outside the library that computes the same product.
pub type KernelLaunch<'a> = &'a dyn Fn() -> Result<(), DeviceError>;

/// A kernel that competes with the library, and how to run it.
#[derive(Clone, Copy)]
pub struct SearchSetup<'a> {
    /// Kernels that compute the same; the index of each is kept.
    pub own_kernels: &'a [KernelLaunch<'a>],
    /// A short kernel, like the ones before and after products.
    pub neighbour: KernelLaunch<'a>,
    /// What the library's whole result needs besides until it is that of the own_kernels.
    pub behind_library: Option<KernelLaunch<'a>>,
    /// What uses a result in this many parts, if it may be left in several. One that the library has added is not used.
    pub user: Option<&'a dyn Fn(usize) -> Result<(), DeviceError>>,
}

/// Memory of a product.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// The result.
    pub y: Slice<'a>,
    /// Takes up the result instead, unless that is left in parts.
    pub onto: Option<Slice<'a>>,
    /// Where it goes if it is left in parts, float `[parts, rows, outputs]`.
    pub parts: Slice<'a>,
    /// The input.
    pub x: Slice<'a>,
    /// The weights.
    pub w: Slice<'a>,
    /// At least [`MatmulHandle::workspace`] bytes; algorithms that need more are not searched.
    pub workspace: Slice<'a>,
}

impl MatmulHandle {
    /// Takes what a search of an earlier start has found, else the algorithm that the library expects to be the fastest;
    /// `None` where the device has no matrix library. `own_kernels` says which kernels are timed against the library's, and
    /// changes when they do; without it nothing is kept on disk, or taken from there.
    ///
    /// # Errors
    /// When the library has none for these shapes.
    pub fn new(device: &Device, matmul: Matmul, own_kernels: Option<&str>) -> Result<Option<Self>, DeviceError> {
        let Some(whole) = device.driver().matmul_plan(matmul, 1)? else { return Ok(None) };
        let name = own_kernels.map(|own_kernels| format!("{} {own_kernels}", whole.library()));
        let kept = name.and_then(|name| choice::path(device.properties(), &name, matmul));
        let mut plans = vec![whole];
        // Parts that the library cannot do are not needed.
        let in_parts =
            (2..=matmul.most_parts).map_while(|parts| device.driver().matmul_plan(matmul, parts).ok().flatten());
        plans.extend(in_parts);
        let known = kept.as_deref().and_then(choice::load);
        let fastest = known.filter(|known| choose(&mut plans, *known));
        Ok(Some(Self { matmul, plans, kept, fastest, others: Vec::new(), unkept: false }))
    }

    /// Bytes of workspace that [`run`](Self::run) needs.
    pub fn workspace(&self) -> usize {
        self.plan().workspace()
    }

    /// What a search has found, of this start or an earlier one; `None` before there was one.
    pub fn fastest(&self) -> Option<Fastest> {
        self.fastest
    }

    /// Times some kernels, the algorithms that the library offers, and of more than 64 rows others that it has, and takes the
    /// fastest. Waits for the device, some milliseconds, or a second or two of many rows; overwrites y, the parts and the
    /// workspace. What is found is kept on disk when it is [settled](Self::settle).
    ///
    /// # Errors
    /// When a slice is too short, or the device fails.
    pub fn search(
        &mut self,
        device: &Device,
        operands: Operands<'_>,
        own_kernels: SearchSetup<'_>,
    ) -> Result<(), DeviceError> {
        self.check(operands)?;
        // SAFETY: checked above.
        let found = unsafe { choice::fastest(device, self.matmul, &mut self.plans, operands, own_kernels)? };
        let mut found = found.into_iter();
        let best = found.next();
        self.unkept = best.is_some();
        // If nothing could be timed, the library's heuristic decides.
        self.fastest = best.or_else(|| Some(Fastest::Library { parts: 1, words: self.plan().words() }));
        self.others = found.collect();
        Ok(())
    }

    /// Those that a search has found to be about as fast alone as [`fastest`](Self::fastest): in a pass, next to what
    /// overlaps with them, one of them may be faster. Empty once it is settled.
    pub fn others(&self) -> &[Fastest] {
        &self.others
    }

    /// Takes another that a search has found. False where the library cannot run it: then nothing changes.
    pub fn choose(&mut self, fastest: Fastest) -> bool {
        let can = choose(&mut self.plans, fastest);
        if can {
            self.fastest = Some(fastest);
        }
        can
    }

    /// What the library computes it with where nothing else has been chosen.
    pub fn advice(&self) -> Words {
        self.plans[0].words()
    }

    /// Takes what another device of the same kind has found, or else its library's advice.
    pub fn follow(&mut self, fastest: Option<Fastest>, advice: Words) {
        choose(&mut self.plans, Fastest::Library { parts: 1, words: advice });
        self.fastest = fastest.filter(|fastest| choose(&mut self.plans, *fastest));
    }

    /// Ends a search: stores the choice on disk, so that later starts reuse it.
    pub fn settle(&mut self) {
        self.others.clear();
        let unkept = std::mem::take(&mut self.unkept);
        if let (true, Some(fastest), Some(kept)) = (unkept, self.fastest, &self.kept) {
            // A cache that cannot be written costs the next start a search, nothing else.
            let _ = choice::store(kept, fastest);
        }
    }

    /// Runs the library's algorithm, in order with the stream: in how many parts it leaves the result.
    ///
    /// # Errors
    /// When a slice is too short, or the device fails.
    pub fn run(&self, operands: Operands<'_>) -> Result<usize, DeviceError> {
        self.check(operands)?;
        let Operands { y, onto, parts, x, w, workspace } = operands;
        let (y, adds) = match (self.parts(), onto) {
            (1, Some(onto)) => (onto, true),
            (1, None) => (y, false),
            _ => (parts, false),
        };
        // SAFETY: checked above.
        unsafe { self.plan().run(y.address(), adds, x.address(), w.address(), workspace.address())? };
        Ok(self.parts())
    }

    /// In how many parts the library computes the product.
    fn parts(&self) -> usize {
        match self.fastest {
            Some(Fastest::Library { parts, .. }) => parts,
            Some(Fastest::Own(_)) | None => 1,
        }
    }

    fn plan(&self) -> &dyn MatmulPlan {
        self.plans[self.parts() - 1].as_ref()
    }

    fn check(&self, operands: Operands<'_>) -> Result<(), DeviceError> {
        let Matmul { rows, inputs, outputs, element, result, most_parts } = self.matmul;
        operands.x.check(rows * inputs * element.bytes())?;
        operands.w.check(outputs * inputs * element.bytes())?;
        for to in [Some(operands.y), operands.onto].into_iter().flatten() {
            to.check(rows * outputs * result.bytes())?;
        }
        if most_parts > 1 {
            operands.parts.check(most_parts * rows * outputs * Element::F32.bytes())?;
        }
        operands.workspace.check(self.workspace())
    }
}

/// Lets plans, of one part, of two, and so on, take an algorithm. False where the library cannot run it: then nothing changes.
fn choose(plans: &mut [Box<dyn MatmulPlan>], fastest: Fastest) -> bool {
    match fastest {
        Fastest::Library { parts, words } => {
            plans.get_mut(parts - 1).is_some_and(|plan| plan.words() == words || plan.choose(words))
        }
        Fastest::Own(_) => true,
    }
}
