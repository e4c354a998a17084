//! The table of published shapes, from the config.json files of the releases.

use kernels::reference::{DeltaSizes, RopeScaling};

use super::{Draft, HeadRotation, Heads, PublishedFfn, PublishedModel, RouterPrecision, RouterScore, RouterSpec};

const fn llama3_scaling(factor: f32) -> RopeScaling {
    RopeScaling::Llama3 { factor, low_frequency_factor: 1.0, high_frequency_factor: 4.0, original: 8192.0 }
}

/// Softmax over all experts, renormalised.
pub(super) const SOFTMAX_ROUTER: RouterSpec = RouterSpec {
    score: RouterScore::Softmax,
    logits: RouterPrecision::Model,
    renormalise: Some(0.0),
    correction_bias: false,
    groups: 1,
    groups_kept: 1,
    scaling: 1.0,
    uniform: false,
};

/// Sigmoid in float32, with a correction bias for the choice.
const GLM_ROUTER: RouterSpec = RouterSpec {
    score: RouterScore::Sigmoid,
    logits: RouterPrecision::Float32,
    renormalise: Some(1e-20),
    correction_bias: true,
    groups: 1,
    groups_kept: 1,
    scaling: 1.0,
    uniform: false,
};

/// The same with groups and a scaling factor.
const DEEPSEEK_ROUTER: RouterSpec = RouterSpec { groups: 8, groups_kept: 4, scaling: 2.5, ..GLM_ROUTER };

const fn qwen3_experts(intermediate: usize) -> PublishedFfn {
    PublishedFfn::Experts {
        dense: 0,
        dense_intermediate: 0,
        experts: 128,
        per_token: 8,
        intermediate,
        shared: None,
        shared_gate: false,
        router: SOFTMAX_ROUTER,
    }
}

/// gpt-oss: 0.1 · ln 32 + 1 on cosine and sine.
const GPT_OSS_ROTATION: HeadRotation = HeadRotation {
    theta: 150_000.0,
    scaling: RopeScaling::Yarn {
        factor: 32.0,
        original: 4096.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: 1.346_573_6,
        truncate: false,
    },
    dims: None,
};

const GPT_OSS_HEADS: Heads = Heads::Sinks { queries: 64, keys: 8, dim: 64, window: 128 };

/// Qwen3.5: full attention in every fourth layer, and delta nets of 16 key heads.
const fn qwen35_heads(queries: usize, keys: usize, value_heads: usize) -> Heads {
    let sizes = DeltaSizes { key_heads: 16, value_heads, key_dim: 128, value_dim: 128, taps: 4 };
    Heads::Delta { queries, keys, dim: 256, interval: 4, sizes }
}

