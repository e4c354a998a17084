//! `cuda/state.cu`.

use super::{Kernels, address, check_ints, int, line};
use crate::device::{DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "state.cu", text: include_str!("../../cuda/state.cu"), split: Split::Shared };

impl Kernels {
    /// Sets length and last token of slots: `update` is int32 `[count, 3]` with slot, length and
    /// token; a negative length leaves both unchanged.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn set_state(
        &self,
        length: Slice<'_>,
        root: Slice<'_>,
        update: Slice<'_>,
        count: usize,
    ) -> Result<(), DeviceError> {
        check_ints(update, 3 * count)?;
        let kernel = self.device.kernel(FILE, &[], "set_state")?;
        let arguments = [address(length), address(root), address(update), int(count)];
        // SAFETY: lengths are checked above; slots are the caller's, who opened them.
        unsafe { self.device.launch(&kernel, line(count.div_ceil(64), 64), &arguments) }
    }
    /// Puts chosen tokens where later kernels read them: `chosen[i]`, or 0 if it does not exist,
    /// goes to `token[place[i, 0]]` and to `update[place[i, 1]]`. `place` is int32 `[count, 2]`.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn put_first(
        &self,
        token: Slice<'_>,
        update: Slice<'_>,
        place: Slice<'_>,
        chosen: Slice<'_>,
        count: usize,
    ) -> Result<(), DeviceError> {
        check_ints(place, 2 * count)?;
        check_ints(chosen, count)?;
        let kernel = self.device.kernel(FILE, &[], "put_first")?;
        let arguments = [address(token), address(update), address(place), address(chosen), int(count)];
        // SAFETY: lengths are checked above; places are the caller's, who laid out both arrays.
        unsafe { self.device.launch(&kernel, line(count.div_ceil(64), 64), &arguments) }
    }
}
