//! A decoder layer of a pass.

use kernels::{
    device::{Buffer, DeviceError, Slice},
    launch::{Added, Ahead, Attention, Parts, RmsNorm, Rotation, Rows},
};

use super::{
    layout::ATTENTION_ROWS,
    linear::Input,
    passes::{AttentionKernels, Machine, Pass},
    weights::{LayerWeights, Projection},
};
use crate::model::LayerFacts;

/// A layer and what it works on.
#[derive(Clone, Copy)]
pub(super) struct LayerOperands<'a> {
    pub ahead: Ahead,
    pub facts: &'a LayerFacts,
    pub weights: &'a LayerWeights,
    /// Rows behind the input norm.
    pub input: Input<'a>,
    /// Keys, then values.
    pub cache: Slice<'a>,
    /// Cosines and sines.
    pub turns: Slice<'a>,
    /// Takes up what attention yields, and what the feed-forward layer yields if there is a next layer.
    pub stream: Rows<'a>,
    pub next: Option<Next<'a>>,
    /// The only rows that go on behind attention, if not all do.
    pub ends: Option<Ends<'a>>,
}

/// Rows behind which something is asked for. Of a last layer all others need only leave their keys and values.
#[derive(Clone, Copy)]
pub struct Ends<'a> {
    /// Which rows they are, int32 `[count]`.
    pub rows: Slice<'a>,
    pub count: usize,
    /// Takes their stream, one behind the other.
    pub stream: Rows<'a>,
}

/// The begin of a next layer.
#[derive(Clone, Copy)]
pub(super) struct Next<'a> {
    /// Its input norm.
    pub norm: &'a Buffer,
    /// What takes the normed stream.
    pub layer: &'a Projection,
    /// Takes the stream that enters.
    pub keep: Option<Rows<'a>>,
}

/// What a layer leaves.
#[derive(Clone, Copy)]
pub(super) enum Left<'a> {
    /// The stream alone.
    Stream,
    /// The stream, to which this is yet to be added.
    Added(Added<'a>),
    /// The stream, and the next layer's input.
    Normed(Input<'a>),
}

impl<'a> Left<'a> {
    /// What is yet to be added to the stream.
    pub(super) fn added(self) -> Option<Added<'a>> {
        match self {
            Self::Added(add) => Some(add),
            Self::Stream | Self::Normed(_) => None,
        }
    }
}

impl Machine {
    /// A decoder layer behind its input norm.
    pub(super) fn layer<'a>(&'a self, pass: Pass<'a>, layer: LayerOperands<'a>) -> Result<Left<'a>, DeviceError> {
        let Pass { rows, work, .. } = pass;
        let LayerOperands { facts, weights, input, stream, next, ends, .. } = layer;
        let LayerFacts { hidden, intermediate, attention, epsilon, .. } = facts;
        let parts = self.linear_to_rotate(work, work.qkv.slice(), input, &weights.qkv, rows)?;
        self.attend(pass, layer, parts)?;
        let width = attention.heads * attention.head_dim;
        let attended = self.rows(&work.attended, width);
        let (attended, stream, rows) = match ends {
            None => (attended, stream, rows),
            Some(Ends { rows: source, count, stream: to }) => {
                // Queries, keys and values have been read.
                let few = self.rows(&work.qkv, width);
                self.kernels.gather_rows(few, None, attended, Some(source), count, width)?;
                self.kernels.gather_rows(to, None, stream, Some(source), count, *hidden)?;
                (few, to, count)
            }
        };
        let norm = RmsNorm {
            out: self.rows(&work.normed, *hidden),
            stream,
            add: None,
            weight: weights.post_attention_norm.slice(),
            keep: None,
            source: None,
            rows,
            width: *hidden,
            epsilon: *epsilon,
        };
        let normed = self.add_and_norm(work, attended, &weights.output, norm, &weights.gate_up)?;
        self.gated(work, normed, &weights.gate_up, rows, *intermediate)?;
        let gated = self.rows(&work.gated, *intermediate);
        match next {
            Some(Next { norm: weight, layer: next, keep }) => {
                let norm = RmsNorm { weight: weight.slice(), keep, ..norm };
                self.add_and_norm(work, gated, &weights.down, norm, next).map(Left::Normed)
            }
            None => Ok(self.added(work, gated, &weights.down, stream, rows)?.map_or(Left::Stream, Left::Added)),
        }
    }

    /// Attention over what the qkv layer has left in parts or in `work.qkv`, to `work.attended`.
    fn attend(&self, pass: Pass<'_>, layer: LayerOperands<'_>, parts: Option<Parts<'_>>) -> Result<(), DeviceError> {
        let Pass { rows, groups, sees, arrays, work, .. } = pass;
        let LayerOperands { ahead, facts, weights: layer, cache, turns, .. } = layer;
        let LayerFacts { attention, epsilon, .. } = facts;
        let (heads, kv_heads, head_dim) = (attention.heads, attention.key_value_heads, attention.head_dim);
        let plane = cache.bytes() / 2;
        let (keys, values) = (cache.range(0..plane), cache.range(plane..2 * plane));
        let rotation = Rotation {
            qkv: work.qkv.slice(),
            parts,
            table: turns,
            positions: self.positions,
            position: arrays.position.slice(),
            write: arrays.write.slice(),
            keys,
            values,
            norms: layer.head_norms.as_ref().map(|(query, key)| (query.slice(), key.slice(), *epsilon)),
            rows,
            heads,
            kv_heads,
            head_dim,
        };
        let all = Attention {
            out: work.attended.slice(),
            query: Rows { at: work.qkv.slice(), stride: layer.qkv.outputs },
            keys,
            values,
            page_table: self.slots.page_table.slice(),
            table_width: self.slots.table_width,
            page_size: self.capacity.page_size,
            row_slot: arrays.slot.slice(),
            row_prefix: arrays.prefix.slice(),
            row_own_count: arrays.own_count.slice(),
            row_own: arrays.own.slice(),
            own_stride: arrays.own_stride,
            rows,
            together: groups.largest(),
            heads,
            kv_heads,
            head_dim,
            partial: work.partial.slice(),
            counters: work.counters.slice(),
            max_splits: self.splits,
        };
        match self.attention {
            AttentionKernels::Tiles => self.kernels.rotate_and_attend(rotation, all, groups, sees, ahead),
            AttentionKernels::Rows => {
                self.kernels.rotate_and_write(rotation)?;
                self.attend_rows(all)
            }
        }
    }

    /// Attention piece by piece, so that the workspace of splits is bounded. Pieces cut no rows apart that go together, unless
    /// they are longer than a piece.
    fn attend_rows(&self, all: Attention<'_>) -> Result<(), DeviceError> {
        let element = self.element_bytes();
        let piece = ATTENTION_ROWS - ATTENTION_ROWS % all.together.clamp(1, ATTENTION_ROWS);
        for start in (0..all.rows).step_by(piece) {
            let behind = |slice: Slice<'_>, width: usize| start * width..slice.bytes();
            self.kernels.attention_rows(Attention {
                out: all.out.range(behind(all.out, all.heads * all.head_dim * element)),
                query: Rows { at: all.query.at.range(behind(all.query.at, all.query.stride * element)), ..all.query },
                row_slot: all.row_slot.range(behind(all.row_slot, 4)),
                row_prefix: all.row_prefix.range(behind(all.row_prefix, 4)),
                row_own_count: all.row_own_count.range(behind(all.row_own_count, 4)),
                row_own: all.row_own.range(behind(all.row_own, all.own_stride * 4)),
                rows: piece.min(all.rows - start),
                ..all
            })?;
        }
        Ok(())
    }
}
