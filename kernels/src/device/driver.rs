//! What a device driver does, at the size of a call.

use std::{any::Any, sync::Arc, time::Duration};

use super::{
    Arg, DeviceError, Geometry, KernelFile,
    matmul::{Matmul, MatmulPlan},
};

/// A loaded kernel, as its driver knows it.
pub trait KernelHandle: Send + Sync {
    /// For the driver to find its own type.
    fn as_any(&self) -> &dyn Any;
}

/// What was recorded between the begin and the end of a capture.
pub struct Graph(pub(super) Box<dyn Any + Send + Sync>);

/// A mark in the stream.
pub struct Event(pub(super) Arc<dyn Mark>);

/// A mark in the stream, as its driver knows it.
pub trait Mark: Send + Sync {
    /// Waits until the stream has passed it.
    fn wait(&self) -> Result<(), DeviceError>;
    /// Time from an earlier mark to this one; both have passed.
    fn since(&self, earlier: &dyn Mark) -> Result<Duration, DeviceError>;
    /// For the driver to find its own type.
    fn as_any(&self) -> &dyn Any;
}

impl Event {
    /// Waits until the stream has passed it.
    ///
    /// # Errors
    /// When a kernel before it has failed.
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.0.wait()
    }

    /// Device time from an earlier mark to this one; both must have passed.
    ///
    /// # Errors
    /// When one has not.
    pub fn since(&self, earlier: &Self) -> Result<Duration, DeviceError> {
        self.0.since(earlier.0.as_ref())
    }
}

/// One device. All calls but `read`, `synchronize` and marks return before the device has finished; order is the order
/// of calls.
pub trait Driver: Send + Sync {
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
    /// How many clusters of such a launch run at the same time.
    fn clusters_at_once(&self, kernel: &dyn KernelHandle, geometry: Geometry) -> Result<usize, DeviceError>;
    fn begin_capture(&self) -> Result<(), DeviceError>;
    fn end_capture(&self) -> Result<Graph, DeviceError>;
    fn run(&self, graph: &Graph) -> Result<(), DeviceError>;
    fn event(&self) -> Result<Event, DeviceError>;
    fn record(&self, event: &Event) -> Result<(), DeviceError>;
    fn synchronize(&self) -> Result<(), DeviceError>;
    /// A plan of the device's matrix library; `None` where there is none.
    fn matmul_plan(&self, matmul: Matmul) -> Result<Option<Box<dyn MatmulPlan>>, DeviceError>;
}

impl Arg {
    /// Its bytes, as a kernel reads them.
    pub(super) fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        match self {
            Self::Address(value) | Self::Long(value) => bytes = value.to_le_bytes(),
            Self::Int(value) => bytes[..4].copy_from_slice(&value.to_le_bytes()),
            Self::Float(value) => bytes[..4].copy_from_slice(&value.to_le_bytes()),
        }
        bytes
    }
}
