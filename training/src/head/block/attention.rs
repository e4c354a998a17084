//! Attention of blocks: over the context of their anchor, and within the block.

use candle_core::{Device, Result, Tensor};
use engine::spec::BlockLayer;

use crate::{
    head::{HeadRows, grouped::GroupedHeads},
    math,
};

/// The blocks of a batch of texts.
pub struct BlockRows {
    /// Number of texts.
    texts: usize,
    /// Context rows of each text.
    context: usize,
    /// Blocks of each text.
    blocks: usize,
    /// Rows of each block.
    rows: usize,
    /// The number of context rows that each block sees: the position of its first row, counted
    /// from the text's first row. `[texts · blocks]`.
    before: Vec<usize>,
    device: Device,
}

impl BlockRows {
    /// A block of `rows` rows after each anchor.
    ///
    /// # Errors
    /// When an anchor is not a row.
    pub fn new(anchors: &HeadRows, rows: usize, device: &Device) -> Result<Self> {
        // Blocks that fill up see one row; nothing counts what they draft.
        let before: Vec<usize> = anchors.anchors.iter().map(|anchor| anchor.unwrap_or_default() + 1).collect();
        if before.iter().any(|before| *before > anchors.each) {
            candle_core::bail!("an anchor is not one of the {} rows", anchors.each);
        }
        let (texts, context, blocks) = (anchors.texts(), anchors.each, anchors.anchors_each());
        Ok(Self { texts, context, blocks, rows, before, device: device.clone() })
    }

    /// Attention of the rows of blocks `x`, `[texts · blocks · rows, hidden]`, over these and the
    /// context, `[texts · context rows, hidden]`. Values are multiplied by a factor.
    pub fn attend(
        &self,
        heads: &GroupedHeads,
        (x, context): (&Tensor, &Tensor),
        view: &BlockLayer,
        value_scale: f64,
    ) -> Result<Tensor> {
        let of_blocks = heads.turns_at(&self.positions()?, self.context + 1 + self.rows)?;
        let query = heads.queries(x, self.texts, &of_blocks)?;
        let (keys, values) = heads.keys_and_values(x, self.texts, &of_blocks)?;
        let (context_keys, context_values) =
            heads.keys_and_values(context, self.texts, &heads.turns(0, self.context)?)?;
        let (texts, of_heads, all, head_dim) = query.dims4()?;
        // Products within blocks are those of a batch of all blocks of all heads.
        let apart = |x: &Tensor| x.reshape((texts * of_heads * self.blocks, self.rows, ()));
        let within = apart(&query)?.matmul(&apart(&keys)?.t()?)?.reshape((texts, of_heads, all, self.rows))?;
        let scores = Tensor::cat(&[query.matmul(&context_keys.t()?)?, within], 3)?;
        let weights = math::masked_softmax(&scores, &self.mask(view, &scores)?)?;
        let within = apart(&weights.narrow(3, self.context, self.rows)?.contiguous()?)?;
        let within = within.matmul(&apart(&values)?)?.reshape((texts, of_heads, all, head_dim))?;
        let attended = (weights.narrow(3, 0, self.context)?.contiguous()?.matmul(&context_values)? + within)?;
        heads.output(&if value_scale == 1.0 { attended } else { (attended * value_scale)? })
    }

    /// The position of each row, counted from the text's first row: `[texts, blocks · rows]`.
    fn positions(&self) -> Result<Tensor> {
        let rows = self.before.iter().flat_map(|before| (*before..before + self.rows).map(|at| at as u32));
        Tensor::from_vec(rows.collect(), (self.texts, self.blocks * self.rows), &self.device)
    }

    /// What is added to scores, in their type: 0 for what a row of a layer sees.
    /// `[texts, 1, blocks · rows, context rows + rows]`.
    fn mask(&self, view: &BlockLayer, scores: &Tensor) -> Result<Tensor> {
        let all = self.blocks * self.rows;
        // Row j of a block is `before + j` positions from the text's first row.
        let bounds = |bound: &dyn Fn(usize, usize) -> usize| {
            let of_block = |before: &usize| {
                let before = *before;
                (0..self.rows).map(move |row| (before, row))
            };
            let of_rows = self.before.iter().flat_map(of_block).map(|(before, row)| bound(before, row) as u32);
            Tensor::from_vec(of_rows.collect::<Vec<u32>>(), (self.texts, 1, all, 1), &self.device)
        };
        let first = |before: usize, row: usize| match view.window {
            Some(window) => (before + row + 1).saturating_sub(window).min(before),
            None => 0,
        };
        let key = Tensor::arange(0, self.context as u32, &self.device)?.reshape((1, 1, 1, self.context))?;
        let later = key.broadcast_ge(&bounds(&|before, _| before)?)?;
        let hidden = (later + key.broadcast_lt(&bounds(&first)?)?)?;
        let sees = |row: usize, other: usize| {
            let last = if view.causal { row + 1 } else { self.rows };
            (view.window.map_or(0, |window| (row + 1).saturating_sub(window))..last).contains(&other)
        };
        let of_row = |row: usize| (0..self.rows).map(move |other| (row, other));
        let within: Vec<u8> = (0..self.rows).flat_map(of_row).map(|(row, other)| u8::from(!sees(row, other))).collect();
        let within = Tensor::from_vec(within, (1, 1, self.rows, self.rows), &self.device)?;
        let within = within.broadcast_as((self.texts, self.blocks, self.rows, self.rows))?;
        let within = within.contiguous()?.reshape((self.texts, 1, all, self.rows))?;
        math::mask(&Tensor::cat(&[hidden, within], 3)?, scores.dtype())
    }
}
