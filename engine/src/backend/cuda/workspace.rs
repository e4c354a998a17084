//! The workspace on the device. Sizes come first, so that they are checked against free memory
//! before buffers are allocated.

use kernels::{
    device::{Buffer, Device, DeviceError, Element, HostBuffer, Slice},
    launch::{
        ChosenRows, DeltaChunks, DeltaSteps, ExpertsBytes, ExpertsShape, ExpertsWork, Kernels, ListedNodes, MOST_NODES,
        Moves, Outputs, OwnRows, PassRows, Sees, Sequences, WalkState, delta_chunk_bytes, most_parents,
        mxfp4_scale_bytes,
    },
    reference::{Fp8Rows, MXFP4_BLOCK},
};
use schemas::tree::{NodeSource, TreeShape};

mod block;

pub use self::block::{BlockArrays, MarkovActivations};
use super::{
    expansion::expanded_bytes,
    limits::{ATTENTION_ROWS, DESCRIBED_WORDS, LATENT_ROWS, LATENT_ROWS_IN_SPLITS, LOGIT_ROWS, STAGING_SLOTS},
    played::PLACE_WORDS,
    weights::{delta_outputs, experts_shape, latent_dims, weights_in},
    windows::WindowedArrays,
};
use crate::{
    backend::{Capacity, MAX_PENDING_DRAFT, inner_rows, windows::PageBytes},
    spec::{
        AttentionSpec, DeltaNet, DraftSpec, FfnSpec, GroupedQuery, LayerSpec, MultiHeadLatent, Role, TargetSpec,
        TensorSpec, WeightFormat,
    },
};

/// Maximum sizes of a pass and its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceShape {
    /// Rows of a pass: a piece of a prompt, the nodes of a verified batch, its beams, or its draft
    /// extension.
    pub rows: usize,
    /// Requests of a round.
    pub batch: usize,
    /// Number of draft steps.
    pub steps: usize,
    /// Pool entries per request.
    pub pool: usize,
    /// Draft cache rows per request for beams or a block.
    pub scratch: usize,
    /// Proposals per ranked row.
    pub topk: usize,
    /// Rows per request that are ranked at once: beams, or of a block all rows, or the nodes of a
    /// level.
    pub ranked: usize,
    /// Rows of a block; 0 for beams.
    pub block: usize,
    /// Pairs of words per request for drafts that are looked up: the nodes of a tree, or one
    /// more than the tokens of a chain.
    pub given: usize,
    /// Rows of all trees of a round.
    pub verified: usize,
    /// Rows of a budget; 0 without one.
    pub budget: usize,
    /// Rows per request that attend to more than a range of positions: the nodes of a tree, or the
    /// beams of a step.
    pub branches: usize,
}

/// Activations of a pass. Their contents are valid only within the pass, unless a field says
/// otherwise.
#[derive(Debug)]
pub struct Activations {
    /// The residual stream of the target: `[rows, hidden]`.
    pub stream: Buffer,
    /// Its norm, and after the last layer the final hidden states: `[rows, hidden]`; lives until
    /// the draft's extension.
    pub normed: Buffer,
    /// Queries, keys, values.
    pub qkv: Buffer,
    /// Output of attention.
    pub attended: Buffer,
    /// Output of a layer's block, to be added to the stream.
    pub added: Buffer,
    /// Gates of the outputs of attention.
    pub gates: Buffer,
    pub delta: DeltaActivations,
    /// Split-K partials of a linear layer, until the next kernel sums them.
    pub parts: Buffer,
    pub gate_up: Buffer,
    pub gated: Buffer,
    /// Captured layers, concatenated: `[rows, captured × hidden]`; lives until the draft's
    /// extension.
    pub captured: Buffer,
    /// Captured layers, gathered for the draft's rows.
    pub gathered: Buffer,
    /// Features of the draft's rows.
    pub features: Buffer,
    /// Embedding and feature, concatenated: `[rows, 2 × draft hidden]`.
    pub joined: Buffer,
    /// Recurrent state of the draft: each pass reads one buffer and writes the other.
    pub states: [Buffer; 2],
    /// Float `[LOGIT_ROWS, vocabulary]`.
    pub logits: Buffer,
    /// Logits of the rank's own tokens, if ranks split the vocabulary.
    pub own_logits: Buffer,
    /// Partial results of attention that is split over its keys.
    pub partial: Buffer,
    pub counters: Buffer,
    /// Float: sums of squares of rows that are not scaled yet.
    pub squares: Buffer,
    pub latent: LatentActivations,
    /// An FP8 layer's weights in the element type, for GEMMs of many rows.
    pub dequantised: Buffer,
    /// A layer's input in FP8, as values of the element type or as numbers, and its float scales.
    pub quantised: Buffer,
    pub row_scales: Buffer,
    pub experts: ExpertActivations,
    pub markov: MarkovActivations,
}

