//! Weights of a decoder layer.

use kernels::{
    device::Buffer,
    launch::{ExpertBiases, ExpertsShape, ExpertsWeights},
    reference::CacheScales,
};

use super::{
    DeltaWeights, LatentWeights, Loader, Projection, Readers, RowQuantiser, ScaleBuffer, experts::experts_shape,
    mxfp4::BiasBuffers, weights_in,
};
use crate::{
    backend::expert_reads::ExpertTally,
    error::EngineError,
    spec::{
        AttentionSpec, AttentionTensors, ExpertsSpec, ExpertsTensors, FfnSpec, FfnTensors, GroupedQuery, LayerSpec,
        LayerTensors, WeightFormat,
    },
};

/// Weights of a decoder layer.
#[derive(Debug)]
pub struct LayerWeights {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Added to mean squares in its norms.
    pub epsilon: f32,
    /// The norm before attention; EAGLE heads have none.
    pub input_norm: Option<Buffer>,
    pub attention: AttentionWeights,
    pub post_attention_norm: Buffer,
    pub ffn: FfnWeights,
}

/// Weights of attention, by its kind.
#[derive(Debug)]
pub enum AttentionWeights {
    Grouped(Box<GroupedWeights>),
    Latent(Box<LatentWeights>),
    Delta(Box<DeltaWeights>),
}

/// Weights of grouped-query attention.
#[derive(Debug)]
pub struct GroupedWeights {
    pub spec: GroupedQuery,
    /// Projects to queries, keys and values.
    pub qkv: Projection,
    /// Per-head norms of queries and of keys.
    pub head_norms: Option<(Buffer, Buffer)>,
    /// Projects to the gates of the outputs.
    pub gate: Option<Projection>,
    /// One more score in the softmax of each query head.
    pub sinks: Option<Buffer>,
    /// The scales of its cache, if that is in FP8.
    pub cache_scales: Option<CacheScales>,
    pub output: Projection,
}

/// Weights of a feed-forward block, by its kind.
#[derive(Debug)]
pub enum FfnWeights {
    Dense(Box<DenseWeights>),
    Experts(Box<ExpertBuffers>),
}

/// Weights of experts, stacked, with their router.
#[derive(Debug)]
pub struct ExpertBuffers {
    pub shape: ExpertsShape,
    /// With the gate of the shared expert as its last row.
    router: Buffer,
    correction: Option<Buffer>,
    gate_up: Buffer,
    down: Buffer,
    /// Scales of gate and up, and of down, if they are in FP8.
    scales: Option<[ScaleBuffer; 2]>,
    /// The same if they are in MXFP4.
    mxfp4_scales: Option<[Buffer; 2]>,
    biases: Option<BiasBuffers>,
    /// How the inputs of gate and up, and of down, are quantised, if they multiply in FP8.
    pub quantisers: Option<[RowQuantiser; 2]>,
    /// Whether ranks split each expert, so that outputs must be summed over ranks.
    pub is_partial: bool,
    /// Counts the experts that rows choose.
    pub tally: ExpertTally,
}

/// Weights of one gated block.
#[derive(Debug)]
pub struct DenseWeights {
    /// Gate, then up.
    pub gate_up: Projection,
    pub down: Projection,
}

impl LayerWeights {
    /// Loads a layer from these tensors.
    pub fn load(loader: &Loader<'_>, spec: &LayerSpec, tensors: &LayerTensors) -> Result<Self, EngineError> {
        Ok(Self {
            hidden: spec.hidden,
            epsilon: spec.epsilon,
            input_norm: loader.optional(tensors.input_norm.as_ref())?,
            attention: AttentionWeights::load(loader, &spec.attention, &tensors.attention)?,
            post_attention_norm: loader.tensor(&tensors.post_attention_norm)?,
            ffn: FfnWeights::load(loader, spec, &tensors.ffn)?,
        })
    }
}

