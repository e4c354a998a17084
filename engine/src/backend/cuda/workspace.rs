//! The workspace on the device. Sizes come first, so that they are checked against free memory
//! before buffers are allocated.

use kernels::{
    device::Element,
    launch::{DeltaSteps, ExpertsBytes, ExpertsShape, Kernels, MOST_NODES, delta_chunk_bytes, mxfp4_scale_bytes},
    reference::{Fp8Rows, MXFP4_BLOCK},
};

mod activations;
mod block;
mod rounds;
mod rows;
mod shape;
mod slots;

pub use self::{
    activations::Activations,
    block::{BlockArrays, MarkovActivations},
    rounds::RoundArrays,
    rows::{RowArrays, Sampled},
    shape::WorkspaceShape,
    slots::SlotArrays,
};
use super::{
    expansion::expanded_bytes,
    limits::{ATTENTION_ROWS, DESCRIBED_WORDS, LATENT_ROWS, LATENT_ROWS_IN_SPLITS, LOGIT_ROWS},
    weights::{delta_outputs, experts_shape, latent_dims, weights_in},
    windows::WindowedArrays,
};
use crate::{
    backend::{MAX_PENDING_DRAFT, windows::PageBytes},
    spec::{
        AttentionSpec, DeltaNet, DraftSpec, FfnSpec, GroupedQuery, LayerSpec, MultiHeadLatent, Role, TargetSpec,
        TensorSpec, WeightFormat,
    },
};

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
