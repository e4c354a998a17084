//! Published model shapes, for random weights.

use kernels::reference::{DeltaSizes, Fp8Scales, GateActivation, RopeScaling};

use super::{
    AttentionSpec, CacheFormat, CaptureNorms, CapturedFeatures, DeltaNet, DenseSpec, DraftSource, EmbeddingSource,
    ExpertsLayout, ExpertsSpec, Features, Feedback, FfnSpec, GroupedQuery, Join, LayerFormats, LayerSpec, LinearSpec,
    MultiHeadLatent, NormWeights, Pairing, RecurrentSpec, RecurrentTensorLayout, RopeSpec, RouterPrecision,
    RouterScore, RouterSpec, TargetSpec, VocabularySource, WeightFormat,
};
use crate::error::EngineError;

mod block;
mod models;

pub use models::PUBLISHED;
use models::SOFTMAX_ROUTER;

/// The shape of a target, and of a draft that is published for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedModel {
    /// Its name in `--model-shape`.
    pub name: &'static str,
    /// The name of its architecture in config.json.
    pub architecture: &'static str,
    /// Maximum sequence length.
    pub context_length: usize,
    layers: usize,
    hidden: usize,
    vocabulary: usize,
    tied: bool,
    heads: Heads,
    rope: HeadRotation,
    ffn: PublishedFfn,
    draft: Draft,
}

/// Heads of attention.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Heads {
    Grouped {
        queries: usize,
        keys: usize,
        dim: usize,
        qkv_bias: bool,
        norms: bool,
    },
    /// gpt-oss: grouped, with biases and sinks, and a window in every second layer, starting with
    /// the first.
    Sinks {
        queries: usize,
        keys: usize,
        dim: usize,
        window: usize,
    },
    /// A gated delta net in all but every `interval`-th layer, which has attention with gated
    /// outputs and normed heads.
    Delta {
        queries: usize,
        keys: usize,
        dim: usize,
        interval: usize,
        sizes: DeltaSizes,
    },
    Latent {
        queries: usize,
        query_rank: usize,
        latent_rank: usize,
        nope: usize,
        rotated: usize,
        value: usize,
        scale: f32,
    },
}

/// Rotation of heads.
#[derive(Clone, Copy, Debug, PartialEq)]
struct HeadRotation {
    theta: f32,
    scaling: RopeScaling,
    /// Number of rotated dimensions of a head; `None` for all.
    dims: Option<usize>,
}

/// Feed-forward blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PublishedFfn {
    Dense(usize),
    Experts {
        /// Number of dense layers, which come first, and their width.
        dense: usize,
        dense_intermediate: usize,
        experts: usize,
        per_token: usize,
        intermediate: usize,
        shared: Option<usize>,
        shared_gate: bool,
        router: RouterSpec,
    },
    /// gpt-oss: experts in MXFP4 with biases.
    Mxfp4Experts {
        experts: usize,
        per_token: usize,
        intermediate: usize,
    },
}

/// The draft.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Draft {
    /// EAGLE-1/2: a layer of the target's shape, with the target's embedding and head.
    Eagle2,
    /// EAGLE-3: its own head, over a hot vocabulary.
    Eagle3 { vocabulary: usize, intermediate: usize },
    /// MiMo's MTP layer.
    MimoMtp,
    /// The MTP layer of DeepSeek-V3 and GLM-4.5; always with experts.
    NextN,
    /// The MTP layer of Qwen3.5.
    QwenMtp,
}

/// The published shape with this name.
///
/// # Errors
/// When the name is unknown; the message lists all names.
pub fn published(name: &str) -> Result<&'static PublishedModel, EngineError> {
    PUBLISHED.iter().find(|shape| shape.name == name).ok_or_else(|| {
        let names: Vec<&str> = PUBLISHED.iter().map(|shape| shape.name).collect();
        EngineError::Configuration(format!("--model-shape {name} is unknown; known: {}", names.join(", ")))
    })
}