impl LayerWeights {
    /// Counts the experts that its rows choose; `None` without experts.
    pub fn tally(&self) -> Option<&ExpertTally> {
        match &self.ffn {
            FfnWeights::Dense(_) => None,
            FfnWeights::Experts(experts) => Some(&experts.tally),
        }
    }
}

impl AttentionWeights {
    fn load(loader: &Loader<'_>, spec: &AttentionSpec, tensors: &AttentionTensors) -> Result<Self, EngineError> {
        let (spec, tensors) = match (spec, tensors) {
            (AttentionSpec::Grouped(spec), AttentionTensors::Grouped(tensors)) => (spec, tensors),
            (AttentionSpec::Latent(spec), AttentionTensors::Latent(tensors)) => {
                return Ok(Self::Latent(Box::new(LatentWeights::load(loader, spec, tensors)?)));
            }
            (AttentionSpec::Delta(spec), AttentionTensors::Delta(tensors)) => {
                return Ok(Self::Delta(Box::new(DeltaWeights::load(loader, spec, tensors)?)));
            }
            _ => return Err(not_on_a_gpu("attention with the tensors of another kind")),
        };
        let norms = tensors.head_norms.as_ref();
        Ok(Self::Grouped(Box::new(GroupedWeights {
            spec: *spec,
            qkv: loader.rotated_projection(spec, [&tensors.query, &tensors.key, &tensors.value])?,
            head_norms: match norms {
                Some((query, key)) => Some((loader.rotated_norm(spec, query)?, loader.rotated_norm(spec, key)?)),
                None => None,
            },
            gate: spec
                .output_gate
                .then(|| loader.gate_projection(spec, [&tensors.query, &tensors.key, &tensors.value]))
                .transpose()?,
            sinks: loader.optional(tensors.sinks.as_ref())?,
            cache_scales: tensors.cache_scales.as_ref().map(|names| loader.cache_scales(names)).transpose()?,
            output: loader.projection(&[&tensors.output])?,
        })))
    }

    /// What reads the normed stream.
    pub fn readers(&self) -> Readers<'_> {
        match self {
            // Both quantise their rows for all of queries, gates, keys and values.
            Self::Grouped(grouped) if grouped.gate.is_some() => Readers::Several(grouped.qkv.quantiser.as_ref()),
            Self::Grouped(grouped) => Readers::One(&grouped.qkv),
            Self::Latent(latent) => Readers::One(&latent.entry),
            // Rates are in the element type.
            Self::Delta(delta) if delta.rates.is_some() => Readers::Several(delta.entry.quantiser.as_ref()),
            Self::Delta(delta) => Readers::One(&delta.entry),
        }
    }

    /// The output projection, whose result is added to the stream.
    pub fn output(&self) -> &Projection {
        match self {
            Self::Grouped(grouped) => &grouped.output,
            Self::Latent(latent) => &latent.output,
            Self::Delta(delta) => &delta.output,
        }
    }
}

impl FfnWeights {
    fn load(loader: &Loader<'_>, layer: &LayerSpec, tensors: &FfnTensors) -> Result<Self, EngineError> {
        let tensors = match (&layer.ffn, tensors) {
            (FfnSpec::Dense(_), FfnTensors::Dense(tensors)) => tensors,
            (FfnSpec::Experts(spec), FfnTensors::Experts(tensors)) => {
                let experts = ExpertBuffers::load(loader, layer, spec, tensors)?;
                return Ok(Self::Experts(Box::new(experts)));
            }
            _ => return Err(not_on_a_gpu("a feed-forward part with the tensors of another kind")),
        };
        Ok(Self::Dense(Box::new(DenseWeights {
            gate_up: loader.projection(&[&tensors.gate, &tensors.up])?,
            down: loader.projection(&[&tensors.down])?,
        })))
    }

    /// What reads the normed stream.
    pub fn readers(&self) -> Readers<'_> {
        match self {
            Self::Dense(dense) => Readers::One(&dense.gate_up),
            // The router reads it as well as the experts.
            Self::Experts(experts) => Readers::Several(experts.quantisers.as_ref().map(|[first, _]| first)),
        }
    }
}