/// Activations of gated delta nets. Those of all layers of a round live until the accepted path is
/// committed.
#[derive(Debug)]
pub struct DeltaActivations {
    /// Output of the first projection: `[layers, rows, outputs]`, of one layer for prompts.
    pub projected: Buffer,
    /// Output of the projection to β and decays, if that is another: the same.
    pub rates: Buffer,
    /// Queries, keys and values after the convolution: `[layers, rows, channels]`, the same.
    pub convolved: Buffer,
    /// int32: steps over the trees of a round.
    pub steps: Buffer,
    /// What the kernels of a layer hand on to each other if prompts run in chunks: see
    /// [`DeltaChunks`].
    matrices: Buffer,
    factors: Buffer,
}

impl DeltaActivations {
    /// Operands of the kernels, for rows at these positions.
    pub fn chunks<'a>(&'a self, position: &'a Buffer) -> DeltaChunks<'a> {
        DeltaChunks { matrices: self.matrices.slice(), factors: self.factors.slice(), position: position.slice() }
    }
}

/// Activations of latent attention.
#[derive(Debug)]
pub struct LatentActivations {
    /// Output of the first projection: `[rows, query rank + rank + rotated]`.
    pub entered: Buffer,
    /// Absorbed queries of some rows: `[LATENT_ROWS, heads, rank + rotated]`.
    pub queries: Buffer,
    /// Weighted means of latent vectors, for these rows: `[LATENT_ROWS, heads, rank]`.
    pub means: Buffer,
    /// Expanded keys and values of a prompt, and the operands from which they are computed.
    pub expanded: Buffer,
}

/// Activations of experts; see [`ExpertsWork`].
#[derive(Debug)]
pub struct ExpertActivations([Buffer; 7]);

impl ExpertActivations {
    fn new(device: &Device, bytes: ExpertsBytes) -> Result<Self, DeviceError> {
        let allocate = |bytes: usize| device.allocate(bytes.max(16));
        let [logits, counters, expert, weight, tiles, gated, outputs] = bytes;
        let counters = allocate(counters)?;
        // Kernels expect their counters to be zero, and reset them.
        device.fill(counters.slice(), 0)?;
        let routes = [allocate(expert)?, allocate(weight)?, allocate(tiles)?];
        let [expert, weight, tiles] = routes;
        Ok(Self([allocate(logits)?, counters, expert, weight, tiles, allocate(gated)?, allocate(outputs)?]))
    }

    /// Operands of the kernels.
    pub fn operands(&self) -> ExpertsWork<'_> {
        let [logits, counters, expert, weight, tiles, gated, outputs] = self.0.each_ref().map(Buffer::slice);
        ExpertsWork { logits, counters, expert, weight, tiles, gated, outputs }
    }
}

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

