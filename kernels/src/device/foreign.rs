//! Runs kernels together with those of another library that uses cudarc: on its stream, over its
//! memory.

use std::{fmt, sync::Arc};

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, SyncOnDrop};

use super::{Device, DeviceError, Slice, cuda};

/// Memory allocated by another library, as a [`Slice`].
pub struct Foreign<'a> {
    slice: Slice<'a>,
    /// On drop, tells the library that its stream has used the memory.
    _use: SyncOnDrop<'a>,
}

impl Device {
    /// A device on another library's stream, so that its kernels and ours run in one order.
    ///
    /// # Errors
    /// As [`cuda`](Self::cuda).
    pub fn on_stream(stream: Arc<CudaStream>) -> Result<Self, DeviceError> {
        cuda::on_stream(stream).map(|(driver, properties)| Self::new(driver, properties))
    }
}

impl<'a> Foreign<'a> {
    /// All of the memory, for kernels on `stream`.
    pub fn new<T>(memory: &'a CudaSlice<T>, stream: &'a CudaStream) -> Self {
        let (address, guard) = memory.device_ptr(stream);
        let slice = Slice::foreign(address, memory.len() * size_of::<T>());
        Self { slice, _use: guard }
    }

    /// The memory as a slice.
    pub fn slice(&self) -> Slice<'_> {
        self.slice
    }
}

impl fmt::Debug for Foreign<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Foreign").field(&self.slice).finish()
    }
}
