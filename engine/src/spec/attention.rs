//! Attention of a layer, and its cache rows.

use kernels::reference::{DeltaSizes, Rope};

use super::{CacheFormat, RopeSpec};

/// Attention of a layer, by its kind.
#[derive(Clone, Debug, PartialEq)]
pub enum AttentionSpec {
    /// Heads share keys and values in groups; with one key/value head per query head this is
    /// multi-head attention.
    Grouped(GroupedQuery),
    /// Keys and values are projected from one latent vector per token (DeepSeek).
    Latent(MultiHeadLatent),
    /// A gated delta net: a state of constant size instead of a cache (Qwen3.5's linear attention).
    Delta(DeltaNet),
}

/// Grouped-query attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupedQuery {
    /// Width of the input of the query, key and value projections.
    pub input: usize,
    /// Width of the output projection's output.
    pub output: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads; divides `heads`.
    pub key_value_heads: usize,
    /// Dimensions of a head. `heads · head_dim` may differ from `input` and `output`.
    pub head_dim: usize,
    /// Whether query, key and value projections have a bias.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub output_bias: bool,
    /// Whether query and key heads are normed individually, before the rotation.
    pub head_norms: bool,
    /// Whether the query projection also gives a gate for each output: each head's queries, then
    /// its gates. The sigmoid of the gates multiplies the heads' outputs before the output
    /// projection (Qwen3.5).
    pub output_gate: bool,
    /// Position embedding of queries and keys.
    pub rope: RopeSpec,
    /// Whether each query head has a sink: one more score in its softmax, without a value.
    pub sinks: bool,
    /// Number of positions that a row sees, itself included; `None` for all before it.
    pub window: Option<usize>,
    /// Format of its cache.
    pub cache: CacheFormat,
}

/// Multi-head latent attention (arXiv 2405.04434).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MultiHeadLatent {
    /// Width of the input of the first projections.
    pub input: usize,
    /// Width of the output projection's output.
    pub output: usize,
    /// Number of query heads; each has its own keys and values once the latent vector is projected.
    pub heads: usize,
    /// Width of the compressed query (`q_lora_rank`); `None` if queries are projected directly.
    pub query_rank: Option<usize>,
    /// Width of the latent vector (`kv_lora_rank`).
    pub latent_rank: usize,
    /// Dimensions of a query or key head that are not rotated.
    pub nope_dim: usize,
    /// Dimensions of a value head.
    pub value_dim: usize,
    /// Factor of the scores; yarn changes it (`mscale_all_dim`).
    pub score_scale: f32,
    /// Rotation of the rotated part of queries, and of the one rotated key that all heads share.
    pub rope: RopeSpec,
}

/// A gated delta net (arXiv 2412.06464) with a short convolution over queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaNet {
    /// Width of the input of the first projections.
    pub input: usize,
    /// Width of the output projection's output.
    pub output: usize,
    /// Heads and their dimensions, and the length of the convolution.
    pub sizes: DeltaSizes,
}

/// What a layer keeps of a running request beside the pages of its cache: a state whose size does
/// not depend on the length of the sequence. It is what a slot of the device holds, what a snapshot
/// for prefix reuse copies, and what memory and cost count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateLayout {
    /// Values that are kept in the type that the engine computes in: the last rows before the
    /// convolution.
    pub history: usize,
    /// Values that are kept in float32: the matrices of the recurrence.
    pub recurrent: usize,
}

/// Layout of a token's entry in the cache of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvLayout {
    /// Number of planes: two for keys and values, one for a latent cache, none for a layer without
    /// a cache.
    pub planes: usize,
    /// Values per token in a plane.
    pub width: usize,
    /// Format of the values.
    pub format: CacheFormat,
}

impl AttentionSpec {
    /// Width of the input.
    pub fn input(&self) -> usize {
        match self {
            Self::Grouped(grouped) => grouped.input,
            Self::Latent(latent) => latent.input,
            Self::Delta(delta) => delta.input,
        }
    }

    /// Width of the output.
    pub fn output(&self) -> usize {
        match self {
            Self::Grouped(grouped) => grouped.output,
            Self::Latent(latent) => latent.output,
            Self::Delta(delta) => delta.output,
        }
    }

    /// Number of query heads; of a delta net, of heads with a state.
    pub fn heads(&self) -> usize {
        match self {
            Self::Grouped(grouped) => grouped.heads,
            Self::Latent(latent) => latent.heads,
            Self::Delta(delta) => delta.sizes.value_heads,
        }
    }

    /// The rotation; a delta net has none.
    pub fn rope(&self) -> Option<&RopeSpec> {
        match self {
            Self::Grouped(grouped) => Some(&grouped.rope),
            Self::Latent(latent) => Some(&latent.rope),
            Self::Delta(_) => None,
        }
    }

