//! `cuda/attention_tiles.cu`.

use super::{Attention, HEAD_DIMS, Kernels, address, check_ints, grid, int};
use crate::device::{Arg, DeviceError, Element, KernelFile, Slice};

pub(super) const FILE: KernelFile =
    KernelFile { name: "attention_tiles.cu", text: include_str!("../../cuda/attention_tiles.cu") };

/// Splits that one warp can weigh.
const MOST_SPLITS: usize = 32;

/// Runs of rows that have one slot.
#[derive(Clone, Copy, Debug)]
pub enum Groups<'a> {
    /// All of this many rows.
    Even(usize),
    /// Any.
    Ranges {
        /// int32 `[groups + 1]`: the first row of each, then the number of rows.
        first: Slice<'a>,
        /// Groups.
        count: usize,
        /// Rows of the largest.
        largest: usize,
    },
}

impl Kernels {
    /// Attention as [`attention_rows`](Self::attention_rows), on tensor cores, for rows that come in groups. The number of
    /// splits is chosen here, so that the device is busy: at most that of the operands, and as many as there is workspace for.
    ///
    /// # Errors
    /// When a buffer is too short, the element type is float, the head size is not one of [`HEAD_DIMS`], or the device
    /// fails.
    pub fn attention_tiles(&self, attention: Attention<'_>, groups: Groups<'_>) -> Result<(), DeviceError> {
        let Attention { out, query, rows, heads, kv_heads, head_dim, max_splits, .. } = attention;
        if self.element == Element::F32 || !HEAD_DIMS.contains(&head_dim) || kv_heads == 0 || max_splits == 0 {
            return Err(DeviceError::Shape(format!(
                "attention of {heads} heads over {kv_heads} of {head_dim} elements cannot run on tensor cores as {}",
                self.element.name()
            )));
        }
        out.check(rows * heads * head_dim * self.element.bytes())?;
        self.check_rows(query, rows, heads * head_dim)?;
        for ints in [attention.row_slot, attention.row_prefix, attention.row_own_count] {
            check_ints(ints, rows)?;
        }
        check_ints(attention.row_own, rows * attention.own_stride)?;
        let (first, count, largest) = match groups {
            Groups::Even(size) => (Slice::NONE, rows.div_ceil(size.max(1)), size.max(1)),
            Groups::Ranges { first, count, largest } => {
                check_ints(first, count + 1)?;
                (first, count, largest)
            }
        };
        let pairs = largest * (heads / kv_heads);
        let (name, pairs_a_block, threads) = match pairs {
            ..=16 => ("attention_tiles_16", 16, if head_dim > 128 { 64 } else { 128 }),
            17..=32 => ("attention_tiles_32", 32, 128),
            33..=64 => ("attention_tiles_64", 64, 128),
            _ => ("attention_tiles_128", 128, 256),
        };
        let parts = kv_heads * pairs.div_ceil(pairs_a_block);
        // Blocks that run at the same time: registers of 256 threads leave no room for a second block. More splits than fit
        // at once would make a second wave, and each split has to be merged.
        let at_once = self.device.properties().multiprocessors * if threads > 128 { 1 } else { 2 };
        let room = attention.partial.bytes() / Self::attention_workspace(rows, heads, head_dim, 1).max(1);
        let room = if attention.counters.bytes() < count * parts * 4 { 1 } else { room };
        let splits = (at_once / (count * parts).max(1)).min(max_splits.min(MOST_SPLITS)).min(room).max(1);
        let keys_a_tile = if head_dim <= 128 { 64 } else { 32 };
        let shared = 2 * 2 * keys_a_tile * (head_dim * 2 + 16);
        let options = [self.element.option(), format!("-DHEAD_DIM={head_dim}")];
        let kernel = self.device.kernel(FILE, &options, name)?;
        let arguments = [
            address(out),
            address(query.at),
            int(query.stride),
            address(attention.keys),
            address(attention.values),
            address(attention.page_table),
            int(attention.table_width),
            int(attention.page_size),
            address(attention.row_slot),
            address(attention.row_prefix),
            address(attention.row_own_count),
            address(attention.row_own),
            int(attention.own_stride),
            address(first),
            int(largest),
            int(rows),
            int(heads),
            int(kv_heads),
            Arg::Float(1.0 / (head_dim as f32).sqrt()),
            address(attention.partial),
            address(attention.counters),
            int(splits),
        ];
        // SAFETY: lengths are checked above; cache rows come from the page table and the layout kernels, which stay within,
        // as do the first rows of groups.
        unsafe { self.device.launch(&kernel, grid([splits, parts, count], threads, shared), &arguments) }
    }
}
