//! The rotations of rows, as kernels with rotary embedding read them.

use super::{address, check_ints, int};
use crate::device::{Arg, DeviceError, Slice};

/// A table of rotations, and the position of each row in it.
#[derive(Clone, Copy, Debug)]
pub struct RotaryRows<'a> {
    /// float2 `[positions, rotated / 2]`: cosine and sine.
    pub table: Slice<'a>,
    /// Rows of the table.
    pub positions: usize,
    /// int32 `[rows]`.
    pub position: Slice<'a>,
}

impl RotaryRows<'_> {
    /// Checks the lengths for this many rows and rotated values.
    pub(super) fn check(&self, rows: usize, rotated: usize) -> Result<(), DeviceError> {
        self.table.check(self.positions * rotated / 2 * 8)?;
        check_ints(self.position, rows)
    }

    pub(super) fn arguments(&self) -> [Arg; 3] {
        [address(self.table), int(self.positions), address(self.position)]
    }
}
