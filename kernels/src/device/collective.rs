//! Sums over devices by their collective library, if available.

use std::{fmt, sync::Arc};

use super::{Device, DeviceError, Element, Slice, cuda, driver};

/// The name of a group in the library.
#[derive(Clone, Copy)]
pub struct GroupId(pub(super) [u8; 128]);

/// A device's part in such a group; clones share it.
#[derive(Clone)]
pub struct Collective(Arc<dyn driver::Collective>);

impl GroupId {
    /// A new one.
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

    /// Adds up elements over all ranks in place, in order with the device's stream. All ranks call it in the same order with the
    /// same sizes.
    ///
    /// # Errors
    /// When there are fewer elements, or the library fails.
    pub fn sum(&self, values: Slice<'_>, count: usize, element: Element) -> Result<(), DeviceError> {
        values.check(count * element.bytes())?;
        // SAFETY: checked above.
        unsafe { self.0.sum(values.address(), count, element) }
    }

    /// Lets go whoever waits for a rank, on devices too; nothing can be added up any more.
    pub fn abort(&self) {
        self.0.abort();
    }
}

impl fmt::Debug for Collective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Collective").field(&self.library()).finish()
    }
}
