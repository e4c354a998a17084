//! Tensors of a decoder layer.

use super::{LinearTensors, Role, TensorSpec, TensorSplit};
use crate::spec::{
    AttentionSpec, CacheFormat, DeltaNet, ExpertsLayout, ExpertsSpec, FfnSpec, GroupedQuery, LayerFormats, LayerSpec,
    MultiHeadLatent, WeightFormat,
};

/// Tensors of a decoder layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerTensors {
    /// Norm before attention.
    pub input_norm: Option<TensorSpec>,
    /// Tensors of attention.
    pub attention: AttentionTensors,
    /// Norm before the feed-forward block.
    pub post_attention_norm: TensorSpec,
    /// Tensors of the feed-forward block.
    pub ffn: FfnTensors,
}

/// Tensors of attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttentionTensors {
    /// Grouped-query attention.
    Grouped(Box<GroupedTensors>),
    /// Latent attention.
    Latent(Box<LatentTensors>),
    /// A gated delta net.
    Delta(Box<DeltaTensors>),
}

/// Tensors of latent attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatentTensors {
    /// If queries are compressed: `[query rank, input]`, and the norm that follows.
    pub compress_query: Option<(LinearTensors, TensorSpec)>,
    /// `[heads · (nope + rotated), input]`, or with the compressed query's width as inputs.
    pub query: LinearTensors,
    /// `[rank + rotated, input]`: to the latent vector, and to the key that all heads share.
    pub compress: LinearTensors,
    /// Norm of the latent vector, `[rank]`.
    pub norm: TensorSpec,
    /// `[heads · (nope + value), rank]`: from the latent vector to keys and values, head by head.
    pub expand: LinearTensors,
    /// `[output, heads · value]`.
    pub output: LinearTensors,
}

/// Tensors of grouped-query attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupedTensors {
    /// `[heads · head_dim, input]`.
    pub query: LinearTensors,
    /// `[kv_heads · head_dim, input]`.
    pub key: LinearTensors,
    /// `[kv_heads · head_dim, input]`.
    pub value: LinearTensors,
    /// `[output, heads · head_dim]`.
    pub output: LinearTensors,
    /// Norms of query heads and of key heads, `[head_dim]` each.
    pub head_norms: Option<(TensorSpec, TensorSpec)>,
    /// Scores of query heads without a value, `[heads]`.
    pub sinks: Option<TensorSpec>,
    /// Names of the scales of its cache, if that is in FP8.
    pub cache_scales: Option<CacheScaleNames>,
}

/// Names under which exporters store the scales of a layer's cache in FP8, one number each; a
/// checkpoint may have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheScaleNames {
    /// The scale of the keys.
    pub keys: Vec<String>,
    /// The scale of the values.
    pub values: Vec<String>,
    /// One scale for both, in older exports.
    pub both: Vec<String>,
}

/// Tensors of a gated delta net.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaTensors {
    /// `[channels, input]`: queries, then keys, then values.
    pub mixed: LinearTensors,
    /// `[value width, input]`: gates of the normed outputs.
    pub gate: LinearTensors,
    /// `[value heads, input]`: shares of the correction that are written, before the sigmoid.
    pub beta: LinearTensors,
    /// `[value heads, input]`: decays.
    pub decay: LinearTensors,
    /// `[channels, 1, taps]`, the oldest tap first.
    pub convolution: TensorSpec,
    /// Added to the decays' projection, `[value heads]`.
    pub decay_offset: TensorSpec,
    /// Logarithms of the decays' rates, float32 `[value heads]`.
    pub decay_rate: TensorSpec,
    /// Norm of each output head, `[value dim]`, stored as it is.
    pub norm: TensorSpec,
    /// `[output, value width]`.
    pub output: LinearTensors,
}

/// Tensors of a feed-forward block.
#[expect(clippy::large_enum_variant, reason = "there is one per layer, and most of its bytes are names on the heap")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FfnTensors {
    /// A dense block.
    Dense(GatedTensors),
    /// Experts.
    Experts(ExpertsTensors),
}

