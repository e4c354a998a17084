mod strict;
mod warnings;

use safetensors::Dtype;
use serde_json::{Value, json};

use super::*;
use crate::{
    checkpoint::Changed,
    families::read_target,
    spec::{BlockSpec, Features, Join},
};

const QWEN3: &str = "tests/data/families/qwen3";
const QWEN3_5: &str = "tests/data/families/qwen3_5";
const TINY: &str = "models/tiny/target";

fn read(target: &str, draft: &Changed) -> Result<DraftSpec, String> {
    let (folder, weights) = Changed::of(target).open();
    let spec = read_target(&folder, &weights).expect("a target");
    let (draft, tensors) = draft.open();
    let target = DraftTarget { folder: &folder, spec: &spec };
    read_draft(&draft, &tensors, target, &EngineOptions::default()).map_err(|error| error.to_string())
}

fn recurrent(target: &str, draft: &Changed) -> Result<RecurrentSpec, String> {
    read(target, draft).map(|draft| match draft {
        DraftSpec::Recurrent(recurrent) => recurrent,
        other => panic!("{other:?}"),
    })
}

fn block(draft: &Changed) -> Result<BlockSpec, String> {
    read(QWEN3, draft).map(|draft| match draft {
        DraftSpec::Block(block) => block,
        other => panic!("{other:?}"),
    })
}

/// A block head with these fields, and these in `dflash_config`.
fn head(fields: Value, own: Value) -> Result<BlockSpec, String> {
    block(&Changed::block_head().with(fields).with(json!({"dflash_config": own})))
}

fn check_refused<T: std::fmt::Debug>(found: Result<T, String>, expected: &str) {
    assert!(found.as_ref().is_err_and(|error| error.contains(expected)), "{expected}: {found:?}");
}

#[test]
fn layers_that_a_block_head_reads_are_found_under_every_name() {
    let at = |fields: Value, own: Value| head(fields, own).map(|head| head.features.at);
    let mask = || json!({"mask_token_id": 3});
    let both = json!({"mask_token_id": 3, "target_layer_ids": [0, 2]});
    assert_eq!(at(json!({}), both.clone()), Ok(vec![1, 3]));
    assert_eq!(at(json!({"aux_hidden_state_layer_ids": [1, 3]}), mask()), Ok(vec![1, 3]));
    assert_eq!(at(json!({"eagle_aux_hidden_state_layer_ids": [0, 3]}), mask()), Ok(vec![0, 3]));
    assert_eq!(at(json!({"aux_hidden_state_layer_ids": [1, 3]}), both.clone()), Ok(vec![1, 3]));
    check_refused(at(json!({"aux_hidden_state_layer_ids": [0, 2]}), both), "name different layers");
    check_refused(
        at(json!({"aux_hidden_state_layer_ids": [1, 4]}), mask()),
        "[1, 4]: expected ids of layers from 0 to 3",
    );
    let speculator = json!({"speculators_model_type": "dflash"});
    check_refused(at(speculator, mask()), "(dflash) without aux_hidden_state_layer_ids");
}

#[test]
fn windows_of_block_heads_follow_their_switches() {
    let view = |fields: Value, own: Value| {
        let mut settings = json!({"mask_token_id": 3, "target_layer_ids": [0, 1]});
        settings.as_object_mut().expect("an object").extend(own.as_object().expect("an object").clone());
        head(fields, settings).map(|head| (head.layers[0].causal, head.layers[0].window))
    };
    let (full, sliding) = (json!(["full_attention"]), json!(["sliding_attention"]));
    let swa = json!({"use_swa": true, "swa_window_size": 16, "causal": false});
    assert_eq!(view(json!({"layer_types": full}), swa.clone()), Ok((false, Some(16))));
    assert_eq!(view(json!({"layer_types": null}), swa.clone()), Ok((false, Some(16))));
    assert_eq!(view(json!({"layer_types": full, "sliding_window": 9}), json!({"use_swa": true})), Ok((false, Some(9))));
    assert_eq!(view(json!({"layer_types": full}), json!({"use_swa": false})), Ok((false, None)));
    assert_eq!(view(json!({"layer_types": sliding, "sliding_window": 9}), swa), Ok((false, Some(16))));
    let fields = |non_causal: bool| json!({"layer_types": sliding, "sliding_window": 9, "sliding_window_non_causal": non_causal});
    assert_eq!(view(fields(true), json!({})), Ok((false, Some(9))));
    assert_eq!(view(fields(false), json!({})), Ok((true, Some(9))));
    check_refused(view(fields(true), json!({"causal": true})), "expected one of them");
}

#[test]
fn unknown_settings_of_speculators_are_refused() {
    let speculator = |more: Value| {
        let fields = json!({
            "speculators_model_type": "dflash", "speculators_version": "0.5", "speculators_config": {"algorithm": "dflash"},
            "aux_hidden_state_layer_ids": [1, 2], "mask_token_id": 3, "sliding_window_non_causal": false,
            "projector_type": "dflash", "lambda_base_start": 1.0, "auf": false, "shift_label": false, "ce_loss_alpha": 1.0,
            "pure_draft_prefix_len": 1, "emb_dim": 256, "gru_hidden_dim": 1024, "dflash_config": null,
        });
        // The layer's settings are nested, and may be anything.
        let given = json!([fields, more]);
        let is_own =
            |name: &str| given.as_array().is_some_and(|both| both.iter().any(|fields| fields.get(name).is_some()));
        let copy = Changed::block_head().with(fields.clone()).with(more.clone());
        let own = |name: &str| is_own(name) || ["architectures", "block_size", "tie_word_embeddings"].contains(&name);
        block(&copy.nest("transformer_layer_config", |name| !own(name)))
    };
    assert_eq!(speculator(json!({})).map(|head| head.features.at), Ok(vec![1, 2]));
    check_refused(speculator(json!({"new_setting": 2})), "new_setting = 2");
}

