//! Acceptance and cache compaction: `cuda/accept.cu`.

use super::{
    Kernels, ListedNodes, Outputs, PassRows, Sequences, SlotTexts, TreeNodes, address, check_ints, grid, int, line,
};
use crate::device::{Arg, Buffer, DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "accept.cu", text: include_str!("../../cuda/accept.cu"), split: Split::Shared };

/// Threads of a block of `accept_drafts`, and the maximum number of nodes of a tree and tokens of a
/// round.
const THREADS: usize = 128;

/// The inputs of acceptance; `most` is steps + 1.
#[derive(Clone, Copy, Debug)]
pub struct AcceptInputs<'a> {
    /// Requests, padding included.
    pub batch: usize,
    /// Maximum number of nodes of a path, and so of tokens that a request can produce.
    pub most: usize,
    /// int32 `[batch]`.
    pub batch_slot: Slice<'a>,
    /// The target's token after each node, int32 `[batch, nodes]`; −1 if it was not computed, and
    /// [`NOT_FINITE`](super::NOT_FINITE) if there is none.
    pub chosen: Slice<'a>,
    /// The trees.
    pub tree: TreeNodes<'a>,
    /// Expected accepted tokens per round, simulated regardless of the target; `None` to use the
    /// target's choices.
    pub simulate: Option<f32>,
    /// Seed of each slot, 64-bit `[slots]`: the fraction of `simulate` is drawn with it.
    pub seed: Slice<'a>,
    /// Acceptance that is played from texts, for slots that have one; replaces `simulate`.
    pub played: Option<Played<'a>>,
}

/// What the drafts of one shape accept at each position of texts, and where each slot is in them.
/// Places are trusted to be within `accepted`.
#[derive(Clone, Copy, Debug)]
pub struct Played<'a> {
    /// Accepted drafts at each position of all texts, int32: their number, plus 2¹⁶ times the node
    /// at which they end (0: the first one of that depth).
    pub accepted: Slice<'a>,
    /// int32 `[slots, 4]`: where the text of the slot begins in `accepted`, its number of positions
    /// (0: none, and the target's choices decide), the position of the text at position 0 of the
    /// sequence, and an unused value.
    pub places: Slice<'a>,
}

/// Outputs of [`Kernels::accept`]; `most` as in [`AcceptInputs`].
#[derive(Clone, Copy, Debug)]
pub struct AcceptOutputs<'a> {
    /// The accepted nodes, int32 `[batch, most]`.
    pub node: Slice<'a>,
    /// The produced tokens, for the host.
    pub outputs: Outputs<'a>,
    /// The move of cache rows.
    pub moves: Moves<'a>,
    /// The draft's extend, `batch · most` causal rows.
    pub rows: PassRows<'a>,
    /// For each of these rows, the row of the target whose features it reads, int32
    /// `[batch · most]`.
    pub row_source: Slice<'a>,
    /// The last row of each request, int32 `[batch]`.
    pub last_row: Slice<'a>,
    /// Length of each request before this round, int32 `[batch]`.
    pub group_prefix: Option<Slice<'a>>,
    /// Rows of each request that are not padding, int32 `[batch]`.
    pub group_rows: Option<Slice<'a>>,
    /// The texts of slots, if they are kept: the root and the produced tokens are added.
    pub texts: Option<SlotTexts<'a>>,
    /// The nodes over which the target ran.
    pub verified: VerifiedNodes<'a>,
}

/// Over which nodes of the trees the target ran, and so where the rows of its output are.
#[derive(Clone, Copy, Debug)]
pub enum VerifiedNodes<'a> {
    /// All, in the order of the trees.
    All,
    /// Listed ones, and then the nodes at which the walks ended: those are at the indices of their
    /// requests, followed by the listed ones in the order of the list.
    ListedFirst(ListedNodes<'a>),
    /// Listed ones and no others, in the order of the list, where their choices are too: a walk
    /// ends before a node that is not listed.
    ListedOnly(ListedNodes<'a>),
}

/// Further operands of [`Kernels::advance_accept`].
#[derive(Clone, Copy, Debug)]
pub struct AcceptWalk<'a> {
    /// Slot of each row of the target's pass, int32 `[batch · nodes]`.
    pub row_slot: Slice<'a>,
    /// Position of the token after each of these rows, int32 `[batch · nodes]`.
    pub row_sample_position: Slice<'a>,
    /// The current nodes of the walks: `batch`.
    pub stand: WalkState<'a>,
    /// The nodes whose choices were computed before the walks, if any.
    pub ahead: Option<ListedNodes<'a>>,
    /// int32 `[2]`; the first is 0 when a round begins. After a step, element `step` mod 2 is 0 if
    /// no walk needs a choice, so that the choices need not be computed.
    pub needed: Slice<'a>,
}

