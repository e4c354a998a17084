//! `cuda/own_rows.cu`.

use super::{Groups, Kernels, address, check_ints, grid, int};
use crate::device::{Arg, DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "own_rows.cu", text: include_str!("../../cuda/own_rows.cu"), split: Split::Shared };

/// Maximum number of rows of a group that can have own rows: a block has one thread per row.
const MOST_ROWS: usize = 128;

/// The own rows of groups (in addition to their prefixes), each listed once, as written by
/// [`Kernels::gather_own`] for [`Kernels::rotate_and_attend`]. All int32.
#[derive(Clone, Copy, Debug)]
pub struct OwnRows<'a> {
    /// `[rows, own_stride]`: the cache rows of a group start at its first row.
    pub cache_rows: Slice<'a>,
    /// `[groups]`: number of own rows of a group.
    pub count: Slice<'a>,
    /// `[rows, mask_words]`: the own rows that a row sees, one bit each; see
    /// [`Kernels::own_mask_words`].
    pub mask: Slice<'a>,
    /// Capacity of a row's own list.
    pub own_stride: usize,
}

impl Kernels {
    /// Words of a mask over all own rows of a group.
    pub fn own_mask_words(largest_group: usize, own_stride: usize) -> usize {
        (largest_group * own_stride).div_ceil(32)
    }

    /// Lists the own rows of each group once each. `count` int32 `[rows]` and `list` int32
    /// `[rows, own_stride]` are the rows' own lists. Needed once per pass: all layers have the same
    /// lists.
    ///
    /// # Errors
    /// When a buffer is too short, a group has more than 128 rows, or the device fails.
    pub fn gather_own(
        &self,
        own: OwnRows<'_>,
        count: Slice<'_>,
        list: Slice<'_>,
        groups: Groups<'_>,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let ((first, group_count), largest) = (groups.parts(rows)?, groups.largest());
        if largest > MOST_ROWS {
            return Err(DeviceError::Shape(format!(
                "{largest} rows of a group have own rows; at most {MOST_ROWS} can"
            )));
        }
        let mask_words = Self::own_mask_words(largest, own.own_stride);
        self.check_own(own, rows, group_count, mask_words)?;
        check_ints(count, rows)?;
        check_ints(list, rows * own.own_stride)?;
        let kernel = self.device.kernel(FILE, &[], "gather_own")?;
        let arguments = [
            address(own.cache_rows),
            address(own.count),
            address(own.mask),
            int(mask_words),
            address(count),
            address(list),
            int(own.own_stride),
            address(first),
            int(largest),
            int(rows),
        ];
        // SAFETY: lengths are checked above; the caller guarantees that the first rows of groups
        // are within the rows.
        unsafe { self.device.launch(&kernel, grid([group_count, 1, 1], MOST_ROWS as u32, 0), &arguments) }
    }

    pub(super) fn check_own(
        &self,
        own: OwnRows<'_>,
        rows: usize,
        groups: usize,
        mask_words: usize,
    ) -> Result<(), DeviceError> {
        check_ints(own.cache_rows, rows * own.own_stride)?;
        check_ints(own.count, groups)?;
        check_ints(own.mask, rows * mask_words)
    }

    /// Checks the capacity for the own rows of groups of `largest` rows, and returns them as
    /// arguments.
    pub(super) fn own_arguments(
        &self,
        own: Option<OwnRows<'_>>,
        groups: usize,
        largest: usize,
        own_stride: usize,
    ) -> Result<[Arg; 4], DeviceError> {
        let none = address(Slice::NONE);
        let Some(own) = own else { return Ok([none, none, none, int(0)]) };
        if own.own_stride != own_stride {
            let room = own.own_stride;
            return Err(DeviceError::Shape(format!(
                "a group has room for {room} own rows, but a row for {own_stride}"
            )));
        }
        let mask_words = Self::own_mask_words(largest, own_stride);
        self.check_own(own, groups * largest, groups, mask_words)?;
        Ok([address(own.cache_rows), address(own.count), address(own.mask), int(mask_words)])
    }
}
