//! Rows of a draft that is a whole model: `cuda/ahead.cu`.

use super::{Kernels, PassRows, Sequences, address, check_ints, int, line};
use crate::device::{DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "ahead.cu", text: include_str!("../../cuda/ahead.cu"), split: Split::Shared };

impl Kernels {
    /// Moves `count` rows to the next position: they see one position more, and with `writes` they
    /// write the cache row of that position instead of their own. Padding stays as it is.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn next_positions(
        &self,
        rows: PassRows<'_>,
        sequences: Sequences<'_>,
        writes: bool,
        count: usize,
    ) -> Result<(), DeviceError> {
        sequences.check()?;
        rows.check(count, 0)?;
        let pages = if writes { sequences.page_table } else { Slice::NONE };
        check_ints(rows.slot, count)?;
        let kernel = self.device.kernel(FILE, &[], "next_positions")?;
        let mut arguments = [rows.position, rows.prefix, rows.write, rows.slot, pages].map(address).to_vec();
        arguments.extend([sequences.table_width, sequences.page_size, sequences.dummy(), count].map(int));
        // SAFETY: lengths are checked above; the rows' slots are those that a layout kernel wrote,
        // which exist.
        unsafe { self.device.launch(&kernel, line(count.div_ceil(64), 64), &arguments) }
    }
}