/// Tensors of a gated block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatedTensors {
    /// `[intermediate, hidden]`.
    pub gate: LinearTensors,
    /// `[intermediate, hidden]`.
    pub up: LinearTensors,
    /// `[hidden, intermediate]`.
    pub down: LinearTensors,
}

/// Tensors of experts with their router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertsTensors {
    /// `[experts, hidden]`.
    pub router: TensorSpec,
    /// `[experts]`.
    pub router_bias: Option<TensorSpec>,
    /// Float32 `[experts]`.
    pub correction_bias: Option<TensorSpec>,
    /// In the order of the experts.
    pub experts: Vec<GatedTensors>,
    /// The shared expert, which processes every row.
    pub shared: Option<GatedTensors>,
    /// `[1, hidden]`: the gate of the shared expert.
    pub shared_gate: Option<TensorSpec>,
}

impl LayerSpec {
    /// Its tensors under a prefix without a trailing dot.
    pub fn tensors(&self, prefix: &str) -> LayerTensors {
        let norm = |name: &str| TensorSpec::norm(format!("{prefix}.{name}.weight"), self.hidden).stored(self.norms);
        let module = if matches!(self.attention, AttentionSpec::Delta(_)) { "linear_attn" } else { "self_attn" };
        let mut tensors = LayerTensors {
            input_norm: self.input_norm.then(|| norm("input_layernorm")),
            attention: self.attention.tensors(&format!("{prefix}.{module}")),
            post_attention_norm: norm("post_attention_layernorm"),
            ffn: self.ffn.tensors(&format!("{prefix}.mlp"), self.hidden),
        };
        let LayerFormats { attention, ffn, attention_rows, ffn_rows } = self.formats;
        let in_format = |matrix: &mut TensorSpec, format, rows| (matrix.format, matrix.rows) = (format, rows);
        tensors.attention.matrices_mut().for_each(|matrix| in_format(matrix, attention, attention_rows));
        tensors.ffn.matrices_mut().for_each(|matrix| in_format(matrix, ffn, ffn_rows));
        // Norms of query and key heads are stored like the layer's own; that of a delta net is not.
        if let AttentionTensors::Grouped(grouped) = &mut tensors.attention {
            let norms = grouped.head_norms.take();
            grouped.head_norms = norms.map(|(query, key)| (query.stored(self.norms), key.stored(self.norms)));
        }
        tensors
    }
}

impl AttentionSpec {
    fn tensors(&self, prefix: &str) -> AttentionTensors {
        match self {
            Self::Grouped(grouped) => AttentionTensors::Grouped(Box::new(grouped.tensors(prefix))),
            Self::Latent(latent) => AttentionTensors::Latent(Box::new(latent.tensors(prefix))),
            Self::Delta(delta) => AttentionTensors::Delta(Box::new(delta.tensors(prefix))),
        }
    }
}

impl GroupedQuery {
    fn tensors(&self, prefix: &str) -> GroupedTensors {
        let linear = |name: &str, outputs, inputs, bias, split| {
            LinearTensors::new(&format!("{prefix}.{name}"), outputs, inputs, bias, Role::Attention, split)
        };
        let (queries, keys) = (self.query_width(), self.key_value_width());
        let norm = |name: &str| TensorSpec::norm(format!("{prefix}.{name}.weight"), self.head_dim);
        GroupedTensors {
            query: linear("q_proj", self.query_outputs(), self.input, self.qkv_bias, TensorSplit::Rows),
            key: linear("k_proj", keys, self.input, self.qkv_bias, TensorSplit::Rows),
            value: linear("v_proj", keys, self.input, self.qkv_bias, TensorSplit::Rows),
            output: linear("o_proj", self.output, queries, self.output_bias, TensorSplit::Columns),
            head_norms: self.head_norms.then(|| (norm("q_norm"), norm("k_norm"))),
            sinks: self
                .sinks
                .then(|| TensorSpec::vector(format!("{prefix}.sinks"), self.heads, Role::Attention, TensorSplit::Rows)),
            cache_scales: (self.cache == CacheFormat::Fp8).then(|| CacheScaleNames::for_prefix(prefix)),
        }
    }
}