/// Nodes after which the target computes a token, int32 each.
#[derive(Clone, Copy, Debug)]
pub struct WalkState<'a> {
    /// Their rows of the target's pass.
    pub row: Slice<'a>,
    /// The slots of these rows.
    pub slot: Slice<'a>,
    /// The positions of the tokens after these rows.
    pub sample_position: Slice<'a>,
    /// The target's tokens after these rows.
    pub choice: Slice<'a>,
}

/// Moves of cache rows, int32 `[batch, most]`; −1 for none.
#[derive(Clone, Copy, Debug)]
pub struct Moves<'a> {
    /// Source rows.
    pub from: Slice<'a>,
    /// Destination rows.
    pub to: Slice<'a>,
}

/// Caches in one allocation: for each layer a plane of keys, then one of values.
#[derive(Clone, Copy, Debug)]
pub struct CachePlanes<'a> {
    /// The first plane.
    pub at: Slice<'a>,
    /// Number of planes: twice the layers.
    pub planes: usize,
    /// Rows of a plane.
    pub rows: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
}

impl AcceptInputs<'_> {
    pub(super) fn check(self, sequences: Sequences<'_>) -> Result<(), DeviceError> {
        let Self { batch, most, batch_slot, chosen, tree, simulate, seed, played } = self;
        let is_length = simulate.is_none_or(|length| length >= 1.0);
        if batch == 0 || !(1..=THREADS).contains(&most) || !is_length {
            return Err(DeviceError::Shape(format!(
                "acceptance in a batch of {batch}, simulated {simulate:?}, of {most} tokens: 1 to {THREADS} are supported"
            )));
        }
        sequences.check()?;
        tree.check(batch)?;
        check_ints(batch_slot, batch)?;
        check_ints(chosen, batch * tree.nodes)?;
        if let Some(played) = played {
            check_ints(played.accepted, 1)?;
            check_ints(played.places, sequences.slots * 4)?;
        }
        seed.check(sequences.slots * 8)
    }

    /// The first arguments of both kernels: choices, trees and slots, then seeds, sizes, the
    /// simulated length and played texts.
    fn arguments(self, sequences: Sequences<'_>) -> Vec<Arg> {
        let Self { most, batch_slot, chosen, tree, simulate, seed, played, .. } = self;
        let mut arguments = vec![address(chosen)];
        arguments.extend(tree.arguments());
        arguments.extend([batch_slot, seed].map(address));
        arguments.extend([tree.nodes, most, sequences.dummy()].map(int));
        arguments.push(Arg::Float(simulate.unwrap_or(0.0)));
        let (accepted, places) = played.map_or((Slice::NONE, Slice::NONE), |played| (played.accepted, played.places));
        arguments.extend([accepted, places].map(address));
        arguments
    }
}

impl<'a> From<&'a [Buffer; 4]> for WalkState<'a> {
    /// Buffers in the order of the fields.
    fn from(buffers: &'a [Buffer; 4]) -> Self {
        let [row, slot, sample_position, choice] = buffers.each_ref().map(Buffer::slice);
        Self { row, slot, sample_position, choice }
    }
}

impl WalkState<'_> {
    fn check(self, nodes: usize) -> Result<(), DeviceError> {
        let Self { row, slot, sample_position, choice } = self;
        [row, slot, sample_position, choice].into_iter().try_for_each(|values| check_ints(values, nodes))
    }
}

impl AcceptWalk<'_> {
    fn check(self, ways: AcceptInputs<'_>) -> Result<(), DeviceError> {
        let AcceptInputs { batch, tree, .. } = ways;
        self.stand.check(batch)?;
        for values in [self.row_slot, self.row_sample_position] {
            check_ints(values, batch * tree.nodes)?;
        }
        self.ahead.map_or(Ok(()), |ahead| ahead.check(ways))?;
        check_ints(self.needed, 2)
    }
}

impl Kernels {
    /// Stores the choices after the current nodes of the walks, and advances to the next nodes
    /// without a known choice. Step 0 goes to the first ones; the only choices known then are those
    /// computed in advance. A walk stays at the end of its path. Steps run in order, `most` of them
    /// after the first. Slots of the batch are trusted to exist.
    ///
    /// # Errors
    /// When a buffer is too short, the shape is too large, or the device fails.
    pub fn advance_accept(
        &self,
        ways: AcceptInputs<'_>,
        walk: AcceptWalk<'_>,
        step: usize,
        sequences: Sequences<'_>,
    ) -> Result<(), DeviceError> {
        let AcceptWalk { stand, ahead, .. } = walk;
        ways.check(sequences)?;
        walk.check(ways)?;
        let kernel = self.device.kernel(FILE, &[], "advance_accept")?;
        let mut arguments = ways.arguments(sequences);
        arguments.extend([address(sequences.length), int(step)]);
        arguments.extend([stand.choice, walk.row_slot, walk.row_sample_position].map(address));
        let (place, choice) = ahead.map_or((Slice::NONE, Slice::NONE), |ahead| (ahead.place, ahead.choice));
        arguments.extend([place, choice, stand.row, stand.slot, stand.sample_position, walk.needed].map(address));
        // SAFETY: lengths are checked above; slots of the batch are the caller's promise.
        unsafe { self.device.launch(&kernel, line(ways.batch, THREADS as u32), &arguments) }
    }

