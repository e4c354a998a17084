//! Published shapes of models, for random weights.

use kernels::reference::{Rope, RopeScaling};

use crate::{
    error::EngineError,
    model::{AttentionShape, HeadFacts, HeadKind, HeadSource, LayerFacts, TargetFacts},
};

/// The shape of a target and of the head that is published for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapeOfModel {
    /// Its name on the command line.
    pub name: &'static str,
    /// Longest sequence.
    pub context_length: usize,
    /// Whether query, key and value projections have a bias (Qwen2).
    pub biased: bool,
    /// Whether queries and keys are normed head by head (Qwen3).
    pub head_norms: bool,
    layers: usize,
    hidden: usize,
    intermediate: usize,
    heads: usize,
    key_value_heads: usize,
    head_dim: usize,
    vocabulary: usize,
    tied: bool,
    theta: f32,
    scaling: RopeScaling,
    head: Head,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Head {
    /// EAGLE-1/2: a layer of the target's shape, the target's embedding and head.
    Eagle2,
    /// EAGLE-3: its own head over a hot vocabulary.
    Eagle3 { vocabulary: usize, intermediate: usize },
}

const fn llama3_scaling(factor: f32) -> RopeScaling {
    RopeScaling::Llama3 { factor, low_frequency_factor: 1.0, high_frequency_factor: 4.0, original: 8192.0 }
}

/// All of them, from the config.json files of the releases.
pub const SHAPES: [ShapeOfModel; 8] = [
    // meta-llama/Llama-3.2-1B-Instruct; its head has the layout of the Llama-3.1 one.
    ShapeOfModel {
        name: "llama-3.2-1b",
        context_length: 131_072,
        biased: false,
        head_norms: false,
        layers: 16,
        hidden: 2048,
        intermediate: 8192,
        heads: 32,
        key_value_heads: 8,
        head_dim: 64,
        vocabulary: 128_256,
        tied: true,
        theta: 500_000.0,
        scaling: llama3_scaling(32.0),
        head: Head::Eagle3 { vocabulary: 32_000, intermediate: 8192 },
    },
    // meta-llama/Llama-3.1-8B-Instruct with yuhuili/EAGLE3-LLaMA3.1-Instruct-8B
    ShapeOfModel {
        name: "llama-3.1-8b",
        context_length: 131_072,
        biased: false,
        head_norms: false,
        layers: 32,
        hidden: 4096,
        intermediate: 14_336,
        heads: 32,
        key_value_heads: 8,
        head_dim: 128,
        vocabulary: 128_256,
        tied: false,
        theta: 500_000.0,
        scaling: llama3_scaling(8.0),
        head: Head::Eagle3 { vocabulary: 32_000, intermediate: 14_336 },
    },
    // meta-llama/Llama-3.3-70B-Instruct with yuhuili/EAGLE3-LLaMA3.3-Instruct-70B
    ShapeOfModel {
        name: "llama-3.3-70b",
        context_length: 131_072,
        biased: false,
        head_norms: false,
        layers: 80,
        hidden: 8192,
        intermediate: 28_672,
        heads: 64,
        key_value_heads: 8,
        head_dim: 128,
        vocabulary: 128_256,
        tied: false,
        theta: 500_000.0,
        scaling: llama3_scaling(8.0),
        head: Head::Eagle3 { vocabulary: 32_000, intermediate: 28_672 },
    },
    // meta-llama/Llama-2-7b-chat-hf with yuhuili/EAGLE-llama2-chat-7B
    ShapeOfModel {
        name: "llama-2-7b",
        context_length: 4096,
        biased: false,
        head_norms: false,
        layers: 32,
        hidden: 4096,
        intermediate: 11_008,
        heads: 32,
        key_value_heads: 32,
        head_dim: 128,
        vocabulary: 32_000,
        tied: false,
        theta: 10_000.0,
        scaling: RopeScaling::None,
        head: Head::Eagle2,
    },
    // meta-llama/Llama-2-70b-chat-hf with yuhuili/EAGLE-llama2-chat-70B
    ShapeOfModel {
        name: "llama-2-70b",
        context_length: 4096,
        biased: false,
        head_norms: false,
        layers: 80,
        hidden: 8192,
        intermediate: 28_672,
        heads: 64,
        key_value_heads: 8,
        head_dim: 128,
        vocabulary: 32_000,
        tied: false,
        theta: 10_000.0,
        scaling: RopeScaling::None,
        head: Head::Eagle2,
    },
    // Qwen/Qwen2.5-7B-Instruct
    ShapeOfModel {
        name: "qwen2.5-7b",
        context_length: 32_768,
        biased: true,
        head_norms: false,
        layers: 28,
        hidden: 3584,
        intermediate: 18_944,
        heads: 28,
        key_value_heads: 4,
        head_dim: 128,
        vocabulary: 152_064,
        tied: false,
        theta: 1_000_000.0,
        scaling: RopeScaling::None,
        head: Head::Eagle3 { vocabulary: 32_000, intermediate: 18_944 },
    },
    // Qwen/Qwen3-8B with a head of the layout of Tengyunw/qwen3_8b_eagle3
    ShapeOfModel {
        name: "qwen3-8b",
        context_length: 40_960,
        biased: false,
        head_norms: true,
        layers: 36,
        hidden: 4096,
        intermediate: 12_288,
        heads: 32,
        key_value_heads: 8,
        head_dim: 128,
        vocabulary: 151_936,
        tied: false,
        theta: 1_000_000.0,
        scaling: RopeScaling::None,
        head: Head::Eagle3 { vocabulary: 32_000, intermediate: 12_288 },
    },
    // Qwen/Qwen3-32B
    ShapeOfModel {
        name: "qwen3-32b",
        context_length: 40_960,
        biased: false,
        head_norms: true,
        layers: 64,
        hidden: 5120,
        intermediate: 25_600,
        heads: 64,
        key_value_heads: 8,
        head_dim: 128,
        vocabulary: 151_936,
        tied: false,
        theta: 1_000_000.0,
        scaling: RopeScaling::None,
        head: Head::Eagle3 { vocabulary: 32_000, intermediate: 25_600 },
    },
];