impl PublishedModel {
    /// The target's spec, or one with fewer layers, in which the share of dense layers is kept,
    /// rounded up.
    ///
    /// # Errors
    /// When `num_layers` is 0 or more than the model has.
    pub fn target(&self, num_layers: Option<usize>) -> Result<TargetSpec, EngineError> {
        let layers = num_layers.unwrap_or(self.layers);
        if !(1..=self.layers).contains(&layers) {
            return Err(EngineError::Configuration(format!(
                "--num-layers {layers} is out of range: {} has 1 to {} layers",
                self.name, self.layers
            )));
        }
        Ok(TargetSpec {
            hidden: self.hidden,
            vocabulary: self.vocabulary,
            head_rows: self.vocabulary,
            tied: self.tied,
            epsilon: EPSILON,
            layers: (0..layers)
                .map(|at| self.layer_at(at, self.ffn.with_fewer_layers(layers, self.layers).at(at)))
                .collect(),
        })
    }

    /// The draft of a target of this shape.
    pub fn draft(&self, target: &TargetSpec) -> RecurrentSpec {
        let vocabulary = self.vocabulary;
        let mtp = |tensors, join| RecurrentSpec {
            source: DraftSource::Target,
            tensors,
            features: Features::Final,
            join,
            layer: self.layer(self.layers, self.ffn.at(self.layers)),
            feedback: Feedback::Normed,
            embedding: EmbeddingSource::Target,
            head: VocabularySource::Target,
            vocabulary,
            head_rows: vocabulary,
            tokens: None,
        };
        match self.draft {
            Draft::Eagle2 => RecurrentSpec {
                source: DraftSource::Folder,
                tensors: RecurrentTensorLayout::Eagle { layer: "layers.0".into() },
                layer: LayerSpec { input_norm: false, ..self.layer(0, self.ffn.at(0)) },
                feedback: Feedback::Output,
                ..mtp(RecurrentTensorLayout::QwenMtp, Join::Linear { bias: true })
            },
            Draft::Eagle3 { vocabulary, intermediate } => self.eagle3(target, vocabulary, intermediate),
            Draft::MimoMtp => mtp(
                RecurrentTensorLayout::Mimo { prefix: "model.mtp_layers.0".into() },
                Join::NormedLinear { hidden_first: true, zero_first_embedding: true },
            ),
            Draft::NextN => mtp(
                RecurrentTensorLayout::NextN { prefix: TargetSpec::layer_prefix(self.layers) },
                Join::NormedLinear { hidden_first: false, zero_first_embedding: false },
            ),
            Draft::QwenMtp => mtp(
                RecurrentTensorLayout::QwenMtp,
                Join::NormedLinear { hidden_first: false, zero_first_embedding: false },
            ),
        }
    }

    fn eagle3(&self, target: &TargetSpec, vocabulary: usize, intermediate: usize) -> RecurrentSpec {
        let layers = target.layers.len();
        let heads = match self.heads {
            Heads::Grouped { queries, keys, dim, .. }
            | Heads::Sinks { queries, keys, dim, .. }
            | Heads::Delta { queries, keys, dim, .. } => {
                Heads::Grouped { queries, keys, dim, qkv_bias: false, norms: false }
            }
            latent @ Heads::Latent { .. } => latent,
        };
        let rope = HeadRotation { theta: 10_000.0, scaling: RopeScaling::None, dims: None };
        let attention = attention(self.hidden, 2 * self.hidden, heads, rope);
        RecurrentSpec {
            source: DraftSource::Folder,
            tensors: RecurrentTensorLayout::Eagle3 { layer: "midlayer".into() },
            features: Features::Captured(CapturedFeatures {
                // The default layers; for a shortened target, as far as they exist.
                at: vec![2.min(layers), layers / 2, layers.saturating_sub(3)],
                width: self.hidden,
                norms: CaptureNorms::default(),
                fc: Some(LinearSpec { bias: false }),
            }),
            join: Join::NormedIntoAttention { residual_is_normed: false },
            layer: LayerSpec {
                hidden: self.hidden,
                epsilon: EPSILON,
                input_norm: false,
                norms: NormWeights::Whole,
                attention,
                ffn: FfnSpec::Dense(DenseSpec { intermediate, bias: false }),
                formats: LayerFormats::default(),
            },
            feedback: Feedback::NormedForTokens,
            embedding: EmbeddingSource::Target,
            head: VocabularySource::Own,
            vocabulary,
            head_rows: vocabulary,
            // Any map has the same cost: every fourth token or so, in the order of the rows.
            tokens: Some((0..vocabulary).map(|row| (row * self.vocabulary / vocabulary) as u32).collect()),
        }
    }

