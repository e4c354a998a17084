//! Sums over devices with their collective library (NCCL), if available.

use std::{fmt, sync::Arc};

use super::{Device, DeviceError, Element, Slice, cuda, driver};

/// The library's identifier of a group.
#[derive(Clone, Copy)]
pub struct GroupId(pub(super) [u8; 128]);

/// A device's membership in a group; clones share it.
#[derive(Clone)]
pub struct Collective(Arc<dyn driver::CollectiveDriver>);

impl GroupId {
    /// Creates an identifier.
    ///
    /// # Errors
    /// When the library is missing.
    pub fn new() -> Result<Self, DeviceError> {
        cuda::group_id()
    }
}

impl Collective {
    /// Joins a group; returns when all its ranks have.
    ///
    /// # Errors
    /// When the library is missing or fails, or the device has none.
    pub fn join(device: &Device, id: &GroupId, rank: usize, ranks: usize) -> Result<Self, DeviceError> {
        device.driver().join(id, rank, ranks).map(Self)
    }

    /// Name and version of the library.
    pub fn library(&self) -> String {
        self.0.library()
    }

    /// Sums elements over all ranks in place, in order with the device's stream. All ranks call it
    /// in the same order with the same sizes.
    ///
    /// # Errors
    /// When the slice is too short, or the library fails.
    pub fn sum(&self, values: Slice<'_>, count: usize, element: Element) -> Result<(), DeviceError> {
        values.check(count * element.bytes())?;
        // SAFETY: checked above.
        unsafe { self.0.sum(values.address(), count, element) }
    }

    /// Releases all waits for other ranks, including those on devices; the group cannot be used
    /// afterwards.
    pub fn abort(&self) {
        self.0.abort();
    }
}

impl fmt::Debug for Collective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Collective").field(&self.library()).finish()
    }
}
