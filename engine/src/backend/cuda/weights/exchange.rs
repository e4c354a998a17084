//! Overwrites the loaded weights with those of another checkpoint. Buffers stay where they are,
//! since graphs hold their addresses. The additional memory needed is that of one layer, or of one
//! vocabulary table.

use kernels::{
    device::{Buffer, Device},
    launch::Kernels,
    reference::CacheScales,
};

use super::{
    AttentionWeights, BlockWeights, DeltaTables, DraftWeights, ExpertBuffers, FfnWeights, JoinWeights, LayerWeights,
    Loader, Projection, RecurrentWeights, TargetWeights, WeightSource,
};
use crate::{
    error::EngineError,
    spec::{CacheScaleNames, DraftSpec, LayerTensors},
};

impl TargetWeights {
    /// Loads the values of a checkpoint with the same description.
    ///
    /// # Errors
    /// When a tensor cannot be read or the device fails; some values are then new and some old.
    pub fn overwrite(&self, kernels: &Kernels, source: WeightSource<'_>) -> Result<(), EngineError> {
        let (loader, device) = (Loader::new(kernels, source, self.share), kernels.device());
        let tensors = self.spec.tensors();
        copy(device, &[&self.embedding], &[&loader.tensor(&tensors.embedding)?])?;
        if let (Some(head), Some(tensor)) = (&self.head, &tensors.head) {
            copy(device, &[head], &[&loader.tensor(tensor)?])?;
        }
        for ((layer, spec), tensors) in self.layers.iter().zip(&self.spec.layers).zip(&tensors.layers) {
            copy(device, &layer.buffers(), &LayerWeights::load(&loader, spec, tensors)?.buffers())?;
        }
        if let (Some(own), Some(new)) = (&self.delta, DeltaTables::load(&loader, &self.spec, &tensors)?) {
            copy(device, &own.buffers(), &new.buffers())?;
        }
        copy(device, &[&self.norm], &[&loader.tensor(&tensors.norm)?])
    }
}

impl TargetWeights {
    /// The scales of the caches in FP8, with their names.
    pub fn cache_scales(&self) -> Vec<(CacheScaleNames, CacheScales)> {
        let tensors = self.spec.tensors();
        self.layers.iter().zip(&tensors.layers).filter_map(|(layer, tensors)| layer.cache_scales(tensors)).collect()
    }
}

impl DraftWeights {
    /// The scales of the cache in FP8, with their names.
    pub fn cache_scales(&self) -> Vec<(CacheScaleNames, CacheScales)> {
        match self {
            Self::Recurrent(own) => {
                let tensors = own.spec.layer.tensors(&own.spec.tensors.layer_prefix());
                own.layer.cache_scales(&tensors).into_iter().collect()
            }
            Self::Block(_) => Vec::new(),
            Self::Model(own) => {
                let tensors = own.spec.tensors();
                own.layers
                    .iter()
                    .zip(&tensors.layers)
                    .filter_map(|(layer, tensors)| layer.cache_scales(tensors))
                    .collect()
            }
        }
    }

    /// Loads the values of a checkpoint with the same description, but possibly with a different
    /// hot vocabulary.
    ///
    /// # Errors
    /// As [`TargetWeights::overwrite`].
    pub fn overwrite(
        &mut self,
        kernels: &Kernels,
        source: WeightSource<'_>,
        spec: DraftSpec,
        target: &TargetWeights,
    ) -> Result<(), EngineError> {
        let new = Self::load(kernels, source, spec, target, self.splits_layers())?;
        copy(kernels.device(), &self.buffers(), &new.buffers())?;
        match (self, new) {
            (Self::Recurrent(own), Self::Recurrent(new)) => own.spec = new.spec,
            (Self::Block(own), Self::Block(new)) => own.spec = new.spec,
            (Self::Model(own), Self::Model(new)) => own.spec = new.spec,
            // The buffers of two kinds differ.
            (Self::Recurrent(_) | Self::Block(_) | Self::Model(_), _) => {}
        }
        Ok(())
    }

    fn buffers(&self) -> Vec<&Buffer> {
        match self {
            Self::Recurrent(recurrent) => recurrent.buffers(),
            Self::Block(block) => block.buffers(),
            Self::Model(model) => model.buffers(),
        }
    }
}

