//! The state that passes operate on: models, caches and workspaces on the device.

use kernels::{
    device::{Buffer, Collective, Device, Mail, Slice},
    launch::{Groups, Kernels, Rows, Sees},
};

use super::{
    gemm::GemmDispatch,
    meeting::Meeting,
    weights::{DraftWeights, TargetWeights},
    workspace::{Activations, RowArrays, SlotArrays},
};
use crate::{
    backend::{Capacity, VerifyPlan},
    spec::{KvLayout, ModelCost, Share},
};

/// Models, caches and how they are run.
pub struct Machine {
    pub kernels: Kernels,
    pub capacity: Capacity,
    pub target: TargetWeights,
    pub draft: Option<DraftWeights>,
    /// What passes over them read and multiply.
    pub cost: ModelCost,
    /// `[layers, planes, cache rows, width]` of the target's [`KvLayout`].
    pub target_cache: Buffer,
    /// `[planes, cache rows + scratch rows, width]` of the draft's.
    pub draft_cache: Buffer,
    /// Cosines and sines, `[positions, pairs, 2]`.
    pub target_rotations: Buffer,
    pub draft_rotations: Buffer,
    /// Positions of both.
    pub positions: usize,
    /// Cache rows of requests, and of the page that padding writes to.
    pub cache_rows: usize,
    /// Scratch rows of the draft's cache after them.
    pub scratch_rows: usize,
    /// Parts into which attention splits a long list of keys.
    pub splits: usize,
    pub attention: AttentionKernels,
    /// Every sum in an order that depends neither on the batch nor on the number of rows.
    pub batch_invariant: bool,
    /// Positions of the longest prompt for whose expanded keys and values there is room.
    pub expanded_positions: usize,
    /// Products that expanding the keys and values of latent attention has to spare a piece of a prompt.
    pub least_spared: usize,
    /// How trees are verified; `None`: the fastest way.
    pub verify_plan: Option<VerifyPlan>,
    pub gemm: GemmDispatch,
    pub slots: SlotArrays,
    /// The group of which this is a rank; `None` where one device has the whole model.
    pub ranks: Option<Ranks>,
}

/// Which kernels attend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKernels {
    /// `attention_rows`: each row on its own, always in the same order.
    Rows,
    /// `rotate_and_attend`: the rows of a request together, on tensor cores.
    Tiles,
}

/// A piece of a prompt in a pass: its rows come one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptPiece {
    /// Whose.
    pub slot: usize,
    /// The position of its first row.
    pub start: usize,
    pub rows: usize,
}

/// Rows of a pass.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub rows: usize,
    /// Which of them belong to one request.
    pub groups: Groups<'a>,
    /// What they see.
    pub sees: Sees<'a>,
    pub arrays: &'a RowArrays,
    pub work: &'a Activations,
    /// The row of `work` from which on the target leaves captured layers and final hidden states.
    pub leaves_at: usize,
    /// All of its rows, where they are pieces of prompts; empty in rounds, of which the host does not know them.
    pub prompts: &'a [PromptPiece],
}

impl<'a> Pass<'a> {
    /// Rows of a round, of which the target leaves what it leaves from the first row of `work` on.
    pub fn new(rows: usize, groups: Groups<'a>, sees: Sees<'a>, arrays: &'a RowArrays, work: &'a Activations) -> Self {
        Self { rows, groups, sees, arrays, work, leaves_at: 0, prompts: &[] }
    }
}

impl Machine {
    pub(super) fn device(&self) -> &Device {
        self.kernels.device()
    }

    pub(super) fn element_bytes(&self) -> usize {
        self.kernels.element().bytes()
    }

    pub(super) fn rows<'a>(&self, buffer: &'a Buffer, stride: usize) -> Rows<'a> {
        Rows { at: buffer.slice(), stride }
    }

    /// Bytes of one plane of a layer's cache of this many rows.
    pub(super) fn plane(&self, kv: KvLayout, rows: usize) -> usize {
        rows * kv.width * self.element_bytes()
    }

    /// The cache of a layer of the target.
    pub(super) fn layer_cache(&self, at: usize) -> Slice<'_> {
        let kv = self.target.spec.kv();
        let layer = kv.planes * self.plane(kv, self.cache_rows);
        self.target_cache.range(at * layer..(at + 1) * layer)
    }
}

/// A rank's share in its group.
pub struct Ranks {
    pub mail: Mail,
    pub meeting: Meeting,
    /// The device's library of sums, where there is one.
    pub library: Option<Collective>,
    /// Rows from which it is faster than our own kernel, outside of graphs.
    pub library_from: usize,
}

impl Ranks {
    /// Which of how many.
    pub fn share(&self) -> Share {
        self.meeting.share()
    }
}
