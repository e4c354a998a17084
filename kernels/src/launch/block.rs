//! Drafting with a block head: the rows of its block, and the tree that grows from their rankings:
//! `cuda/block.cu`.

use super::{
    Kernels, Logits, MOST_TOPK, OwnRows, PassRows, Proposals, Sequences, TreeNodes, VerifyRows, address, check_ints,
    grid, int,
};
use crate::device::{DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "block.cu", text: include_str!("../../cuda/block.cu"), split: Split::Shared };

/// Maximum number of rows of a block: a thread lays out each.
pub const MOST_BLOCK_ROWS: usize = 128;
/// Elements per block of `add_base`.
const BASE_PIECE: usize = 1024;

/// What the rows of a block see in some layers of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockView {
    /// Whether a row sees only rows of the block before it, and itself.
    pub causal: bool,
    /// A row sees only positions less than this far before its own; `None` for all.
    pub window: Option<usize>,
}

/// Pages in place of those of the slots.
#[derive(Clone, Copy, Debug)]
pub struct ViewPages<'a> {
    /// int32 `[batch, width]`.
    pub at: Slice<'a>,
    /// Pages of a request.
    pub width: usize,
}

/// Operands of [`Kernels::block_begin`].
#[derive(Clone, Copy, Debug)]
pub struct BlockLayout<'a> {
    /// Requests, padding included.
    pub batch: usize,
    /// Rows of a block.
    pub rows: usize,
    /// What they see.
    pub view: BlockView,
    /// The token of all rows but the first.
    pub mask: u32,
    /// The cache row of the first request's first row; each request has `rows`.
    pub scratch_base: usize,
    /// int32 `[batch]`.
    pub batch_slot: Slice<'a>,
    /// Positions and tokens of the first rows, int32 `[batch]` each, if they are not the slots'
    /// lengths and last tokens.
    pub places: Option<[Slice<'a>; 2]>,
    /// Output: what rows with a window see of the older positions; needed for a view with one.
    pub pages: Option<ViewPages<'a>>,
    /// Output: the own rows, listed once per request; its `own_stride` is that of the rows.
    pub own: Option<OwnRows<'a>>,
    /// Output: the first level, and the rows that propose.
    pub first: Option<FirstLevel<'a>>,
}

/// The rows of a block that propose, and the roots as nodes of the first level.
#[derive(Clone, Copy, Debug)]
pub struct FirstLevel<'a> {
    /// int32 `[batch]` each: their tokens, and their base rows (see [`LevelRows`]).
    pub token: Slice<'a>,
    /// See `token`.
    pub base: Slice<'a>,
    /// The rows that propose, int32 `[batch, steps]`.
    pub proposing: Slice<'a>,
    /// The first row of a block that does.
    pub skipped: usize,
    /// Number of rows of a block that do.
    pub steps: usize,
}

/// The nodes whose children a Markov head ranks next, int32 `[batch, rankings]` each.
#[derive(Clone, Copy, Debug)]
pub struct LevelRows<'a> {
    /// Nodes of a request.
    pub rankings: usize,
    /// Their tokens.
    pub token: Slice<'a>,
    /// The row, among those of the level before, of the node's parent.
    pub source: Slice<'a>,
    /// The row of the block's logits from which the node's children are ranked:
    /// `request · steps + depth`.
    pub base: Slice<'a>,
}

/// Operands of [`Kernels::block_grow`].
#[derive(Clone, Copy, Debug)]
pub struct BlockGrowth<'a> {
    /// Requests, padding included.
    pub batch: usize,
    /// Levels of the tree, at least 1.
    pub steps: usize,
    /// Children of a node, at most [`MOST_TOPK`].
    pub topk: usize,
    /// Number of tokens of the draft's vocabulary.
    pub vocabulary: usize,
    /// int32 `[batch]`.
    pub batch_slot: Slice<'a>,
    /// The rankings of the children of these levels, `[batch, rankings, topk]`.
    pub proposals: Proposals<'a>,
    /// Which levels, and how they are ranked.
    pub levels: RankedLevels<'a>,
    /// Output: the own rows of the verify pass, listed once per request.
    pub own: Option<OwnRows<'a>>,
}

