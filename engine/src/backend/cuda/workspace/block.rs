//! The workspace of a block head.

use kernels::{
    device::{Buffer, Device, DeviceError},
    launch::{BlockView, Kernels, LevelRows, ViewPages},
};

use super::{RowArrays, WorkspaceShape, WorkspaceSizes};
use crate::{
    backend::cuda::weights::views,
    spec::{BlockSpec, DraftSpec, MarkovKind, MarkovSpec},
};

/// What is laid out for a block head in a round: int32.
#[derive(Debug)]
pub struct BlockArrays {
    /// The rows of the block, for each view.
    pub views: Vec<ViewRows>,
    /// `[batch · steps]`: the rows of the block that propose.
    pub proposing: Buffer,
    /// `[batch · ranked]` each: tokens, sources and base rows of the nodes of a level; see
    /// [`LevelRows`].
    level: [Buffer; 3],
}

/// The rows of a block as some layers see them.
#[derive(Debug)]
pub struct ViewRows {
    pub view: BlockView,
    pub rows: RowArrays,
    /// `[batch, width]`: pages of the positions that all rows of a block see, if a window hides
    /// others.
    pages: Option<Buffer>,
    width: usize,
}

/// Activations of a Markov head.
#[derive(Debug)]
pub struct MarkovActivations {
    /// Float `[rows, vocabulary]`: logits of the block's rows, before they are corrected.
    pub base: Buffer,
    /// Inputs of its cell, and the cell's output.
    pub inputs: Buffer,
    pub joint: Buffer,
    /// `[nodes of a level, rank]`.
    pub latent: Buffer,
    /// States after the nodes of a level; a level reads one buffer and writes the other.
    pub states: [Buffer; 2],
}

/// Values of a position in the caches of all layers of a head.
pub fn context_width(block: &BlockSpec) -> usize {
    block.layers.iter().map(|layer| layer.layer.attention.kv().values()).sum()
}

impl WorkspaceSizes<'_> {
    /// The draft, if it is a block head.
    pub fn block(&self) -> Option<&BlockSpec> {
        match &self.draft {
            Some(DraftSpec::Block(block)) => Some(block),
            Some(DraftSpec::Recurrent(_) | DraftSpec::Model(_) | DraftSpec::Text(_)) | None => None,
        }
    }

    /// Bytes of everything that only a block head needs.
    pub fn block_bytes(&self, extent: WorkspaceShape) -> u64 {
        let Some(block) = self.block() else { return 0 };
        let rows = extent.batch * extent.block;
        let view = |view: &BlockView| {
            let own = view.own_stride(extent.block, self.page_size);
            let pages = view.pages(self.table_width, self.page_size);
            rows * (13 + 2 * own + Kernels::own_mask_words(extent.block, own)) + extent.batch * pages
        };
        let views: usize = views(block).iter().map(view).sum();
        let words = views + extent.batch * (extent.steps + 3 * extent.ranked);
        (words * 4 + self.markov(extent).iter().sum::<usize>()) as u64
    }

    /// Bytes of the buffers of [`MarkovActivations`].
    fn markov(&self, extent: WorkspaceShape) -> [usize; 6] {
        let Some((block, markov)) = self.block().and_then(|block| Some((block, block.markov?))) else { return [0; 6] };
        let (MarkovSpec { rank, kind }, e) = (markov, self.element.bytes());
        let rows = extent.batch * extent.ranked;
        let (inputs, joint, state) = match kind {
            MarkovKind::Vanilla => (0, 0, 0),
            MarkovKind::Gated => (block.hidden() + rank, rank, 0),
            MarkovKind::Recurrent => (block.hidden() + 2 * rank, 3 * rank, rank),
        };
        let base = extent.batch * extent.steps * block.vocabulary * 4;
        [base, rows * inputs * e, rows * joint * e, rows * rank * e, rows * state * e, rows * state * e]
    }
}

impl BlockArrays {
    pub fn new(
        device: &Device,
        sizes: &WorkspaceSizes<'_>,
        block: &BlockSpec,
        extent: WorkspaceShape,
    ) -> Result<Self, DeviceError> {
        let WorkspaceShape { batch, block: rows, steps, ranked, .. } = extent;
        let view = |view: BlockView| {
            let own = view.own_stride(rows, sizes.page_size);
            let width = view.pages(sizes.table_width, sizes.page_size);
            Ok(ViewRows {
                view,
                rows: RowArrays::sized(device, batch * rows, own, Kernels::own_mask_words(rows, own).max(1))?,
                pages: if width > 0 { Some(device.zeros(batch * width * 4)?) } else { None },
                width,
            })
        };
        let ints = |width: usize| device.zeros(batch * width * 4);
        Ok(Self {
            views: views(block).into_iter().map(view).collect::<Result<_, DeviceError>>()?,
            proposing: ints(steps)?,
            level: [ints(ranked)?, ints(ranked)?, ints(ranked)?],
        })
    }

    /// Room for nodes of a level, over all requests.
    pub fn level_rows(&self) -> usize {
        self.level[0].bytes() / 4
    }

    /// The nodes of a level, of which a request has up to `rankings`.
    pub fn level(&self, rankings: usize) -> LevelRows<'_> {
        let [token, source, base] = self.level.each_ref().map(Buffer::slice);
        LevelRows { rankings, token, source, base }
    }
}

impl ViewRows {
    /// Pages in place of the slots'.
    pub fn pages(&self) -> Option<ViewPages<'_>> {
        self.pages.as_ref().map(|pages| ViewPages { at: pages.slice(), width: self.width })
    }
}

impl MarkovActivations {
    pub fn new(device: &Device, sizes: &WorkspaceSizes<'_>, extent: WorkspaceShape) -> Result<Self, DeviceError> {
        let allocate = |bytes: usize| device.allocate(bytes.max(16));
        let [base, inputs, joint, latent, one, other] = sizes.markov(extent);
        Ok(Self {
            base: allocate(base)?,
            inputs: allocate(inputs)?,
            joint: allocate(joint)?,
            latent: allocate(latent)?,
            states: [allocate(one)?, allocate(other)?],
        })
    }
}
