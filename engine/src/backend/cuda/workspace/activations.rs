//! What the kernels of a pass hand on to each other.

use kernels::{
    device::{Buffer, Device, DeviceError},
    launch::{DeltaChunks, ExpertsBytes, ExpertsWork},
};

use super::{MarkovActivations, WorkspaceShape, WorkspaceSizes};

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

impl DeltaActivations {
    /// Operands of the kernels, for rows at these positions.
    pub fn chunks<'a>(&'a self, position: &'a Buffer) -> DeltaChunks<'a> {
        DeltaChunks { matrices: self.matrices.slice(), factors: self.factors.slice(), position: position.slice() }
    }
}

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
