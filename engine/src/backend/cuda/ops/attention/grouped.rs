//! Grouped-query attention.

use kernels::{
    device::{Buffer, DeviceError, Slice},
    launch::{Attention, Parts, RotaryRows, Rotation, Rows, Sees, ViewPages, VisibleRows},
};

use super::super::layer::LayerOperands;
use crate::{
    backend::cuda::{
        limits::ATTENTION_ROWS,
        machine::{AttentionKernels, Machine, Pass},
        weights::GroupedWeights,
    },
    spec::GroupedQuery,
};

impl Machine {
    pub(super) fn grouped<'a>(
        &'a self,
        pass: Pass<'a>,
        layer: LayerOperands<'a>,
        weights: &'a GroupedWeights,
    ) -> Result<Rows<'a>, DeviceError> {
        let Pass { rows, work, .. } = pass;
        if let Some(gate) = &weights.gate {
            self.linear_of(work, work.gates.slice(), layer.input, gate, rows)?;
        }
        let parts = self.linear_to_rotate(work, work.qkv.slice(), layer.input, &weights.qkv, rows)?;
        self.rotate_and_attend(pass, layer, weights, parts)?;
        let attended = self.rows(&work.attended, weights.spec.query_width());
        if let Some(gate) = &weights.gate {
            self.kernels.sigmoid_gate(attended, self.rows(&work.gates, gate.outputs), rows, gate.outputs)?;
        }
        Ok(attended)
    }

    /// Attention from the qkv layer's output, in partials or in `work.qkv`, to `work.attended`.
    fn rotate_and_attend(
        &self,
        pass: Pass<'_>,
        layer: LayerOperands<'_>,
        weights: &GroupedWeights,
        parts: Option<Parts<'_>>,
    ) -> Result<(), DeviceError> {
        let Pass { rows, groups, sees, arrays, work, pages, windowed, .. } = pass;
        let own_pages = ViewPages { at: self.slots.page_table.slice(), width: self.slots.table_width };
        let pages = pages.unwrap_or(own_pages);
        let (write, own) = windowed.map_or((arrays.write.slice(), arrays.own.slice()), |rows| (rows.write, rows.own));
        let LayerOperands { ahead, cache, rotations, .. } = layer;
        let epsilon = layer.weights.epsilon;
        let GroupedQuery { heads, key_value_heads: kv_heads, head_dim, window, .. } = weights.spec;
        // A layer's cache is all its keys, then all its values.
        let plane = cache.bytes() / 2;
        let (keys, values) = (cache.range(0..plane), cache.range(plane..2 * plane));
        let rotation = Rotation {
            qkv: work.qkv.slice(),
            parts,
            rotary: RotaryRows { table: rotations, positions: self.positions, position: arrays.position.slice() },
            write,
            keys,
            values,
            fp8: weights.cache_scales,
            norms: weights.head_norms.as_ref().map(|(query, key)| (query.slice(), key.slice(), epsilon)),
            rows,
            heads,
            kv_heads,
            head_dim,
        };
        let all = Attention {
            out: work.attended.slice(),
            query: Rows { at: work.qkv.slice(), stride: weights.qkv.outputs },
            keys,
            values,
            fp8: weights.cache_scales,
            visible: VisibleRows {
                page_table: pages.at,
                table_width: pages.width,
                page_size: self.capacity.page_size,
                slot: arrays.slot.slice(),
                prefix: arrays.prefix.slice(),
                own_count: arrays.own_count.slice(),
                own,
                own_stride: arrays.own_stride,
            },
            rows,
            together: groups.largest(),
            heads,
            kv_heads,
            head_dim,
            partial: work.partial.slice(),
            counters: work.counters.slice(),
            max_splits: self.splits,
            sinks: weights.sinks.as_ref().map(Buffer::slice),
            window,
        };
        // On tensor cores a window contains at least a row's path.
        let cuts_paths = matches!(sees, Sees::Own(_)) && window.is_some_and(|window| window < arrays.own_stride);
        match self.attention {
            AttentionKernels::Tiles if !cuts_paths => {
                self.kernels.rotate_and_attend(rotation, all, groups, sees, ahead)
            }
            AttentionKernels::Tiles | AttentionKernels::Rows => {
                self.kernels.rotate_and_write(rotation)?;
                self.attend_rows(all)
            }
        }
    }

    /// Attention piece by piece, which bounds the workspace of splits. Rows of one group stay in
    /// one piece, unless the group is longer than a piece.
    fn attend_rows(&self, all: Attention<'_>) -> Result<(), DeviceError> {
        let element = self.element_bytes();
        let piece = ATTENTION_ROWS - ATTENTION_ROWS % all.together.clamp(1, ATTENTION_ROWS);
        for start in (0..all.rows).step_by(piece) {
            let from = |slice: Slice<'_>, width: usize| start * width..slice.bytes();
            self.kernels.attention_rows(Attention {
                out: all.out.range(from(all.out, all.heads * all.head_dim * element)),
                query: Rows { at: all.query.at.range(from(all.query.at, all.query.stride * element)), ..all.query },
                visible: all.visible.from_row(start),
                rows: piece.min(all.rows - start),
                ..all
            })?;
        }
        Ok(())
    }
}