impl BlockWeights {
    fn buffers(&self) -> Vec<&Buffer> {
        let mut all = Vec::from_iter(self.embedding.iter().chain(&self.head).chain(&self.mask));
        all.extend(self.reduce.buffers());
        all.push(&self.context_norm);
        all.extend(self.context.buffers());
        all.extend(&self.key_norms);
        all.extend(self.layers.iter().flat_map(LayerWeights::buffers));
        all.push(&self.norm);
        if let Some(markov) = &self.markov {
            all.extend([&markov.embedding, &markov.head]);
            all.extend(markov.cell.iter().flat_map(Projection::buffers));
        }
        if let Some(confidence) = &self.confidence {
            all.push(&confidence.weight);
            all.extend(&confidence.bias);
        }
        all.extend(&self.tokens);
        all
    }
}

impl RecurrentWeights {
    fn buffers(&self) -> Vec<&Buffer> {
        let mut all = Vec::from_iter([&self.embedding, &self.head, &self.joined_norm].into_iter().flatten());
        all.extend(&self.capture_norms);
        all.extend(self.reduce.iter().flat_map(Projection::buffers));
        match &self.join {
            JoinWeights::Linear(projection) => all.extend(projection.buffers()),
            JoinWeights::NormedIntoAttention { norms, .. } => all.extend([&norms.embedding, &norms.feature]),
            JoinWeights::NormedLinear { norms, projection, .. } => {
                all.extend([&norms.embedding, &norms.feature]);
                all.extend(projection.buffers());
            }
        }
        all.extend(self.layer.buffers());
        all.extend(&self.output_norm);
        all.extend(&self.tokens);
        all
    }
}

impl LayerWeights {
    /// The scales of its cache if that is in FP8, with their names.
    fn cache_scales(&self, tensors: &LayerTensors) -> Option<(CacheScaleNames, CacheScales)> {
        let AttentionWeights::Grouped(grouped) = &self.attention else { return None };
        Some((tensors.attention.cache_scales()?.clone(), grouped.cache_scales?))
    }

    pub(super) fn buffers(&self) -> Vec<&Buffer> {
        let mut all = Vec::from_iter(&self.input_norm);
        match &self.attention {
            AttentionWeights::Grouped(grouped) => {
                all.extend(grouped.qkv.buffers());
                all.extend(grouped.head_norms.iter().flat_map(|(query, key)| [query, key]));
                all.extend(grouped.gate.iter().flat_map(Projection::buffers));
                all.extend(&grouped.sinks);
                all.extend(grouped.output.buffers());
            }
            AttentionWeights::Latent(latent) => {
                all.extend(latent.entry.buffers());
                if let Some((norm, projection)) = &latent.query {
                    all.push(norm);
                    all.extend(projection.buffers());
                }
                all.extend([&latent.norm, &latent.absorb, &latent.expand]);
                all.extend(latent.output.buffers());
            }
            AttentionWeights::Delta(delta) => all.extend(delta.buffers()),
        }
        all.push(&self.post_attention_norm);
        match &self.ffn {
            FfnWeights::Dense(dense) => {
                all.extend(dense.gate_up.buffers());
                all.extend(dense.down.buffers());
            }
            FfnWeights::Experts(experts) => all.extend(ExpertBuffers::buffers(experts)),
        }
        all
    }
}

impl Projection {
    pub(super) fn buffers(&self) -> Vec<&Buffer> {
        let scales = self.scales.as_ref().map(|scales| &scales.at);
        let fixed = self.quantiser.as_ref().and_then(|quantiser| quantiser.fixed.as_ref());
        [Some(&self.weight), scales, fixed, self.bias.as_ref()].into_iter().flatten().collect()
    }
}

fn copy(device: &Device, to: &[&Buffer], from: &[&Buffer]) -> Result<(), EngineError> {
    let bytes = |buffers: &[&Buffer]| buffers.iter().map(|buffer| buffer.bytes()).collect::<Vec<_>>();
    if bytes(to) != bytes(from) {
        return Err(EngineError::Device("weights of one description are laid out in two ways".into()));
    }
    to.iter().zip(from).try_for_each(|(to, from)| device.copy(to.slice(), from.slice()))?;
    // The sources are freed after this.
    Ok(device.synchronize()?)
}
