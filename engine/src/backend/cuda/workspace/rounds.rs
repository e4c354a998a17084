//! State of a round.

use kernels::{
    device::{Buffer, Device, DeviceError, HostBuffer},
    launch::{ListedNodes, MOST_NODES, Moves, Outputs, WalkState},
};

use super::{
    super::limits::{DESCRIBED_WORDS, STAGING_SLOTS},
    BlockArrays, RowArrays, WorkspaceShape, WorkspaceSizes,
};

/// State of a round and its trees: int32, unless a field says otherwise.
#[derive(Debug)]
pub struct RoundArrays {
    /// `[batch]`: the only array that the host writes for a round, and only if it changed.
    pub slot: Buffer,
    pub pool_token: Buffer,
    /// Float.
    pub pool_score: Buffer,
    pub pool_parent: Buffer,
    pub beam_place: Buffer,
    pub ids: Buffer,
    /// Float.
    pub logprobs: Buffer,
    pub node_token: Buffer,
    pub node_parent: Buffer,
    pub node_depth: Buffer,
    /// Float.
    pub node_score: Buffer,
    pub chosen: Buffer,
    /// `[batch]` each: current rows of the walks down the trees, their slots, the positions of the
    /// next tokens, and these tokens.
    pub stand: [Buffer; 4],
    /// For the nodes of a pass over some of the trees' nodes: their rows and the tokens after them,
    /// [`picked_rows`](WorkspaceShape::picked_rows) each, and each node's index in these arrays,
    /// `[rows]`.
    pub listed_row: Buffer,
    pub listed_choice: Buffer,
    pub listed_place: Buffer,
    /// Rows of such passes.
    pub picked: RowArrays,
    /// `[2]`: whether a walk awaits a choice. Walks expect the first to be zero, and reset it.
    pub needed: Buffer,
    pub accepted_node: Buffer,
    pub move_from: Buffer,
    pub move_to: Buffer,
    pub last_row: Buffer,
    pub group_prefix: Buffer,
    pub group_rows: Buffer,
    /// `[batch]`: where a round without speculation stores what the draft will process later.
    pub pending_place: Buffer,
    /// What was looked up, by the host or on the device: see `host_drafts`.
    pub given: Buffer,
    /// Trees in the form of texts that are played: tokens, parents and scores.
    pub played: Buffer,
    /// `[batch]`: number of pending draft tokens of each request, written by the host.
    pub pending: Buffer,
    /// For each place of the ring: `[batch]` counts, then `[batch, steps + 1]` tokens, which the
    /// host reads.
    pub output: HostBuffer,
    /// The place to which the last round wrote.
    pub output_place: Buffer,
    /// Log-probabilities for the requests that want them, `[rows, 1 + 2 · MOST_CHOICES]` words in
    /// three blocks: of the tokens (float), the best alternatives (int32), and the
    /// log-probabilities of these (float).
    pub described: Buffer,
    /// Number of its rows.
    pub described_rows: usize,
    /// Of a draft that is a block head.
    pub block: Option<BlockArrays>,
}

impl RoundArrays {
    pub fn new(device: &Device, sizes: &WorkspaceSizes<'_>, extent: WorkspaceShape) -> Result<Self, DeviceError> {
        let WorkspaceShape { batch, steps, pool, topk, .. } = extent;
        let ints = |width: usize| device.zeros(batch * width * 4);
        let proposals = topk.max(1) * extent.ranked.max(1);
        let picked = WorkspaceShape { rows: extent.picked_rows(), ..extent };
        let described_rows = extent.described_rows();
        Ok(Self {
            slot: ints(1)?,
            pool_token: ints(pool)?,
            pool_score: ints(pool)?,
            pool_parent: ints(pool)?,
            beam_place: ints(topk)?,
            ids: ints(proposals)?,
            logprobs: ints(proposals)?,
            node_token: ints(MOST_NODES)?,
            node_parent: ints(MOST_NODES)?,
            node_depth: ints(MOST_NODES)?,
            node_score: ints(MOST_NODES)?,
            chosen: device.zeros(extent.rows * 4)?,
            stand: [ints(1)?, ints(1)?, ints(1)?, ints(1)?],
            listed_row: device.zeros(picked.rows * 4)?,
            listed_choice: device.zeros(picked.rows * 4)?,
            listed_place: device.zeros(extent.rows * 4)?,
            picked: RowArrays::of_target(device, picked, sizes.windowed)?,
            needed: device.zeros(8)?,
            accepted_node: ints(steps + 1)?,
            move_from: ints(steps + 1)?,
            move_to: ints(steps + 1)?,
            last_row: ints(1)?,
            group_prefix: ints(1)?,
            group_rows: ints(1)?,
            pending_place: ints(1)?,
            given: ints((2 * extent.given).max(4))?,
            played: ints(3 * MOST_NODES)?,
            pending: ints(1)?,
            // Kernels write to the host's memory directly, which saves a copy after every round.
            output: device.host_buffer(STAGING_SLOTS * batch * (steps + 2) * 4)?,
            output_place: device.zeros(4)?,
            // Copied to the host as a whole, including rows that no request has asked for.
            described: device.zeros(described_rows * DESCRIBED_WORDS * 4)?,
            described_rows,
            block: sizes.block().map(|block| BlockArrays::new(device, sizes, block, extent)).transpose()?,
        })
    }

    /// Current positions of the walks down the trees.
    pub fn stand(&self) -> WalkState<'_> {
        WalkState::from(&self.stand)
    }

    /// A list of nodes that the target runs over, with room for this many.
    pub fn listed(&self, capacity: usize) -> ListedNodes<'_> {
        ListedNodes {
            place: self.listed_place.slice(),
            row: self.listed_row.slice(),
            choice: self.listed_choice.slice(),
            first: self.picked.group_first.slice(),
            capacity,
        }
    }

    /// Cache rows of accepted nodes, and where they must move.
    pub fn moves(&self) -> Moves<'_> {
        Moves { from: self.move_from.slice(), to: self.move_to.slice() }
    }

    /// Where rounds write their output.
    pub fn outputs(&self) -> Outputs<'_> {
        Outputs { at: self.output.slice(), places: STAGING_SLOTS, place: self.output_place.slice() }
    }
}
