//! Attention of blocks: over the context of their anchor, and within the block.

use candle_core::{DType, Device, Result, Tensor};
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
        let weights = math::masked_softmax(&scores, &self.mask(view, scores.dtype())?)?;
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

    /// What is added to scores of a type: 0 for what a row of a layer sees.
    /// `[texts, 1, blocks · rows, context rows + rows]`.
    fn mask(&self, view: &BlockLayer, dtype: DType) -> Result<Tensor> {
        math::mask(&Tensor::cat(&[self.hidden_context(view)?, self.hidden_rows(view)?], 3)?, dtype)
    }

    /// 1 for context rows that a row does not see: those from its block on, and those before its
    /// window.
    fn hidden_context(&self, view: &BlockLayer) -> Result<Tensor> {
        let (mut first, mut end) = (Vec::new(), Vec::new());
        for before in &self.before {
            for row in 0..self.rows {
                let seen = view.window.map_or(0, |window| (before + row + 1).saturating_sub(window));
                first.push(seen.min(*before) as u32);
                end.push(*before as u32);
            }
        }
        let of_rows = |bounds| Tensor::from_vec(bounds, (self.texts, 1, self.blocks * self.rows, 1), &self.device);
        let context = Tensor::arange(0, self.context as u32, &self.device)?.reshape((1, 1, 1, self.context))?;
        context.broadcast_lt(&of_rows(first)?)? + context.broadcast_ge(&of_rows(end)?)?
    }

    /// 1 for rows of its block that a row does not see.
    fn hidden_rows(&self, view: &BlockLayer) -> Result<Tensor> {
        let of_row = |row: usize| {
            let first = view.window.map_or(0, |window| (row + 1).saturating_sub(window));
            let seen = first..if view.causal { row + 1 } else { self.rows };
            (0..self.rows).map(move |other| u8::from(!seen.contains(&other)))
        };
        let hidden = Tensor::from_vec((0..self.rows).flat_map(of_row).collect(), (self.rows, self.rows), &self.device)?;
        let of_blocks = hidden.broadcast_as((self.texts, self.blocks, self.rows, self.rows))?.contiguous()?;
        of_blocks.reshape((self.texts, 1, self.blocks * self.rows, self.rows))
    }
}