    /// A layer of the target.
    fn layer_at(&self, at: usize, ffn: FfnSpec) -> LayerSpec {
        let layer = self.layer(at, ffn);
        match self.heads {
            Heads::Delta { interval, sizes, .. } if !(at + 1).is_multiple_of(interval) => {
                let delta = DeltaNet { input: self.hidden, output: self.hidden, sizes };
                LayerSpec { attention: AttentionSpec::Delta(delta), ..layer }
            }
            _ => layer,
        }
    }

    /// A layer with attention, as at this place of the target where that alternates.
    fn layer(&self, at: usize, ffn: FfnSpec) -> LayerSpec {
        let mut attention = attention(self.hidden, self.hidden, self.heads, self.rope);
        if let AttentionSpec::Grouped(grouped) = &mut attention
            && !at.is_multiple_of(2)
        {
            grouped.window = None;
        }
        // As released: gpt-oss has its experts in MXFP4, and DeepSeek-V3 all matrices of its layers
        // in FP8.
        let formats = match (&self.ffn, self.heads) {
            (PublishedFfn::Mxfp4Experts { .. }, _) => {
                LayerFormats { ffn: WeightFormat::Mxfp4, ..LayerFormats::default() }
            }
            (_, Heads::Latent { .. }) => {
                let blocks = WeightFormat::Fp8(Fp8Scales::Blocks);
                LayerFormats { attention: blocks, ffn: blocks, ..LayerFormats::default() }
            }
            _ => LayerFormats::default(),
        };
        let norms = match self.heads {
            Heads::Delta { .. } => NormWeights::LessOne,
            Heads::Grouped { .. } | Heads::Sinks { .. } | Heads::Latent { .. } => NormWeights::Whole,
        };
        LayerSpec { hidden: self.hidden, epsilon: EPSILON, input_norm: true, norms, attention, ffn, formats }
    }
}

/// Added to mean squares; the running time does not depend on it.
const EPSILON: f32 = 1e-5;

/// Attention that reads `input` values.
fn attention(output: usize, input: usize, heads: Heads, rope: HeadRotation) -> AttentionSpec {
    let HeadRotation { theta, scaling, dims } = rope;
    let rotation = |all, pairing| RopeSpec { dims: dims.unwrap_or(all), pairing, theta, scaling };
    match heads {
        Heads::Grouped { queries, keys, dim, qkv_bias, norms } => AttentionSpec::Grouped(GroupedQuery {
            input,
            output,
            heads: queries,
            key_value_heads: keys,
            head_dim: dim,
            qkv_bias,
            output_bias: false,
            head_norms: norms,
            output_gate: false,
            rope: rotation(dim, Pairing::Halves),
            sinks: false,
            window: None,
            cache: CacheFormat::Plain,
        }),
        Heads::Delta { queries, keys, dim, .. } => AttentionSpec::Grouped(GroupedQuery {
            input,
            output,
            heads: queries,
            key_value_heads: keys,
            head_dim: dim,
            qkv_bias: false,
            output_bias: false,
            head_norms: true,
            output_gate: true,
            rope: rotation(dim, Pairing::Halves),
            sinks: false,
            window: None,
            cache: CacheFormat::Plain,
        }),
        Heads::Sinks { queries, keys, dim, window } => AttentionSpec::Grouped(GroupedQuery {
            input,
            output,
            heads: queries,
            key_value_heads: keys,
            head_dim: dim,
            qkv_bias: true,
            output_bias: true,
            head_norms: false,
            output_gate: false,
            rope: rotation(dim, Pairing::Halves),
            sinks: true,
            window: Some(window),
            cache: CacheFormat::Plain,
        }),
        Heads::Latent { queries, query_rank, latent_rank, nope, rotated, value, scale } => {
            AttentionSpec::Latent(MultiHeadLatent {
                input,
                output,
                heads: queries,
                query_rank: Some(query_rank),
                latent_rank,
                nope_dim: nope,
                value_dim: value,
                score_scale: scale,
                rope: rotation(rotated, Pairing::Interleaved),
            })
        }
    }
}

impl PublishedFfn {
    /// With the number of dense layers for a model that has `layers` of `all` layers.
    fn with_fewer_layers(self, layers: usize, all: usize) -> Self {
        match self {
            Self::Experts {
                dense,
                dense_intermediate,
                experts,
                per_token,
                intermediate,
                shared,
                shared_gate,
                router,
            } => {
                let dense = (dense * layers).div_ceil(all);
                Self::Experts {
                    dense,
                    dense_intermediate,
                    experts,
                    per_token,
                    intermediate,
                    shared,
                    shared_gate,
                    router,
                }
            }
            Self::Dense(_) | Self::Mxfp4Experts { .. } => self,
        }
    }

