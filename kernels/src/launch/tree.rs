//! Growing of draft trees, and the rows of the passes of a round: `cuda/tree.cu`.

use super::{Kernels, OwnRows, address, check_ints, grid, int, line};
use crate::device::{Arg, DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "tree.cu", text: include_str!("../../cuda/tree.cu"), split: Split::Shared };

/// Maximum number of branches of a beam.
pub const MOST_TOPK: usize = 64;
/// Maximum number of nodes of a tree.
pub const MOST_NODES: usize = 128;
/// Maximum number of places of a pool: `draft_finish` holds a key of each in shared memory.
pub const MOST_PLACES: usize = 11_000;

/// The device's state of the running sequences; arrays of `slots`. The last slot is for padding.
#[derive(Clone, Copy, Debug)]
pub struct Sequences<'a> {
    /// Number of slots, including the one for padding.
    pub slots: usize,
    /// Number of tokens in the target's cache, int32.
    pub length: Slice<'a>,
    /// The last produced token, int32.
    pub root: Slice<'a>,
    /// int32 `[slots, table_width]`.
    pub page_table: Slice<'a>,
    /// Maximum number of pages of a slot.
    pub table_width: usize,
    /// Tokens per page.
    pub page_size: usize,
}

/// The rows of a pass, int32 `[rows]` each.
#[derive(Clone, Copy, Debug)]
pub struct PassRows<'a> {
    /// The token that each row processes.
    pub token: Slice<'a>,
    /// Its position.
    pub position: Slice<'a>,
    /// The cache row that it writes; −1 for none.
    pub write: Slice<'a>,
    /// Its slot.
    pub slot: Slice<'a>,
    /// Number of positions of the slot that it sees.
    pub prefix: Slice<'a>,
    /// Number of further cache rows that it sees.
    pub own_count: Slice<'a>,
    /// These cache rows, `[rows, own_stride]`; not for causal rows.
    pub own: Slice<'a>,
    /// Maximum number of own rows.
    pub own_stride: usize,
}

/// The draft configuration of a batch, and its state between the steps.
#[derive(Clone, Copy, Debug)]
pub struct Drafting<'a> {
    /// Requests, padding included.
    pub batch: usize,
    /// Draft steps, at least 1.
    pub steps: usize,
    /// Branches of a beam.
    pub topk: usize,
    /// Number of tokens of the draft's vocabulary.
    pub vocabulary: usize,
    /// The cache row of the first request's first beam; each request has
    /// [`scratch_rows`](Self::scratch_rows).
    pub scratch_base: usize,
    /// int32 `[batch]`.
    pub batch_slot: Slice<'a>,
    /// int32 `[batch, places]`.
    pub pool_token: Slice<'a>,
    /// f32 `[batch, places]`.
    pub pool_score: Slice<'a>,
    /// int32 `[batch, places]`.
    pub pool_parent: Slice<'a>,
    /// int32 `[batch, topk]`.
    pub beam_place: Slice<'a>,
    /// Output of the kernels: the own rows of each pass, listed once per request, as
    /// [`Kernels::gather_own`] does; its `own_stride` is that of the rows.
    pub own: Option<OwnRows<'a>>,
}

/// The output of `top_k_rows` for the rows of a draft pass.
#[derive(Clone, Copy, Debug)]
pub struct Proposals<'a> {
    /// int32 `[rows, topk]`.
    pub ids: Slice<'a>,
    /// f32 `[rows, topk]`.
    pub logprobs: Slice<'a>,
}

/// The trees of a batch, int32 `[batch, nodes]` each unless stated otherwise.
#[derive(Clone, Copy, Debug)]
pub struct TreeNodes<'a> {
    /// Nodes per request, including the root.
    pub nodes: usize,
    /// Tokens.
    pub token: Slice<'a>,
    /// −1 for the root, and for nodes that pad a tree.
    pub parent: Slice<'a>,
    /// Steps below the root.
    pub depth: Slice<'a>,
    /// The draft's log-probability of the path to each node, float32, at most that of its parent.
    /// Not for trees of the root alone.
    pub score: Slice<'a>,
}