/// Levels of a tree whose children are ranked.
#[derive(Clone, Copy, Debug)]
pub enum RankedLevels<'a> {
    /// All of them: one ranking for each.
    All,
    /// One level, with a ranking for each of its nodes, of which there may be `rankings`.
    One {
        /// Depth of the nodes.
        level: usize,
        /// Rankings of a request.
        rankings: usize,
        /// Output: the nodes of the next level; `None` for the last.
        next: Option<LevelRows<'a>>,
    },
}

impl BlockView {
    /// Maximum number of own rows of a row: the block's, and with a window those older positions
    /// that not all rows see, or that share a page with such.
    pub fn own_stride(&self, rows: usize, page_size: usize) -> usize {
        match self.window {
            None => rows,
            Some(_) => 2 * rows + page_size.max(1) - 2 + usize::from(rows == 0),
        }
    }

    /// Number of pages that a window covers, of the `table_width` pages of a slot; 0 without one.
    pub fn pages(&self, table_width: usize, page_size: usize) -> usize {
        self.window.map_or(0, |window| (window.div_ceil(page_size.max(1)) + 1).min(table_width))
    }
}

/// Maximum number of nodes at a depth that can have children in a tree: a node that stays has all
/// its ancestors with it.
pub fn most_parents(depth: usize, topk: usize, nodes: usize) -> usize {
    let all = topk.checked_pow(u32::try_from(depth).unwrap_or(u32::MAX)).unwrap_or(usize::MAX);
    if depth == 0 { 1 } else { all.min(nodes.saturating_sub(depth)).max(1) }
}

impl LevelRows<'_> {
    fn check(&self, batch: usize) -> Result<(), DeviceError> {
        [self.token, self.source, self.base].into_iter().try_for_each(|rows| check_ints(rows, batch * self.rankings))
    }
}

impl Kernels {
    /// Lays out the rows of a block after each root, `batch · rows` of them. Slots of the batch,
    /// and given positions, are trusted to exist.
    ///
    /// # Errors
    /// When a buffer is too short, the block is too large, or the device fails.
    pub fn block_begin(
        &self,
        layout: BlockLayout<'_>,
        sequences: Sequences<'_>,
        rows: PassRows<'_>,
    ) -> Result<(), DeviceError> {
        let BlockLayout { batch, rows: block, view, batch_slot, places, pages, own, first, .. } = layout;
        let window = view.window.unwrap_or(0);
        if batch == 0 || !(1..=MOST_BLOCK_ROWS).contains(&block) || view.window.is_some() != pages.is_some() {
            return Err(DeviceError::Shape(format!(
                "a block of {block} rows with a window of {window} cannot run: it has 1 to {MOST_BLOCK_ROWS} rows, and pages \
                 only with a window"
            )));
        }
        sequences.check()?;
        check_ints(batch_slot, batch)?;
        rows.check(batch * block, view.own_stride(block, sequences.page_size))?;
        let [starts, roots] = places.unwrap_or([Slice::NONE; 2]);
        if places.is_some() {
            check_ints(starts, batch)?;
            check_ints(roots, batch)?;
        }
        let pages = pages.unwrap_or(ViewPages { at: Slice::NONE, width: 0 });
        if pages.width < view.pages(sequences.table_width, sequences.page_size) {
            return Err(DeviceError::Shape(format!("a window of {window} positions on {} pages", pages.width)));
        }
        check_ints(pages.at, batch * pages.width)?;
        let none = FirstLevel { token: Slice::NONE, base: Slice::NONE, proposing: Slice::NONE, skipped: 0, steps: 0 };
        let FirstLevel { token, base, proposing, skipped, steps } = first.unwrap_or(none);
        if first.is_some() {
            check_ints(token, batch)?;
            check_ints(base, batch)?;
            check_ints(proposing, batch * steps)?;
        }
        if skipped + steps > block {
            return Err(DeviceError::Shape(format!(
                "a block of {block} rows proposes {steps} tokens from row {skipped} on"
            )));
        }
        let own = self.own_arguments(own, batch, block, rows.own_stride)?;
        let kernel = self.device.kernel(FILE, &[], "block_begin")?;
        let mut arguments =
            [batch_slot, sequences.length, sequences.root, starts, roots, sequences.page_table].map(address).to_vec();
        arguments.extend([sequences.table_width, sequences.page_size, block, layout.mask as usize].map(int));
        arguments.extend([usize::from(view.causal), window, sequences.dummy(), layout.scratch_base].map(int));
        arguments.extend(rows.causal());
        arguments.extend([address(rows.own), int(rows.own_stride)]);
        arguments.extend(own);
        arguments.extend([address(pages.at), int(pages.width)]);
        arguments.extend([token, base, proposing].map(address));
        arguments.extend([skipped, steps].map(int));
        // SAFETY: lengths are checked above; slots and positions are the caller's promise.
        unsafe { self.device.launch(&kernel, grid([batch, 1, 1], MOST_BLOCK_ROWS as u32, 0), &arguments) }
    }

