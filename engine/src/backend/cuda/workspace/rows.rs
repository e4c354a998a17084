//! Arrays that describe rows.

use kernels::{
    device::{Buffer, Device, DeviceError, Slice},
    launch::{ChosenRows, OwnRows, PassRows, Sees},
};

use super::{super::windows::WindowedArrays, WorkspaceShape};

/// Arrays that describe the rows of a pass: int32, written by layout kernels or by the host.
#[derive(Debug)]
pub struct RowArrays {
    pub token: Buffer,
    pub position: Buffer,
    pub write: Buffer,
    pub slot: Buffer,
    pub prefix: Buffer,
    pub own_count: Buffer,
    /// `[rows, own_stride]`.
    pub own: Buffer,
    pub own_stride: usize,
    /// `[rows, own_stride]`, `[rows]` and `[rows, words]`: own cache rows of groups of rows, each
    /// listed once.
    pub group_own: Buffer,
    pub group_own_count: Buffer,
    pub own_mask: Buffer,
    pub source: Buffer,
    pub sample_position: Buffer,
    /// `[rows + 1]`: first rows of the pieces of prompts.
    pub group_first: Buffer,
    /// The rows for layers with window pages, of passes of the target, if there are any.
    pub windowed: Option<WindowedArrays>,
}

/// Arrays for choosing the tokens after rows, one int32 per row.
#[derive(Clone, Copy)]
pub struct Sampled<'a> {
    /// The slots whose sampling parameters apply.
    pub slot: Slice<'a>,
    /// The tokens' positions, from which their random numbers are computed.
    pub position: Slice<'a>,
}

impl RowArrays {
    /// Operands of the layout kernels.
    pub fn pass(&self) -> PassRows<'_> {
        PassRows {
            token: self.token.slice(),
            position: self.position.slice(),
            write: self.write.slice(),
            slot: self.slot.slice(),
            prefix: self.prefix.slice(),
            own_count: self.own_count.slice(),
            own: self.own.slice(),
            own_stride: self.own_stride,
        }
    }

    /// The same, with the positions of the tokens after the rows.
    pub fn chosen(&self) -> ChosenRows<'_> {
        ChosenRows { rows: self.pass(), sample_position: self.sample_position.slice() }
    }

    /// Sampling parameters for the tokens after the rows.
    pub fn sampled(&self) -> Sampled<'_> {
        Sampled { slot: self.slot.slice(), position: self.sample_position.slice() }
    }

    /// The own cache rows of groups.
    pub fn own_rows(&self) -> OwnRows<'_> {
        OwnRows {
            cache_rows: self.group_own.slice(),
            count: self.group_own_count.slice(),
            mask: self.own_mask.slice(),
            own_stride: self.own_stride,
        }
    }

    /// Each row attends to the positions before its pass, and to its own list.
    pub fn branches(&self) -> Sees<'_> {
        Sees::Own(self.own_rows())
    }

    /// Arrays for passes of the target, which may have layers with window pages.
    pub fn of_target(device: &Device, extent: WorkspaceShape, windowed: bool) -> Result<Self, DeviceError> {
        let arrays = Self::sized(device, extent.rows, extent.own_stride(), extent.own_mask_words())?;
        let windowed = windowed.then(|| WindowedArrays::new(device, extent.rows, extent.own_stride())).transpose()?;
        Ok(Self { windowed, ..arrays })
    }

    /// Arrays for this many rows, own rows of each, and words of a mask over a request's own rows.
    pub(super) fn sized(
        device: &Device,
        rows: usize,
        own_stride: usize,
        mask_words: usize,
    ) -> Result<Self, DeviceError> {
        let ints = |width: usize| device.zeros(rows * width * 4);
        Ok(Self {
            token: ints(1)?,
            position: ints(1)?,
            write: ints(1)?,
            slot: ints(1)?,
            prefix: ints(1)?,
            own_count: ints(1)?,
            own: ints(own_stride)?,
            own_stride,
            group_own: ints(own_stride)?,
            group_own_count: ints(1)?,
            own_mask: ints(mask_words)?,
            source: ints(1)?,
            sample_position: ints(1)?,
            group_first: device.zeros((rows + 1) * 4)?,
            windowed: None,
        })
    }
}
