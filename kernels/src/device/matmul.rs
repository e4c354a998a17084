//! Matrix products with the device's own library (cuBLASLt), if it has one.

mod choice;

use std::path::PathBuf;

use super::{Device, DeviceError, Element, Slice};
use crate::reference::{FP8_BLOCK, Fp8Rows, Fp8Scales};

/// `y = x · wᵀ`: x is `[rows, inputs]`, w `[outputs, inputs]`, y `[rows, outputs]`, all row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// Rows of x and y.
    pub rows: usize,
    /// Width of x.
    pub inputs: usize,
    /// Width of y.
    pub outputs: usize,
    /// Type of x and w, if they are not in FP8.
    pub element: Element,
    /// For x and w in FP8.
    pub fp8: Option<Fp8Product>,
    /// Type of y.
    pub result: Element,
    /// Maximum number of parts of the inputs whose sums may be left separate, in float, instead of
    /// y; 1 if y is needed.
    pub most_parts: usize,
}

/// Scales of a product of FP8 numbers (e4m3). Both factors have the same order within 128 inputs;
/// which, does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fp8Product {
    /// Which weights share a scale.
    pub weights: Fp8Scales,
    /// Which numbers of a row share one, as [`RowScales`](crate::launch::RowScales) hold them.
    pub rows: Fp8Rows,
}

/// The library's encoding of an algorithm, valid for one version of the library.
pub type Words = [u64; 8];

/// An algorithm of the library for a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulAlgorithm {
    /// The library's encoding.
    pub words: Words,
    /// Bytes of workspace.
    pub workspace: usize,
}

/// A property in which algorithms of one kind differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlgorithmProperty {
    /// Rows and columns of the result that a block computes.
    Tile,
    /// Blocks that share the data they read.
    Cluster,
}

/// A product, whole or in parts, with a chosen algorithm.
pub trait MatmulPlan: Send + Sync {
    /// Name and version of the library.
    fn library(&self) -> String;

    /// Bytes of workspace.
    fn workspace(&self) -> usize;

    /// The chosen algorithm.
    fn words(&self) -> Words;

    /// At most `most` algorithms, ordered by the library's estimate, fastest first.
    ///
    /// # Errors
    /// When the library has none for these shapes.
    fn algorithms(&self, most: usize) -> Result<Vec<MatmulAlgorithm>, DeviceError>;

    /// The algorithm with every other setting that the library has on an axis, without split-k. The
    /// library may reject many of them.
    fn variants(&self, words: Words, axis: AlgorithmProperty) -> Vec<Words>;

    /// Number of waves in which an algorithm fills the device, as the library counts it; `None` if
    /// it cannot run it.
    fn waves(&self, words: Words) -> Option<f32>;

    /// Chooses this algorithm for later runs. Returns false, without effect, if the library cannot
    /// run it.
    fn choose(&mut self, words: Words) -> bool;

    /// Runs it, in order with the stream: writes y, or adds to it if `adds`. In parts, y is float
    /// `[parts, rows, outputs]`.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Safety
    /// The addresses must point to memory of the sizes that the shapes and the workspace require.
    unsafe fn run(&self, at: Addresses, adds: bool) -> Result<(), DeviceError>;
}

/// The memory of a product of the library.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The result.
    pub y: u64,
    /// The input.
    pub x: u64,
    /// The weights.
    pub w: u64,
    /// The scales of x and w, for those in FP8.
    pub scales: [u64; 2],
    /// The workspace.
    pub workspace: u64,
}

/// The fastest implementation for a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fastest {
    /// The library.
    Library {
        /// Number of parts.
        parts: usize,
        /// The algorithm.
        words: Words,
    },
    /// One of the other timed kernels, by index.
    Own(usize),
}

