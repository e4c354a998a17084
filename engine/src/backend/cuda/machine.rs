//! The state that passes operate on: models, caches and workspace on the device.

use kernels::{
    device::{Buffer, Collective, Device, Mail, Slice},
    launch::{DeltaOrder, Groups, Kernels, OwnRows, Rows, Sees, ViewPages, WindowedRows},
};

use schemas::tree::{NodeSource, TextNodes, TreeShape};

use super::{
    device_texts::DeviceTexts,
    gemm::GemmDispatch,
    meeting::Meeting,
    played::PlayedTables,
    slot_states::States,
    weights::{DraftWeights, LayerWeights, TargetWeights},
    windows::Windows,
    workspace::{Activations, RowArrays, SlotArrays},
};
use crate::{
    backend::{Capacity, VerifyPlan, expert_reads::ExpertTally},
    spec::{DraftSpec, KvLayout, ModelCost, Share},
};

/// Models, their caches, and settings that choose kernels.
pub struct Machine {
    pub kernels: Kernels,
    pub capacity: Capacity,
    pub target: TargetWeights,
    pub draft: Option<DraftWeights>,
    /// What fills trees that are looked up in texts without a draft; `None` if none are.
    pub host_nodes: Option<NodeSource>,
    /// Whether the draft's trees are joined with chains that are looked up.
    pub joins_chains: bool,
    /// The texts in which drafts are looked up, if that is not up to the host.
    pub texts: Option<DeviceTexts>,
    /// Bytes read and products computed by passes.
    pub cost: ModelCost,
    /// `[layers, planes, cache rows, width]` of the target's [`KvLayout`], without the layers whose
    /// caches have window pages.
    pub target_cache: Buffer,
    /// `[layers, planes, cache rows + scratch rows, width]` of the draft's.
    pub draft_cache: Buffer,
    /// Cosines and sines, `[positions, pairs, 2]`.
    pub target_rotations: Buffer,
    pub draft_rotations: Buffer,
    /// Number of positions in each of them.
    pub positions: usize,
    /// Cache rows of requests, and of the page for writes of padding.
    pub cache_rows: usize,
    /// Scratch rows of the draft's cache, which follow them.
    pub scratch_rows: usize,
    /// Number of parts into which attention splits a long list of keys.
    pub splits: usize,
    pub attention: AttentionKernels,
    /// Whether every sum has an order that depends neither on the batch nor on the number of rows.
    pub batch_invariant: bool,
    /// Whether prompts run through layers with a state in chunks.
    pub chunks_deltas: bool,
    /// Longest prompt for whose expanded keys and values there is room, in positions.
    pub expanded_positions: usize,
    /// Minimum number of products that expanding the keys and values of latent attention must save
    /// for a piece of a prompt.
    pub least_spared: usize,
    /// How trees are verified; `None` for the fastest choice.
    pub verify_plan: Option<VerifyPlan>,
    pub gemm: GemmDispatch,
    pub slots: SlotArrays,
    /// What is accepted in place of the target's decisions, if texts are played.
    pub played: Option<PlayedTables>,
    /// States of sequences, if the target has layers that keep some.
    pub states: Option<States>,
    /// Caches of layers with a window, if these have pages of their own.
    pub windows: Option<Windows>,
    /// The group of which this is a rank; `None` if this device has the whole model.
    pub ranks: Option<Ranks>,
}

/// Attention kernels of grouped-query attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKernels {
    /// `attention_rows`: each row separately, always in the same order.
    Rows,
    /// `rotate_and_attend`: the rows of a request together, on tensor cores.
    Tiles,
}

/// A piece of a prompt in a pass. Its rows are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptPiece {
    /// The slot of its request.
    pub slot: usize,
    /// The position of its first row.
    pub start: usize,
    pub rows: usize,
}

/// The rows of a pass.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub rows: usize,
    /// Which rows belong to the same request.
    pub groups: Groups<'a>,
    /// What the rows attend to.
    pub sees: Sees<'a>,
    pub arrays: &'a RowArrays,
    pub work: &'a Activations,
    /// The row of `work` from which the target writes captured layers and final hidden states.
    pub leaves_at: usize,
    /// Pages in place of the slots', for rows whose slot is their request.
    pub pages: Option<ViewPages<'a>>,
    /// Cache rows in place of those of `arrays`, for layers with window pages.
    pub windowed: Option<WindowedRows<'a>>,
    /// The pieces of prompts that make up its rows; empty in rounds, whose rows the host does not
    /// know.
    pub prompts: &'a [PromptPiece],
    /// How the rows of a group follow each other, for layers with a state.
    pub order: DeltaOrder<'a>,
}