#[test]
fn parts_of_the_target_in_a_block_head_are_skipped() {
    let with = |name: &str| {
        let copy = Changed::block_head();
        block(&copy.with_tensors(|tensors| drop(tensors.insert(name.into(), (Dtype::F32, vec![1], vec![0; 4])))))
    };
    assert!(with("verifier_norm.weight").is_ok() && with("verifier_lm_head.weight").is_ok());
    check_refused(with("another_norm.weight"), "another_norm.weight");
}

#[test]
fn the_layer_of_an_eagle_head_has_the_window_that_its_config_gives_it() {
    for name in ["models/tiny/eagle2", "models/tiny/eagle3"] {
        let window = |fields: Value| {
            let head = Changed::of(name).with(json!({"sliding_window": 7})).with(fields);
            recurrent(TINY, &head).map(|head| head.layer.attention.window())
        };
        assert_eq!(window(json!({"layer_types": ["sliding_attention"]})), Ok(Some(7)));
        assert_eq!(window(json!({"layer_types": ["sliding_attention"], "use_sliding_window": false})), Ok(None));
        assert_eq!(window(json!({"layer_types": ["full_attention"]})), Ok(None));
        assert_eq!(window(json!({})), Ok(None));
        // Settings of a target.
        assert_eq!(window(json!({"layer_types": ["sliding_attention", "full_attention"]})), Ok(None));
        check_refused(window(json!({"layer_types": ["linear_attention"]})), "a layer of type linear_attention");
        let missing = json!({"layer_types": ["sliding_attention"], "sliding_window": null});
        check_refused(window(missing), "sliding_window is missing");
    }
}

#[test]
fn the_tensor_decides_about_the_bias_of_an_eagle_head() {
    let join = |bias: Value, keep: bool| {
        let head = Changed::of("models/tiny/eagle2").with(json!({"bias": bias}));
        recurrent(TINY, &head.with_tensors(|tensors| tensors.retain(|name, _| keep || name != "fc.bias")))
            .map(|head| head.join)
    };
    assert_eq!(join(json!(null), false), Ok(Join::Linear { bias: false }));
    assert_eq!(join(json!(null), true), Ok(Join::Linear { bias: true }));
    assert_eq!(join(json!(false), true), Ok(Join::Linear { bias: true }));
    assert_eq!(join(json!(true), false), Ok(Join::Linear { bias: true }), "so that the missing tensor is an error");
}

#[test]
fn quantisation_that_a_head_copies_from_its_target_is_ignored() {
    let int4 = json!({"weights": {"num_bits": 4, "type": "int", "strategy": "group", "symmetric": true}});
    for settings in [
        json!({"quant_method": "awq", "bits": 4}),
        json!({"quant_method": "mxfp4"}),
        json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": int4}}),
        json!({"quant_method": "fp8"}),
    ] {
        let fields = json!({"quantization_config": settings});
        let eagle3 = Changed::of("models/tiny/eagle3");
        assert_eq!(read(TINY, &Changed::of("models/tiny/eagle3").with(fields.clone())), read(TINY, &eagle3));
        let own = json!({"mask_token_id": 3, "target_layer_ids": [0, 1]});
        assert_eq!(head(fields.clone(), own.clone()), head(json!({}), own));
        let mtp = read(QWEN3_5, &Changed::of(QWEN3_5).with(fields));
        assert!(mtp.is_ok(), "{settings}: {mtp:?}");
    }
    let packed = Changed::of("models/tiny/eagle3").with(json!({"quantization_config": {"quant_method": "awq"}}));
    let packed = packed.with_tensors(|tensors| {
        let bytes = vec![0; 4 * 128 * 48];
        tensors.remove("fc.weight");
        tensors.insert("fc.qweight".into(), (Dtype::I32, vec![128, 48], bytes));
    });
    check_refused(read(TINY, &packed), "quant_method = awq");
    let bytes = Changed::of("models/tiny/eagle3").with(json!({"quantization_config": {"quant_method": "gptq"}}));
    let bytes = bytes.with_tensors(|tensors| {
        let (dtype, _, values) = tensors.get_mut("fc.weight").expect("a tensor");
        *dtype = Dtype::U8;
        values.truncate(values.len() / 2);
    });
    check_refused(read(TINY, &bytes), "quant_method = gptq");
}

#[test]
fn an_mtp_layer_may_have_a_class_that_no_target_has() {
    let only = |class: &str| {
        let copy = Changed::of(QWEN3_5).with(json!({"architectures": [class]}));
        copy.with_tensors(|tensors| tensors.retain(|name, _| name.starts_with("mtp.")))
    };
    let expected = recurrent(QWEN3_5, &Changed::of(QWEN3_5)).expect("the layer of the target");
    for class in ["Qwen3_5MTP", "Qwen3_5ForCausalLMMTP", "Another"] {
        assert_eq!(recurrent(QWEN3_5, &only(class)).as_ref(), Ok(&expected), "{class}");
    }
    assert_eq!(expected.features, Features::Final);
    let mimo = "tests/data/families/mimo";
    let converted = Changed::of(mimo).with(json!({"speculators_model_type": "mtp"}));
    check_refused(read(mimo, &converted), "speculators_model_type = mtp");
    assert!(read(mimo, &Changed::of(mimo)).is_ok());
}
