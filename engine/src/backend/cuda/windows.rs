//! Window pages on the device (see `backend::windows`): their map, and the caches of layers with a
//! window.

use kernels::{
    device::{Buffer, Device, DeviceError, DeviceEvent, HostBuffer},
    launch::{WindowOf, WindowedRows},
};

use crate::{backend::Capacity, spec::TargetSpec};

/// Window pages beyond those of the pool: one for writes of padding, and one that holds zeros,
/// which attention may read next to a window.
pub const SPARE: usize = 2;
/// Maximum number of changes that are sent together.
pub const TOGETHER: usize = 4096;
/// Number of such batches in flight.
pub const PLACES: usize = 4;

/// The caches of layers with a window, and which rows of them a page has.
pub struct Windows {
    /// Number of positions that a row sees.
    pub window: usize,
    /// `[layers with a window, planes, rows, width]`.
    pub cache: Buffer,
    /// Cache rows of a plane.
    pub rows: usize,
    /// int32 `[pages + 1]`: the window page of each page, and of that of padding; −1 for none.
    of_page: Buffer,
    pages: usize,
    page_size: usize,
    /// int32 `[slots, table_width]`: the window pages of slots, as far as the last pass saw them.
    pub table: Buffer,
    /// int32 `[TOGETHER, 2]`.
    pub changes: Buffer,
}

/// Page-locked memory of changes in flight.
pub struct WindowStaging {
    /// Each with the end of its last use.
    pub places: Vec<(HostBuffer, DeviceEvent)>,
    /// Number of batches so far.
    pub sent: usize,
}

impl Windows {
    /// Empty caches, if the device has window pages. At first page i has window page i, as far as
    /// there are any.
    pub fn new(
        device: &Device,
        target: &TargetSpec,
        capacity: &Capacity,
        table_width: usize,
        element: usize,
    ) -> Result<Option<Self>, DeviceError> {
        let Some(windows) = capacity.windows else { return Ok(None) };
        let Capacity { pages, page_size, slots, .. } = *capacity;
        let rows = (windows.count + SPARE) * page_size;
        let layers = target.windows_before(target.layers.len());
        let of_page = (0..pages).map(|page| if page < windows.count { page as i32 } else { -1 });
        let of_page: Vec<i32> = of_page.chain([windows.count as i32]).collect();
        Ok(Some(Self {
            window: windows.window,
            cache: device.zeros(layers * target.kv().bytes(element) * rows)?,
            rows,
            of_page: device.upload(&of_page)?,
            pages,
            page_size,
            // No slot has a window page yet: every entry is the page of zeros.
            table: device.upload(&vec![windows.count as i32 + 1; (slots + 1) * table_width])?,
            changes: device.zeros(TOGETHER * 8)?,
        }))
    }

    /// Bytes of the map and of the tables.
    pub fn bytes_of_tables(pages: usize, slots: usize, table_width: usize) -> u64 {
        ((pages + 1 + (slots + 1) * table_width + 2 * TOGETHER) * 4) as u64
    }

    /// Operands of the kernels.
    pub fn map(&self) -> WindowOf<'_> {
        // The last spare page, which holds zeros.
        let absent = self.rows / self.page_size - 1;
        WindowOf { page: self.of_page.slice(), pages: self.pages, absent, page_size: self.page_size }
    }
}

impl WindowStaging {
    pub fn new(device: &Device) -> Result<Self, DeviceError> {
        let place = |_| Ok((device.host_buffer(TOGETHER * 8)?, device.event()?));
        Ok(Self { places: (0..PLACES).map(place).collect::<Result<_, DeviceError>>()?, sent: 0 })
    }
}

/// Rows of a pass in the caches with window pages: int32, written from the rows of the
/// others.
#[derive(Debug)]
pub struct WindowedArrays {
    write: Buffer,
    /// `[rows, own_stride]` each.
    own: Buffer,
    group_own: Buffer,
}

impl WindowedArrays {
    pub fn new(device: &Device, rows: usize, own_stride: usize) -> Result<Self, DeviceError> {
        let ints = |width: usize| device.zeros(rows * width * 4);
        Ok(Self { write: ints(1)?, own: ints(own_stride)?, group_own: ints(own_stride)? })
    }

    /// Operands of the kernels, with the table of slots.
    pub fn rows<'a>(&'a self, windows: &'a Windows) -> WindowedRows<'a> {
        WindowedRows {
            write: self.write.slice(),
            own: self.own.slice(),
            group_own: self.group_own.slice(),
            table: windows.table.slice(),
        }
    }

    /// Words per row.
    pub fn words(own_stride: usize) -> usize {
        1 + 2 * own_stride
    }
}
