//! Latent attention: absorbed in rounds, and over expanded keys and values in prompts of enough
//! rows.

use std::ops::Range;

use kernels::{
    device::{Buffer, DeviceError},
    launch::{LatentAttention, LatentQueries, LatentRows, LatentValues, RotaryRows, Rows, VisibleRows},
};

use super::super::layer::LayerOperands;
use crate::backend::cuda::{
    limits::{LATENT_ROWS, LATENT_ROWS_IN_SPLITS},
    machine::{Machine, Pass},
    weights::{LatentWeights, latent_dims},
};

impl Machine {
    pub(super) fn latent<'a>(
        &'a self,
        pass: Pass<'a>,
        layer: LayerOperands<'a>,
        weights: &'a LatentWeights,
    ) -> Result<Rows<'a>, DeviceError> {
        let Pass { rows, arrays, work, .. } = pass;
        let (dims, entered) = (latent_dims(&weights.spec), &work.latent.entered);
        let parts = self.linear_to_rotate(work, entered.slice(), layer.input, &weights.entry, rows)?;
        let first = weights.entry.outputs - dims.width();
        // `work.attended` holds the queries if they come from compressed ones; attention overwrites
        // it later.
        let queries = if weights.query.is_some() { &work.attended } else { &work.qkv };
        self.kernels.write_latents(LatentRows {
            x: self.rows(entered, weights.entry.outputs),
            parts,
            first,
            query_norm: weights.query.as_ref().map(|(norm, _)| norm.slice()),
            queries: queries.slice(),
            norm: weights.norm.slice(),
            epsilon: layer.weights.epsilon,
            cache: layer.cache,
            write: arrays.write.slice(),
            rotary: RotaryRows { table: layer.rotations, positions: self.positions, position: arrays.position.slice() },
            rows,
            dims,
        })?;
        if let Some((_, up)) = &weights.query {
            self.linear(work, work.qkv.slice(), self.rows(queries, first), up, rows)?;
        }
        let (mut first, mut absorbed, mut has_weights) = (0, 0, false);
        for piece in pass.prompts {
            if self.expands(pass, weights, piece) {
                if !has_weights {
                    self.turn_weights(pass, weights)?;
                    has_weights = true;
                }
                self.absorbed(pass, layer, weights, absorbed..first)?;
                self.expanded(pass, layer, weights, first, *piece)?;
                absorbed = first + piece.rows;
            }
            first += piece.rows;
        }
        self.absorbed(pass, layer, weights, absorbed..rows)?;
        Ok(self.rows(&work.attended, weights.spec.value_width()))
    }

    /// Absorbed attention of some rows, from queries in `work.qkv` to `work.attended`.
    fn absorbed(
        &self,
        pass: Pass<'_>,
        layer: LayerOperands<'_>,
        weights: &LatentWeights,
        rows: Range<usize>,
    ) -> Result<(), DeviceError> {
        // Absorbed queries are wide, so only some rows of them are in memory at a time.
        let piece = if self.batch_invariant { LATENT_ROWS_IN_SPLITS } else { LATENT_ROWS };
        let end = rows.end;
        rows.step_by(piece)
            .try_for_each(|start| self.absorbed_piece(pass, layer, weights, start, piece.min(end - start)))
    }

    fn absorbed_piece<'b>(
        &self,
        pass: Pass<'b>,
        layer: LayerOperands<'_>,
        weights: &LatentWeights,
        start: usize,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let Pass { arrays, work, .. } = pass;
        let (spec, dims) = (&weights.spec, latent_dims(&weights.spec));
        let element = self.element_bytes();
        let from_start = |array: &'b Buffer, width: usize| array.range(start * width * 4..array.bytes());
        let (queries, means) = (work.latent.queries.slice(), work.latent.means.slice());
        self.kernels.latent_queries(LatentQueries {
            out: queries,
            x: work.qkv.range(start * spec.query_width() * element..work.qkv.bytes()),
            absorb: weights.absorb.slice(),
            rotary: RotaryRows {
                table: layer.rotations,
                positions: self.positions,
                position: from_start(&arrays.position, 1),
            },
            rows,
            dims,
        })?;
        self.kernels.latent_attention(LatentAttention {
            out: means,
            query: queries,
            cache: layer.cache,
            visible: VisibleRows {
                page_table: self.slots.page_table.slice(),
                table_width: self.slots.table_width,
                page_size: self.capacity.page_size,
                slot: from_start(&arrays.slot, 1),
                prefix: from_start(&arrays.prefix, 1),
                own_count: from_start(&arrays.own_count, 1),
                own: from_start(&arrays.own, arrays.own_stride),
                own_stride: arrays.own_stride,
            },
            rows,
            dims,
            scale: spec.score_scale,
            partial: work.partial.slice(),
            max_splits: if self.batch_invariant { self.splits } else { usize::MAX },
            by_rows: !self.batch_invariant,
        })?;
        self.kernels.latent_values(LatentValues {
            out: work.attended.range(start * spec.value_width() * element..work.attended.bytes()),
            x: means,
            expand: weights.expand.slice(),
            rows,
            dims,
        })
    }
}