/// The shape of a name.
///
/// # Errors
/// When there is none; the message names all.
pub fn shape_of(name: &str) -> Result<&'static ShapeOfModel, EngineError> {
    SHAPES.iter().find(|shape| shape.name == name).ok_or_else(|| {
        let names: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
        EngineError::Configuration(format!("--model-shape {name} is not known; known are {}", names.join(", ")))
    })
}

impl ShapeOfModel {
    /// The name of its architecture in config.json.
    pub fn architecture(&self) -> &'static str {
        match (self.head_norms, self.biased) {
            (true, _) => "Qwen3ForCausalLM",
            (false, true) => "Qwen2ForCausalLM",
            (false, false) => "LlamaForCausalLM",
        }
    }

    /// The target.
    pub fn target(&self) -> TargetFacts {
        TargetFacts {
            layer: self.layer(self.hidden, self.intermediate, self.scaling, self.theta),
            layers: self.layers,
            vocabulary: self.vocabulary,
            tied: self.tied,
        }
    }

    /// The head.
    pub fn head(&self) -> HeadFacts {
        let facts = |kind, layer| HeadFacts {
            kind,
            layer,
            prefix: "layers.0",
            capture: Vec::new(),
            join_bias: false,
            capture_norms: false,
            norm_before_residual: false,
            norm_output: false,
            own_embedding: false,
            head: HeadSource::Target,
            vocabulary: self.vocabulary,
            tokens: None,
        };
        match self.head {
            Head::Eagle2 => HeadFacts {
                join_bias: true,
                ..facts(HeadKind::Eagle, self.layer(self.hidden, self.intermediate, self.scaling, self.theta))
            },
            Head::Eagle3 { vocabulary, intermediate } => HeadFacts {
                prefix: "midlayer",
                capture: vec![2, self.layers / 2, self.layers - 3],
                head: HeadSource::Own,
                vocabulary,
                // Any map has the same cost: every fourth token or so, in the order of the rows.
                tokens: Some((0..vocabulary).map(|row| (row * self.vocabulary / vocabulary) as u32).collect()),
                ..facts(HeadKind::Eagle3, self.layer(2 * self.hidden, intermediate, RopeScaling::None, 10_000.0))
            },
        }
    }

    /// The algorithm of its head, as SGLang names it.
    pub fn algorithm(&self) -> &'static str {
        match self.head {
            Head::Eagle2 => "EAGLE",
            Head::Eagle3 { .. } => "EAGLE3",
        }
    }

    fn layer(&self, input: usize, intermediate: usize, scaling: RopeScaling, theta: f32) -> LayerFacts {
        LayerFacts {
            hidden: self.hidden,
            intermediate,
            attention: AttentionShape {
                input,
                output: self.hidden,
                heads: self.heads,
                key_value_heads: self.key_value_heads,
                head_dim: self.head_dim,
            },
            epsilon: 1e-5,
            rope: Rope::new(self.head_dim, theta, scaling),
        }
    }
}
