//! The format of caches of keys and values.

use super::{AttentionSpec, DraftSpec, LayerSpec, TargetSpec};

/// Format of the rows of a cache of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheFormat {
    /// The type that the engine computes in.
    #[default]
    Plain,
    /// FP8 (e4m3), one byte per value, with one scale for the keys of a layer and one for its
    /// values, which belong to the weights. A row is rounded when it is written, and every pass
    /// reads the rounded row, also the pass that writes it. The CPU keeps the same values in
    /// float32.
    Fp8,
}

impl CacheFormat {
    /// The word for FP8 in SGLang's `--kv-cache-dtype`.
    pub const FP8: &str = "fp8_e4m3";

    /// Bytes of this many values, if the engine computes in elements of this many bytes.
    pub fn bytes(self, values: usize, element: usize) -> usize {
        match self {
            Self::Plain => values * element,
            Self::Fp8 => values,
        }
    }

    /// Its word in `--kv-cache-dtype`; `None` if that need not be given.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Fp8 => Some(Self::FP8),
        }
    }
}

impl LayerSpec {
    /// The same with a cache in a format; a layer that keeps a state instead of a cache is
    /// unchanged.
    ///
    /// # Errors
    /// Which kind of attention has no cache in this format.
    fn with_cache(&self, format: CacheFormat) -> Result<Self, &'static str> {
        let mut layer = self.clone();
        match &mut layer.attention {
            AttentionSpec::Grouped(grouped) => grouped.cache = format,
            AttentionSpec::Latent(_) if format != CacheFormat::Plain => return Err("latent attention"),
            AttentionSpec::Latent(_) | AttentionSpec::Delta(_) => {}
        }
        Ok(layer)
    }
}

impl TargetSpec {
    /// The same with caches in a format.
    ///
    /// # Errors
    /// Which kind of attention has no cache in this format.
    pub fn with_cache(&self, format: CacheFormat) -> Result<Self, &'static str> {
        let layers = self.layers.iter().map(|layer| layer.with_cache(format)).collect::<Result<_, _>>()?;
        Ok(Self { layers, ..self.clone() })
    }
}

impl DraftSpec {
    /// The same with caches in a format. A block head keeps its cache in the type that the engine
    /// computes in: it is read by one pass of a round, and what it holds affects no output.
    ///
    /// # Errors
    /// Which kind of attention has no cache in this format.
    pub fn with_cache(&self, format: CacheFormat) -> Result<Self, &'static str> {
        let mut draft = self.clone();
        match &mut draft {
            Self::Recurrent(recurrent) => recurrent.layer = recurrent.layer.with_cache(format)?,
            Self::Model(model) => *model = model.with_cache(format)?,
            Self::Block(_) | Self::Text(_) => {}
        }
        Ok(draft)
    }
}
