//! Attention of a layer with its projections, and its cache.

mod delta;
mod grouped;
mod latent;

use kernels::reference::{KeyValues, Latents, Visible};

pub use self::delta::{CpuDeltaStates, SlotRows};
use self::{delta::Delta, grouped::Grouped, latent::Latent};
use crate::{
    checkpoint::Tensors,
    error::EngineError,
    spec::{AttentionSpec, AttentionTensors, LayerSpec},
};

/// Describes the rows of a pass.
#[derive(Clone, Copy, Debug)]
pub struct RowPlacement<'a> {
    /// Positions, for the rotary embedding.
    pub positions: &'a [usize],
    /// Cache rows to which their keys and values are written.
    pub write: &'a [u32],
    /// Cache rows that each row attends to, including its own.
    pub visible: &'a [Visible<'a>],
    /// Which of them belong to which slot, and follow which: for layers that keep a state of each
    /// slot. Empty in the passes of drafts, none of which has such layers.
    pub sequences: &'a [SlotRows],
    /// The same for layers with a window, if these have pages of their own.
    pub windowed: Option<WindowPlacement<'a>>,
}

/// The rows of a pass in the caches of layers with a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowPlacement<'a> {
    /// As in [`RowPlacement`].
    pub write: &'a [u32],
    /// As in [`RowPlacement`], within the window.
    pub visible: &'a [Visible<'a>],
}

impl RowPlacement<'_> {
    /// The rows as layers with a window see them.
    pub fn windowed(self) -> Self {
        match self.windowed {
            Some(WindowPlacement { write, visible }) => Self { write, visible, ..self },
            None => self,
        }
    }
}

/// Attention of a layer, by its kind.
#[derive(Debug)]
pub enum CpuAttention {
    /// Heads share keys and values in groups.
    Grouped(Grouped),
    /// Heads share one latent vector per token.
    Latent(Latent),
    /// A state of each slot instead of a cache.
    Delta(Box<Delta>),
}

/// The cache of a layer.
#[derive(Clone, Debug)]
pub enum Cache {
    /// Keys and values.
    KeyValues(KeyValues),
    /// Latent vectors, with the key that all heads share.
    Latents(Latents),
    /// The states of a delta net.
    States(CpuDeltaStates),
}

impl CpuAttention {
    /// Loads the attention of a layer.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(from: Tensors<'_>, tensors: &AttentionTensors, layer: &LayerSpec) -> Result<Self, EngineError> {
        match (tensors, &layer.attention) {
            (AttentionTensors::Grouped(tensors), AttentionSpec::Grouped(shape)) => {
                Ok(Self::Grouped(Grouped::load(from, tensors, *shape, layer.epsilon)?))
            }
            (AttentionTensors::Latent(tensors), AttentionSpec::Latent(shape)) => {
                Ok(Self::Latent(Latent::load(from, tensors, *shape, layer.epsilon)?))
            }
            (AttentionTensors::Delta(tensors), AttentionSpec::Delta(shape)) => {
                Ok(Self::Delta(Box::new(Delta::load(from, tensors, *shape, layer.epsilon)?)))
            }
            _ => Err(EngineError::Configuration("attention of one kind with the tensors of another".into())),
        }
    }

    /// An empty cache of this layer's shape: of `rows` rows, or for `states` states.
    pub fn cache(&self, rows: usize, states: usize) -> Cache {
        match self {
            Self::Grouped(grouped) => Cache::KeyValues(grouped.cache(rows)),
            Self::Latent(latent) => Cache::Latents(latent.cache(rows)),
            Self::Delta(delta) => Cache::States(delta.states(states)),
        }
    }

    /// Writes the rows to the cache, then attends. `x` is `[rows, input]`, the result is
    /// `[rows, output]`.
    ///
    /// # Panics
    /// When the cache belongs to a different kind of layer.
    pub fn forward(&self, x: &[f32], rows: RowPlacement<'_>, cache: &mut Cache) -> Vec<f32> {
        match (self, cache) {
            (Self::Grouped(grouped), Cache::KeyValues(cache)) => grouped.forward(x, rows, cache),
            (Self::Latent(latent), Cache::Latents(cache)) => latent.forward(x, rows, cache),
            (Self::Delta(delta), Cache::States(states)) => delta.forward(x, rows, states),
            _ => panic!("a layer with the cache of another kind"),
        }
    }
}

impl CpuAttention {
    /// Writes keys and values of rows to the cache without attending.
    ///
    /// # Panics
    /// When the cache belongs to a different kind of layer.
    pub fn store(&self, x: &[f32], rows: RowPlacement<'_>, cache: &mut Cache) {
        match (self, cache) {
            (Self::Grouped(grouped), Cache::KeyValues(cache)) => grouped.store(x, rows, cache),
            _ => panic!("only the keys and values of grouped attention are written alone"),
        }
    }

    /// Multiplies the values by a factor from now on.
    pub fn scale_values(&mut self, factor: f32) {
        if let Self::Grouped(grouped) = self {
            grouped.value_scale = factor;
        }
    }
}

impl Cache {
    /// The states, if it consists of states instead of rows.
    pub fn states(&mut self) -> Option<&mut CpuDeltaStates> {
        match self {
            Self::States(states) => Some(states),
            Self::KeyValues(_) | Self::Latents(_) => None,
        }
    }

    /// Makes room for at least `rows` rows; existing rows are kept.
    pub fn grow(&mut self, rows: usize) {
        match self {
            Self::KeyValues(cache) => cache.grow(rows),
            Self::Latents(cache) => cache.grow(rows),
            Self::States(_) => {}
        }
    }

    /// Writes zeros to all rows, so that their memory is committed.
    pub fn clear(&mut self) {
        match self {
            Self::KeyValues(cache) => cache.clear(),
            Self::Latents(cache) => cache.clear(),
            Self::States(states) => states.clear(),
        }
    }

    /// Moves row `from[i]` to `to[i]`, in ascending order of i. Among the rows of a sequence no
    /// source comes before its destination, so none is overwritten before it is moved.
    pub fn compact(&mut self, from: &[u32], to: &[u32]) {
        match self {
            Self::KeyValues(cache) => cache.compact(from, to),
            Self::Latents(cache) => cache.compact(from, to),
            // States have no rows to move: `CpuDeltaStates::commit` runs the accepted path instead.
            Self::States(_) => {}
        }
    }

    /// Values of a row in all planes.
    #[cfg(test)]
    pub fn row(&self, row: u32) -> Vec<f32> {
        let part = |plane: &[f32], width: usize| plane[row as usize * width..(row as usize + 1) * width].to_vec();
        match self {
            Self::KeyValues(cache) => [&cache.keys, &cache.values].map(|plane| part(plane, cache.width())).concat(),
            Self::Latents(cache) => part(&cache.rows, cache.width()),
            Self::States(_) => Vec::new(),
        }
    }
}