    /// Adds levels to the trees of a batch, and with the last one lays out the verify pass, of
    /// `batch · nodes` rows.
    ///
    /// # Errors
    /// When a buffer is too short, the shape is too large, or the device fails.
    pub fn block_grow(
        &self,
        growth: BlockGrowth<'_>,
        sequences: Sequences<'_>,
        tree: TreeNodes<'_>,
        rows: PassRows<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let BlockGrowth { batch, steps, topk, vocabulary, batch_slot, proposals, levels, own } = growth;
        let nodes = tree.nodes;
        let (begin, end, rankings, next) = match levels {
            RankedLevels::All => (0, steps, steps, None),
            RankedLevels::One { level, rankings, next } => (level, level + 1, rankings, next),
        };
        let by_node = matches!(levels, RankedLevels::One { .. });
        let wrong = end > steps
            || (end < steps) != next.is_some()
            || rankings == 0
            || (by_node && rankings < most_parents(begin, topk, nodes))
            || (topk == 1 && nodes != steps + 1);
        if batch == 0 || steps == 0 || topk == 0 || topk > MOST_TOPK || vocabulary == 0 || nodes < 2 || wrong {
            return Err(DeviceError::Shape(format!(
                "level {begin} of {steps} with {topk} branches and {rankings} rankings cannot run for trees of {nodes} nodes"
            )));
        }
        sequences.check()?;
        check_ints(batch_slot, batch)?;
        proposals.check(batch * rankings, topk)?;
        let trees = self.tree_arguments(batch, steps, tree, rows, own, verify)?;
        if let Some(next) = next {
            next.check(batch)?;
            if next.rankings > 256 {
                return Err(DeviceError::Shape(format!("{} nodes of a level: at most 256 can run", next.rankings)));
            }
        }
        let none = LevelRows { rankings: 0, token: Slice::NONE, source: Slice::NONE, base: Slice::NONE };
        let next = next.unwrap_or(none);
        let kernel = self.device.kernel(FILE, &[], "block_grow")?;
        let mut arguments = vec![address(proposals.ids), address(proposals.logprobs)];
        arguments
            .extend([rankings, usize::from(by_node), begin, end, steps, topk, topk.min(vocabulary), nodes].map(int));
        arguments.extend([batch_slot, sequences.length, sequences.root, sequences.page_table].map(address));
        arguments.extend([sequences.table_width, sequences.page_size, sequences.dummy()].map(int));
        arguments.extend([address(next.token), address(next.source), address(next.base), int(next.rankings)]);
        arguments.extend(trees);
        let widest = (begin..end).map(|level| most_parents(level, topk, nodes)).max().unwrap_or(1);
        let shared = (nodes - 1 + widest * topk) * 4;
        // SAFETY: lengths are checked above; slots of the batch are the caller's promise.
        unsafe { self.device.launch(&kernel, grid([batch, 1, 1], 256, shared), &arguments) }
    }

    /// Adds row `source[r]` of `base`, float rows of the same width without space between them, to
    /// row r of logits.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn add_base(&self, logits: Logits<'_>, base: Slice<'_>, source: Slice<'_>) -> Result<(), DeviceError> {
        logits.check()?;
        let Logits { at, stride, rows, vocabulary } = logits;
        base.check(vocabulary * 4)?;
        check_ints(source, rows)?;
        let kernel = self.device.kernel(FILE, &[], "add_base")?;
        let arguments = [address(at), int(stride), address(base), address(source), int(vocabulary)];
        let geometry = grid([vocabulary.div_ceil(BASE_PIECE), rows, 1], 256, 0);
        // SAFETY: lengths are checked above; rows of `source` come from the caller's layout kernels
        // and are within bounds.
        unsafe { self.device.launch(&kernel, geometry, &arguments) }
    }
}
