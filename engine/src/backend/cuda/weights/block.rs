//! Weights of a block head.

use kernels::{
    device::{Buffer, Element},
    launch::{BlockView, Kernels},
};

use super::{
    AttentionWeights, LayerWeights, Loader, Projection, ProposalHead, TargetWeights, WeightSource, head::proposal_head,
    layer::not_on_a_gpu,
};
use crate::{
    error::EngineError,
    spec::{
        AttentionTensors, BlockLayer, BlockSpec, BlockTensors, ConfidenceSpec, GroupedQuery, LinearTensors, MarkovSpec,
        MarkovTensors,
    },
};

/// Weights of a block head.
#[derive(Debug)]
pub struct BlockWeights {
    pub spec: BlockSpec,
    /// `None` if it uses the target's.
    pub embedding: Option<Buffer>,
    /// `None` if it uses the target's.
    pub head: Option<Buffer>,
    /// The input vector of a position to be drafted; `None` if it is a row of the embedding.
    pub mask: Option<Buffer>,
    /// Projects captured features to the head's width.
    pub reduce: Projection,
    /// Norm of the projected features.
    pub context_norm: Buffer,
    /// Keys and values of all layers, in the type of activations: layer by layer, keys first.
    pub context: Projection,
    /// Norms of the layers' keys, `[layers, head_dim]`.
    pub key_norms: Option<Buffer>,
    pub layers: Vec<LayerWeights>,
    /// The norm after its layers.
    pub norm: Buffer,
    pub markov: Option<MarkovWeights>,
    pub confidence: Option<ConfidenceWeights>,
    /// Target tokens of the head's rows, int32.
    pub tokens: Option<Buffer>,
    /// Whether ranks split the layers, so that these are only a part of them.
    pub splits_layers: bool,
    /// The view of each layer, as an index of [`views`].
    pub view_of: Vec<usize>,
}

/// Weights of a Markov head.
#[derive(Debug)]
pub struct MarkovWeights {
    pub spec: MarkovSpec,
    /// W1, one row per token of the target.
    pub embedding: Buffer,
    /// W2, one row per token of the draft.
    pub head: Buffer,
    pub cell: Option<Projection>,
}

/// Weights of a confidence head. Rounds do not read them.
#[derive(Debug)]
pub struct ConfidenceWeights {
    pub spec: ConfidenceSpec,
    /// Number of its inputs.
    pub inputs: usize,
    pub weight: Buffer,
    pub bias: Option<Buffer>,
}

impl BlockWeights {
    /// Loads a head; ranks may split its layers.
    pub fn load(
        kernels: &Kernels,
        source: WeightSource<'_>,
        spec: BlockSpec,
        target: &TargetWeights,
        splits_layers: bool,
    ) -> Result<Self, EngineError> {
        let loader = Loader::new(kernels, source, target.share);
        let whole = loader.whole();
        let of_layers = if splits_layers || !target.share.is_part() { &loader } else { &whole };
        let tensors = spec.tensors(target.spec.vocabulary);
        let layer = |(layer, tensors): (&BlockLayer, &_)| {
            let mut weights = LayerWeights::load(of_layers, &layer.layer, tensors)?;
            scale_values(&mut weights, kernels, spec.value_scale)?;
            Ok(weights)
        };
        let layers = spec.layers.iter().zip(&tensors.layers).map(layer).collect::<Result<Vec<_>, EngineError>>()?;
        let views = views(&spec);
        // Found for every layer, since the views are made from these layers.
        let view_of = spec.layers.iter().map(|layer| views.binary_search(&view(layer)).unwrap_or_default()).collect();
        let tokens = spec.tokens.as_ref().map(|tokens| tokens.iter().map(|token| *token as i32).collect::<Vec<_>>());
        Ok(Self {
            embedding: loader.optional(tensors.embedding.as_ref())?,
            head: loader.optional(tensors.head.as_ref())?,
            mask: loader.optional(tensors.mask.as_ref())?,
            reduce: whole.projection(&[&tensors.reduce])?,
            context_norm: loader.tensor(&tensors.context_norm)?,
            context: context(of_layers, &spec, target.spec.vocabulary)?,
            key_norms: key_norms(&loader, &spec, &tensors)?,
            layers,
            norm: loader.tensor(&tensors.norm)?,
            markov: match (&tensors.markov, spec.markov) {
                (Some(tensors), Some(markov)) => Some(MarkovWeights::load(&whole, tensors, markov)?),
                _ => None,
            },
            confidence: match (&tensors.confidence, spec.confidence) {
                (Some(tensors), Some(confidence)) => Some(ConfidenceWeights::load(&whole, tensors, confidence)?),
                _ => None,
            },
            tokens: tokens.map(|tokens| kernels.device().upload(&tokens)).transpose()?,
            splits_layers,
            view_of,
            spec,
        })
    }