/// State that persists between rounds: one entry per slot, and a last one for padding.
#[derive(Debug)]
pub struct SlotArrays {
    /// int32 `[slots, table_width]`.
    pub page_table: Buffer,
    pub table_width: usize,
    pub length: Buffer,
    pub root: Buffer,
    pub temperature: Buffer,
    pub top_p: Buffer,
    pub top_k: Buffer,
    pub min_p: Buffer,
    /// u64.
    pub seed: Buffer,
    /// Places in the texts that are played, int32 `[slots, 4]`.
    pub played: Buffer,
    pub logprob_count: Buffer,
    /// The draft's state after the last token that it has processed: `[slots, draft hidden]`.
    pub recurrent: Buffer,
    /// Tokens that the draft has not processed, a ring per slot: int32
    /// `[slots, MAX_PENDING_DRAFT]`.
    pub pending_tokens: Buffer,
    /// The feature inputs of these tokens: `[slots, MAX_PENDING_DRAFT, …]`.
    pub pending_rows: Buffer,
    /// Slot, length and last token of the requests of a prefill: int32 `[slots, 3]`.
    pub update: Buffer,
    /// Where the first tokens of a prefill belong, in its rows and in `update`: int32 `[slots, 2]`.
    pub first_place: Buffer,
}

/// Arrays for choosing the tokens after rows, one int32 per row.
#[derive(Clone, Copy)]
pub struct Sampled<'a> {
    /// The slots whose sampling parameters apply.
    pub slot: Slice<'a>,
    /// The tokens' positions, from which their random numbers are computed.
    pub position: Slice<'a>,
}

impl WorkspaceShape {
    /// The sizes for rounds of a shape at a batch size.
    pub fn of_round(source: NodeSource, shape: TreeShape, batch: usize) -> Self {
        let TreeShape { num_steps: steps, topk, num_draft_tokens: nodes, .. } = shape;
        let drafted = source.passes(shape).1;
        // The extension after a round has a row for each accepted token and one for the bonus
        // token.
        let widest = nodes.max(steps + 1).max(drafted);
        let levels = (0..steps).map(|depth| most_parents(depth, topk, nodes));
        let (pool, ranked, block, branches) = match source {
            NodeSource::Beams => (shape.pool_size(), topk, 0, nodes.max(topk)),
            NodeSource::Block(_) => (1, levels.max().unwrap_or(1).max(steps), drafted, nodes),
            NodeSource::Text(_) => (0, 0, 0, nodes),
        };
        Self {
            rows: batch * widest,
            verified: batch * nodes,
            budget: if shape.row_budget.is_some() { shape.verified_rows(batch) } else { 0 },
            batch,
            steps,
            pool: pool.max(1),
            scratch: source.scratch_rows(shape),
            topk,
            ranked,
            block,
            given: if matches!(source, NodeSource::Text(_)) { nodes } else { steps + 1 },
            branches: if shape.is_off() { 0 } else { branches },
        }
    }

    /// The sizes for rounds of several shapes at a batch size.
    pub fn of_rounds(source: NodeSource, shapes: &[TreeShape], batch: usize) -> Self {
        let rounds = shapes.iter().map(|shape| Self::of_round(source, *shape, batch));
        let rounds = rounds.fold(Self::default(), Self::and);
        // The draft processes the tokens of rounds without speculation in separate passes.
        let speculates = |shape: &TreeShape| !shape.is_off();
        let leaves = shapes.iter().any(speculates) && !shapes.iter().all(speculates);
        Self { rows: rounds.rows.max(if leaves { MAX_PENDING_DRAFT } else { 0 }), ..rounds }
    }

    /// The sizes for pieces of prompts.
    pub fn of_prefill(rows: usize) -> Self {
        Self { rows, batch: 1, topk: 1, ranked: 1, pool: 1, ..Self::default() }
    }

