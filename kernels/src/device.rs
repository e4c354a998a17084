//! A device that runs kernels: memory, compiled kernels, launches, graphs and events on one stream.
//!
//! There are two kinds: a CUDA GPU, and an emulator that compiles the same kernels with the host's
//! C++ compiler and runs every CUDA thread as a fiber. The emulator is for tests, so that kernels
//! can be checked on any machine.
//!
//! Addresses are plain numbers, and a launch trusts its arguments as CUDA does. So only the
//! functions in [`crate::launch`], which check the lengths of their operands, launch kernels.

mod buffer;
mod cache;
mod collective;
mod compile;
mod cuda;
mod driver;
mod emulator;
mod error;
mod foreign;
mod guarded;
mod libraries;
mod mail;
pub mod matmul;
mod state;

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

pub use buffer::{Buffer, Element, HostBuffer, Slice};
pub use collective::{Collective, GroupId};
pub use compile::{KernelFile, Split, compile_for};
pub use driver::{DeviceEvent, Graph, Link};
pub use error::DeviceError;
pub use foreign::Foreign;
pub use libraries::keep_pooled_memory;
pub use mail::{Alarm, Mail};
pub use state::GpuState;

use driver::{Driver, KernelHandle};

/// A handle to a device; clones share it.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    driver: Arc<dyn Driver>,
    properties: Properties,
    /// Loaded kernels by file, options and name.
    kernels: Mutex<HashMap<KernelKey, Kernel>>,
    captures: AtomicBool,
    waits: AtomicU64,
}

type KernelKey = (&'static str, String, &'static str);

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Such as `NVIDIA H200`.
    pub name: String,
    /// Version of the driver, such as `13.0`.
    pub driver: String,
    /// Number of multiprocessors.
    pub multiprocessors: usize,
    /// Compute capability, such as (9, 0).
    pub capability: (u32, u32),
    /// Bytes of L2 cache.
    pub cache_bytes: usize,
    /// Maximum number of bytes of shared memory per block.
    pub shared_bytes: usize,
    /// Maximum number of blocks of a cluster: 1 if the architecture has no clusters.
    pub most_cluster: usize,
    /// Whether kernels run on the CPU.
    pub emulated: bool,
}

impl Properties {
    /// Whether it is a Hopper GPU, the only ones whose warp groups multiply from shared memory.
    pub fn is_hopper(&self) -> bool {
        self.capability == (9, 0)
    }

    /// Whether warps multiply FP8 numbers (`mma.sync`).
    pub fn multiplies_fp8(&self) -> bool {
        self.emulated || self.capability >= (8, 9)
    }
}

/// A loaded kernel.
#[derive(Clone)]
pub struct Kernel(Arc<dyn KernelHandle>);

/// The launch configuration of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Blocks of a cluster, neighbours in x that read each other's shared memory; 1 for none.
    pub cluster: u32,
}

impl Geometry {
    /// The same, in clusters of `blocks` blocks in x; the grid has a multiple of these.
    pub fn in_clusters(self, blocks: usize) -> Self {
        Self { cluster: blocks as u32, ..self }
    }
}

/// Rows of 2-byte elements in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMatrix<'a> {
    /// The first row.
    pub at: Slice<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

/// The rows of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tile {
    /// This number of consecutive rows.
    Rows(usize),
    /// This number, a multiple of 16: eight rows of the upper half of the matrix, the corresponding
    /// eight of the lower half, the next eight of the upper half, and so on.
    OfHalves(usize),
}

/// An axis along which a matrix is cut into tiles.
#[derive(Clone, Copy, Debug)]
pub struct TiledAxis {
    /// Elements along it.
    pub extent: usize,
    /// Elements of memory from one to the next.
    pub apart: usize,
    /// Elements of a tile.
    pub tile: usize,
}

/// Descriptor of a [`DeviceMatrix`] and its tiles, as the copy engine reads it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tiles([u64; 16]);

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// The address of a buffer; 0 for an omitted buffer.
    Address(u64),
    /// A 32-bit integer.
    Int(i32),
    /// A float.
    Float(f32),
    /// A 64-bit integer.
    Long(u64),
    /// A matrix to copy tiles of.
    Tiles(Tiles),
}

