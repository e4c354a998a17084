//! The interface of a device driver, one method per driver call.

use std::{any::Any, ffi::c_void, fmt, sync::Arc, time::Duration};

use super::{
    Arg, DeviceError, Element, Geometry, GroupId, KernelFile, TiledAxis, Tiles, bytes_of,
    matmul::{Matmul, MatmulPlan},
};

/// A loaded kernel of a driver.
pub trait KernelHandle: Send + Sync {
    /// For the driver to downcast to its own type.
    fn as_any(&self) -> &dyn Any;
}

/// The work recorded by a capture.
pub struct Graph(pub(super) Box<dyn Any + Send + Sync>);

/// An event in the stream.
pub struct DeviceEvent(pub(super) Arc<dyn Mark>);

/// An event of a driver.
pub trait Mark: Send + Sync {
    /// Waits until the stream has passed it.
    fn wait(&self) -> Result<(), DeviceError>;
    /// Device time from an earlier event to this one; both have passed.
    fn since(&self, earlier: &dyn Mark) -> Result<Duration, DeviceError>;
    /// For the driver to downcast to its own type.
    fn as_any(&self) -> &dyn Any;
}

impl DeviceEvent {
    /// Waits until the stream has passed it.
    ///
    /// # Errors
    /// When a kernel before it has failed.
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.0.wait()
    }

    /// Device time from an earlier event to this one; both must have passed.
    ///
    /// # Errors
    /// When one has not passed.
    pub fn since(&self, earlier: &Self) -> Result<Duration, DeviceError> {
        self.0.since(earlier.0.as_ref())
    }
}

/// The connection between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Host memory: both devices are emulated.
    Memory,
    /// PCIe.
    Pcie,
    /// NVLink.
    NvLink,
}

impl fmt::Display for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Memory => "shared memory",
            Self::Pcie => "PCIe",
            Self::NvLink => "NVLink",
        })
    }
}

/// One device. All calls but `read`, `synchronize` and those of events return before the device has
/// finished; work runs in the order of the calls.
pub trait Driver: Send + Sync {
    /// For a driver to downcast another device to its own type.
    fn as_any(&self) -> &dyn Any;
    /// Enables peer access from this device to another, and returns the kind of link between them.
    fn reach(&self, other: &dyn Driver) -> Result<Link, DeviceError>;
    /// The device's state as reported by the management library; `None` if it is not available.
    fn state(&self) -> Option<super::GpuState> {
        None
    }
    fn memory(&self) -> Result<(u64, u64), DeviceError>;
    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError>;
    /// # Safety
    /// The address came from `allocate` and is not used again.
    unsafe fn free(&self, address: u64);
    fn allocate_host(&self, bytes: usize) -> Result<*mut u8, DeviceError>;
    /// # Safety
    /// The address came from `allocate_host` with these bytes and is not used again.
    unsafe fn free_host(&self, address: *mut u8, bytes: usize);
    /// # Safety
    /// `to` is device memory of at least that length.
    unsafe fn write(&self, to: u64, bytes: &[u8]) -> Result<(), DeviceError>;
    /// # Safety
    /// `from` is device memory of at least that length.
    unsafe fn read(&self, from: u64, bytes: &mut [u8]) -> Result<(), DeviceError>;
    /// # Safety
    /// `to` is device memory, `from` page-locked memory of at least that length.
    unsafe fn write_async(&self, to: u64, from: *mut u8, bytes: usize) -> Result<(), DeviceError>;
    /// # Safety
    /// `from` is device memory, `to` page-locked memory of at least that length.
    unsafe fn read_async(&self, to: *mut u8, from: u64, bytes: usize) -> Result<(), DeviceError>;
    /// # Safety
    /// `to` is device memory of at least that length.
    unsafe fn fill(&self, to: u64, byte: u8, bytes: usize) -> Result<(), DeviceError>;
    /// # Safety
    /// Both are device memory of at least that length, and do not overlap.
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), DeviceError>;
    fn load(&self, file: KernelFile, options: &[String]) -> Result<(), DeviceError>;
    fn kernel(&self, file: KernelFile, options: &[String], name: &str) -> Result<Arc<dyn KernelHandle>, DeviceError>;
    /// # Safety
    /// As [`Device::launch`](super::Device::launch).
    unsafe fn launch(
        &self,
        kernel: &dyn KernelHandle,
        geometry: Geometry,
        arguments: &[Arg],
    ) -> Result<(), DeviceError>;
    /// Describes 2-byte elements at an address, cut into tiles along 2 to 4 axes; elements of the
    /// first axis are contiguous.
    fn tiles(&self, address: u64, axes: &[TiledAxis]) -> Result<Tiles, DeviceError>;
    /// Number of clusters of such a launch that run at the same time.
    fn clusters_at_once(&self, kernel: &dyn KernelHandle, geometry: Geometry) -> Result<usize, DeviceError>;
    fn begin_capture(&self) -> Result<(), DeviceError>;
    fn end_capture(&self) -> Result<Graph, DeviceError>;
    fn run(&self, graph: &Graph) -> Result<(), DeviceError>;
    fn event(&self) -> Result<DeviceEvent, DeviceError>;
    fn record(&self, event: &DeviceEvent) -> Result<(), DeviceError>;
    fn synchronize(&self) -> Result<(), DeviceError>;
    /// Joins a group of the device's collective library; returns when all ranks have joined.
    fn join(&self, id: &GroupId, rank: usize, ranks: usize) -> Result<Arc<dyn CollectiveDriver>, DeviceError>;
    /// A plan of the device's matrix library that computes `parts` partial sums; `None` without
    /// such a library.
    fn matmul_plan(&self, matmul: Matmul, parts: usize) -> Result<Option<Box<dyn MatmulPlan>>, DeviceError>;
}

/// A device's membership in a group of its collective library.
pub trait CollectiveDriver: Send + Sync {
    fn library(&self) -> String;
    /// # Safety
    /// `to` is device memory of at least that many elements.
    unsafe fn sum(&self, to: u64, count: usize, element: Element) -> Result<(), DeviceError>;
    /// Releases all kernels and hosts that wait for a rank.
    fn abort(&self);
}

/// An argument in the memory layout of a kernel parameter.
#[repr(align(128))]
pub(super) struct KernelArgument([u8; 128]);

impl KernelArgument {
    /// Its address, for a launch.
    pub(super) fn pointer(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

impl From<Arg> for KernelArgument {
    fn from(argument: Arg) -> Self {
        // The driver reads only as many bytes as the kernel's parameter has.
        let mut value = Self([0; 128]);
        match argument {
            Arg::Address(number) | Arg::Long(number) => value.0[..8].copy_from_slice(&number.to_le_bytes()),
            Arg::Int(number) => value.0[..4].copy_from_slice(&number.to_le_bytes()),
            Arg::Float(number) => value.0[..4].copy_from_slice(&number.to_le_bytes()),
            Arg::Tiles(Tiles(words)) => value.0.copy_from_slice(bytes_of(&words)),
        }
        value
    }
}