/// All published shapes.
pub const PUBLISHED: &[PublishedModel] = &[
    // meta-llama/Llama-3.2-1B-Instruct; its head has the layout of the Llama-3.1 one.
    PublishedModel {
        name: "llama-3.2-1b",
        architecture: "LlamaForCausalLM",
        context_length: 131_072,
        layers: 16,
        hidden: 2048,
        vocabulary: 128_256,
        tied: true,
        heads: Heads::Grouped { queries: 32, keys: 8, dim: 64, qkv_bias: false, norms: false },
        rope: HeadRotation { theta: 500_000.0, scaling: llama3_scaling(32.0), dims: None },
        ffn: PublishedFfn::Dense(8192),
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 8192 },
    },
    // meta-llama/Llama-3.1-8B-Instruct with yuhuili/EAGLE3-LLaMA3.1-Instruct-8B
    PublishedModel {
        name: "llama-3.1-8b",
        architecture: "LlamaForCausalLM",
        context_length: 131_072,
        layers: 32,
        hidden: 4096,
        vocabulary: 128_256,
        tied: false,
        heads: Heads::Grouped { queries: 32, keys: 8, dim: 128, qkv_bias: false, norms: false },
        rope: HeadRotation { theta: 500_000.0, scaling: llama3_scaling(8.0), dims: None },
        ffn: PublishedFfn::Dense(14_336),
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 14_336 },
    },
    // meta-llama/Llama-3.3-70B-Instruct with yuhuili/EAGLE3-LLaMA3.3-Instruct-70B
    PublishedModel {
        name: "llama-3.3-70b",
        architecture: "LlamaForCausalLM",
        context_length: 131_072,
        layers: 80,
        hidden: 8192,
        vocabulary: 128_256,
        tied: false,
        heads: Heads::Grouped { queries: 64, keys: 8, dim: 128, qkv_bias: false, norms: false },
        rope: HeadRotation { theta: 500_000.0, scaling: llama3_scaling(8.0), dims: None },
        ffn: PublishedFfn::Dense(28_672),
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 28_672 },
    },
    // meta-llama/Llama-2-7b-chat-hf with yuhuili/EAGLE-llama2-chat-7B
    PublishedModel {
        name: "llama-2-7b",
        architecture: "LlamaForCausalLM",
        context_length: 4096,
        layers: 32,
        hidden: 4096,
        vocabulary: 32_000,
        tied: false,
        heads: Heads::Grouped { queries: 32, keys: 32, dim: 128, qkv_bias: false, norms: false },
        rope: HeadRotation { theta: 10_000.0, scaling: RopeScaling::None, dims: None },
        ffn: PublishedFfn::Dense(11_008),
        draft: Draft::Eagle2,
    },
    // meta-llama/Llama-2-70b-chat-hf with yuhuili/EAGLE-llama2-chat-70B
    PublishedModel {
        name: "llama-2-70b",
        architecture: "LlamaForCausalLM",
        context_length: 4096,
        layers: 80,
        hidden: 8192,
        vocabulary: 32_000,
        tied: false,
        heads: Heads::Grouped { queries: 64, keys: 8, dim: 128, qkv_bias: false, norms: false },
        rope: HeadRotation { theta: 10_000.0, scaling: RopeScaling::None, dims: None },
        ffn: PublishedFfn::Dense(28_672),
        draft: Draft::Eagle2,
    },
    // Qwen/Qwen2.5-7B-Instruct
    PublishedModel {
        name: "qwen2.5-7b",
        architecture: "Qwen2ForCausalLM",
        context_length: 32_768,
        layers: 28,
        hidden: 3584,
        vocabulary: 152_064,
        tied: false,
        heads: Heads::Grouped { queries: 28, keys: 4, dim: 128, qkv_bias: true, norms: false },
        rope: HeadRotation { theta: 1_000_000.0, scaling: RopeScaling::None, dims: None },
        ffn: PublishedFfn::Dense(18_944),
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 18_944 },
    },
    // Qwen/Qwen3-4B with AngelSlim/Qwen3-4B_eagle3
    PublishedModel {
        name: "qwen3-4b",
        architecture: "Qwen3ForCausalLM",
        context_length: 40_960,
        layers: 36,
        hidden: 2560,
        vocabulary: 151_936,
        tied: true,
        heads: Heads::Grouped { queries: 32, keys: 8, dim: 128, qkv_bias: false, norms: true },
        rope: HeadRotation { theta: 1_000_000.0, scaling: RopeScaling::None, dims: None },
        ffn: PublishedFfn::Dense(9728),
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 9728 },
    },
    // Qwen/Qwen3-8B with a head of the layout of Tengyunw/qwen3_8b_eagle3
    PublishedModel {
        name: "qwen3-8b",
        architecture: "Qwen3ForCausalLM",
        context_length: 40_960,
        layers: 36,
        hidden: 4096,
        vocabulary: 151_936,
        tied: false,
        heads: Heads::Grouped { queries: 32, keys: 8, dim: 128, qkv_bias: false, norms: true },
        rope: HeadRotation { theta: 1_000_000.0, scaling: RopeScaling::None, dims: None },
        ffn: PublishedFfn::Dense(12_288),
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 12_288 },
    },
    // Qwen/Qwen3-14B with AngelSlim/Qwen3-14B_eagle3
    PublishedModel {
        name: "qwen3-14b",
        architecture: "Qwen3ForCausalLM",
        context_length: 40_960,
        layers: 40,
        hidden: 5120,
        vocabulary: 151_936,
        tied: false,
        heads: Heads::Grouped { queries: 40, keys: 8, dim: 128, qkv_bias: false, norms: true },
        rope: HeadRotation { theta: 1_000_000.0, scaling: RopeScaling::None, dims: None },
        ffn: PublishedFfn::Dense(17_408),
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 17_408 },
    },
    // Qwen/Qwen3-32B
    PublishedModel {
        name: "qwen3-32b",
        architecture: "Qwen3ForCausalLM",
        context_length: 40_960,
        layers: 64,
        hidden: 5120,
        vocabulary: 151_936,
        tied: false,
        heads: Heads::Grouped { queries: 64, keys: 8, dim: 128, qkv_bias: false, norms: true },
        rope: HeadRotation { theta: 1_000_000.0, scaling: RopeScaling::None, dims: None },
        ffn: PublishedFfn::Dense(25_600),
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 25_600 },
    },
    // Qwen/Qwen3.5-27B, Qwen3.6-27B and Qwen3.8-27B, with their own MTP layer
    PublishedModel {
        name: "qwen3.5-27b",
        architecture: "Qwen3_5ForConditionalGeneration",
        context_length: 262_144,
        layers: 64,
        hidden: 5120,
        vocabulary: 248_320,
        tied: false,
        heads: qwen35_heads(24, 4, 48),
        rope: HeadRotation { theta: 10_000_000.0, scaling: RopeScaling::None, dims: Some(64) },
        ffn: PublishedFfn::Dense(17_408),
        draft: Draft::QwenMtp,
    },
    // Qwen/Qwen3.5-35B-A3B and Qwen3.6-35B-A3B, with their own MTP layer
    PublishedModel {
        name: "qwen3.5-35b-a3b",
        architecture: "Qwen3_5MoeForConditionalGeneration",
        context_length: 262_144,
        layers: 40,
        hidden: 2048,
        vocabulary: 248_320,
        tied: false,
        heads: qwen35_heads(16, 2, 32),
        rope: HeadRotation { theta: 10_000_000.0, scaling: RopeScaling::None, dims: Some(64) },
        ffn: PublishedFfn::Experts {
            dense: 0,
            dense_intermediate: 0,
            experts: 256,
            per_token: 8,
            intermediate: 512,
            shared: Some(512),
            shared_gate: true,
            router: SOFTMAX_ROUTER,
        },
        draft: Draft::QwenMtp,
    },
    // Qwen/Qwen3-30B-A3B with a head of the layout of Tengyunw/qwen3_30b_moe_eagle3
    PublishedModel {
        name: "qwen3-30b-a3b",
        architecture: "Qwen3MoeForCausalLM",
        context_length: 40_960,
        layers: 48,
        hidden: 2048,
        vocabulary: 151_936,
        tied: false,
        heads: Heads::Grouped { queries: 32, keys: 4, dim: 128, qkv_bias: false, norms: true },
        rope: HeadRotation { theta: 1_000_000.0, scaling: RopeScaling::None, dims: None },
        ffn: qwen3_experts(768),
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 12_288 },
    },
    // Qwen/Qwen3-235B-A22B with a head of SpecForge's configuration
    PublishedModel {
        name: "qwen3-235b-a22b",
        architecture: "Qwen3MoeForCausalLM",
        context_length: 40_960,
        layers: 94,
        hidden: 4096,
        vocabulary: 151_936,
        tied: false,
        heads: Heads::Grouped { queries: 64, keys: 4, dim: 128, qkv_bias: false, norms: true },
        rope: HeadRotation { theta: 1_000_000.0, scaling: RopeScaling::None, dims: None },
        ffn: qwen3_experts(1536),
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 24_576 },
    },
    // zai-org/GLM-4.5-Air with its MTP layer
    PublishedModel {
        name: "glm-4.5-air",
        architecture: "Glm4MoeForCausalLM",
        context_length: 131_072,
        layers: 46,
        hidden: 4096,
        vocabulary: 151_552,
        tied: false,
        heads: Heads::Grouped { queries: 96, keys: 8, dim: 128, qkv_bias: true, norms: false },
        rope: HeadRotation { theta: 1_000_000.0, scaling: RopeScaling::None, dims: Some(64) },
        ffn: PublishedFfn::Experts {
            dense: 1,
            dense_intermediate: 10_944,
            experts: 128,
            per_token: 8,
            intermediate: 1408,
            shared: Some(1408),
            shared_gate: false,
            router: GLM_ROUTER,
        },
        draft: Draft::NextN,
    },
    // zai-org/GLM-4.5 with its MTP layer; GLM-4.6 and 4.7 differ only in their context length
    PublishedModel {
        name: "glm-4.5",
        architecture: "Glm4MoeForCausalLM",
        context_length: 131_072,
        layers: 92,
        hidden: 5120,
        vocabulary: 151_552,
        tied: false,
        heads: Heads::Grouped { queries: 96, keys: 8, dim: 128, qkv_bias: true, norms: true },
        rope: HeadRotation { theta: 1_000_000.0, scaling: RopeScaling::None, dims: Some(64) },
        ffn: PublishedFfn::Experts {
            dense: 3,
            dense_intermediate: 12_288,
            experts: 160,
            per_token: 8,
            intermediate: 1536,
            shared: Some(1536),
            shared_gate: false,
            router: RouterSpec { scaling: 2.5, ..GLM_ROUTER },
        },
        draft: Draft::NextN,
    },
    // XiaomiMiMo/MiMo-7B-RL with its MTP layer
    PublishedModel {
        name: "mimo-7b",
        architecture: "MiMoForCausalLM",
        context_length: 32_768,
        layers: 36,
        hidden: 4096,
        vocabulary: 151_680,
        tied: false,
        heads: Heads::Grouped { queries: 32, keys: 8, dim: 128, qkv_bias: true, norms: false },
        rope: HeadRotation { theta: 640_000.0, scaling: RopeScaling::None, dims: None },
        ffn: PublishedFfn::Dense(11_008),
        draft: Draft::MimoMtp,
    },
    // deepseek-ai/DeepSeek-V3 and R1 with their MTP layer
    PublishedModel {
        name: "deepseek-v3",
        architecture: "DeepseekV3ForCausalLM",
        context_length: 163_840,
        layers: 61,
        hidden: 7168,
        vocabulary: 129_280,
        tied: false,
        heads: Heads::Latent {
            queries: 128,
            query_rank: 1536,
            latent_rank: 512,
            nope: 128,
            rotated: 64,
            value: 128,
            // (0.1 · ln 40 + 1)² / √192
            scale: 0.135_234,
        },
        rope: HeadRotation {
            theta: 10_000.0,
            scaling: RopeScaling::Yarn {
                factor: 40.0,
                original: 4096.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
                attention_factor: 1.0,
                truncate: true,
            },
            dims: None,
        },
        ffn: PublishedFfn::Experts {
            dense: 3,
            dense_intermediate: 18_432,
            experts: 256,
            per_token: 8,
            intermediate: 2048,
            shared: Some(2048),
            shared_gate: false,
            router: DEEPSEEK_ROUTER,
        },
        draft: Draft::NextN,
    },
    // openai/gpt-oss-20b with a head of SpecForge's configuration
    PublishedModel {
        name: "gpt-oss-20b",
        architecture: "GptOssForCausalLM",
        context_length: 131_072,
        layers: 24,
        hidden: 2880,
        vocabulary: 201_088,
        tied: false,
        heads: GPT_OSS_HEADS,
        rope: GPT_OSS_ROTATION,
        ffn: PublishedFfn::Mxfp4Experts { experts: 32, per_token: 4, intermediate: 2880 },
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 17_280 },
    },
    // openai/gpt-oss-120b with lmsys/EAGLE3-gpt-oss-120b-bf16
    PublishedModel {
        name: "gpt-oss-120b",
        architecture: "GptOssForCausalLM",
        context_length: 131_072,
        layers: 36,
        hidden: 2880,
        vocabulary: 201_088,
        tied: false,
        heads: GPT_OSS_HEADS,
        rope: GPT_OSS_ROTATION,
        ffn: PublishedFfn::Mxfp4Experts { experts: 128, per_token: 4, intermediate: 2880 },
        draft: Draft::Eagle3 { vocabulary: 32_000, intermediate: 17_280 },
    },
];