    /// The sizes that cover both.
    pub fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows.max(other.rows),
            verified: self.verified.max(other.verified),
            budget: self.budget.max(other.budget),
            batch: self.batch.max(other.batch),
            steps: self.steps.max(other.steps),
            pool: self.pool.max(other.pool),
            scratch: self.scratch.max(other.scratch),
            topk: self.topk.max(other.topk),
            ranked: self.ranked.max(other.ranked),
            block: self.block.max(other.block),
            given: self.given.max(other.given),
            branches: self.branches.max(other.branches),
        }
    }

    /// Maximum number of rows of a pass over some nodes of the trees: inner ones, or a budget's.
    pub fn picked_rows(self) -> usize {
        inner_rows(self.rows).max(self.budget)
    }

    /// Whether these sizes cover the other ones.
    pub fn holds(self, other: Self) -> bool {
        // Compared part by part: a shape that is larger in one size and smaller in another does not
        // fit.
        self.and(other) == self
    }

    /// Maximum number of tokens that a round or the ends of prompts produce.
    pub fn described_rows(self) -> usize {
        self.rows.max(self.batch * (self.steps + 1))
    }

    fn own_stride(self) -> usize {
        self.steps + 1
    }

    /// Words of the mask over the own rows of a request.
    fn own_mask_words(self) -> usize {
        Kernels::own_mask_words(self.branches, self.own_stride()).max(1)
    }
}

/// Sizes of all buffers in bytes, for one element type.
#[derive(Clone, Debug)]
pub struct WorkspaceSizes<'a> {
    pub target: &'a TargetSpec,
    pub draft: Option<DraftSpec>,
    pub element: Element,
    /// Number of parts into which attention splits its keys.
    pub splits: usize,
    /// Tokens per page, and pages of a slot.
    pub page_size: usize,
    pub table_width: usize,
    /// Whether sums have the same order for any number of rows.
    pub batch_invariant: bool,
    /// Longest prompt whose latent attention is expanded, in positions; 0 without kernels for it.
    pub expanded_positions: usize,
    /// Whether layers of the target have window pages.
    pub windowed: bool,
    /// Maximum number of pieces of prompts in a pass, if these run through layers with a state in
    /// chunks; 0 if they are a recurrence.
    pub chunked_pieces: usize,
}