impl CacheScaleNames {
    /// As compressed-tensors, ModelOpt and SGLang's own module name them.
    fn for_prefix(prefix: &str) -> Self {
        let named = |names: [&str; 3]| names.map(|name| format!("{prefix}.{name}")).to_vec();
        Self {
            keys: named(["k_scale", "k_proj.k_scale", "attn.k_scale"]),
            values: named(["v_scale", "v_proj.v_scale", "attn.v_scale"]),
            both: vec![format!("{prefix}.kv_scale")],
        }
    }
}

impl MultiHeadLatent {
    fn tensors(&self, prefix: &str) -> LatentTensors {
        let linear = |name: &str, outputs, inputs, split| {
            LinearTensors::new(&format!("{prefix}.{name}"), outputs, inputs, false, Role::Attention, split)
        };
        let norm = |name: &str, length| TensorSpec::norm(format!("{prefix}.{name}.weight"), length);
        let (rank, queries, values) = (self.latent_rank, self.query_width(), self.value_width());
        LatentTensors {
            // Every rank has all of it: the norm after it needs all values of the compressed query.
            compress_query: self.query_rank.map(|rank| {
                (linear("q_a_proj", rank, self.input, TensorSplit::Replicated), norm("q_a_layernorm", rank))
            }),
            query: match self.query_rank {
                None => linear("q_proj", queries, self.input, TensorSplit::Rows),
                Some(rank) => linear("q_b_proj", queries, rank, TensorSplit::Rows),
            },
            // All heads read the same latent vector, so every rank caches all of it.
            compress: linear("kv_a_proj_with_mqa", self.cache_width(), self.input, TensorSplit::Replicated),
            norm: norm("kv_a_layernorm", rank),
            expand: linear("kv_b_proj", self.heads * self.nope_dim + values, rank, TensorSplit::Rows),
            output: linear("o_proj", self.output, values, TensorSplit::Columns),
        }
    }
}

impl DeltaNet {
    fn tensors(&self, prefix: &str) -> DeltaTensors {
        let (sizes, role, split) = (self.sizes, Role::Attention, TensorSplit::Rows);
        let linear = |name: &str, outputs| {
            LinearTensors::new(&format!("{prefix}.{name}"), outputs, self.input, false, role, split)
        };
        let of_heads = |name: &str| TensorSpec::vector(format!("{prefix}.{name}"), sizes.value_heads, role, split);
        let keys = sizes.key_heads * sizes.key_dim;
        // The rows of a rank's heads are not contiguous: it has a part of each section.
        let sections = TensorSplit::Sections([keys, keys, sizes.value_width()]);
        let matrix =
            TensorSpec::matrix(format!("{prefix}.conv1d.weight"), sizes.channels(), sizes.taps, role, sections);
        let mixed =
            LinearTensors::new(&format!("{prefix}.in_proj_qkv"), sizes.channels(), self.input, false, role, sections);
        let output = format!("{prefix}.out_proj");
        DeltaTensors {
            mixed,
            gate: linear("in_proj_z", sizes.value_width()),
            beta: linear("in_proj_b", sizes.value_heads),
            decay: linear("in_proj_a", sizes.value_heads),
            // A depthwise convolution is published with one input channel per output channel.
            convolution: TensorSpec { shape: vec![sizes.channels(), 1, sizes.taps], ..matrix },
            decay_offset: of_heads("dt_bias"),
            decay_rate: TensorSpec { format: WeightFormat::Float32, ..of_heads("A_log") },
            norm: TensorSpec::norm(format!("{prefix}.norm.weight"), sizes.value_dim),
            output: LinearTensors::new(&output, self.output, sizes.value_width(), false, role, TensorSplit::Columns),
        }
    }
}

impl DeltaTensors {
    /// The matrices that may be kept in a format other than the type that the engine computes in.
    /// Those of gates and decays are a thousandth of the rest and stay plain, as in the published
    /// FP8 releases.
    pub fn large_matrices(&self) -> [&TensorSpec; 3] {
        [&self.mixed, &self.gate, &self.output].map(|layer| &layer.weight)
    }
}

