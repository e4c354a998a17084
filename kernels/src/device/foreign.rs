//! Kernels among those of another library that uses cudarc: on its stream, over memory that it has taken.

use std::{fmt, sync::Arc};

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, SyncOnDrop};

use super::{Device, DeviceError, Slice, cuda};

/// Memory that another library has taken, as a [`Slice`].
pub struct Foreign<'a> {
    slice: Slice<'a>,
    /// Tells the library, when this goes, that its stream uses the memory.
    _use: SyncOnDrop<'a>,
}

impl Device {
    /// The device of a stream of another library, whose kernels and ours then run in one order.
    ///
    /// # Errors
    /// As [`cuda`](Self::cuda).
    pub fn on_stream(stream: Arc<CudaStream>) -> Result<Self, DeviceError> {
        cuda::on_stream(stream).map(|(driver, properties)| Self::new(driver, properties))
    }
}

impl<'a> Foreign<'a> {
    /// All of it, as kernels on the stream see it.
    pub fn new<T>(memory: &'a CudaSlice<T>, stream: &'a CudaStream) -> Self {
        let (address, guard) = memory.device_ptr(stream);
        let slice = Slice::foreign(address, memory.len() * size_of::<T>());
        Self { slice, _use: guard }
    }

    /// Where it lies.
    pub fn slice(&self) -> Slice<'_> {
        self.slice
    }
}

impl fmt::Debug for Foreign<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Foreign").field(&self.slice).finish()
    }
}
