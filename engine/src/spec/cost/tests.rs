use kernels::reference::RopeScaling;

use super::*;
use crate::spec::{
    AttentionSpec, ExpertsSpec, FfnSpec, GroupedQuery, Pairing, RopeSpec, RouterPrecision, RouterScore, RouterSpec,
};

/// Qwen3-30B-A3B, from its config.json.
fn qwen3_30b() -> TargetSpec {
    let rope = RopeSpec { dims: 128, pairing: Pairing::Halves, theta: 1e6, scaling: RopeScaling::None };
    let layer = LayerSpec {
        hidden: 2048,
        epsilon: 1e-6,
        input_norm: true,
        attention: AttentionSpec::Grouped(GroupedQuery {
            input: 2048,
            output: 2048,
            heads: 32,
            key_value_heads: 4,
            head_dim: 128,
            qkv_bias: false,
            output_bias: false,
            head_norms: true,
            rope,
        }),
        ffn: FfnSpec::Experts(ExpertsSpec {
            router: RouterSpec {
                score: RouterScore::Softmax,
                logits: RouterPrecision::Model,
                renormalise: Some(0.0),
                correction_bias: false,
                groups: 1,
                groups_kept: 1,
                scaling: 1.0,
            },
            experts: 128,
            per_token: 8,
            intermediate: 768,
            shared: None,
        }),
    };
    TargetSpec { hidden: 2048, vocabulary: 151_936, tied: false, epsilon: 1e-6, layers: vec![layer; 48] }
}

#[test]
fn experts_are_read_as_rows_choose_them() {
    let target = qwen3_30b();
    let cost = target.cost(2);
    // Attention 2048 → 4096 + 512 + 512 → 2048, router, norms of the stream and of heads.
    let dense = 2048 * (4096 + 1024) + 4096 * 2048 + 128 * 2048 + 2 * 2048 + 2 * 128;
    let vocabulary = 151_936 * 2048;
    assert_eq!(cost.bytes, 2 * (48 * dense + 2048 + vocabulary));
    let expert = 2 * 3 * 2048 * 768;
    // One row reads the eight experts that it chooses; two rows choose 15.5 on average; many read all.
    assert!((cost.expert_bytes(1) - 48.0 * 8.0 * expert as f64).abs() < 1.0);
    assert!((cost.expert_bytes(2) - 48.0 * 15.5 * expert as f64).abs() < 1.0);
    assert!((cost.bytes(100_000) - cost.all_bytes() as f64).abs() < 1.0);
    let experts = target.layers[0].ffn.experts().expect("experts");
    assert!((experts.expected_distinct(2) - 15.5).abs() < 1e-9);
    // 3.3 billion weights are active for a row, 30.5 billion are there.
    assert!((cost.flops(1) / 2.0 - 3.04e9).abs() < 0.05e9, "{}", cost.flops(1));
    assert_eq!(target.weight_bytes(2), 61_064_245_248);
    let listed: u64 = target.tensors().all().into_iter().map(|tensor| tensor.bytes(2)).sum();
    assert_eq!(listed, target.weight_bytes(2), "all tensors are counted");
}

#[test]
fn costs_of_layers_add_up() {
    let target = qwen3_30b();
    let layers = target.layers.iter().map(|layer| PassCost::of_layer(layer, 2).at(4));
    let head = target.vocabulary_cost(2).at(4);
    let sum = layers.fold(head, Add::add);
    let all = target.cost(2).at(4);
    assert!((all.flops - sum.flops).abs() < 1.0);
    assert!((all.bytes - sum.bytes - 2.0 * 2048.0).abs() < 1.0, "but for the final norm");
}