impl FfnSpec {
    fn tensors(&self, prefix: &str, hidden: usize) -> FfnTensors {
        match self {
            Self::Dense(dense) => {
                let splits = (TensorSplit::Rows, TensorSplit::Columns);
                let sizes = (hidden, dense.intermediate);
                FfnTensors::Dense(GatedTensors::new(prefix, sizes, dense.bias, Role::FeedForward, splits))
            }
            Self::Experts(experts) => FfnTensors::Experts(experts.tensors(prefix, hidden)),
        }
    }
}

impl ExpertsSpec {
    fn tensors(&self, prefix: &str, hidden: usize) -> ExpertsTensors {
        let router = match self.layout {
            ExpertsLayout::Separate => format!("{prefix}.gate"),
            ExpertsLayout::Alternating => format!("{prefix}.router"),
        };
        let router =
            LinearTensors::new(&router, self.experts, hidden, self.bias, Role::Router, TensorSplit::Replicated);
        let correction = || TensorSpec {
            format: WeightFormat::Float32,
            ..TensorSpec::vector(
                format!("{prefix}.gate.e_score_correction_bias"),
                self.experts,
                Role::CorrectionBias,
                TensorSplit::Replicated,
            )
        };
        let expert = |at: usize| {
            let (prefix, sizes) = (format!("{prefix}.experts.{at}"), (hidden, self.intermediate));
            GatedTensors::new(&prefix, sizes, self.bias, Role::Expert(at), (TensorSplit::Experts, TensorSplit::Experts))
        };
        let shared = |intermediate| {
            // Qwen's shared expert has a gate and a singular name; DeepSeek's and GLM's have
            // neither.
            let name = if self.shared_gate { "shared_expert" } else { "shared_experts" };
            let (prefix, sizes) = (format!("{prefix}.{name}"), (hidden, intermediate));
            GatedTensors::new(&prefix, sizes, false, Role::SharedExpert, (TensorSplit::Rows, TensorSplit::Columns))
        };
        ExpertsTensors {
            router: router.weight,
            router_bias: router.bias,
            correction_bias: self.router.correction_bias.then(correction),
            experts: (0..self.experts).map(expert).collect(),
            shared: self.shared.map(shared),
            shared_gate: self.shared_gate.then(|| {
                let name = format!("{prefix}.shared_expert_gate.weight");
                TensorSpec::matrix(name, 1, hidden, Role::SharedExpert, TensorSplit::Replicated)
            }),
        }
    }
}

impl GatedTensors {
    /// Sizes are the stream's width and the intermediate width; splits are those of gate and up,
    /// and of down.
    fn new(
        prefix: &str,
        (hidden, intermediate): (usize, usize),
        bias: bool,
        role: Role,
        (apart, together): (TensorSplit, TensorSplit),
    ) -> Self {
        let linear = |name: &str, outputs, inputs, split| {
            LinearTensors::new(&format!("{prefix}.{name}"), outputs, inputs, bias, role, split)
        };
        Self {
            gate: linear("gate_proj", intermediate, hidden, apart),
            up: linear("up_proj", intermediate, hidden, apart),
            down: linear("down_proj", hidden, intermediate, together),
        }
    }

    fn matrices_mut(&mut self) -> [&mut TensorSpec; 3] {
        [&mut self.gate, &mut self.up, &mut self.down].map(|layer| &mut layer.weight)
    }

    /// All tensors.
    pub fn all(&self) -> impl Iterator<Item = &TensorSpec> {
        [&self.gate, &self.up, &self.down].into_iter().flat_map(LinearTensors::all)
    }
}

impl LatentTensors {
    /// The matrices that kernels read as they are stored, starting with the one whose outputs come
    /// first. The projection from latent vectors is not included, since it is split head by head.
    pub fn kept_matrices(&self) -> Vec<&TensorSpec> {
        let first = self.compress_query.as_ref().map(|(down, _)| down);
        first.into_iter().chain([&self.query, &self.compress, &self.output]).map(|layer| &layer.weight).collect()
    }
}

