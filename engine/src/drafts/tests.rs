mod strict;

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
    let (folder, weights) = Changed::from_checkpoint(target).open();
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

/// The settings of DeepSpec's heads under the name of DFlash: all at the top level.
fn deepspec(more: Value) -> Changed {
    let fields = json!({
        "architectures": ["Qwen3DSparkModel"], "dflash_config": null, "markov_rank": 0, "enable_confidence_head": false,
        "block_size": 7, "mask_token_id": 3, "target_layer_ids": [0, 1], "num_anchors": 512, "num_target_layers": 3,
    });
    Changed::block_head().with(fields).with(more)
}

#[test]
fn a_head_proposes_from_its_first_row_if_it_says_so_whatever_its_tensors() {
    let read = |more: Value| {
        block(&deepspec(more)).map(|head| {
            let drafts = head.block.depth_of(head.block.rows);
            (head.algorithm(), head.block.anchored, head.block.rows, drafts, head.markov.is_some())
        })
    };
    assert_eq!(read(json!({})), Ok(("DSPARK", true, 7, 7, false)));
    assert_eq!(read(json!({"sample_from_anchor": true})), Ok(("DSPARK", true, 7, 7, false)));
    assert_eq!(read(json!({"sample_from_anchor": false})), Ok(("DSPARK", false, 8, 7, false)));
    assert_eq!(read(json!({"dspark_bonus_anchor": true})), Ok(("DSPARK", false, 8, 7, false)));
    let both = |bonus: bool| json!({"dflash_config": {"sample_from_anchor": false}, "dspark_bonus_anchor": bonus});
    assert_eq!(read(both(true)), Ok(("DSPARK", false, 8, 7, false)));
    check_refused(read(both(false)), "sample_from_anchor and dspark_bonus_anchor are equal");
    // The speculators library counts rows, and its first heads had a row for the last token.
    let library = |anchor: Value| {
        json!({
            "architectures": ["DSparkDraftModel"], "speculators_model_type": "dspark", "block_size": 8,
            "sample_from_anchor": anchor, "target_layer_ids": null, "aux_hidden_state_layer_ids": [1, 2],
        })
    };
    assert_eq!(read(library(json!(true))), Ok(("DSPARK", true, 8, 8, false)));
    assert_eq!(read(library(json!(false))), Ok(("DSPARK", false, 8, 7, false)));
    assert_eq!(read(library(json!(null))), Ok(("DSPARK", false, 8, 7, false)));
    // z-lab's class without a statement.
    assert_eq!(read(json!({"architectures": ["DFlashDraftModel"]})), Ok(("DFLASH", false, 7, 6, false)));
}

#[test]
fn a_markov_head_is_read_in_both_published_layouts() {
    const RANK: usize = 4;
    let matrix = |rows: usize| (Dtype::F32, vec![rows, RANK], vec![0; 4 * rows * RANK]);
    let read = |prefix: &str, own: Value| {
        block(&Changed::block_head().with(json!({"dflash_config": own})).with_tensors(|tensors| {
            for name in ["markov_w1", "markov_w2"] {
                tensors.insert(format!("{prefix}{name}.weight"), matrix(64));
            }
        }))
        .map(|head| (head.algorithm(), head.block.anchored, head.markov.map(|markov| markov.rank)))
    };
    // ModelOpt's names and settings.
    let exported = |shifted: bool| {
        json!({
            "mask_token_id": 3, "target_layer_ids": [0, 1], "projector_type": "dspark", "shift_label": shifted,
            "markov_rank": RANK, "markov_head_type": "vanilla", "use_confidence_head": false,
        })
    };
    assert_eq!(read("", exported(true)), Ok(("DSPARK", true, Some(RANK))));
    assert_eq!(read("markov_head.", exported(true)), Ok(("DSPARK", true, Some(RANK))));
    let mut apart = exported(true);
    apart["sample_from_anchor"] = json!(false);
    check_refused(read("", apart), "shift_label is true, but sample_from_anchor is false");
    let dflash = json!({"mask_token_id": 3, "target_layer_ids": [0, 1], "shift_label": true});
    check_refused(head(json!({}), dflash), "shift_label = true");
}