/// Further operands of the verify pass, in addition to [`PassRows`].
#[derive(Clone, Copy, Debug)]
pub struct VerifyRows<'a> {
    /// The position of the token after each row, int32 `[rows]`.
    pub sample_position: Slice<'a>,
    /// Length of each request, int32 `[batch]`.
    pub group_prefix: Option<Slice<'a>>,
    /// Output of the round, whose place advances; `None` if another kernel has advanced it.
    pub outputs: Option<Outputs<'a>>,
}

/// Output of rounds for the host, in its own memory: places alternate, so that the host may read
/// one while the next round writes another.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// For each place, int32: the number of tokens of each request `[batch]`, then the tokens
    /// `[batch, most]`. A token that does not exist (see [`NOT_FINITE`](super::NOT_FINITE)) is
    /// replaced by its position, negated.
    pub at: Slice<'a>,
    /// Number of places of equal length.
    pub places: usize,
    /// The current place, int32 `[1]`, on the device.
    pub place: Slice<'a>,
}

impl Proposals<'_> {
    /// Checks that they rank `topk` tokens of each row.
    pub(super) fn check(&self, rows: usize, topk: usize) -> Result<(), DeviceError> {
        check_ints(self.ids, rows * topk)?;
        check_ints(self.logprobs, rows * topk)
    }
}

impl VerifyRows<'_> {
    pub(super) fn check(&self, batch: usize, rows: usize) -> Result<(), DeviceError> {
        check_ints(self.sample_position, rows)?;
        self.group_prefix.map_or(Ok(()), |prefix| check_ints(prefix, batch))
    }

    pub(super) fn arguments(&self) -> Result<[Arg; 4], DeviceError> {
        let [place, places] = self.outputs.map_or(Ok([address(Slice::NONE), int(0)]), |outputs| outputs.turn())?;
        let prefix = self.group_prefix.unwrap_or(Slice::NONE);
        Ok([address(self.sample_position), address(prefix), place, places])
    }
}

impl Outputs<'_> {
    /// Number of int32 values of a place.
    pub fn ints(&self) -> usize {
        self.at.bytes() / 4 / self.places.max(1)
    }

    /// The current place, which a kernel changes, and the number of places.
    pub(super) fn turn(&self) -> Result<[Arg; 2], DeviceError> {
        check_ints(self.place, 1)?;
        Ok([address(self.place), int(self.places)])
    }
}

impl Drafting<'_> {
    /// Places of a request in the pool.
    pub fn places(&self) -> usize {
        self.topk + (self.steps - 1) * self.topk * self.topk
    }

    /// Cache rows for the beams of a request.
    pub fn scratch_rows(&self) -> usize {
        (self.steps - 1) * self.topk
    }

    fn check(&self) -> Result<(), DeviceError> {
        let Self { batch, steps, topk, vocabulary, .. } = *self;
        if batch == 0 || steps == 0 || topk == 0 || topk > MOST_TOPK || vocabulary == 0 || self.places() > MOST_PLACES {
            return Err(DeviceError::Shape(format!(
                "{steps} draft steps with {topk} branches cannot run: topk is at most {MOST_TOPK}, and topk + (steps − \
                 1)·topk² at most {MOST_PLACES}"
            )));
        }
        check_ints(self.batch_slot, batch)?;
        for pool in [self.pool_token, self.pool_score, self.pool_parent] {
            check_ints(pool, batch * self.places())?;
        }
        check_ints(self.beam_place, batch * topk)
    }

    fn width(&self) -> usize {
        self.topk.min(self.vocabulary)
    }

    fn pool(&self) -> [Arg; 4] {
        [self.pool_token, self.pool_score, self.pool_parent, self.beam_place].map(address)
    }
}

impl Sequences<'_> {
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        if self.slots == 0 || self.page_size == 0 {
            return Err(DeviceError::Shape(format!("{} slots with pages of {}", self.slots, self.page_size)));
        }
        check_ints(self.length, self.slots)?;
        check_ints(self.root, self.slots)?;
        check_ints(self.page_table, self.slots * self.table_width)
    }

    /// The slot for padding.
    pub(super) fn dummy(&self) -> usize {
        self.slots - 1
    }
}