impl Device {
    /// The CUDA device with this number.
    ///
    /// # Errors
    /// When the driver library is missing, the device does not exist, or it is older than Ampere.
    pub fn cuda(number: usize) -> Result<Self, DeviceError> {
        cuda::open(number).map(|(driver, properties)| Self::new(driver, properties))
    }

    /// Number of CUDA devices; 0 without a driver.
    pub fn cuda_count() -> usize {
        cuda::count()
    }

    /// The emulator.
    ///
    /// # Errors
    /// When the machine has no C++ compiler.
    pub fn emulated() -> Result<Self, DeviceError> {
        emulator::open().map(|(driver, properties)| Self::new(driver, properties))
    }

    fn new(driver: Arc<dyn Driver>, properties: Properties) -> Self {
        let (captures, waits) = (AtomicBool::new(false), AtomicU64::new(0));
        Self(Arc::new(Inner { driver, properties, kernels: Mutex::default(), captures, waits }))
    }

    /// Clocks, power, throttling and other processes, as the driver's management library reports
    /// them now. `None` without that library, and for the emulator.
    pub fn state(&self) -> Option<GpuState> {
        self.0.driver.state()
    }

    /// The properties of the device.
    pub fn properties(&self) -> &Properties {
        &self.0.properties
    }

    /// Free and total bytes of its memory.
    ///
    /// # Errors
    /// When the device fails.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        self.0.driver.memory()
    }

    /// Allocates uninitialised memory.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        Buffer::new(self.0.driver.clone(), bytes)
    }

    /// Allocates memory and fills it with zeros.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn zeros(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        let buffer = self.allocate(bytes)?;
        self.fill(buffer.slice(), 0)?;
        Ok(buffer)
    }

    /// Allocates memory and copies values into it.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn upload<N: Plain>(&self, values: &[N]) -> Result<Buffer, DeviceError> {
        let buffer = self.allocate(size_of_val(values))?;
        self.write(buffer.slice(), values)?;
        Ok(buffer)
    }

    /// Allocates page-locked host memory, for asynchronous copies.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn host_buffer(&self, bytes: usize) -> Result<HostBuffer, DeviceError> {
        HostBuffer::new(self.0.driver.clone(), bytes)
    }

    /// Copies values to the device, in order with the stream; returns when `values` may change.
    ///
    /// # Errors
    /// When they do not fit, or the device fails.
    pub fn write<N: Plain>(&self, to: Slice<'_>, values: &[N]) -> Result<(), DeviceError> {
        let bytes = bytes_of(values);
        to.check(bytes.len())?;
        self.count_wait();
        // SAFETY: the slice borrows a live buffer that is at least as long as the bytes.
        unsafe { self.0.driver.write(to.address(), bytes) }
    }

    /// Waits for the stream and copies values to the host.
    ///
    /// # Errors
    /// When the slice is shorter, or the device fails.
    pub fn read<N: Plain>(&self, from: Slice<'_>, values: &mut [N]) -> Result<(), DeviceError> {
        let bytes = bytes_of_mut(values);
        from.check(bytes.len())?;
        self.count_wait();
        // SAFETY: the slice borrows a live buffer that is at least as long as the bytes.
        unsafe { self.0.driver.read(from.address(), bytes) }
    }

    /// Reads all values of a slice.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn download<N: Plain + Default + Clone>(&self, from: Slice<'_>) -> Result<Vec<N>, DeviceError> {
        let mut values = vec![N::default(); from.bytes() / size_of::<N>()];
        self.read(from, &mut values)?;
        Ok(values)
    }

    /// Sets every byte, in order with the stream.
    ///
    /// # Errors
    /// When the device fails.
    pub fn fill(&self, to: Slice<'_>, byte: u8) -> Result<(), DeviceError> {
        // SAFETY: the slice borrows a live buffer of its length.
        unsafe { self.0.driver.fill(to.address(), byte, to.bytes()) }
    }

    /// Copies within the device, in order with the stream. The ranges must not overlap.
    ///
    /// # Errors
    /// When `to` is shorter than `from`, or the device fails.
    pub fn copy(&self, to: Slice<'_>, from: Slice<'_>) -> Result<(), DeviceError> {
        to.check(from.bytes())?;
        // SAFETY: both slices borrow live buffers of at least that length.
        unsafe { self.0.driver.copy(to.address(), from.address(), from.bytes()) }
    }

    /// Starts a copy from a range (in bytes) of page-locked memory, in order with the stream, and
    /// returns at once. What is [stored](HostBuffer::store) in the range before the stream has
    /// passed the copy may be what is copied.
    ///
    /// # Errors
    /// When the ranges do not fit, or the device fails.
    pub fn write_async(&self, to: Slice<'_>, from: &HostBuffer, range: Range<usize>) -> Result<(), DeviceError> {
        to.check(range.len())?;
        from.check(range.end)?;
        // SAFETY: both are live and long enough; host buffers outlive the device's work since
        // dropping one waits for it, and no reference to their memory exists.
        unsafe { self.0.driver.write_async(to.address(), from.address().add(range.start), range.len()) }
    }

    /// Starts a copy to page-locked memory, at offset `start` in bytes, in order with the stream,
    /// and returns at once. The values have arrived when the stream has passed the copy.
    ///
    /// # Errors
    /// As [`write_async`](Self::write_async).
    pub fn read_async(&self, to: &HostBuffer, start: usize, from: Slice<'_>) -> Result<(), DeviceError> {
        to.check(start + from.bytes())?;
        // SAFETY: as for `write_async`.
        unsafe { self.0.driver.read_async(to.address().add(start), from.address(), from.bytes()) }
    }

    /// A kernel of a file, compiled with these options (`-D…`) if it is not in the cache on disk.
    ///
    /// # Errors
    /// When the compiler is missing or rejects the source.
    pub fn kernel(&self, file: KernelFile, options: &[String], name: &'static str) -> Result<Kernel, DeviceError> {
        let key = (file.name, options.join(" "), name);
        let mut kernels = self.0.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(&key) {
            return Ok(kernel.clone());
        }
        let kernel = Kernel(self.0.driver.kernel(file, options, name)?);
        kernels.insert(key, kernel.clone());
        Ok(kernel)
    }

    /// Compiles a file before its first use; several threads may do so at once.
    ///
    /// # Errors
    /// As [`kernel`](Self::kernel).
    pub fn load(&self, file: KernelFile, options: &[String]) -> Result<(), DeviceError> {
        self.0.driver.load(file, options)
    }

    /// Launches a kernel, in order with the stream.
    ///
    /// # Errors
    /// When the device rejects the geometry, or has failed.
    ///
    /// # Safety
    /// The arguments must have the types of the kernel's parameters, and point to memory as large
    /// as the kernel accesses.
    pub unsafe fn launch(&self, kernel: &Kernel, geometry: Geometry, arguments: &[Arg]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.driver.launch(kernel.0.as_ref(), geometry, arguments) }
    }

    /// Cuts a matrix into tiles of 64 columns, for kernels that copy them with the copy engine
    /// (`bulk.cuh`).
    ///
    /// # Errors
    /// When the buffer is too short, the matrix is not in whole 16-byte accesses, a tile has more
    /// than 256 rows or rows that the matrix does not have in both halves, or the device has no
    /// copy engine.
    pub fn tiles(&self, matrix: DeviceMatrix<'_>, tile: Tile) -> Result<Tiles, DeviceError> {
        let DeviceMatrix { at, rows, columns, stride } = matrix;
        let whole = at.address().is_multiple_of(16) && stride.is_multiple_of(8);
        let fits = match tile {
            Tile::Rows(count) => (1..=256).contains(&count),
            Tile::OfHalves(count) => (1..=256).contains(&count) && count.is_multiple_of(16) && rows.is_multiple_of(16),
        };
        if !whole || rows * columns == 0 || columns > stride || !fits {
            return Err(DeviceError::Shape(format!("{matrix:?} is not cut into tiles of {tile:?}")));
        }
        at.check(((rows - 1) * stride + columns) * 2)?;
        let inner = TiledAxis { extent: columns, apart: 1, tile: 64 };
        match tile {
            Tile::Rows(count) => {
                self.0.driver.tiles(at.address(), &[inner, TiledAxis { extent: rows, apart: stride, tile: count }])
            }
            Tile::OfHalves(count) => {
                let eight = TiledAxis { extent: 8, apart: stride, tile: 8 };
                let half = TiledAxis { extent: 2, apart: rows / 2 * stride, tile: 2 };
                let eights = TiledAxis { extent: rows / 16, apart: 8 * stride, tile: count / 16 };
                self.0.driver.tiles(at.address(), &[inner, eight, half, eights])
            }
        }
    }

    /// Number of clusters of such a launch that run at the same time: fewer than the total capacity
    /// allows, since the multiprocessors of a cluster are in the same group (GPC), and not every
    /// group has a multiple of the cluster size.
    ///
    /// # Errors
    /// When the device rejects the geometry.
    pub fn clusters_at_once(&self, kernel: &Kernel, geometry: Geometry) -> Result<usize, DeviceError> {
        self.0.driver.clusters_at_once(kernel.0.as_ref(), geometry)
    }

    /// Records what `work` launches instead of running it.
    ///
    /// # Errors
    /// When `work` fails, or does something that a graph cannot hold.
    pub fn capture(&self, work: impl FnOnce() -> Result<(), DeviceError>) -> Result<Graph, DeviceError> {
        self.0.driver.begin_capture()?;
        self.0.captures.store(true, Ordering::Relaxed);
        let worked = work();
        self.0.captures.store(false, Ordering::Relaxed);
        let graph = self.0.driver.end_capture();
        worked?;
        graph
    }

    /// Whether launches are currently recorded.
    pub fn is_capturing(&self) -> bool {
        self.0.captures.load(Ordering::Relaxed)
    }

    /// Launches a graph, in order with the stream.
    ///
    /// # Errors
    /// When the device fails.
    pub fn run(&self, graph: &Graph) -> Result<(), DeviceError> {
        self.0.driver.run(graph)
    }

    /// Records an event at the current end of the stream.
    ///
    /// # Errors
    /// When the device fails.
    pub fn event(&self) -> Result<DeviceEvent, DeviceError> {
        self.0.driver.event()
    }

    /// Records an existing event again, at the current end of the stream.
    ///
    /// # Errors
    /// When the device fails.
    pub fn record(&self, event: &DeviceEvent) -> Result<(), DeviceError> {
        self.0.driver.record(event)
    }

    /// Waits for all launched work.
    ///
    /// # Errors
    /// When a kernel has failed.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.count_wait();
        self.0.driver.synchronize()
    }

    /// How often the host has waited until the device had nothing left to do. Waiting for an
    /// [`DeviceEvent`] does not count.
    pub fn waits(&self) -> u64 {
        self.0.waits.load(Ordering::Relaxed)
    }

    fn count_wait(&self) {
        self.0.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Enables peer access from this device to another, and returns the kind of link between them.
    ///
    /// # Errors
    /// When they are not linked, or of different kinds.
    pub fn reach(&self, other: &Self) -> Result<Link, DeviceError> {
        self.0.driver.reach(other.driver())
    }

    /// The driver; [`matmul`] gets the plans of its matrix library from it.
    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.0.driver
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Device").field(&self.0.properties.name).finish()
    }
}

/// Values without padding or pointers, for which every bit pattern is valid.
///
/// # Safety
/// Implement it for such types only.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($kind:ty),*) => { $(
        // SAFETY: a number.
        unsafe impl Plain for $kind {}
    )* };
}
plain!(u8, u16, u32, u64, i32, i64, f32, half::f16, half::bf16);

/// The bytes of values.
pub fn bytes_of<N: Plain>(values: &[N]) -> &[u8] {
    // SAFETY: plain values have no padding, and bytes no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of values, mutable.
fn bytes_of_mut<N: Plain>(values: &mut [N]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`, and every bit pattern is a value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