    /// The block of a layer.
    fn at(self, layer: usize) -> FfnSpec {
        match self {
            Self::Dense(intermediate) => FfnSpec::Dense(DenseSpec { intermediate, bias: false }),
            Self::Experts { dense, dense_intermediate: intermediate, .. } if layer < dense => {
                FfnSpec::Dense(DenseSpec { intermediate, bias: false })
            }
            Self::Experts { experts, per_token, intermediate, shared, shared_gate, router, .. } => {
                let activation = GateActivation::Silu;
                let (bias, layout) = (false, ExpertsLayout::Separate);
                FfnSpec::Experts(ExpertsSpec {
                    router,
                    experts,
                    per_token,
                    intermediate,
                    shared,
                    shared_gate,
                    activation,
                    bias,
                    layout,
                })
            }
            Self::Mxfp4Experts { experts, per_token, intermediate } => FfnSpec::Experts(ExpertsSpec {
                router: SOFTMAX_ROUTER,
                experts,
                per_token,
                intermediate,
                shared: None,
                shared_gate: false,
                activation: GateActivation::Clamped { alpha: 1.702, limit: 7.0 },
                bias: true,
                layout: ExpertsLayout::Alternating,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{DraftSpec, TensorSpec};

    #[test]
    fn shapes_have_the_weights_of_their_releases() {
        // Billions of weights of the target, and of the draft without those that it shares.
        let check = |name: &str, billions: f64, draft_billions: f64| {
            let shape = published(name).expect("it is known");
            let target = shape.target(None).expect("all of its layers");
            let draft = shape.draft(&target);
            let (found, drafted) = (
                target.in_plain().weight_bytes(1) as f64 / 1e9,
                draft.in_plain().weight_bytes(&target, 1) as f64 / 1e9,
            );
            assert!((found / billions - 1.0).abs() < 0.005, "{name}: {found}");
            assert!((drafted / draft_billions - 1.0).abs() < 0.02, "{name}: {drafted}");
        };
        check("llama-3.1-8b", 8.03, 0.425);
        check("qwen3-4b", 4.02, 0.218);
        check("qwen3-30b-a3b", 30.53, 0.182);
        // z-lab/Qwen3-8B-DFlash-b16, and SpecForge's configuration for Qwen3.5-35B-A3B.
        for (name, captured, billions) in
            [("qwen3-8b", [2, 10, 18, 26, 34], 1.05), ("qwen3.5-35b-a3b", [2, 11, 20, 29, 38], 0.304)]
        {
            let shape = published(name).expect("it is known");
            let target = shape.target(None).expect("all of its layers");
            let head = shape.block_head(&target, false, None).expect("a head");
            assert_eq!(head.features.at, captured);
            let found = DraftSpec::Block(head).weight_bytes(&target, 1) as f64 / 1e9;
            assert!((found / billions - 1.0).abs() < 0.01, "{name}: {found}");
        }
        check("qwen3.5-27b", 26.9, 0.425);
        check("qwen3.5-35b-a3b", 34.66, 0.84);
        check("qwen3-235b-a22b", 235.1, 0.593);
        check("glm-4.5-air", 106.85, 2.33);
        check("glm-4.5", 352.8, 3.99);
        check("mimo-7b", 7.61, 0.21);
        check("deepseek-v3", 671.03, 11.6);
        check("gpt-oss-20b", 20.91, 0.308);
        check("gpt-oss-120b", 116.83, 0.308);
    }

    #[test]
    fn deepseek_is_in_fp8_as_released() {
        let target = published("deepseek-v3").expect("it is known").target(None).expect("all layers");
        // 688.6 GB of the release's safetensors files, less the MTP layer with its copies of
        // embedding and head.
        let bytes = target.weight_bytes(2) as f64 / 1e9;
        assert!((bytes / 673.3 - 1.0).abs() < 0.01, "{bytes}");
    }

    #[test]
    fn gpt_oss_has_experts_in_four_bits_and_reads_windows_in_every_second_layer() {
        let target = published("gpt-oss-20b").expect("it is known").target(None).expect("all layers");
        let windows: Vec<_> = target.layers.iter().take(4).map(|layer| layer.attention.window()).collect();
        assert_eq!(windows, [Some(128), None, Some(128), None]);
        // 13.76 GB: the size of the release's safetensors files.
        let bytes = target.weight_bytes(2) as f64 / 1e9;
        assert!((bytes / 13.76 - 1.0).abs() < 0.005, "{bytes}");
        let cost = crate::spec::ModelCost::new(&target, None, 2);
        assert_eq!(cost.target_cache_row, 24 * 2 * 512 * 2);
        let read = |context: f64| context * cost.target_row_read(context);
        assert_eq!(read(100.0), 100.0 * 49_152.0);
        assert_eq!(read(4096.0), (4096.0 + 128.0) * 24_576.0);
        let error = target.of_rank(4).expect_err("720 values are 22.5 blocks");
        assert!(error.contains("MXFP4") && error.contains("720 are no whole blocks of 32"), "{error}");
        let half = target.of_rank(2).expect("1440 values are 45 blocks");
        assert_eq!(half.layers[0].ffn.experts().map(|experts| experts.intermediate), Some(1440));
    }

    #[test]
    fn the_state_of_a_request_does_not_depend_on_its_length() {
        // 48 and 30 layers of float32 matrices, and three rows of 16 bits before the convolution.
        for (name, matrices, rows) in [
            ("qwen3.5-27b", 48 * 48 * 128 * 128, 48 * 3 * 10_240),
            ("qwen3.5-35b-a3b", 30 * 32 * 128 * 128, 30 * 3 * 8192),
        ] {
            let target = published(name).expect("it is known").target(None).expect("all of its layers");
            assert_eq!(target.state().bytes(2), 4 * matrices + 2 * rows, "{name}");
            let full = target.layers.iter().filter(|layer| layer.attention.kv().values() > 0).count();
            assert_eq!((full, target.odd_layer()), (target.layers.len() / 4, None), "{name}");
        }
    }

    #[test]
    fn the_first_layers_of_a_shape_keep_those_that_are_dense() {
        let shape = published("glm-4.5-air").expect("it is known");
        let target = shape.target(Some(3)).expect("three layers");
        let dense: Vec<bool> = target.layers.iter().map(|layer| layer.ffn.experts().is_none()).collect();
        assert_eq!(dense, [true, false, false]);
        assert!(shape.draft(&target).layer.ffn.experts().is_some(), "an MTP layer has experts");
        let shape = published("deepseek-v3").expect("it is known");
        let dense = |layers| {
            let target = shape.target(layers).expect("some of its layers");
            target.layers.iter().filter(|layer| layer.ffn.experts().is_none()).count()
        };
        assert_eq!([Some(1), Some(4), Some(41), None].map(dense), [1, 1, 3, 3]);
        let shape = published("glm-4.5-air").expect("it is known");
        for wrong in [0, 47] {
            assert!(shape.target(Some(wrong)).expect_err("out of range").to_string().contains("1 to 46"));
        }
        let eagle3 = published("qwen3-30b-a3b").expect("it is known");
        for layers in 1..=4 {
            let target = eagle3.target(Some(layers)).expect("some layers");
            assert!(eagle3.draft(&target).captured().iter().all(|at| *at <= layers));
        }
    }

    #[test]
    fn the_linter_counts_the_same_weights_and_cache() {
        let check = |name: &str, id: &str| {
            let shape = published(name).expect("it is known");
            let target = shape.target(None).expect("all of its layers");
            let row = schemas::model::published::published().iter().find(|row| row.name == id);
            let config = &row.expect("the linter knows it").config;
            let matrices = |tensors: Vec<&TensorSpec>| -> u64 {
                tensors.into_iter().filter(|tensor| tensor.shape.len() > 1).map(TensorSpec::values).sum()
            };
            assert_eq!(config.parameters(), Some(matrices(target.tensors().all())), "{name}");
            assert_eq!(config.kv_bytes_per_token(2, 1), Some(target.cache_row(2)), "{name}");
            let draft = shape.draft(&target);
            let mtp = match draft.source {
                DraftSource::Target => matrices(draft.tensors(target.vocabulary).all()),
                DraftSource::Folder => 0,
            };
            assert_eq!(config.mtp_parameters(), Some(mtp), "{name}");
        };
        check("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B");
        check("qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B");
        check("glm-4.5-air", "zai-org/GLM-4.5-Air");
        check("glm-4.5", "zai-org/GLM-4.5");
        check("mimo-7b", "XiaomiMiMo/MiMo-7B-RL");
        check("deepseek-v3", "deepseek-ai/DeepSeek-V3");
    }
}