impl<'a> Pass<'a> {
    /// Rows of a round, for which the target writes its outputs from the first row of `work` on.
    pub fn new(rows: usize, groups: Groups<'a>, sees: Sees<'a>, arrays: &'a RowArrays, work: &'a Activations) -> Self {
        let order = DeltaOrder::Chain { writes: false };
        Self { rows, groups, sees, arrays, work, leaves_at: 0, pages: None, windowed: None, prompts: &[], order }
    }
}

impl Machine {
    pub(super) fn device(&self) -> &Device {
        self.kernels.device()
    }

    pub(super) fn element_bytes(&self) -> usize {
        self.kernels.element().bytes()
    }

    /// Where the own rows of a pass are listed once per request, if the attention kernels read them
    /// so.
    pub(super) fn listed_own<'a>(&self, arrays: &'a RowArrays) -> Option<OwnRows<'a>> {
        (self.attention == AttentionKernels::Tiles).then(|| arrays.own_rows())
    }

    pub(super) fn rows<'a>(&self, buffer: &'a Buffer, stride: usize) -> Rows<'a> {
        Rows { at: buffer.slice(), stride }
    }

    /// Bytes of one plane of a layer's cache of this many rows.
    pub(super) fn plane(&self, kv: KvLayout, rows: usize) -> usize {
        rows * kv.row_bytes(self.element_bytes())
    }

    /// What fills the pool of trees.
    pub(super) fn nodes(&self) -> NodeSource {
        self.draft.as_ref().map(DraftWeights::nodes).or(self.host_nodes).unwrap_or_default()
    }

    /// Whether nodes of a shape's trees may have several children. In a chain each node is at its
    /// position already, but one that is joined with another has branches, and look-ups in a trie
    /// may find several tokens after the root, whatever the breadth.
    pub(super) fn has_branches(&self, shape: TreeShape) -> bool {
        // Look-ups have a topk of 1, but a tree of several texts branches nevertheless. So do trees
        // that a chain of the host is joined to.
        let is_trie = matches!(self.nodes(), NodeSource::Text(TextNodes { branches: true, .. }));
        shape.topk > 1 || self.joins_chains || is_trie
    }

    /// Counts of the target's layers of experts.
    pub(super) fn target_tallies(&self) -> impl Iterator<Item = &ExpertTally> {
        self.target.layers.iter().filter_map(LayerWeights::tally)
    }

    /// Counts of the draft's layers of experts.
    pub(super) fn draft_tallies(&self) -> impl Iterator<Item = &ExpertTally> {
        self.draft.iter().flat_map(DraftWeights::layers).filter_map(LayerWeights::tally)
    }

    /// Layout of the cache of each layer of the draft.
    pub(super) fn draft_kv(&self, draft: &DraftWeights) -> KvLayout {
        let spec: DraftSpec = draft.spec();
        let first = spec.layers().first().map(|layer| layer.attention.kv());
        first.unwrap_or_default()
    }

    /// The cache of a layer of the draft.
    pub(super) fn draft_layer_cache(&self, kv: KvLayout, at: usize) -> Slice<'_> {
        let layer = kv.planes * self.plane(kv, self.cache_rows + self.scratch_rows);
        self.draft_cache.range(at * layer..(at + 1) * layer)
    }

    /// The cache of a layer of the target.
    pub(super) fn layer_cache(&self, at: usize) -> Slice<'_> {
        // Layers with a window have a cache of their own pages, and do not count in the other one.
        if let Some(windowed) = self.window_cache(at) {
            return windowed;
        }
        let kv = self.target.spec.kv();
        let layer = kv.planes * self.plane(kv, self.cache_rows);
        // Layers that keep a state have no cache.
        let has_cache = self.target.spec.layers.get(at).is_some_and(|layer| layer.attention.kv().values() > 0);
        let (at, layer) =
            (self.target.spec.caches_before(at) - self.windows_before(at), if has_cache { layer } else { 0 });
        self.target_cache.range(at * layer..(at + 1) * layer)
    }
}

/// A rank's connections to its group.
pub struct Ranks {
    pub mail: Mail,
    pub meeting: Meeting,
    /// The device's collective library, if there is one.
    pub library: Option<Collective>,
    /// Minimum number of rows for which the library is faster than our own kernel, outside of
    /// graphs.
    pub library_from: usize,
}

impl Ranks {
    /// This rank, and the number of ranks.
    pub fn share(&self) -> Share {
        self.meeting.share()
    }
}