impl WorkspaceSizes<'_> {
    /// All layers of target and draft.
    pub fn layers(&self) -> impl Iterator<Item = &LayerSpec> {
        self.target.layers.iter().chain(self.draft.iter().flat_map(DraftSpec::layers))
    }

    /// The maximum of a width over them.
    fn widest(&self, width: impl Fn(&LayerSpec) -> usize) -> usize {
        self.layers().map(width).max().unwrap_or_default()
    }

    /// The maximum over layers with grouped-query attention.
    fn widest_attention(&self, width: impl Fn(&GroupedQuery) -> usize) -> usize {
        self.widest(|layer| layer.attention.grouped().map_or(0, &width))
    }

    /// The maximum over layers with latent attention.
    fn widest_latent(&self, width: impl Fn(&MultiHeadLatent) -> usize) -> usize {
        self.widest(|layer| match &layer.attention {
            AttentionSpec::Latent(latent) => width(latent),
            AttentionSpec::Grouped(_) | AttentionSpec::Delta(_) => 0,
        })
    }

    fn vocabulary(&self) -> usize {
        self.draft.as_ref().map_or(0, |draft| draft.head().1).max(self.target.vocabulary)
    }

    /// Number of tokens whose logits this rank computes; 0 if it computes all of them.
    fn own_tokens(&self) -> usize {
        let target = (self.target.head_rows, self.target.vocabulary);
        let draft = self.draft.as_ref().map(|draft| draft.head());
        let heads = [Some(target), draft.map(|(_, vocabulary, rows)| (rows, vocabulary))];
        // Only where the head is split over ranks: otherwise the own tokens are all tokens.
        heads.into_iter().flatten().filter(|(rows, all)| rows < all).map(|(rows, _)| rows).max().unwrap_or_default()
    }

    /// The most outputs of the projections of a delta net.
    fn delta_outputs(&self) -> [usize; 2] {
        let outputs = self.target.layers.iter().filter_map(|layer| match &layer.attention {
            AttentionSpec::Delta(delta) => Some(delta_outputs(delta, layer.formats)),
            AttentionSpec::Grouped(_) | AttentionSpec::Latent(_) => None,
        });
        outputs.fold([0; 2], |[first, second], (entry, rates)| [first.max(entry), second.max(rates)])
    }

    fn captured(&self) -> usize {
        self.draft.as_ref().map_or(0, |draft| draft.captured().len()) * self.target.hidden
    }

    /// Bytes of each buffer of [`Activations`], in their order (the two states separately).
    fn activations(&self, extent: WorkspaceShape) -> [usize; 33] {
        let WorkspaceShape { rows, .. } = extent;
        let hidden = self.widest(|layer| layer.hidden);
        let draft = self.draft.as_ref().map_or(1, DraftSpec::hidden);
        let attended = self.widest_latent(|latent| latent.value_width().max(latent.query_rank.unwrap_or_default()));
        let attended = attended.max(self.widest_attention(GroupedQuery::query_width));
        let latent_queries = self.widest_latent(|latent| latent.query_width().max(latent.value_width()));
        let qkv = latent_queries.max(self.widest_attention(GroupedQuery::qkv_width));
        let entered = self.widest_latent(MultiHeadLatent::entry_width);
        let latent_rows = rows.min(LATENT_ROWS);
        let in_splits = |latent: &MultiHeadLatent| {
            Kernels::latent_workspace(rows.min(LATENT_ROWS_IN_SPLITS), &latent_dims(latent), self.splits)
        };
        let expanded = |latent: &MultiHeadLatent| match self.expanded_positions {
            0 => 0,
            positions => expanded_bytes(latent, positions, self.element),
        };
        let intermediate = self.widest(|layer| match &layer.ffn {
            FfnSpec::Dense(dense) => dense.intermediate,
            FfnSpec::Experts(_) => 0,
        });
        let heads = self.widest_attention(|attention| attention.heads);
        let head_dim = self.widest_attention(|attention| attention.head_dim);
        let delta = |width: fn(&DeltaNet) -> usize| self.target.delta_nets().map(width).max().unwrap_or_default();
        let attended = attended.max(delta(|delta| delta.sizes.value_width()));
        let [entered_deltas, rates] = self.delta_outputs();
        // Projections and convolved rows of a prompt live for one layer, those of a round for all
        // layers until acceptance.
        let kept = rows.max(self.target.delta_nets().count() * extent.verified);
        let steps = match entered_deltas {
            0 => 0,
            _ => extent.batch * DeltaSteps::stride_of(extent.branches, extent.steps) * 4,
        };
        let chunks = match self.target.delta_nets().next() {
            Some(net) if self.chunked_pieces > 0 => {
                delta_chunk_bytes(self.element, &net.sizes, rows, self.chunked_pieces.min(rows))
            }
            _ => [0; 2],
        };
        let e = self.element.bytes();
        // A block head projects keys and values of all its layers at once.
        let context = self.block().map_or(0, block::context_width);
        [
            rows * hidden * e,
            rows * hidden * e,
            rows * qkv * e,
            rows * attended * e,
            rows * hidden * e,
            rows * self.widest_attention(|attention| attention.query_outputs() - attention.query_width()) * e,
            kept * entered_deltas * e,
            kept * rates * e,
            kept * delta(|delta| delta.sizes.channels()) * e,
            steps,
            chunks[0],
            chunks[1],
            Kernels::MOST_PARTS
                * rows.min(Kernels::MOST_ROWS_LEFT_IN_PARTS)
                * qkv.max(hidden).max(entered).max(context).max(entered_deltas)
                * 4,
            rows * context.max(2 * intermediate) * e,
            rows * intermediate * e,
            rows * self.captured() * e,
            rows * self.captured() * e,
            rows * draft * e,
            rows * 2 * draft * e,
            rows * draft * e,
            rows * draft * e,
            // Logits of all rows would take gigabytes, so rows go through the head in parts.
            LOGIT_ROWS * self.vocabulary() * 4,
            LOGIT_ROWS * self.own_tokens() * 4,
            Kernels::attention_workspace(rows.min(ATTENTION_ROWS), heads, head_dim, self.splits)
                .max(self.widest_latent(in_splits)),
            rows.min(ATTENTION_ROWS) * heads * 4,
            Kernels::squares_bytes(rows, hidden),
            rows * entered * e,
            latent_rows * self.widest_latent(|latent| latent.heads * latent.cache_width()) * e,
            latent_rows * self.widest_latent(|latent| latent.heads * latent.latent_rank) * e,
            self.widest_latent(expanded),
            if self.batch_invariant { 16 } else { self.widest(widest_in_fp8).max(8) * e },
            self.widest(|layer| product_bytes(layer, rows, e)[0]),
            self.widest(|layer| product_bytes(layer, rows, e)[1]),
        ]
    }

    /// Bytes of each buffer of [`ExpertActivations`].
    fn experts(&self, extent: WorkspaceShape) -> ExpertsBytes {
        let shapes = self
            .layers()
            .filter_map(|layer| experts_shape(layer.ffn.experts()?, layer.hidden, weights_in(layer.formats.ffn)).ok());
        let bytes = |shape| Kernels::experts_bytes(self.element, &shape, extent.rows, self.batch_invariant);
        shapes.map(bytes).fold([0; 7], |most, bytes| std::array::from_fn(|at| most[at].max(bytes[at])))
    }

    /// Bytes of all activations, row arrays and round arrays.
    pub fn work(&self, extent: WorkspaceShape) -> u64 {
        let activations = self.activations(extent).iter().chain(&self.experts(extent)).sum::<usize>();
        let windowed = if self.windowed { WindowedArrays::words(extent.own_stride()) } else { 0 };
        let words = 13 + 2 * extent.own_stride() + extent.own_mask_words() + windowed;
        let rows = ((extent.rows + extent.picked_rows()) * words + extent.described_rows() * DESCRIBED_WORDS) * 4;
        let rounds = extent.batch
            * (3 * extent.pool + 2 * (extent.ranked * extent.topk + extent.given) + 17 * (extent.steps + MOST_NODES))
            * 4;
        (activations + rows + rounds) as u64 + self.block_bytes(extent)
    }

    /// Bytes of one cache row of target and draft together.
    pub fn cache_row(&self) -> u64 {
        let element = self.element.bytes();
        self.target.cache_row(element) + self.draft.as_ref().map_or(0, |draft| draft.cache_row(element))
    }

    /// Bytes of a page.
    pub fn page(&self) -> PageBytes {
        let window = self.target.windowed_cache(self.element.bytes()).map_or(0, |windowed| windowed.row);
        let (page_size, row) = (self.page_size as u64, self.cache_row());
        PageBytes { page: (row - window) * page_size, window: window * page_size }
    }

    /// Bytes of the state that a draft keeps of a request.
    fn state_bytes(&self) -> usize {
        self.draft.as_ref().map_or(0, DraftSpec::state_width) * self.element.bytes()
    }

    /// Bytes of the kept features of a pending row.
    fn pending_row(&self) -> usize {
        self.draft.as_ref().map_or(0, |draft| draft.feature_width(self.target.hidden) * self.element.bytes())
    }

    /// Bytes per slot for pending rows of the draft.
    pub fn pending_slot(&self) -> u64 {
        (MAX_PENDING_DRAFT * (self.pending_row() + 4)) as u64
    }

    /// Bytes of all weights.
    pub fn weights(&self) -> u64 {
        let element = self.element.bytes();
        let draft = self.draft.as_ref().map_or(0, |draft| draft.weight_bytes(self.target, element));
        // The projection of all layers' keys and values is a separate copy of these weights.
        let context = self.block().map_or(0, |block| block::context_width(block) * block.hidden() * element);
        let padding: usize = self.layers().map(mxfp4_padding).sum();
        self.target.weight_bytes(element) + draft + (context + padding) as u64
    }
}

