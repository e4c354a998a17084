//! Latent attention of prompts over expanded keys and values: 3.4 times fewer products than
//! absorbed for DeepSeek-V3's sizes.
//!
//! Keys and values are expanded for as many heads at a time as fit in the workspace, by GEMMs of
//! the library; all rows of a piece of a prompt share them.

use kernels::{
    device::{DeviceError, Slice},
    launch::{GatheredLatents, LatentPrompt, Linear, RotaryRows, Rows},
};

use super::super::layer::LayerOperands;
use crate::backend::cuda::{
    expansion::{ExpandedLayout, spared},
    machine::{Machine, Pass, PromptPiece},
    weights::{LatentWeights, latent_dims},
};

impl Machine {
    /// Whether a piece of a prompt attends over expanded keys and values.
    pub(super) fn expands(&self, pass: Pass<'_>, weights: &LatentWeights, piece: &PromptPiece) -> bool {
        let layout = ExpandedLayout::new(&weights.spec, piece.start + piece.rows);
        let room = pass.work.latent.expanded.bytes() / self.element_bytes();
        room >= layout.fixed() + layout.head()
            && spared(&weights.spec, piece.start, piece.rows) >= self.least_spared as i128
    }

    /// Transposes the weights of a layer's keys, once for all pieces of a pass. This must run
    /// before their latent vectors are gathered, since linear layers may read their weights before
    /// the previous kernel has ended.
    pub(super) fn turn_weights(&self, pass: Pass<'_>, weights: &LatentWeights) -> Result<(), DeviceError> {
        let absorb = pass.work.latent.expanded.slice();
        self.kernels.turn_latent_weights(absorb, weights.absorb.slice(), latent_dims(&weights.spec))
    }

    /// Attention of a piece's rows, starting at row `first` of the pass, from queries in `work.qkv`
    /// to `work.attended`; after [`turn_weights`](Self::turn_weights).
    pub(super) fn expanded(
        &self,
        pass: Pass<'_>,
        layer: LayerOperands<'_>,
        weights: &LatentWeights,
        first: usize,
        piece: PromptPiece,
    ) -> Result<(), DeviceError> {
        let Pass { arrays, work, .. } = pass;
        let PromptPiece { slot, start, rows } = piece;
        let (spec, dims, element) = (&weights.spec, latent_dims(&weights.spec), self.element_bytes());
        let layout = ExpandedLayout::new(spec, start + rows);
        let mut rest = work.latent.expanded.slice();
        let mut next = |elements: usize| {
            let (this, after) = split(rest, elements * element);
            rest = after;
            this
        };
        // `turn_weights` has filled the first part, so the order is fixed.
        let [absorb, latents, turned] = [layout.weights, layout.latents, layout.turned].map(&mut next);
        let table_width = self.slots.table_width;
        self.kernels.gather_latents(GatheredLatents {
            latents,
            turned,
            cache: layer.cache,
            pages: self.slots.page_table.range(slot * table_width * 4..(slot + 1) * table_width * 4),
            page_size: self.capacity.page_size,
            count: start + rows,
            padded: layout.padded,
            dims,
        })?;
        let queries = work.qkv.range(first * spec.query_width() * element..work.qkv.bytes());
        let position = arrays.position.range(first * 4..arrays.position.bytes());
        let rotary = RotaryRows { table: layer.rotations, positions: self.positions, position };
        self.kernels.turn_latent_queries(queries, rotary, rows, dims)?;

        // What is left of the buffer bounds the heads whose keys and values exist at a time.
        let together = (rest.bytes() / (layout.head() * element)).clamp(1, spec.heads);
        for first_head in (0..spec.heads).step_by(together) {
            let heads = together.min(spec.heads - first_head);
            let (keys, values) = split(rest, heads * layout.keys * element);
            for (y, of, outputs) in [(keys, absorb, spec.nope_dim), (values, weights.expand.slice(), spec.value_dim)] {
                let weight = of.range(first_head * outputs * spec.latent_rank * element..of.bytes());
                let outputs = heads * outputs;
                self.whole(
                    work,
                    Linear {
                        y,
                        y_is_float: false,
                        x: Rows { at: latents, stride: spec.latent_rank },
                        weight,
                        scales: None,
                        bias: None,
                        rows: layout.padded,
                        inputs: spec.latent_rank,
                        outputs,
                        unscaled: None,
                        row_scales: None,
                        needed: None,
                    },
                )?;
            }
            self.kernels.latent_prompt(LatentPrompt {
                out: work.attended.range(first * spec.value_width() * element..work.attended.bytes()),
                query: queries,
                keys,
                values,
                turned,
                first_head,
                heads,
                start,
                rows,
                dims,
                scale: spec.score_scale,
            })?;
        }
        Ok(())
    }
}

/// The first bytes of a slice, and the rest.
fn split(slice: Slice<'_>, bytes: usize) -> (Slice<'_>, Slice<'_>) {
    (slice.range(0..bytes), slice.range(bytes..slice.bytes()))
}