    /// The rotation of its heads; for latent attention, of their rotated part; for a delta net,
    /// none.
    pub fn rotation(&self) -> Option<Rope> {
        match self {
            Self::Grouped(grouped) => Some(grouped.rope.rotation(grouped.head_dim)),
            // Its rotated part is split off before, so the head that is rotated is that part alone.
            Self::Latent(latent) => Some(latent.rope.rotation(latent.rope.dims)),
            Self::Delta(_) => None,
        }
    }

    /// Layout of its cache.
    pub fn kv(&self) -> KvLayout {
        match self {
            Self::Grouped(grouped) => KvLayout { planes: 2, width: grouped.key_value_width(), format: grouped.cache },
            Self::Latent(latent) => KvLayout { planes: 1, width: latent.cache_width(), format: CacheFormat::Plain },
            Self::Delta(_) => KvLayout::default(),
        }
    }

    /// What it keeps of a running request beside its cache: nothing, except for a delta net.
    pub fn state(&self) -> StateLayout {
        match self {
            Self::Grouped(_) | Self::Latent(_) => StateLayout::default(),
            Self::Delta(delta) => StateLayout { history: delta.sizes.history(), recurrent: delta.sizes.state() },
        }
    }

    /// Number of positions that a row sees; `None` for all.
    pub fn window(&self) -> Option<usize> {
        self.grouped().and_then(|grouped| grouped.window)
    }

    /// Grouped-query attention; `None` if it is of another kind.
    pub fn grouped(&self) -> Option<&GroupedQuery> {
        match self {
            Self::Grouped(grouped) => Some(grouped),
            Self::Latent(_) | Self::Delta(_) => None,
        }
    }
}

impl GroupedQuery {
    /// Outputs of the query projection.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Outputs of the key projection, and of the value projection.
    pub fn key_value_width(&self) -> usize {
        self.key_value_heads * self.head_dim
    }

    /// Outputs of the query projection with its gates, if it has any.
    pub fn query_outputs(&self) -> usize {
        self.query_width() * if self.output_gate { 2 } else { 1 }
    }

    /// Outputs of the query, key and value projections together.
    pub fn qkv_width(&self) -> usize {
        self.query_width() + 2 * self.key_value_width()
    }
}

impl MultiHeadLatent {
    /// Dimensions of a query head.
    pub fn query_dim(&self) -> usize {
        self.nope_dim + self.rope.dims
    }

    /// Outputs of the query projection.
    pub fn query_width(&self) -> usize {
        self.heads * self.query_dim()
    }

    /// Outputs of all projections that read the input: the compressed query, or else the queries;
    /// the latent vector and the key.
    pub fn entry_width(&self) -> usize {
        self.query_rank.unwrap_or_else(|| self.query_width()) + self.cache_width()
    }

    /// Values per token in the cache: the latent vector, and the key that all heads share.
    pub fn cache_width(&self) -> usize {
        self.latent_rank + self.rope.dims
    }

    /// Width of the concatenated outputs of all heads.
    pub fn value_width(&self) -> usize {
        self.heads * self.value_dim
    }

    /// Splits the published projection from the latent vector to keys and values,
    /// `[heads, nope + value, rank]`, into the factor of queries before attention,
    /// `[heads, rank, nope]`, and the factor of means of latent vectors after it,
    /// `[heads, value, rank]`.
    ///
    /// # Panics
    /// When `expand` has a different number of values.
    pub fn absorbed<T: Copy>(&self, expand: &[T]) -> (Vec<T>, Vec<T>) {
        let (rank, nope, rows) = (self.latent_rank, self.nope_dim, self.nope_dim + self.value_dim);
        assert_eq!(expand.len(), self.heads * rows * rank, "keys and values of {} heads", self.heads);
        let heads = || expand.chunks_exact(rows * rank);
        // Transposed, since it multiplies queries from the side where it has its outputs as
        // published.
        let turned = |head: &[T]| -> Vec<T> {
            (0..rank)
                .flat_map(|column| (0..nope).map(move |row| (row, column)))
                .map(|(row, column)| head[row * rank + column])
                .collect()
        };
        (heads().flat_map(turned).collect(), heads().flat_map(|head| &head[nope * rank..]).copied().collect())
    }
}

impl StateLayout {
    /// Bytes of the state, with elements of this many bytes where the type is the engine's.
    pub fn bytes(self, element: usize) -> u64 {
        (self.history * element + self.recurrent * size_of::<f32>()) as u64
    }
}

impl std::ops::Add for StateLayout {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { history: self.history + other.history, recurrent: self.recurrent + other.recurrent }
    }
}

impl KvLayout {
    /// Values per token in one layer's cache.
    pub fn values(&self) -> usize {
        self.planes * self.width
    }

    /// Bytes per token in a plane, with elements of this many bytes where the type is the engine's.
    pub fn row_bytes(&self, element: usize) -> usize {
        self.format.bytes(self.width, element)
    }

    /// Bytes per token in one layer's cache.
    pub fn bytes(&self, element: usize) -> usize {
        self.planes * self.row_bytes(element)
    }
}