/// Bytes that fill up the scales of a layer's experts in MXFP4, which the kernels read as whole
/// words.
fn mxfp4_padding(layer: &LayerSpec) -> usize {
    let (FfnSpec::Experts(spec), WeightFormat::Mxfp4) = (&layer.ffn, layer.formats.ffn) else { return 0 };
    let of = |rows: usize, inputs: usize| mxfp4_scale_bytes(rows, inputs) - rows * inputs / MXFP4_BLOCK;
    spec.experts * (of(2 * spec.intermediate, layer.hidden) + of(layer.hidden, spec.intermediate))
}

/// Bytes of the quantised rows of experts and of their scales: of the rows that gate and up read,
/// up to where the others begin, and of those that down reads.
pub fn expert_product_bytes(layout: Fp8Rows, shape: &ExpertsShape, rows: usize, element: usize) -> [[usize; 2]; 2] {
    const BEGIN: usize = 256;
    let pairs = rows * shape.chosen();
    let scales = |rows: usize, inputs: usize| Kernels::row_scales_bytes(layout, rows, inputs);
    [
        [(rows * shape.hidden * element).next_multiple_of(BEGIN), pairs * shape.intermediate * element],
        [scales(rows, shape.hidden).next_multiple_of(BEGIN), scales(pairs, shape.intermediate)],
    ]
}

