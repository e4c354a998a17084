//! Argmax, top-k and log-probabilities of logits: `cuda/select.cu`.

use super::{Kernels, address, check_ints, grid, int};
use crate::device::{DeviceError, Geometry, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "select.cu", text: include_str!("../../cuda/select.cu"), split: Split::Shared };

/// Threads of a block.
const THREADS: u32 = 512;
const WARPS: usize = THREADS as usize / 32;
/// Values that a thread reads at a time, and maximum number of reads before its block selects.
const ITEMS: usize = 8;
const MOST_TURNS: usize = 2;
/// Threads that find their best value together: the first for small counts, the second otherwise.
const LARGE_GROUP: usize = 16;
const SMALL_GROUP: usize = 4;
/// Minimum number of values of a share: with fewer, a further block gains nothing.
const LEAST_SHARE: usize = 1024;
/// Maximum number of shares of a row: the cluster size that every GPU with clusters supports.
const MOST_SHARES: usize = 8;
/// Maximum number of blocks that select at the same time: more would wait for one another, and each
/// has work that does not depend on its share.
const MOST_BLOCKS: usize = 256;
/// Maximum number of values that can be selected from a row.
pub const MOST_SELECTED: usize = 64;

/// Placeholder for the token after a row whose largest logit is not finite. No node of a tree has
/// this token.
pub const NOT_FINITE: i32 = -2;

/// Logits, f32.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a> {
    /// The first row.
    pub at: Slice<'a>,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Rows.
    pub rows: usize,
    /// Elements of a row that count.
    pub vocabulary: usize,
}

/// How the blocks of a cluster share a row.
#[derive(Clone, Copy)]
struct ClusterPartition {
    blocks: usize,
    /// Values of a share, a multiple of 4.
    length: usize,
    /// Shares of a block.
    shares: usize,
}

/// Operands of [`Kernels::top_k_rows`].
#[derive(Clone, Copy, Debug)]
pub struct TopK<'a> {
    /// `[rows, count]`, int32.
    pub ids: Slice<'a>,
    /// `[rows, count]`, f32.
    pub logprobs: Slice<'a>,
    /// The input.
    pub logits: Logits<'a>,
    /// Number of values selected from each row, at most [`MOST_SELECTED`].
    pub count: usize,
    /// The token of each index, int32 `[vocabulary]`; `None` for the index itself.
    pub token_map: Option<Slice<'a>>,
}

/// Operands of [`Kernels::logprob_rows`].
#[derive(Clone, Copy, Debug)]
pub struct LogprobRows<'a> {
    /// Log-probabilities of the tokens, `[rows]`, f32.
    pub logprobs: Slice<'a>,
    /// `[rows, count]`, int32.
    pub top_ids: Slice<'a>,
    /// `[rows, count]`, f32.
    pub top_logprobs: Slice<'a>,
    /// Number of alternatives written for each row, 1 to [`MOST_SELECTED`].
    pub count: usize,
    /// The input; its rows are those of the source, if there is one.
    pub logits: Logits<'a>,
    /// Number of rows that are written.
    pub rows: usize,
    /// The row of logits for each row, int32 `[rows]`; `None` for the row itself.
    pub row_source: Option<Slice<'a>>,
    /// `[rows]`, int32.
    pub token: Slice<'a>,
    /// `[rows]`, int32.
    pub row_slot: Slice<'a>,
    /// Number of alternatives that each slot requests, int32 `[slots]`; negative for no
    /// log-probabilities.
    pub logprob_count: Slice<'a>,
}

impl Logits<'_> {
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        let Self { at, stride, rows, vocabulary } = *self;
        if rows == 0 || vocabulary == 0 || stride < vocabulary || i32::try_from(vocabulary).is_err() {
            return Err(DeviceError::Shape(format!("{rows} rows of {vocabulary} logits, {stride} apart")));
        }
        at.check(((rows - 1) * stride + vocabulary) * 4)
    }

    /// Also checks the number of selected values.
    fn check_count(&self, count: usize) -> Result<(), DeviceError> {
        self.check()?;
        if count == 0 || count > MOST_SELECTED {
            return Err(DeviceError::Shape(format!(
                "{count} of {} values cannot be selected: 1 to {MOST_SELECTED} can",
                self.vocabulary
            )));
        }
        Ok(())
    }

    /// Divides a row among up to `most` blocks. Length and number of the shares depend on the
    /// vocabulary alone.
    fn partition(&self, most: usize) -> ClusterPartition {
        let mut all = MOST_SHARES;
        while all > 1 && self.vocabulary < all * LEAST_SHARE {
            all /= 2;
        }
        let mut blocks = all;
        while blocks > most.max(1) {
            blocks /= 2;
        }
        ClusterPartition { blocks, length: self.vocabulary.div_ceil(all).next_multiple_of(4), shares: all / blocks }
    }
}

