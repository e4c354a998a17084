//! Memory of a device, and page-locked memory of the host.

use std::{
    fmt,
    marker::PhantomData,
    ops::Range,
    sync::{Arc, atomic::AtomicU32},
};

use super::{DeviceError, Plain, driver::Driver};

/// Type of the elements of activations, weights and caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    BF16,
    /// Single precision.
    F32,
}

/// Device memory that is freed on drop.
pub struct Buffer {
    driver: Arc<dyn Driver>,
    address: u64,
    bytes: usize,
}

/// A part of a [`Buffer`]. Kernels may write through it: device memory is inherently shared.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    address: u64,
    bytes: usize,
    buffer: PhantomData<&'a Buffer>,
}

/// Page-locked host memory, which the device may read and write while the host does other things.
/// So there is never a reference to it: values are copied in ([`store`](Self::store)) and out
/// ([`load`](Self::load)). Dropping it waits for the device.
pub struct HostBuffer {
    driver: Arc<dyn Driver>,
    address: *mut u8,
    bytes: usize,
}

impl Element {
    /// Bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 => 4,
        }
    }

    /// The compiler option that chooses it.
    pub fn option(self) -> String {
        match self {
            Self::F16 => "-DT_F16",
            Self::BF16 => "-DT_BF16",
            Self::F32 => "-DT_F32",
        }
        .into()
    }

    /// Its name as in `--dtype`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
            Self::F32 => "float32",
        }
    }

    /// The bytes of values in this type, rounded to nearest even.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F16 => values.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect(),
            Self::BF16 => values.iter().flat_map(|value| half::bf16::from_f32(*value).to_le_bytes()).collect(),
            Self::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }

    /// The values of bytes in this type.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F16 => bytes.as_chunks().0.iter().map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()).collect(),
            Self::BF16 => bytes.as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect(),
            Self::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        }
    }
}

impl Buffer {
    pub(super) fn new(driver: Arc<dyn Driver>, bytes: usize) -> Result<Self, DeviceError> {
        // Empty buffers have a distinct address too, so that launchers need no special cases.
        let address = driver.allocate(bytes.max(16))?;
        Ok(Self { driver, address, bytes })
    }

    /// All of it.
    pub fn slice(&self) -> Slice<'_> {
        Slice { address: self.address, bytes: self.bytes, buffer: PhantomData }
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of it, in bytes.
    ///
    /// # Panics
    /// When it is not within the buffer.
    pub fn range(&self, bytes: Range<usize>) -> Slice<'_> {
        self.slice().range(bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the address came from `allocate` and is freed once; freeing waits for the kernels
        // that use it.
        unsafe { self.driver.free(self.address) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Buffer").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<'a> Slice<'a> {
    /// No memory: the argument of an omitted part.
    pub const NONE: Slice<'static> = Slice { address: 0, bytes: 0, buffer: PhantomData };

    /// Memory of another owner, which keeps it while it is borrowed.
    pub(super) fn foreign(address: u64, bytes: usize) -> Self {
        Self { address, bytes, buffer: PhantomData }
    }

    /// Its address.
    pub fn address(self) -> u64 {
        self.address
    }

    /// Its length.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// A part of it, in bytes.
    ///
    /// # Panics
    /// When it is not within the slice.
    pub fn range(self, bytes: Range<usize>) -> Slice<'a> {
        assert!(bytes.start <= bytes.end && bytes.end <= self.bytes, "{bytes:?} is not within {} bytes", self.bytes);
        Slice { address: self.address + bytes.start as u64, bytes: bytes.len(), buffer: PhantomData }
    }

    /// Checks that it has at least this many bytes.
    ///
    /// # Errors
    /// When it is shorter.
    #[track_caller]
    pub fn check(self, bytes: usize) -> Result<(), DeviceError> {
        if self.bytes >= bytes {
            return Ok(());
        }
        let at = std::panic::Location::caller();
        Err(DeviceError::Shape(format!("{at}: a buffer holds {} bytes, {bytes} are needed", self.bytes)))
    }
}

impl HostBuffer {
    pub(super) fn new(driver: Arc<dyn Driver>, bytes: usize) -> Result<Self, DeviceError> {
        let address = driver.allocate_host(bytes.max(16))?;
        Ok(Self { driver, address, bytes: bytes.max(16) })
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn address(&self) -> *mut u8 {
        self.address
    }

    /// All of it, as kernels access it over the bus: for a few words, to avoid a copy.
    pub fn slice(&self) -> Slice<'_> {
        Slice { address: self.address as u64, bytes: self.bytes, buffer: PhantomData }
    }

    /// A word that kernels and other threads may write at the same time.
    ///
    /// # Panics
    /// When the buffer is shorter.
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!((at + 1) * 4 <= self.bytes, "word {at} of a host buffer of {} bytes", self.bytes);
        // SAFETY: within the allocation, which is aligned and lives as long as the borrow; all
        // access to these words is atomic.
        unsafe { AtomicU32::from_ptr(self.address.cast::<u32>().add(at)) }
    }

    pub(super) fn check(&self, bytes: usize) -> Result<(), DeviceError> {
        if self.bytes >= bytes {
            return Ok(());
        }
        Err(DeviceError::Shape(format!("a host buffer holds {} bytes, {bytes} are needed", self.bytes)))
    }

    /// A copy of its values. Those that a copy or a kernel in progress writes are the old or the
    /// new ones.
    ///
    /// # Panics
    /// When the buffer is shorter.
    pub fn load<N: Plain>(&self, start: usize, count: usize) -> Vec<N> {
        let from = self.part::<N>(start, count);
        // SAFETY: within the allocation, which is aligned for every plain type; every bit pattern
        // is a value. The reads are volatile since the device may write meanwhile.
        (0..count).map(|at| unsafe { from.add(at).read_volatile() }).collect()
    }

    /// Replaces values. A copy in progress that reads them takes the old or the new ones.
    ///
    /// # Panics
    /// When the buffer is shorter.
    pub fn store<N: Plain>(&mut self, start: usize, values: &[N]) {
        let to = self.part::<N>(start, values.len());
        for (at, value) in values.iter().enumerate() {
            // SAFETY: as in `load`; nothing else of this process writes, since the borrow is
            // exclusive.
            unsafe { to.add(at).write_volatile(*value) }
        }
    }

    /// The address of `count` values.
    fn part<N: Plain>(&self, start: usize, count: usize) -> *mut N {
        let end = (start + count) * size_of::<N>();
        assert!(end <= self.bytes, "{end} bytes of a host buffer of {}", self.bytes);
        self.address.cast::<N>().wrapping_add(start)
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // SAFETY: the address came from `allocate_host` and is freed once, after the copies and
        // kernels that use it.
        unsafe { self.driver.free_host(self.address, self.bytes) }
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HostBuffer").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

// SAFETY: plain memory that is owned by the buffer alone.
unsafe impl Send for HostBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for HostBuffer {}