/// Bytes of the rows that a layer quantises at a time, and of their scales.
fn product_bytes(layer: &LayerSpec, rows: usize, element: usize) -> [usize; 2] {
    let tensors = layer.tensors("");
    let all = tensors.all();
    let is_expert = |tensor: &TensorSpec| matches!(tensor.role, Role::Expert(_) | Role::SharedExpert);
    let inputs = all.iter().filter(|tensor| !is_expert(tensor));
    let inputs = inputs.filter_map(|tensor| Some((tensor.rows?, *tensor.shape.get(1)?)));
    let bytes =
        inputs.map(|(layout, inputs)| [rows * inputs * element, Kernels::row_scales_bytes(layout, rows, inputs)]);
    let experts = || {
        let layout = layer.formats.ffn_rows?;
        let shape = experts_shape(layer.ffn.experts()?, layer.hidden, weights_in(layer.formats.ffn)).ok()?;
        Some(expert_product_bytes(layout, &shape, rows, element).map(|[first, second]| first + second))
    };
    bytes.chain(experts()).fold([0; 2], |most, bytes| [most[0].max(bytes[0]), most[1].max(bytes[1])])
}

/// Number of weights in the largest FP8 matrix of a layer that is dequantised for the library;
/// experts never are.
fn widest_in_fp8(layer: &LayerSpec) -> usize {
    let attention = match &layer.attention {
        _ if layer.formats.attention.fp8().is_none() || layer.formats.attention_rows.is_some() => 0,
        AttentionSpec::Grouped(spec) => (spec.qkv_width() * spec.input).max(spec.output * spec.query_width()),
        AttentionSpec::Delta(spec) => {
            let entered = spec.sizes.channels() + spec.sizes.value_width();
            (entered * spec.input).max(spec.output * spec.sizes.value_width())
        }
        AttentionSpec::Latent(spec) => {
            let queries = spec.heads * (spec.nope_dim + spec.rope.dims);
            let entry = (spec.query_rank.unwrap_or(queries) + spec.cache_width()) * spec.input;
            entry.max(queries * spec.query_rank.unwrap_or_default()).max(spec.output * spec.heads * spec.value_dim)
        }
    };
    let ffn = match &layer.ffn {
        FfnSpec::Dense(_) if layer.formats.ffn_rows.is_some() => 0,
        FfnSpec::Dense(dense) if layer.formats.ffn.fp8().is_some() => 2 * dense.intermediate * layer.hidden,
        _ => 0,
    };
    attention.max(ffn)
}

