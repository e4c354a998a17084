//! Attention of separate rows: `cuda/attention.cu`.

use super::{Kernels, Rows, address, check_ints, grid, int};
use crate::{
    device::{Arg, DeviceError, Element, KernelFile, Slice, Split},
    reference::CacheScales,
};

pub(super) const FILE: KernelFile =
    KernelFile { name: "attention.cu", text: include_str!("../../cuda/attention.cu"), split: Split::Shared };

/// Supported head sizes.
pub const HEAD_DIMS: [usize; 4] = [64, 96, 128, 256];

/// Compiler option of kernels with sinks and windows.
pub(super) const SINKS: &str = "-DSINKS";
/// Compiler option of kernels over a cache in FP8.
pub(super) const CACHE_FP8: &str = "-DKV_FP8";

/// Number of splits that is assumed when the number of rows per block is chosen.
const FEWEST_SPLITS: usize = 3;
/// Maximum number of splits that `attention.cu` can merge.
const MOST_SPLITS: usize = 512;

/// The cache rows that each row of a pass sees: a prefix of a slot's positions, and a list of its
/// own.
#[derive(Clone, Copy, Debug)]
pub struct VisibleRows<'a> {
    /// int32 `[slots, table_width]`.
    pub page_table: Slice<'a>,
    /// Maximum number of pages of a slot.
    pub table_width: usize,
    /// Cache rows per page.
    pub page_size: usize,
    /// int32 `[rows]`: the slot whose positions a row sees.
    pub slot: Slice<'a>,
    /// int32 `[rows]`: number of positions that a row sees.
    pub prefix: Slice<'a>,
    /// int32 `[rows]`: number of further cache rows that a row sees.
    pub own_count: Slice<'a>,
    /// int32 `[rows, own_stride]`: these cache rows.
    pub own: Slice<'a>,
    /// Capacity of a row's list.
    pub own_stride: usize,
}

/// Operands of [`Kernels::attention_rows`].
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// `[rows, heads · head_dim]`.
    pub out: Slice<'a>,
    /// Rows that start with `heads · head_dim` queries.
    pub query: Rows<'a>,
    /// `[cache rows, kv_heads, head_dim]`.
    pub keys: Slice<'a>,
    /// `[cache rows, kv_heads, head_dim]`.
    pub values: Slice<'a>,
    /// The scales of keys and values if they are in FP8; `None` if they are elements.
    pub fp8: Option<CacheScales>,
    /// The cache rows that each row sees.
    pub visible: VisibleRows<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Length of the runs of rows, from the first on, that usually have one slot. Keys that several
    /// of them see can be read once for all. Affects the speed only, not the results.
    pub together: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; `heads` is a multiple.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Float workspace of [`attention_workspace`](Kernels::attention_workspace) bytes.
    pub partial: Slice<'a>,
    /// int32 `[rows, heads]`, zero before and after.
    pub counters: Slice<'a>,
    /// Maximum number of splits of a long list of keys, at most 512. The result's bits depend on
    /// it.
    pub max_splits: usize,
    /// `[heads]`: one more score in the softmax of each query head, without a value.
    pub sinks: Option<Slice<'a>>,
    /// A row sees only this many of its last positions and own rows; `None` for all.
    pub window: Option<usize>,
}

impl<'a> VisibleRows<'a> {
    /// Checks the lengths for this many rows.
    pub(super) fn check(&self, rows: usize) -> Result<(), DeviceError> {
        for ints in [self.slot, self.prefix, self.own_count] {
            check_ints(ints, rows)?;
        }
        check_ints(self.own, rows * self.own_stride)
    }

    /// The arguments of kernels that read a slot's positions.
    pub(super) fn prefix_arguments(&self) -> [Arg; 5] {
        [address(self.page_table), int(self.table_width), int(self.page_size), address(self.slot), address(self.prefix)]
    }

    /// The further arguments of kernels that read lists.
    pub(super) fn own_arguments(&self) -> [Arg; 3] {
        [address(self.own_count), address(self.own), int(self.own_stride)]
    }

    /// The rows from `start` on.
    pub fn from_row(&self, start: usize) -> Self {
        let from = |slice: Slice<'a>, width: usize| slice.range(start * width * 4..slice.bytes());
        Self {
            slot: from(self.slot, 1),
            prefix: from(self.prefix, 1),
            own_count: from(self.own_count, 1),
            own: from(self.own, self.own_stride),
            ..*self
        }
    }
}