impl ClusterPartition {
    fn geometry(&self, rows: usize, shared: usize) -> Geometry {
        grid([self.blocks, rows, 1], THREADS, shared).in_clusters(self.blocks)
    }

    /// Bytes of shared memory for selecting `count` values: the values read, the results of a
    /// block's warps and its best keys, the same of all blocks, and candidates.
    fn handed(&self, count: usize) -> usize {
        let threads = THREADS as usize;
        let turns = (self.length.div_ceil(ITEMS * threads) * self.shares).min(MOST_TURNS);
        let group = if 2 * LARGE_GROUP * count <= threads { LARGE_GROUP } else { SMALL_GROUP };
        let (kept, keys, candidates) = match count {
            1 => (0, WARPS, 0),
            _ => (turns * ITEMS * threads * 4, count, group * (ITEMS * turns + 1) * count),
        };
        kept + ((self.blocks + 1) * (self.shares * WARPS + keys) + candidates) * 8
    }
}

impl Kernels {
    /// The best values of each row with their log-probabilities.
    ///
    /// # Errors
    /// When a buffer is too short, the request exceeds a limit, or the device fails.
    pub fn top_k_rows(&self, top: TopK<'_>) -> Result<(), DeviceError> {
        let TopK { ids, logprobs, logits, count, token_map } = top;
        logits.check_count(count)?;
        check_ints(ids, logits.rows * count)?;
        logprobs.check(logits.rows * count * 4)?;
        if let Some(map) = token_map {
            check_ints(map, logits.vocabulary)?;
        }
        let partition = self.selecting(logits);
        let kernel = self.device.kernel(FILE, &[], "top_k_rows")?;
        let arguments = [
            address(ids),
            address(logprobs),
            address(logits.at),
            int(logits.stride),
            int(logits.vocabulary),
            int(partition.length),
            int(partition.shares),
            int(count),
            address(token_map.unwrap_or(Slice::NONE)),
        ];
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, partition.geometry(logits.rows, partition.handed(count)), &arguments) }
    }

    /// The index of the largest value of each row, to `chosen`, int32 `[rows]`; [`NOT_FINITE`] if
    /// that value is not finite.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn argmax_rows(&self, chosen: Slice<'_>, logits: Logits<'_>) -> Result<(), DeviceError> {
        logits.check()?;
        check_ints(chosen, logits.rows)?;
        let partition = logits.partition(self.device.properties().most_cluster);
        let kernel = self.device.kernel(FILE, &[], "argmax_rows")?;
        let length = partition.length * partition.shares;
        let arguments = [address(chosen), address(logits.at), int(logits.stride), int(logits.vocabulary), int(length)];
        // SAFETY: lengths are checked above.
        unsafe {
            self.device.launch(&kernel, partition.geometry(logits.rows, (partition.blocks + 1) * WARPS * 8), &arguments)
        }
    }

    /// Log-probabilities of tokens and of the best alternatives, for the slots that request them.
    /// Rows of the source and slots of the rows are trusted to exist.
    ///
    /// # Errors
    /// When a buffer is too short, the request exceeds a limit, or the device fails.
    pub fn logprob_rows(&self, operands: LogprobRows<'_>) -> Result<(), DeviceError> {
        let LogprobRows { logprobs, top_ids, top_logprobs, count, logits, rows, row_source, token, row_slot, .. } =
            operands;
        logits.check_count(count)?;
        logprobs.check(rows * 4)?;
        check_ints(top_ids, rows * count)?;
        top_logprobs.check(rows * count * 4)?;
        check_ints(token, rows)?;
        check_ints(row_slot, rows)?;
        match row_source {
            Some(source) => check_ints(source, rows)?,
            None => Logits { rows, ..logits }.check()?,
        }
        let partition = self.selecting(Logits { rows, ..logits });
        let kernel = self.device.kernel(FILE, &[], "logprob_rows")?;
        let arguments = [
            address(logprobs),
            address(top_ids),
            address(top_logprobs),
            address(token),
            address(logits.at),
            int(logits.stride),
            int(logits.vocabulary),
            int(partition.length),
            int(partition.shares),
            int(count),
            address(row_slot),
            address(operands.logprob_count),
            address(row_source.unwrap_or(Slice::NONE)),
        ];
        // SAFETY: lengths are checked above; rows of the source and slots come from the kernels
        // that lay rows out.
        unsafe { self.device.launch(&kernel, partition.geometry(rows, partition.handed(count)), &arguments) }
    }

    /// The division of rows for selecting several values.
    fn selecting(&self, logits: Logits<'_>) -> ClusterPartition {
        logits.partition(self.device.properties().most_cluster.min(MOST_BLOCKS / logits.rows.max(1)))
    }
}