impl Activations {
    pub fn new(device: &Device, sizes: &WorkspaceSizes<'_>, extent: WorkspaceShape) -> Result<Self, DeviceError> {
        let mut bytes = sizes.activations(extent).into_iter();
        // In the order of `WorkspaceSizes::activations`. Not zeroed: each kernel writes before
        // another reads.
        let mut next = || device.allocate(bytes.next().unwrap_or_default().max(16));
        let this = Self {
            stream: next()?,
            normed: next()?,
            qkv: next()?,
            attended: next()?,
            added: next()?,
            gates: next()?,
            delta: DeltaActivations {
                projected: next()?,
                rates: next()?,
                convolved: next()?,
                steps: next()?,
                matrices: next()?,
                factors: next()?,
            },
            parts: next()?,
            gate_up: next()?,
            gated: next()?,
            captured: next()?,
            gathered: next()?,
            features: next()?,
            joined: next()?,
            states: [next()?, next()?],
            logits: next()?,
            own_logits: next()?,
            partial: next()?,
            counters: next()?,
            squares: next()?,
            latent: LatentActivations { entered: next()?, queries: next()?, means: next()?, expanded: next()? },
            dequantised: next()?,
            quantised: next()?,
            row_scales: next()?,
            experts: ExpertActivations::new(device, sizes.experts(extent))?,
            markov: MarkovActivations::new(device, sizes, extent)?,
        };
        // Kernels expect their counters to be zero, and reset them.
        device.fill(this.counters.slice(), 0)?;
        Ok(this)
    }
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
    fn sized(device: &Device, rows: usize, own_stride: usize, mask_words: usize) -> Result<Self, DeviceError> {
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

impl SlotArrays {
    /// Operands of the layout kernels.
    pub fn sequences(&self, capacity: &Capacity) -> Sequences<'_> {
        Sequences {
            slots: capacity.slots + 1,
            length: self.length.slice(),
            root: self.root.slice(),
            page_table: self.page_table.slice(),
            table_width: self.table_width,
            page_size: capacity.page_size,
        }
    }

    /// Arrays for `capacity + 1` slots; `slack` positions can be written past the context.
    pub fn new(
        device: &Device,
        capacity: &Capacity,
        slack: usize,
        sizes: &WorkspaceSizes<'_>,
    ) -> Result<Self, DeviceError> {
        let slots = capacity.slots + 1;
        let table_width = (capacity.context_length + slack).div_ceil(capacity.page_size);
        // Rows that no request owns map to the page after the last, which is never read.
        let table = device.upload(&vec![capacity.pages as i32; slots * table_width])?;
        let words = || device.zeros(slots * 4);
        Ok(Self {
            page_table: table,
            table_width,
            length: words()?,
            root: words()?,
            temperature: words()?,
            top_p: words()?,
            top_k: words()?,
            min_p: words()?,
            seed: device.zeros(slots * 8)?,
            played: device.zeros(slots * PLACE_WORDS * 4)?,
            logprob_count: device.upload(&vec![-1_i32; slots])?,
            // Zeros, since rows of padding read the state of the extra slot.
            recurrent: device.zeros(slots * sizes.state_bytes().max(16))?,
            pending_tokens: device.zeros(slots * MAX_PENDING_DRAFT * 4)?,
            pending_rows: device.zeros(slots * sizes.pending_row() * MAX_PENDING_DRAFT + 16)?,
            update: device.zeros(slots * 3 * 4)?,
            first_place: device.zeros(slots * 2 * 4)?,
        })
    }
}