impl LayerTensors {
    /// All tensors.
    pub fn all(&self) -> Vec<&TensorSpec> {
        let mut all: Vec<&TensorSpec> = self.input_norm.iter().collect();
        all.extend(self.attention.all());
        all.push(&self.post_attention_norm);
        all.extend(self.ffn.all());
        all
    }
}

impl AttentionTensors {
    /// The names of the scales of a cache in FP8.
    pub fn cache_scales(&self) -> Option<&CacheScaleNames> {
        match self {
            Self::Grouped(grouped) => grouped.cache_scales.as_ref(),
            Self::Latent(_) | Self::Delta(_) => None,
        }
    }

    /// The matrices that may be kept in a format other than the type that the engine computes in.
    fn matrices_mut(&mut self) -> Box<dyn Iterator<Item = &mut TensorSpec> + '_> {
        match self {
            Self::Grouped(grouped) => {
                let GroupedTensors { query, key, value, output, .. } = &mut **grouped;
                Box::new([query, key, value, output].into_iter().map(|layer| &mut layer.weight))
            }
            Self::Latent(latent) => {
                let LatentTensors { compress_query, query, compress, output, .. } = &mut **latent;
                let first = compress_query.as_mut().map(|(down, _)| down);
                Box::new(first.into_iter().chain([query, compress, output]).map(|layer| &mut layer.weight))
            }
            Self::Delta(delta) => {
                let DeltaTensors { mixed, gate, output, .. } = &mut **delta;
                Box::new([mixed, gate, output].into_iter().map(|layer| &mut layer.weight))
            }
        }
    }

    /// All tensors.
    pub fn all(&self) -> Vec<&TensorSpec> {
        match self {
            Self::Grouped(grouped) => {
                // Without the scales of the cache, which a checkpoint may lack.
                let GroupedTensors { query, key, value, output, head_norms, sinks, .. } = &**grouped;
                let norms = head_norms.iter().flat_map(|(query, key)| [query, key]);
                [query, key, value, output].into_iter().flat_map(LinearTensors::all).chain(norms).chain(sinks).collect()
            }
            Self::Latent(latent) => {
                let LatentTensors { compress_query, query, compress, norm, expand, output } = &**latent;
                let mut all: Vec<&TensorSpec> = Vec::new();
                if let Some((down, norm)) = compress_query {
                    all.extend(down.all().chain([norm]));
                }
                all.extend(query.all().chain(compress.all()).chain([norm]).chain(expand.all()).chain(output.all()));
                all
            }
            Self::Delta(delta) => {
                let DeltaTensors { mixed, gate, beta, decay, convolution, decay_offset, decay_rate, norm, output } =
                    &**delta;
                let linear = [mixed, gate, beta, decay, output].into_iter().flat_map(LinearTensors::all);
                linear.chain([convolution, decay_offset, decay_rate, norm]).collect()
            }
        }
    }
}

impl FfnTensors {
    /// The matrices that may be kept in a format other than the type that the engine computes in.
    fn matrices_mut(&mut self) -> Box<dyn Iterator<Item = &mut TensorSpec> + '_> {
        match self {
            Self::Dense(dense) => Box::new(dense.matrices_mut().into_iter()),
            // Not the router: it is small, and exporters keep it in the plain type.
            Self::Experts(ExpertsTensors { experts, shared, .. }) => {
                Box::new(experts.iter_mut().chain(shared).flat_map(GatedTensors::matrices_mut))
            }
        }
    }

    /// All tensors.
    pub fn all(&self) -> Vec<&TensorSpec> {
        match self {
            Self::Dense(dense) => dense.all().collect(),
            Self::Experts(experts) => {
                let ExpertsTensors { router, router_bias, correction_bias, experts, shared, shared_gate } = experts;
                let blocks = experts.iter().chain(shared).flat_map(GatedTensors::all);
                let router = std::iter::once(router).chain(router_bias).chain(correction_bias);
                router.chain(shared_gate).chain(blocks).collect()
            }
        }
    }
}
