use std::path::Path;

use kernels::reference::{GateActivation, RopeScaling};

use super::*;
use crate::spec::{
    AttentionSpec, CacheFormat, ExpertsLayout, ExpertsSpec, FfnSpec, GroupedQuery, LayerFormats, NormWeights, Pairing,
    RopeSpec, RouterPrecision, RouterScore, RouterSpec,
};
use crate::{
    checkpoint::Folder,
    drafts::{DraftTarget, read_draft},
    families::read_target,
    options::EngineOptions,
};

/// Qwen3-30B-A3B, from its config.json.
fn qwen3_30b() -> TargetSpec {
    let rope = RopeSpec { dims: 128, pairing: Pairing::Halves, theta: 1e6, scaling: RopeScaling::None };
    let layer = LayerSpec {
        hidden: 2048,
        epsilon: 1e-6,
        input_norm: true,
        norms: NormWeights::Whole,
        attention: AttentionSpec::Grouped(GroupedQuery {
            input: 2048,
            output: 2048,
            heads: 32,
            key_value_heads: 4,
            head_dim: 128,
            qkv_bias: false,
            output_bias: false,
            head_norms: true,
            output_gate: false,
            rope,
            sinks: false,
            window: None,
            cache: CacheFormat::Plain,
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
                uniform: false,
            },
            experts: 128,
            per_token: 8,
            intermediate: 768,
            shared: None,
            activation: GateActivation::Silu,
            bias: false,
            layout: ExpertsLayout::Separate,
            shared_gate: false,
        }),
        formats: LayerFormats::default(),
    };
    TargetSpec {
        hidden: 2048,
        vocabulary: 151_936,
        head_rows: 151_936,
        tied: false,
        epsilon: 1e-6,
        layers: vec![layer; 48],
    }
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
    // One row reads the eight experts that it chooses; two rows choose 15.5 on average; many read
    // all.
    assert!((cost.expert_bytes(1) - 48.0 * 8.0 * expert as f64).abs() < 1.0);
    assert!((cost.expert_bytes(2) - 48.0 * 15.5 * expert as f64).abs() < 1.0);
    assert!((cost.bytes(100_000) - cost.all_bytes() as f64).abs() < 1.0);
    // Experts that were counted, whatever the number of rows.
    let quarter = cost.bytes as f64 + 48.0 * 32.0 * expert as f64;
    assert!((cost.reading(2, Some(0.25)).bytes - quarter).abs() < 1.0);
    let experts = target.layers[0].ffn.experts().expect("experts");
    assert!((experts.expected_distinct(2) - 15.5).abs() < 1e-9);
    // 3.3 billion weights are active per row, out of 30.5 billion.
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

#[test]
fn a_round_reads_weights_once_a_pass_and_caches_of_all_requests() {
    fn check(head: &str, shape: &str, batch: usize, context: usize, expected: u64) {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
        let open = |name: &str| {
            let folder = Folder::open(&models.join(name)).expect("a checkpoint");
            let weights = folder.weights().expect("its tensors");
            (folder, weights)
        };
        let ((folder, weights), (head_folder, head_weights)) = (open("target"), open(head));
        let target = read_target(&folder, &weights).expect("its description");
        let options = EngineOptions::default();
        let facts = read_draft(&head_folder, &head_weights, DraftTarget { folder: &folder, spec: &target }, &options)
            .expect("its description");
        let cost = ModelCost::new(&target, Some(&facts), 4);
        let shape = shape.parse().expect("a shape");
        assert_eq!(cost.round_bytes(shape, batch, context), 4 * expected, "{head} {shape}");
    }
    // Attention: 128 → 128 + 64 + 64, back to 128; feed-forward: three matrices of 128 × 384; two
    // norms. Then the final norm and the tied head.
    let layer = 128 * (128 + 64 + 64) + 128 * 128 + 3 * 128 * 384 + 2 * 128;
    let head = 2048 * 128;
    let target = 8 * layer + 128 + head;
    check("eagle3", "0,1,1", 1, 0, target);
    check("eagle3", "0,1,1", 3, 100, target + 3 * 100 * 8 * 128);
    // EAGLE-2: no input norm, fc from 256 with a bias, the target's head.
    let eagle2 = layer - 128 + 256 * 128 + 128 + head;
    check("eagle2", "3,1,4", 1, 0, target + 3 * eagle2);
    // EAGLE-3: queries, keys and values from twice the width, one more norm in the layer, one after
    // it, a head of 1024 tokens; fc from three layers, which only the extension runs.
    let eagle3 = layer + 128 * (128 + 64 + 64) + 2 * 128 + 1024 * 128;
    let join = 384 * 128;
    check("eagle3", "1,8,9", 2, 10, target + 2 * 10 * 8 * 128 + eagle3 + join + 2 * 10 * 128);
    check("eagle3", "5,1,6", 1, 0, target + 5 * eagle3 + join);
}