/// The plans of a product, and the choice among them.
pub struct MatmulHandle {
    matmul: Matmul,
    /// For one part, two parts, and so on.
    plans: Vec<Box<dyn MatmulPlan>>,
    /// Path where the choice is stored between starts.
    kept: Option<PathBuf>,
    fastest: Option<Fastest>,
    /// Implementations that may be faster than the fastest one in a pass, though not alone.
    others: Vec<Fastest>,
    /// Whether a search has found a choice that is not stored yet.
    unkept: bool,
}

/// A kernel outside the library that computes the same product.
pub type KernelLaunch<'a> = &'a dyn Fn() -> Result<(), DeviceError>;

/// The kernels that compete with the library, and how to run them.
#[derive(Clone, Copy)]
pub struct SearchSetup<'a> {
    /// Kernels that compute the same product; a stored choice refers to them by index.
    pub own_kernels: &'a [KernelLaunch<'a>],
    /// A short kernel, like those before and after products.
    pub neighbour: KernelLaunch<'a>,
    /// Further work that turns the library's complete result into that of `own_kernels`.
    pub behind_library: Option<KernelLaunch<'a>>,
    /// The consumer of a result in this number of parts, if it may be left in several. Not run for
    /// a result that the library has added to `onto`.
    pub user: Option<&'a dyn Fn(usize) -> Result<(), DeviceError>>,
}

/// The memory of a product.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// The result.
    pub y: Slice<'a>,
    /// If given, the result is added to this instead, unless it is left in parts.
    pub onto: Option<Slice<'a>>,
    /// The result if it is left in parts, float `[parts, rows, outputs]`.
    pub parts: Slice<'a>,
    /// The input.
    pub x: Slice<'a>,
    /// The weights.
    pub w: Slice<'a>,
    /// The scales of x and w, for those in FP8.
    pub scales: Option<[Slice<'a>; 2]>,
    /// At least [`MatmulHandle::workspace`] bytes; algorithms that need more are not searched.
    pub workspace: Slice<'a>,
}

/// Number of scales of rows in FP8: `[rows]`, or for blocks `[⌈inputs / 128⌉, stride]`, where the
/// stride is the rows rounded up to a multiple of 4.
pub(crate) fn row_scales(layout: Fp8Rows, rows: usize, inputs: usize) -> usize {
    match layout {
        Fp8Rows::Tensor | Fp8Rows::Row => rows,
        Fp8Rows::RowBlocks => inputs.div_ceil(FP8_BLOCK) * rows.next_multiple_of(4),
    }
}