impl PassRows<'_> {
    pub(super) fn check(&self, rows: usize, own: usize) -> Result<(), DeviceError> {
        for values in [self.token, self.position, self.write, self.slot, self.prefix, self.own_count] {
            check_ints(values, rows)?;
        }
        if own > 0 {
            if self.own_stride < own {
                return Err(DeviceError::Shape(format!(
                    "rows have room for {} own cache rows, but {own} are needed",
                    self.own_stride
                )));
            }
            check_ints(self.own, rows * self.own_stride)?;
        }
        Ok(())
    }

    pub(super) fn causal(&self) -> [Arg; 6] {
        [self.token, self.position, self.write, self.slot, self.prefix, self.own_count].map(address)
    }
}

impl TreeNodes<'_> {
    pub(super) fn check(&self, batch: usize) -> Result<(), DeviceError> {
        if self.nodes == 0 || self.nodes > MOST_NODES {
            return Err(DeviceError::Shape(format!("trees of {} nodes: 1 to {MOST_NODES} can run", self.nodes)));
        }
        [self.token, self.parent, self.depth].into_iter().try_for_each(|values| check_ints(values, batch * self.nodes))
    }

    pub(super) fn arguments(&self) -> [Arg; 3] {
        [self.token, self.parent, self.depth].map(address)
    }
}

/// Bytes of shared memory of `draft_expand`: see there.
fn expand_bytes(step: usize, topk: usize) -> usize {
    let proposals = topk * topk;
    let turns = proposals.div_ceil(256);
    let selection = if turns > 1 { 130 + topk * (1 + 4 * turns) } else { 0 };
    (proposals + selection) * 8 + 3 * (step + 1) * topk * 4
}

impl Kernels {
    /// Starts the trees of a batch from the tokens after the roots, and lays out the first draft
    /// pass (not called with one step). `row_source` is int32 `[batch · topk]`. Slots of the batch
    /// are trusted to exist.
    ///
    /// # Errors
    /// When a buffer is too short, the shape is too large, or the device fails.
    pub fn draft_begin(
        &self,
        drafting: Drafting<'_>,
        proposals: Proposals<'_>,
        sequences: Sequences<'_>,
        rows: PassRows<'_>,
        row_source: Slice<'_>,
    ) -> Result<(), DeviceError> {
        drafting.check()?;
        proposals.check(drafting.batch, drafting.topk)?;
        self.draft(drafting, proposals, sequences, rows, row_source, None)
    }

    /// Processes the proposals of draft pass `step`, at least 1 and not the last, and lays out the
    /// next. `drafting` and `rows` are as the previous step left them.
    ///
    /// # Errors
    /// As [`draft_begin`](Self::draft_begin).
    pub fn draft_expand(
        &self,
        drafting: Drafting<'_>,
        step: usize,
        proposals: Proposals<'_>,
        sequences: Sequences<'_>,
        rows: PassRows<'_>,
        row_source: Slice<'_>,
    ) -> Result<(), DeviceError> {
        drafting.check()?;
        proposals.check(drafting.batch * drafting.topk, drafting.topk)?;
        self.draft(drafting, proposals, sequences, rows, row_source, Some(step))
    }

    fn draft(
        &self,
        drafting: Drafting<'_>,
        proposals: Proposals<'_>,
        sequences: Sequences<'_>,
        rows: PassRows<'_>,
        row_source: Slice<'_>,
        step: Option<usize>,
    ) -> Result<(), DeviceError> {
        let Drafting { batch, steps, topk, .. } = drafting;
        // `draft_begin` stands for step 0, and the last step is processed by `draft_finish`.
        if step.unwrap_or(0) + 2 > steps || step == Some(0) {
            return Err(DeviceError::Shape(format!("draft step {step:?} of {steps} has no pass after it")));
        }
        sequences.check()?;
        rows.check(batch * topk, steps - 1)?;
        check_ints(row_source, batch * topk)?;
        let own = self.own_arguments(drafting.own, batch, topk, rows.own_stride)?;
        let (name, threads, shared) = match step {
            Some(step) => ("draft_expand", 256, expand_bytes(step, topk)),
            None => ("draft_begin", 64, 0),
        };
        let kernel = self.device.kernel(FILE, &[], name)?;
        let mut arguments = drafting.pool().to_vec();
        arguments.extend(
            [proposals.ids, proposals.logprobs, drafting.batch_slot, sequences.length]
                .map(address)
                .into_iter()
                .chain(step.map(int).into_iter().chain([steps, topk, drafting.width(), sequences.dummy()].map(int))),
        );
        arguments.push(int(drafting.scratch_base));
        arguments.extend(rows.causal());
        arguments.extend([address(rows.own), int(rows.own_stride), address(row_source)]);
        arguments.extend(own);
        // SAFETY: lengths are checked above; slots of the batch are the caller's promise.
        unsafe { self.device.launch(&kernel, grid([batch, 1, 1], threads, shared), &arguments) }
    }