    /// Accepts, advances the sequences, and lays out the draft's extend. Slots of the batch are
    /// trusted to exist.
    ///
    /// # Errors
    /// When a buffer is too short, the shape is too large, or the device fails.
    pub fn accept(
        &self,
        ways: AcceptInputs<'_>,
        acceptance: AcceptOutputs<'_>,
        sequences: Sequences<'_>,
    ) -> Result<(), DeviceError> {
        let (AcceptInputs { batch, most, .. }, AcceptOutputs { rows, .. }) = (ways, acceptance);
        ways.check(sequences)?;
        check_ints(acceptance.last_row, batch)?;
        for values in [acceptance.node, acceptance.moves.from, acceptance.moves.to, acceptance.row_source] {
            check_ints(values, batch * most)?;
        }
        let outputs = acceptance.outputs;
        check_ints(outputs.place, 1)?;
        if outputs.ints() < batch * (1 + most) {
            return Err(DeviceError::Shape(format!(
                "{} places of {} values are too small for the output of a round, {batch} × (1 + {most}) values",
                outputs.places,
                outputs.ints()
            )));
        }
        for values in [acceptance.group_prefix, acceptance.group_rows].into_iter().flatten() {
            check_ints(values, batch)?;
        }
        let (listed, choice, first) = match acceptance.verified {
            VerifiedNodes::All => (None, None, 0),
            VerifiedNodes::ListedFirst(listed) => (Some(listed), None, batch),
            VerifiedNodes::ListedOnly(listed) => (Some(listed), Some(listed.choice), 0),
        };
        listed.map_or(Ok(()), |listed| listed.check(ways))?;
        rows.check(batch * most, 0)?;
        let SlotTexts { at: text, width } = acceptance.texts.unwrap_or(SlotTexts { at: Slice::NONE, width: 0 });
        check_ints(text, sequences.slots * width)?;
        let kernel = self.device.kernel(FILE, &[], "accept_drafts")?;
        let mut arguments = ways.arguments(sequences);
        arguments.push(address(sequences.page_table));
        arguments.extend([sequences.table_width, sequences.page_size].map(int));
        arguments.extend([sequences.length, sequences.root, outputs.at].map(address));
        arguments.extend([int(outputs.ints()), address(outputs.place)]);
        arguments.extend([acceptance.node, acceptance.moves.from, acceptance.moves.to].map(address));
        arguments.extend(rows.causal());
        arguments.extend([acceptance.row_source, acceptance.last_row].map(address));
        let place = listed.map(|listed| listed.place);
        let optional = [acceptance.group_prefix, acceptance.group_rows, place, choice];
        arguments.extend(optional.map(|values| address(values.unwrap_or(Slice::NONE))));
        arguments.extend([int(first), address(text), int(width)]);
        // SAFETY: lengths are checked above; slots of the batch are the caller's promise.
        unsafe { self.device.launch(&kernel, line(batch, THREADS as u32), &arguments) }
    }

    /// Moves the accepted rows of all caches as [`accept`](Self::accept) determined.
    ///
    /// # Errors
    /// When a buffer is too short, rows are not in whole 16-byte accesses, or the device fails.
    pub fn compact_cache(
        &self,
        caches: CachePlanes<'_>,
        moves: Moves<'_>,
        batch: usize,
        most: usize,
    ) -> Result<(), DeviceError> {
        let CachePlanes { at, planes, rows, row_bytes } = caches;
        if !row_bytes.is_multiple_of(16) || !at.address().is_multiple_of(16) || planes == 0 || batch == 0 {
            return Err(DeviceError::Shape(format!(
                "{planes} planes of cache rows of {row_bytes} bytes, which must be in whole accesses of 16 bytes"
            )));
        }
        at.check(planes * rows * row_bytes)?;
        check_ints(moves.from, batch * most)?;
        check_ints(moves.to, batch * most)?;
        let kernel = self.device.kernel(FILE, &[], "compact_cache")?;
        let arguments = [
            address(at),
            Arg::Long((rows * row_bytes) as u64),
            int(row_bytes),
            address(moves.from),
            address(moves.to),
            int(most),
        ];
        // SAFETY: lengths are checked above; the moves are of rows that `accept` took from the page
        // table.
        unsafe { self.device.launch(&kernel, grid([planes, batch, 1], 128, 0), &arguments) }
    }
}