impl ExpertBuffers {
    fn load(
        loader: &Loader<'_>,
        layer: &LayerSpec,
        spec: &ExpertsSpec,
        tensors: &ExpertsTensors,
    ) -> Result<Self, EngineError> {
        let format = layer.formats.ffn;
        let shape = experts_shape(spec, layer.hidden, weights_in(format)).map_err(|reason| not_on_a_gpu(&reason))?;
        let (mut scales, mut mxfp4_scales) = (None, None);
        let (gate_up, down) = match (format, format.fp8()) {
            (WeightFormat::Mxfp4, _) => {
                let [(gate_up, first), (down, second)] = loader.stacked_mxfp4(&shape, tensors)?;
                mxfp4_scales = Some([first, second]);
                (gate_up, down)
            }
            (_, None) => (loader.stacked_gate_up(&shape, tensors)?, loader.stacked_down(&shape, tensors)?),
            (_, Some(layout)) => {
                let [(gate_up, first), (down, second)] = loader.stacked_fp8(&shape, tensors, layout)?;
                scales = Some([first, second]);
                (gate_up, down)
            }
        };
        Ok(Self {
            shape,
            router: match tensors.shared_gate.as_ref().filter(|_| shape.gated) {
                Some(gate) => loader.concatenated(&[&tensors.router, gate])?,
                None => loader.tensor(&tensors.router)?,
            },
            correction: tensors.correction_bias.as_ref().map(|bias| loader.floats(bias)).transpose()?,
            gate_up,
            down,
            scales,
            mxfp4_scales,
            biases: loader.expert_biases(tensors)?,
            quantisers: Self::quantisers(loader, tensors)?,
            is_partial: loader.share.is_part(),
            tally: ExpertTally::default(),
        })
    }

    /// Static scales are the largest of all experts.
    fn quantisers(loader: &Loader<'_>, tensors: &ExpertsTensors) -> Result<Option<[RowQuantiser; 2]>, EngineError> {
        let all = || tensors.experts.iter().chain(&tensors.shared);
        let entering: Vec<_> = all().flat_map(|expert| [&expert.gate.weight, &expert.up.weight]).collect();
        let leaving: Vec<_> = all().map(|expert| &expert.down.weight).collect();
        Ok(loader.quantiser(&entering)?.zip(loader.quantiser(&leaving)?).map(<[_; 2]>::from))
    }

    /// All buffers, in an order that depends only on the description of the experts.
    pub fn buffers(&self) -> Vec<&Buffer> {
        let scales = self.scales.iter().flatten().map(|scales| &scales.at).chain(self.mxfp4_scales.iter().flatten());
        let biases = self.biases.iter().flat_map(|biases| [&biases.router, &biases.gate_up, &biases.down]);
        let weights = [&self.router, &self.gate_up, &self.down];
        let fixed = self.quantisers.iter().flatten().flat_map(|quantiser| &quantiser.fixed);
        weights.into_iter().chain(&self.correction).chain(scales).chain(biases).chain(fixed).collect()
    }

    /// Operands of the kernels.
    pub fn weights(&self) -> ExpertsWeights<'_> {
        ExpertsWeights {
            router: self.router.slice(),
            correction: self.correction.as_ref().map(Buffer::slice),
            gate_up: self.gate_up.slice(),
            down: self.down.slice(),
            scales: self.scales.as_ref().map(|both| both.each_ref().map(ScaleBuffer::operand)),
            mxfp4_scales: self.mxfp4_scales.as_ref().map(|both| both.each_ref().map(Buffer::slice)),
            biases: self.biases.as_ref().map(|BiasBuffers { router, gate_up, down }| ExpertBiases {
                router: router.slice(),
                gate_up: gate_up.slice(),
                down: down.slice(),
            }),
        }
    }
}

/// The error for a part of a model that has no GPU kernels.
pub(super) fn not_on_a_gpu(what: &str) -> EngineError {
    EngineError::Configuration(format!("{what} does not run on the GPU yet: use --device cpu"))
}