    /// Processes the proposals of the last draft step, and lays out the trees and the verify pass,
    /// of `batch · nodes` rows.
    ///
    /// # Errors
    /// As [`draft_begin`](Self::draft_begin).
    pub fn draft_finish(
        &self,
        drafting: Drafting<'_>,
        proposals: Proposals<'_>,
        sequences: Sequences<'_>,
        tree: TreeNodes<'_>,
        rows: PassRows<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let Drafting { batch, steps, topk, .. } = drafting;
        let nodes = tree.nodes;
        drafting.check()?;
        // After a single step each request has one ranking; later there is one per beam.
        proposals.check(if steps == 1 { batch } else { batch * topk }, topk)?;
        sequences.check()?;
        if nodes < 2 {
            return Err(DeviceError::Shape("a tree of the root alone has no drafts".into()));
        }
        let trees = self.tree_arguments(batch, steps, tree, rows, drafting.own, verify)?;
        let kernel = self.device.kernel(FILE, &[], "draft_finish")?;
        let mut arguments = drafting.pool().to_vec();
        arguments.extend([proposals.ids, proposals.logprobs, drafting.batch_slot].map(address));
        arguments.extend([sequences.length, sequences.root, sequences.page_table].map(address));
        arguments.extend([sequences.table_width, sequences.page_size].map(int));
        arguments.extend([steps, topk, nodes, drafting.width(), sequences.dummy()].map(int));
        arguments.extend(trees);
        // SAFETY: lengths are checked above; slots of the batch are the caller's promise.
        unsafe { self.device.launch(&kernel, grid([batch, 1, 1], 256, drafting.places() * 4), &arguments) }
    }

    /// The outputs of a kernel that lays out drafted trees and the rows that verify them, checked:
    /// `VERIFY_PARAMETERS` of `cuda/nodes.cuh`.
    pub(super) fn tree_arguments(
        &self,
        batch: usize,
        steps: usize,
        tree: TreeNodes<'_>,
        rows: PassRows<'_>,
        own: Option<OwnRows<'_>>,
        verify: VerifyRows<'_>,
    ) -> Result<Vec<Arg>, DeviceError> {
        let all = batch * tree.nodes;
        tree.check(batch)?;
        check_ints(tree.score, all)?;
        rows.check(all, steps + 1)?;
        verify.check(batch, all)?;
        let mut arguments = tree.arguments().to_vec();
        arguments.push(address(tree.score));
        arguments.extend(rows.causal());
        arguments.extend([address(rows.own), int(rows.own_stride)]);
        arguments.extend(self.own_arguments(own, batch, tree.nodes, rows.own_stride)?);
        arguments.extend(verify.arguments()?);
        Ok(arguments)
    }

    /// The rows of a round without speculation, one per request; `batch_slot` is int32 `[batch]`,
    /// `tree` has one node.
    ///
    /// # Errors
    /// As [`draft_begin`](Self::draft_begin).
    pub fn decode_begin(
        &self,
        batch: usize,
        batch_slot: Slice<'_>,
        sequences: Sequences<'_>,
        tree: TreeNodes<'_>,
        rows: PassRows<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        check_ints(batch_slot, batch)?;
        sequences.check()?;
        tree.check(batch)?;
        rows.check(batch, 0)?;
        verify.check(batch, batch)?;
        let kernel = self.device.kernel(FILE, &[], "decode_begin")?;
        let mut arguments = [batch_slot, sequences.length, sequences.root, sequences.page_table].map(address).to_vec();
        arguments.extend([sequences.table_width, sequences.page_size, batch, sequences.dummy()].map(int));
        arguments.extend(tree.arguments());
        arguments.extend(rows.causal());
        arguments.extend(verify.arguments()?);
        // SAFETY: lengths are checked above; slots of the batch are the caller's promise.
        unsafe { self.device.launch(&kernel, line(batch.div_ceil(64), 64), &arguments) }
    }
}
