//! Block heads for published shapes, as z-lab (DFLASH) and DeepSeek (DSPARK) train them: a few
//! layers of the target's shape over features of as many of its layers.

use schemas::tree::Block;

use super::{Draft, EPSILON, Heads, PublishedFfn, PublishedModel, attention};
use crate::{
    error::EngineError,
    spec::{
        BlockLayer, BlockSpec, BlockTensorLayout, CaptureNorms, CapturedFeatures, DenseSpec, EmbeddingSource, FfnSpec,
        LayerFormats, LayerSpec, LinearSpec, MarkovKind, MarkovSpec, NormWeights, TargetSpec, VocabularySource,
        default_layers,
    },
};

/// Layers of a head.
const LAYERS: usize = 5;
/// Width of the latent vector of a Markov head.
const RANK: usize = 256;

impl PublishedModel {
    /// A block head for a target of this shape: a DSPARK head if `dspark`, else a DFLASH head.
    /// `given` is the size of its block, if it is not the usual one.
    ///
    /// # Errors
    /// When no such head is published for a target of this kind.
    pub fn block_head(
        &self,
        target: &TargetSpec,
        dspark: bool,
        given: Option<usize>,
    ) -> Result<BlockSpec, EngineError> {
        let refused = |what: &str| {
            EngineError::Configuration(format!("--model-shape {}: no block head is published for {what}", self.name))
        };
        let intermediate = match (self.ffn, self.draft, self.heads) {
            (PublishedFfn::Dense(intermediate), ..) | (_, Draft::Eagle3 { intermediate, .. }, _) => intermediate,
            // As in SpecForge's configuration for Qwen3.5-35B-A3B.
            (_, _, Heads::Delta { .. }) => 3 * self.hidden,
            _ => return Err(refused("its feed-forward blocks")),
        };
        if matches!(self.heads, Heads::Latent { .. }) {
            return Err(refused("latent attention"));
        }
        // The published heads for targets with delta nets, and for gpt-oss, have Qwen3's layers.
        let heads = match self.heads {
            Heads::Sinks { queries, keys, dim, .. } | Heads::Delta { queries, keys, dim, .. } => {
                Heads::Grouped { queries, keys, dim, qkv_bias: false, norms: true }
            }
            other => other,
        };
        let layers = target.layers.len();
        let at = match default_layers(LAYERS, layers) {
            Some(at) => at.into_iter().map(|id| id + 1).collect(),
            // A shortened target.
            None => vec![layers; LAYERS],
        };
        let layer = LayerSpec {
            hidden: self.hidden,
            epsilon: EPSILON,
            input_norm: true,
            norms: NormWeights::Whole,
            attention: attention(self.hidden, self.hidden, heads, self.rope),
            ffn: FfnSpec::Dense(DenseSpec { intermediate, bias: false }),
            formats: LayerFormats::default(),
        };
        let block = if dspark { Block::DSPARK } else { Block::DFLASH };
        Ok(BlockSpec {
            tensors: BlockTensorLayout::PLAIN,
            features: CapturedFeatures {
                at,
                width: self.hidden,
                norms: CaptureNorms::default(),
                fc: Some(LinearSpec { bias: false }),
            },
            layers: vec![BlockLayer { layer, causal: false, window: None }; LAYERS],
            block: Block { given: given.map(|size| block.rows_for(size)), ..block },
            mask: 0,
            mask_embedding: false,
            value_scale: 1.0,
            markov: dspark.then_some(MarkovSpec { rank: RANK, kind: MarkovKind::Vanilla }),
            confidence: None,
            embedding: EmbeddingSource::Target,
            head: VocabularySource::Target,
            vocabulary: self.vocabulary,
            head_rows: self.vocabulary,
            tokens: None,
        })
    }
}