impl Attention<'_> {
    /// Whether rows see all positions, without sinks.
    pub(super) fn is_plain(&self) -> bool {
        self.sinks.is_none() && self.window.is_none()
    }

    /// The first arguments of all kernels of attention: queries, the cache and the positions in it.
    pub(super) fn head_arguments(&self) -> Vec<Arg> {
        let operands = [
            address(self.out),
            address(self.query.at),
            int(self.query.stride),
            address(self.keys),
            address(self.values),
        ];
        operands.into_iter().chain(self.visible.prefix_arguments()).collect()
    }

    /// Factor of the products of queries and keys as they are stored.
    pub(super) fn score_scale(&self) -> f32 {
        self.fp8.map_or(1.0, |scales| scales.keys) / (self.head_dim as f32).sqrt()
    }

    /// The options of kernels with sinks and windows, and over a cache in FP8.
    pub(super) fn options(&self, plain: Vec<String>) -> Vec<String> {
        let mut plain = cache_options(self.fp8, plain);
        plain.extend((!self.is_plain()).then(|| SINKS.into()));
        plain
    }

    /// The further arguments of kernels with that option.
    pub(super) fn sink_arguments(&self) -> Vec<Arg> {
        if self.is_plain() {
            return Vec::new();
        }
        vec![address(self.sinks.unwrap_or(Slice::NONE)), int(self.window.unwrap_or_default())]
    }

    /// Checks that there is a sink for each head, and that a window contains a row.
    pub(super) fn check_sinks(&self, element: Element) -> Result<(), DeviceError> {
        if self.window == Some(0) {
            return Err(DeviceError::Shape("attention within a window of 0 positions".into()));
        }
        self.sinks.map_or(Ok(()), |sinks| sinks.check(self.heads * element.bytes()))
    }
}

/// The option of kernels over a cache in FP8.
pub(super) fn cache_options(fp8: Option<CacheScales>, mut plain: Vec<String>) -> Vec<String> {
    plain.extend(fp8.map(|_| CACHE_FP8.into()));
    plain
}

/// The further arguments of kernels with that option that also write to the cache.
pub(super) fn cache_arguments(fp8: Option<CacheScales>) -> Vec<Arg> {
    fp8.map(|CacheScales { keys, values }| vec![Arg::Float(keys), Arg::Float(values)]).unwrap_or_default()
}

impl Kernels {
    /// Bytes of workspace for this many rows.
    pub fn attention_workspace(rows: usize, heads: usize, head_dim: usize, max_splits: usize) -> usize {
        rows * heads * max_splits * (head_dim + 4) * 4
    }

    /// Softmax attention of each row over the cache rows that it sees, scaled by 1 / √head_dim.
    ///
    /// # Errors
    /// When a buffer is too short, the head size is not one of [`HEAD_DIMS`], or the device fails.
    pub fn attention_rows(&self, attention: Attention<'_>) -> Result<(), DeviceError> {
        let Attention { out, query, rows, together, heads, kv_heads, head_dim, max_splits, .. } = attention;
        if !HEAD_DIMS.contains(&head_dim)
            || kv_heads == 0
            || !heads.is_multiple_of(kv_heads)
            || !(1..=MOST_SPLITS).contains(&max_splits)
        {
            return Err(DeviceError::Shape(format!(
                "attention of {heads} heads over {kv_heads} of {head_dim} elements in {max_splits} splits cannot run; head sizes \
                 are {HEAD_DIMS:?}"
            )));
        }
        let element = self.element.bytes();
        out.check(rows * heads * head_dim * element)?;
        self.check_rows(query, rows, heads * head_dim)?;
        attention.visible.check(rows)?;
        check_ints(attention.counters, rows * heads)?;
        attention.partial.check(Self::attention_workspace(rows, heads, head_dim, max_splits))?;
        let group = heads / kv_heads;
        // Groups without a fitting kernel run in parts of the size that leaves the fewest heads
        // idle. A block takes as many rows as registers can hold sums for.
        let (part, alone, several, block_rows) = match group {
            1 => (1, "attention_rows_1", "attention_rows_1_of_4", 4),
            2 => (2, "attention_rows_2", "attention_rows_2_of_4", 4),
            3 | 4 | 7 => (4, "attention_rows_4", "attention_rows_4_of_2", 2),
            _ => (8, "attention_rows_8", "attention_rows_8", 1),
        };
        let parts = kv_heads * group.div_ceil(part);
        let together = together.clamp(1, rows.max(1));
        let blocks = |of: usize| rows / together * together.div_ceil(of) + (rows % together).div_ceil(of);
        // If that leaves few blocks, separate rows are better: a block takes longer with several.
        let (name, blocks) = match together > 1
            && parts * blocks(block_rows) * FEWEST_SPLITS >= self.device.properties().multiprocessors
        {
            true => (several, blocks(block_rows)),
            false => (alone, rows),
        };
        attention.check_sinks(self.element)?;
        let options = attention.options(vec![self.element.option(), format!("-DHEAD_DIM={head_dim}")]);
        let kernel = self.device.kernel(FILE, &options, name)?;
        let mut arguments = attention.head_arguments();
        arguments.extend(attention.visible.own_arguments());
        arguments.extend([
            int(rows),
            int(together),
            int(heads),
            int(kv_heads),
            Arg::Float(attention.score_scale()),
            address(attention.partial),
            address(attention.counters),
            int(max_splits),
        ]);
        arguments.extend(attention.fp8.map(|scales| Arg::Float(scales.values)));
        arguments.extend(attention.sink_arguments());
        let blocks = [parts, blocks, max_splits];
        // SAFETY: lengths are checked above; cache rows from the page table and the layout kernels
        // are within the cache.
        unsafe { self.device.launch(&kernel, grid(blocks, 128, 0), &arguments) }
    }
}
