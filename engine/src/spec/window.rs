//! Layers whose rows see a window only: those of a target, and drafts that attend to the last
//! tokens only (`--speculative-draft-window-size`).

use super::{AttentionSpec, DraftSpec, LayerSpec, TargetSpec, WindowedCache};

/// The smaller of a window and of the one that there is already.
fn narrower(window: usize, own: Option<usize>) -> Option<usize> {
    Some(own.map_or(window, |own| own.min(window)))
}

impl LayerSpec {
    /// The same, whose rows see at most this many positions, their own included.
    fn with_window(&self, window: usize) -> Result<Self, &'static str> {
        let mut layer = self.clone();
        match &mut layer.attention {
            AttentionSpec::Grouped(grouped) => grouped.window = narrower(window, grouped.window),
            AttentionSpec::Latent(_) => return Err("latent attention, which has no kernels for it"),
            AttentionSpec::Delta(_) => return Err("linear attention"),
        }
        Ok(layer)
    }
}

impl TargetSpec {
    /// The largest window of its layers, if some have one: the rows of these layers further back
    /// are never read again.
    pub fn window(&self) -> Option<usize> {
        self.layers.iter().filter_map(|layer| layer.attention.window()).max()
    }

    /// Number of layers among the first `layers` that have a window.
    pub fn windows_before(&self, layers: usize) -> usize {
        self.layers.iter().take(layers).filter(|layer| layer.attention.window().is_some()).count()
    }
}

impl DraftSpec {
    /// The same, but a row of its layers sees at most this many positions before its own; layers
    /// that see fewer stay as they are. Each row of a block sees the whole block too, so its first
    /// rows see a few positions more.
    ///
    /// SGLang counts the same way: a window is the number of rows to the left of a row
    /// (`models/llama_eagle3.py`), of tokens with keys and values of their own before the drafts
    /// (`speculative/spec_utils.py`), or before the block (`speculative/dflash_worker_v2.py`, there
    /// rounded up to whole pages).
    ///
    /// # Errors
    /// What it has that cannot have a window.
    pub fn with_window(&self, window: usize) -> Result<Self, &'static str> {
        let mut draft = self.clone();
        match &mut draft {
            // A layer's window counts the row itself, which this one does not.
            Self::Recurrent(recurrent) => recurrent.layer = recurrent.layer.with_window(window.saturating_add(1))?,
            Self::Model(model) => {
                let layers = model.layers.iter().map(|layer| layer.with_window(window.saturating_add(1)));
                model.layers = layers.collect::<Result<_, _>>()?;
            }
            Self::Block(block) => {
                let rows = block.block.given.unwrap_or(block.block.rows);
                if window < rows {
                    return Err("a larger block, all of whose rows must see each other (SGLang refuses it too)");
                }
                // The last row sees the whole block and the window before it.
                let last_row = window.saturating_add(rows);
                block.layers.iter_mut().for_each(|layer| layer.window = narrower(last_row, layer.window));
            }
            Self::Text(_) => return Err("no attention: it looks drafts up in texts"),
        }
        Ok(draft)
    }

    /// The part of its caches that belongs to layers with a window, with elements of this many
    /// bytes.
    pub fn windowed_cache(&self, element: usize) -> Option<WindowedCache> {
        let of_layer = |layer: &LayerSpec, window: Option<usize>| Some((layer.attention.kv().bytes(element), window?));
        let windowed: Vec<(usize, usize)> = match self {
            Self::Block(block) => block.layers.iter().filter_map(|one| of_layer(&one.layer, one.window)).collect(),
            _ => self.layers().into_iter().filter_map(|layer| of_layer(layer, layer.attention.window())).collect(),
        };
        let row: usize = windowed.iter().map(|(row, _)| row).sum();
        // A mean by bytes, with which the memory is that of all windows together.
        let weighted: usize = windowed.iter().map(|(row, window)| row * window).sum();
        (row > 0).then(|| WindowedCache { row: row as u64, window: weighted / row })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ModelCost, published};

    #[test]
    fn a_window_bounds_what_a_draft_reads_of_a_long_context() {
        let shape = published("llama-3.1-8b").expect("a shape");
        let target = shape.target(Some(2)).expect("two layers");
        let whole = DraftSpec::Recurrent(shape.draft(&target));
        let windowed = whole.with_window(1024).expect("grouped attention");
        let bytes = |draft: &DraftSpec, context: usize| {
            let shape = schemas::tree::TreeShape::chain(3);
            ModelCost::new(&target, Some(draft), 2).round_bytes(shape, 4, context)
        };
        assert_eq!(bytes(&whole, 1000), bytes(&windowed, 1000));
        let row = whole.cache_row(2);
        // Three passes of the draft, each of which leaves out the rest of the context.
        assert_eq!(bytes(&whole, 9216) - bytes(&windowed, 9216), 3 * 4 * row * (9216 - 1025));
        assert_eq!(windowed.with_window(4096), Ok(windowed.clone()), "the narrower one holds");
    }

    #[test]
    fn what_has_no_window_says_why() {
        let shape = published("deepseek-v3").expect("a shape");
        let target = shape.target(Some(1)).expect("a layer");
        let latent = DraftSpec::Recurrent(shape.draft(&target)).with_window(64);
        assert!(latent.is_err_and(|what| what.contains("latent")));
        let shape = published("qwen3-8b").expect("a shape");
        let target = shape.target(Some(36)).expect("all layers");
        let block = DraftSpec::Block(shape.block_head(&target, false, None).expect("a head"));
        assert!(block.with_window(15).is_err_and(|what| what.contains("block")));
        assert!(block.with_window(16).is_ok());
    }

    #[test]
    fn a_window_counts_the_positions_before_a_row_as_sglang_does() {
        let shape = published("llama-3.1-8b").expect("a shape");
        let target = shape.target(Some(2)).expect("two layers");
        let windows = |draft: DraftSpec| {
            let windowed = draft.with_window(64).expect("grouped attention");
            windowed.windowed_cache(2).expect("all layers have one").window
        };
        assert_eq!(windows(DraftSpec::Recurrent(shape.draft(&target))), 65, "64 and the row's own");
        let small = published("llama-3.2-1b").expect("a shape").target(None).expect("all layers");
        assert_eq!(windows(DraftSpec::Model(small)), 65);
        let shape = published("qwen3-8b").expect("a shape");
        let target = shape.target(None).expect("all layers");
        let block = shape.block_head(&target, false, None).expect("a head");
        let rows = block.block.rows;
        assert_eq!(windows(DraftSpec::Block(block)), 64 + rows, "the last row sees 64 and the block");
    }
}
