//! Rows in the caches of layers with a window: `cuda/windows.cu`.

use super::{Kernels, Moves, OwnRows, PassRows, Sequences, address, check_ints, int, line};
use crate::device::{Arg, DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "windows.cu", text: include_str!("../../cuda/windows.cu"), split: Split::Shared };

/// The window pages of pages.
#[derive(Clone, Copy, Debug)]
pub struct WindowOf<'a> {
    /// int32 `[pages + 1]`: the window page of each page and of that of padding; −1 for none.
    pub page: Slice<'a>,
    /// Number of pages.
    pub pages: usize,
    /// A window page that holds zeros.
    pub absent: usize,
    /// Rows per page.
    pub page_size: usize,
}

/// The rows of a pass in the caches of layers with a window, all int32.
#[derive(Clone, Copy, Debug)]
pub struct WindowedRows<'a> {
    /// `[rows]`: the row that each writes; −1 for none.
    pub write: Slice<'a>,
    /// `[rows, own_stride]`: the rows' lists.
    pub own: Slice<'a>,
    /// `[rows, own_stride]`: the rows of the groups' lists.
    pub group_own: Slice<'a>,
    /// `[slots, table_width]`: the pages of slots, as far as the rows see them.
    pub table: Slice<'a>,
}

impl WindowOf<'_> {
    fn check(&self) -> Result<(), DeviceError> {
        if self.page_size == 0 {
            return Err(DeviceError::Shape("window pages of 0 rows".into()));
        }
        check_ints(self.page, self.pages + 1)
    }
}

impl Kernels {
    /// Translates the rows of a pass whose rows see the last `window` positions. `group_own` are
    /// the lists of its groups, if rows have lists.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn window_rows(
        &self,
        to: WindowedRows<'_>,
        (from, group_own): (PassRows<'_>, Option<OwnRows<'_>>),
        sequences: Sequences<'_>,
        map: WindowOf<'_>,
        (window, rows): (usize, usize),
    ) -> Result<(), DeviceError> {
        map.check()?;
        sequences.check()?;
        check_ints(to.table, sequences.slots * sequences.table_width)?;
        for ints in [to.write, from.write, from.slot, from.prefix] {
            check_ints(ints, rows)?;
        }
        let stride = from.own_stride;
        let lists = group_own.map_or(Slice::NONE, |own| own.cache_rows);
        if group_own.is_some() {
            for ints in [to.own, to.group_own, from.own, lists] {
                check_ints(ints, rows * stride)?;
            }
        }
        let kernel = self.device.kernel(FILE, &[], "window_rows")?;
        let mut arguments = [to.write, to.own, to.group_own, to.table, map.page].map(address).to_vec();
        arguments.extend([map.pages, map.absent, window].map(int));
        arguments.extend([from.write, from.own, lists].map(address));
        arguments.push(int(stride));
        arguments.extend([from.slot, from.prefix, sequences.page_table].map(address));
        arguments.extend([sequences.table_width, map.page_size, rows].map(int));
        // SAFETY: lengths are checked above; slots are those that a layout kernel wrote, which
        // exist, and rows outside of the pages are not looked up.
        unsafe { self.device.launch(&kernel, line(rows.div_ceil(4), 128), &arguments) }
    }

    /// Translates `count` moves of rows.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn window_moves(
        &self,
        to: Moves<'_>,
        from: Moves<'_>,
        map: WindowOf<'_>,
        count: usize,
    ) -> Result<(), DeviceError> {
        map.check()?;
        let operands = [to.from, to.to, from.from, from.to];
        operands.into_iter().try_for_each(|ints| check_ints(ints, count))?;
        let kernel = self.device.kernel(FILE, &[], "window_moves")?;
        let mut arguments: Vec<Arg> = operands.into_iter().chain([map.page]).map(address).collect();
        arguments.extend([map.pages, map.page_size, count].map(int));
        // SAFETY: lengths are checked above, and rows outside of the pages are not looked up.
        unsafe { self.device.launch(&kernel, line(count.div_ceil(64), 64), &arguments) }
    }

    /// Changes the window pages of distinct pages: `changes` is int32 `[count, 2]` with pages,
    /// which must exist, and their window pages.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn change_windows(&self, map: WindowOf<'_>, changes: Slice<'_>, count: usize) -> Result<(), DeviceError> {
        map.check()?;
        check_ints(changes, 2 * count)?;
        let kernel = self.device.kernel(FILE, &[], "change_windows")?;
        let arguments = [address(map.page), address(changes), int(count)];
        // SAFETY: lengths are checked above; pages are the caller's, who checked that they exist.
        unsafe { self.device.launch(&kernel, line(count.div_ceil(64), 64), &arguments) }
    }
}