impl MatmulHandle {
    /// Uses the choice of an earlier search, or else the algorithm that the library expects to be
    /// the fastest; `None` if the device has no matrix library. `own_kernels` identifies the
    /// kernels that are timed against the library's, and changes when they do; without it, no
    /// choice is stored on disk or loaded.
    ///
    /// # Errors
    /// When the library has none for these shapes.
    pub fn new(device: &Device, matmul: Matmul, own_kernels: Option<&str>) -> Result<Option<Self>, DeviceError> {
        let Some(whole) = device.driver().matmul_plan(matmul, 1)? else { return Ok(None) };
        let name = own_kernels.map(|own_kernels| format!("{} {own_kernels}", whole.library()));
        let kept = name.and_then(|name| choice::path(device.properties(), &name, matmul));
        let mut plans = vec![whole];
        // Parts that the library cannot compute are skipped.
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

    /// The choice of a search, of this start or an earlier one; `None` before a search.
    pub fn fastest(&self) -> Option<Fastest> {
        self.fastest
    }

    /// Times our kernels, the algorithms that the library offers, and for more than 64 rows others
    /// that it has, and chooses the fastest. Waits for the device, for some milliseconds, or a
    /// second or two with many rows; overwrites y, the parts and the workspace. The choice is
    /// stored on disk when it is [settled](Self::settle).
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

    /// Implementations that a search has found to be about as fast alone as
    /// [`fastest`](Self::fastest): in a pass, with the kernels that overlap with them, one of them
    /// may be faster. Empty once the choice is settled.
    pub fn others(&self) -> &[Fastest] {
        &self.others
    }

    /// Chooses another implementation that a search has found. Returns false, without effect, if
    /// the library cannot run it.
    pub fn choose(&mut self, fastest: Fastest) -> bool {
        let can = choose(&mut self.plans, fastest);
        if can {
            self.fastest = Some(fastest);
        }
        can
    }

    /// The library's algorithm if nothing else has been chosen.
    pub fn advice(&self) -> Words {
        self.plans[0].words()
    }

    /// Uses the choice of another device of the same kind, or else its library's advice.
    pub fn follow(&mut self, fastest: Option<Fastest>, advice: Words) {
        choose(&mut self.plans, Fastest::Library { parts: 1, words: advice });
        self.fastest = fastest.filter(|fastest| choose(&mut self.plans, *fastest));
    }

    /// Ends a search: stores the choice on disk, so that later starts reuse it.
    pub fn settle(&mut self) {
        self.others.clear();
        let unkept = std::mem::take(&mut self.unkept);
        if let (true, Some(fastest), Some(kept)) = (unkept, self.fastest, &self.kept) {
            // A cache that cannot be written only costs the next start a search.
            let _ = choice::store(kept, fastest);
        }
    }

    /// Runs the library's algorithm, in order with the stream. Returns the number of parts in which
    /// it leaves the result.
    ///
    /// # Errors
    /// When a slice is too short, or the device fails.
    pub fn run(&self, operands: Operands<'_>) -> Result<usize, DeviceError> {
        self.check(operands)?;
        let Operands { y, onto, parts, .. } = operands;
        let (y, adds) = match (self.parts(), onto) {
            (1, Some(onto)) => (onto, true),
            (1, None) => (y, false),
            _ => (parts, false),
        };
        // SAFETY: checked above.
        unsafe { self.plan().run(operands.addresses(y), adds)? };
        Ok(self.parts())
    }

    /// Number of parts in which the library computes the product.
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
        let Matmul { rows, inputs, outputs, element, fp8, result, most_parts } = self.matmul;
        let bytes = fp8.map_or(element.bytes(), |_| 1);
        operands.x.check(rows * inputs * bytes)?;
        operands.w.check(outputs * inputs * bytes)?;
        match (fp8, operands.scales) {
            (Some(layouts), Some([of_x, of_w])) => {
                of_x.check(row_scales(layouts.rows, rows, inputs) * 4)?;
                of_w.check(layouts.weights.count(outputs, inputs) * 4)?;
            }
            (None, None) => {}
            _ => return Err(DeviceError::Shape(format!("scales {:?} of {:?}", operands.scales, self.matmul))),
        }
        for to in [Some(operands.y), operands.onto].into_iter().flatten() {
            to.check(rows * outputs * result.bytes())?;
        }
        if most_parts > 1 {
            operands.parts.check(most_parts * rows * outputs * Element::F32.bytes())?;
        }
        operands.workspace.check(self.workspace())
    }
}

impl Operands<'_> {
    /// Those of a product with this result.
    fn addresses(self, y: Slice<'_>) -> Addresses {
        let Self { x, w, scales, workspace, .. } = self;
        let scales = scales.map_or([0; 2], |scales| scales.map(Slice::address));
        Addresses { y: y.address(), x: x.address(), w: w.address(), scales, workspace: workspace.address() }
    }
}

/// Chooses an algorithm among the plans for one part, two parts, and so on. Returns false, without
/// effect, if the library cannot run it.
fn choose(plans: &mut [Box<dyn MatmulPlan>], fastest: Fastest) -> bool {
    match fastest {
        Fastest::Library { parts, words } => {
            plans.get_mut(parts - 1).is_some_and(|plan| plan.words() == words || plan.choose(words))
        }
        Fastest::Own(_) => true,
    }
}