    /// The matrix with which it proposes tokens.
    pub fn proposal_head<'a>(&'a self, target: &'a TargetWeights) -> ProposalHead<'a> {
        let BlockSpec { head, vocabulary, head_rows, .. } = self.spec;
        let sizes = (head, vocabulary, head_rows);
        let (own, embedding, tokens) = (self.head.as_ref(), self.embedding.as_ref(), self.tokens.as_ref());
        proposal_head(own, embedding, tokens, self.spec.hidden(), sizes, target)
    }

    /// The attention of its layers, whose sizes are equal.
    pub fn attention(&self) -> Option<&GroupedQuery> {
        self.spec.layers.first()?.layer.attention.grouped()
    }
}

impl MarkovWeights {
    fn load(loader: &Loader<'_>, tensors: &MarkovTensors, spec: MarkovSpec) -> Result<Self, EngineError> {
        Ok(Self {
            spec,
            embedding: loader.tensor(&tensors.embedding)?,
            head: loader.tensor(&tensors.head)?,
            cell: tensors.cell.as_ref().map(|cell| loader.projection(&[cell])).transpose()?,
        })
    }
}

impl ConfidenceWeights {
    fn load(loader: &Loader<'_>, tensors: &LinearTensors, spec: ConfidenceSpec) -> Result<Self, EngineError> {
        Ok(Self {
            spec,
            inputs: tensors.weight.values() as usize,
            weight: loader.tensor(&tensors.weight)?,
            bias: loader.optional(tensors.bias.as_ref())?,
        })
    }
}

/// What the rows of a block see in a layer.
fn view(layer: &BlockLayer) -> BlockView {
    BlockView { causal: layer.causal, window: layer.window }
}

/// The views of a head's layers, each once.
pub fn views(spec: &BlockSpec) -> Vec<BlockView> {
    let mut views: Vec<BlockView> = spec.layers.iter().map(view).collect();
    views.sort_unstable();
    views.dedup();
    views
}

/// The projection of the features to the keys and values of all layers.
fn context(loader: &Loader<'_>, spec: &BlockSpec, vocabulary: usize) -> Result<Projection, EngineError> {
    let attention = spec.layers.first().and_then(|layer| layer.layer.attention.grouped());
    let attention = attention.ok_or_else(|| not_on_a_gpu("a block head with latent attention"))?;
    let tensors = spec.in_plain().tensors(vocabulary);
    let mut kept: Vec<&LinearTensors> = Vec::new();
    for layer in &tensors.layers {
        match &layer.attention {
            AttentionTensors::Grouped(grouped) => kept.extend([&grouped.key, &grouped.value]),
            AttentionTensors::Latent(_) | AttentionTensors::Delta(_) => {
                return Err(not_on_a_gpu("a block head without keys and values of its own heads"));
            }
        }
    }
    loader.context_projection(attention, &kept)
}

/// The norms of the keys of all layers.
fn key_norms(loader: &Loader<'_>, spec: &BlockSpec, tensors: &BlockTensors) -> Result<Option<Buffer>, EngineError> {
    let device = loader.kernels.device();
    let mut all: Vec<u8> = Vec::new();
    for (layer, tensors) in spec.layers.iter().zip(&tensors.layers) {
        if let (Some(attention), AttentionTensors::Grouped(grouped)) =
            (layer.layer.attention.grouped(), &tensors.attention)
            && let Some((_, key)) = &grouped.head_norms
        {
            all.extend(device.download::<u8>(loader.rotated_norm(attention, key)?.slice())?);
        }
    }
    if all.is_empty() { Ok(None) } else { Ok(Some(device.upload(&all)?)) }
}

/// Scales the values of attention, by way of the output projection, which is all that reads them.
fn scale_values(layer: &mut LayerWeights, kernels: &Kernels, factor: f32) -> Result<(), EngineError> {
    let AttentionWeights::Grouped(grouped) = &mut layer.attention else { return Ok(()) };
    if factor == 1.0 {
        return Ok(());
    }
    let device = kernels.device();
    // Of a matrix in FP8 the scales are multiplied, so that its numbers stay exact.
    let (buffer, element) = match &grouped.output.scales {
        Some(scales) => (&scales.at, Element::F32),
        None => (&grouped.output.weight, kernels.element()),
    };
    let bytes: Vec<u8> = device.download(buffer.slice())?;
    let scaled: Vec<f32> = element.decode(&bytes).into_iter().map(|value| value * factor).collect();
    Ok(device.write(buffer.slice(), &element.encode(&scaled))?)
}