#[test]
fn settings_of_block_heads_are_read_under_every_name_and_unknown_ones_refused_at_the_top_too() {
    let own = || json!({"mask_token_id": 3, "target_layer_ids": [0, 1]});
    let causal = |fields: Value| head(fields, own()).map(|head| head.layers[0].causal);
    assert_eq!(causal(json!({"dflash_query_causal": true})), Ok(true));
    assert_eq!(causal(json!({"dflash_query_causal": true, "is_causal": true})), Ok(true));
    assert_eq!(causal(json!({"dflash_query_causal": false})), Ok(false));
    check_refused(causal(json!({"dflash_query_causal": true, "causal": false})), "causal is false but");
    for name in ["dflash_new", "dspark_draft_scale", "markov_mix", "selector_size", "linear_position_ids"] {
        check_refused(causal(json!({name: 2})), &format!("{name} = 2"));
        assert_eq!(causal(json!({name: 0})), Ok(false), "{name}");
    }
    // Off, and what holds without a setting.
    let nested = |name: &str, value: Value| {
        let mut own = own();
        own[name] = value;
        head(json!({}), own)
    };
    let plain = head(json!({}), own());
    assert_eq!(nested("dflash_query_causal", json!(false)), plain);
    assert_eq!(nested("new_switch", json!(false)), plain);
    assert_eq!(nested("use_aux_hidden_state", json!(true)), plain);
    check_refused(nested("use_aux_hidden_state", json!(false)), "use_aux_hidden_state = false");
    let sections = json!({"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [2, 1, 1]}});
    assert_eq!(head(sections, own()), plain);
    // The embedding.
    let at = head(json!({}), json!({"mask_token_id": 3, "target_layer_ids": [-1, 1]})).map(|head| head.features.at);
    assert_eq!(at, Ok(vec![0, 2]));
}

#[test]
fn layers_that_an_eagle_3_head_reads_are_found_under_every_name() {
    const EAGLE3: &str = "models/tiny/eagle3";
    let changed = |fields: Value| Changed::from_checkpoint(EAGLE3).with(json!({"eagle_config": null})).with(fields);
    let at = |head: &Changed| {
        recurrent(TINY, head).map(|head| match head.features {
            Features::Captured(captured) => captured.at,
            Features::Final => vec![],
        })
    };
    for fields in [
        json!({"target_layer_ids": [0, 2, 6]}),
        json!({"aux_hidden_states_layer_ids": [0, 2, 6]}),
        json!({"aux_hidden_state_layer_ids": [1, 3, 7]}),
        json!({"eagle_aux_hidden_state_layer_ids": [1, 3, 7]}),
        json!({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2, 6]}}),
        json!({"eagle_config": {"target_layer_ids": [0, 2, 6]}}),
        json!({"target_layer_ids": [0, 2, 6], "eagle_aux_hidden_state_layer_ids": [1, 3, 7], "num_aux_hidden_states": 3}),
    ] {
        assert_eq!(at(&changed(fields.clone())), Ok(vec![1, 3, 7]), "{fields}");
    }
    let default = Ok(vec![2, 4, 5]);
    assert_eq!(at(&changed(json!({}))), default);
    assert_eq!(at(&changed(json!({"eagle_config": {"eagle_aux_hidden_state_layer_ids": []}}))), default);
    let apart = json!({"target_layer_ids": [1, 3, 7], "eagle_aux_hidden_state_layer_ids": [1, 3, 7]});
    check_refused(at(&changed(apart)), "name different layers");
    check_refused(at(&changed(json!({"num_aux_hidden_states": 5}))), "num_aux_hidden_states is 5, but 3 layers");
    check_refused(at(&changed(json!({"target_layer_ids": [0, 2, 8]}))), "expected ids of layers from 0 to 7");
    // DeepSpec's heads read five.
    let five = |ids: Value| {
        changed(json!({"architectures": ["Qwen3Eagle3Model"], "target_layer_ids": ids})).with_tensors(|tensors| {
            let (dtype, shape, bytes) = tensors.get_mut("fc.weight").expect("a projection");
            *shape = vec![128, 640];
            bytes.resize(128 * 640 * if *dtype == Dtype::F32 { 4 } else { 2 }, 0);
        })
    };
    assert_eq!(at(&five(json!([0, 1, 3, 4, 6]))), Ok(vec![1, 2, 4, 5, 7]));
    check_refused(at(&five(json!(null))), "fc.weight takes 5 features of width 128, but config.json names 3 layers");
    let sections = json!({"rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}});
    assert_eq!(recurrent(TINY, &changed(sections)), recurrent(TINY, &changed(json!({}))));
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
            let head = Changed::from_checkpoint(name).with(json!({"sliding_window": 7})).with(fields);
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
        let head = Changed::from_checkpoint("models/tiny/eagle2").with(json!({"bias": bias}));
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
        let eagle3 = Changed::from_checkpoint("models/tiny/eagle3");
        assert_eq!(
            read(TINY, &Changed::from_checkpoint("models/tiny/eagle3").with(fields.clone())),
            read(TINY, &eagle3)
        );
        let own = json!({"mask_token_id": 3, "target_layer_ids": [0, 1]});
        assert_eq!(head(fields.clone(), own.clone()), head(json!({}), own));
        let mtp = read(QWEN3_5, &Changed::from_checkpoint(QWEN3_5).with(fields));
        assert!(mtp.is_ok(), "{settings}: {mtp:?}");
    }
    let packed =
        Changed::from_checkpoint("models/tiny/eagle3").with(json!({"quantization_config": {"quant_method": "awq"}}));
    let packed = packed.with_tensors(|tensors| {
        let bytes = vec![0; 4 * 128 * 48];
        tensors.remove("fc.weight");
        tensors.insert("fc.qweight".into(), (Dtype::I32, vec![128, 48], bytes));
    });
    check_refused(read(TINY, &packed), "quant_method = awq");
    let bytes =
        Changed::from_checkpoint("models/tiny/eagle3").with(json!({"quantization_config": {"quant_method": "gptq"}}));
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
        let copy = Changed::from_checkpoint(QWEN3_5).with(json!({"architectures": [class]}));
        copy.with_tensors(|tensors| tensors.retain(|name, _| name.starts_with("mtp.")))
    };
    let expected = recurrent(QWEN3_5, &Changed::from_checkpoint(QWEN3_5)).expect("the layer of the target");
    for class in ["Qwen3_5MTP", "Qwen3_5ForCausalLMMTP", "Another"] {
        assert_eq!(recurrent(QWEN3_5, &only(class)).as_ref(), Ok(&expected), "{class}");
    }
    assert_eq!(expected.features, Features::Final);
    let mimo = "tests/data/families/mimo";
    let converted = Changed::from_checkpoint(mimo).with(json!({"speculators_model_type": "mtp"}));
    check_refused(read(mimo, &converted), "speculators_model_type = mtp");
    assert!(read(mimo, &Changed::from_checkpoint(mimo)).is_ok());
}
