//! What readers of drafts refuse instead of ignoring it, and what they ignore.

use safetensors::Dtype;
use serde_json::{Value, json};

use super::{super::*, QWEN3_5, TINY, block, check_refused, head, recurrent};
use crate::warnings::warned;
use crate::{checkpoint::Changed, families::read_target, spec::Features};

const EAGLE2: &str = "models/tiny/eagle2";
const EAGLE3: &str = "models/tiny/eagle3";

/// The draft with one more tensor.
fn with(draft: &str, name: &str) -> Changed {
    Changed::from_checkpoint(draft)
        .with_tensors(|tensors| drop(tensors.insert(name.into(), (Dtype::F32, vec![1], vec![0; 4]))))
}

fn family(name: &str) -> String {
    format!("tests/data/families/{name}")
}

#[test]
fn tensors_that_an_eagle_head_does_not_read_are_refused() {
    for (draft, names) in [
        (
            EAGLE3,
            &[
                "midlayer.self_attn.sinks",
                "midlayer.self_attn.attention_sink_bias",
                "midlayer.self_attn.gate_proj.weight",
                "midlayer.pre_feedforward_layernorm.weight",
                "midlayer.hidden_norm.bias",
                "fc2.weight",
                "embed_norm.weight",
                "norm.bias",
                "lm_head.bias",
            ][..],
        ),
        (EAGLE2, &["norm.weight", "model.embed_layernorm.weight", "enorm.weight", "hnorm.weight"]),
    ] {
        for name in names {
            check_refused(recurrent(TINY, &with(draft, name)), name.strip_prefix("model.").unwrap_or(name));
        }
    }
}

#[test]
fn tensors_of_published_eagle_heads_without_a_meaning_are_skipped() {
    for (draft, names) in [
        (
            EAGLE3,
            &[
                "midlayer.self_attn.rotary_emb.inv_freq",
                "midlayer.self_attn.k_proj.k_scale",
                "verifier_norm.weight",
                "verifier_lm_head.weight",
                "parallel_draft_heads.medusa_heads.0.0.linear.weight",
            ][..],
        ),
        (
            EAGLE2,
            &[
                "layers.0.self_attn.rotary_emb.inv_freq",
                "layers.0.input_layernorm.weight",
                "model.layers.0.input_layernorm.weight",
                "embed_tokens.weight",
                "model.embed_tokens.weight",
                "lm_head.weight",
            ],
        ),
    ] {
        let plain = recurrent(TINY, &Changed::from_checkpoint(draft));
        assert!(plain.is_ok());
        for name in names {
            assert_eq!(recurrent(TINY, &with(draft, name)), plain, "{name}");
        }
    }
    // vLLM skips the projection of a head that reads the final state.
    let fields = json!({"eagle_config": {"use_aux_hidden_state": false}});
    let head = recurrent(TINY, &Changed::from_checkpoint(EAGLE3).with(fields)).expect("a head");
    assert_eq!(head.features, Features::Final);
}

#[test]
fn tensors_that_an_mtp_layer_does_not_read_are_refused() {
    let own = |checkpoint: &Changed| {
        let (folder, weights) = checkpoint.open();
        let spec = read_target(&folder, &weights).expect("a target");
        let target = DraftTarget { folder: &folder, spec: &spec };
        read_own_draft(&weights, target, &EngineOptions::default()).map_err(|error| error.to_string())
    };
    for (name, prefix, layer) in [
        ("qwen3_5", "mtp", "mtp.layers.0"),
        ("qwen3_5_moe", "mtp", "mtp.layers.0"),
        ("mimo", "model.mtp_layers.0", "model.mtp_layers.0"),
        ("glm4_moe", "model.layers.4", "model.layers.4"),
        ("deepseek_v3", "model.layers.3", "model.layers.3"),
    ] {
        let target = family(name);
        for more in [&format!("{prefix}.extra_norm.weight"), &format!("{layer}.mlp.extra_proj.weight")] {
            let changed = with(&target, more);
            let plain = more.strip_prefix("model.").unwrap_or(more);
            check_refused(recurrent(&target, &changed), plain);
            check_refused(own(&changed), plain);
        }
        let plain = recurrent(&target, &Changed::from_checkpoint(&target)).expect("an MTP layer");
        for more in ["embed_tokens.weight", "shared_head.head.weight"].map(|copy| format!("{prefix}.{copy}")) {
            let changed = with(&target, &more);
            assert_eq!(recurrent(&target, &changed).as_ref(), Ok(&plain), "{more}");
            assert!(own(&changed).is_ok(), "{more}");
        }
        // The rest of a copy of the target is not the draft's.
        let changed = with(&target, "model.vision.weight");
        assert_eq!(recurrent(&target, &changed).as_ref(), Ok(&plain), "{name}");
    }
}

#[test]
fn settings_that_change_an_eagle_head_are_refused() {
    for draft in [EAGLE2, EAGLE3] {
        let read =
            |name: &str, value: &Value| recurrent(TINY, &Changed::from_checkpoint(draft).with(json!({name: value})));
        let plain = recurrent(TINY, &Changed::from_checkpoint(draft));
        for (name, value, neutral) in [
            ("logit_scale", json!(0.5), json!(1.0)),
            ("final_logit_softcapping", json!(30.0), json!(null)),
            ("attn_logit_softcapping", json!(50.0), json!(0)),
            ("attention_multiplier", json!(0.01), json!(null)),
            ("query_pre_attn_scalar", json!(256), json!(null)),
            ("embedding_multiplier", json!(12), json!(1.0)),
            ("residual_multiplier", json!(0.2), json!(1)),
            ("scale_emb", json!(12), json!(1)),
            ("scale_depth", json!(1.4), json!(1.0)),
            ("clip_qkv", json!(8.0), json!(null)),
            ("rope_interleaved", json!(true), json!(false)),
            ("norm_type", json!("layernorm"), json!("rms_norm")),
            ("rope_is_neox_style", json!(false), json!(true)),
            ("is_neox_style", json!(false), json!(true)),
        ] {
            check_refused(read(name, &value), &format!("{name} = {value}"));
            assert_eq!(read(name, &neutral), plain, "{name}");
        }
        // Sections of a rotation change nothing in text.
        assert_eq!(read("rope_scaling", &json!({"rope_type": "default", "mrope_section": [8, 12, 12]})), plain);
    }
}

#[test]
fn settings_that_an_eagle_head_copies_from_its_target_are_ignored_with_a_warning() {
    let plain = recurrent(TINY, &Changed::from_checkpoint(EAGLE3));
    for (name, value) in [
        ("swiglu_limit", json!(7.0)),
        ("attention_value_scale", json!(0.7)),
        ("attention_chunk_size", json!(8192)),
        ("shared_expert_intermediate_size", json!(512)),
    ] {
        let read = || recurrent(TINY, &Changed::from_checkpoint(EAGLE3).with(json!({name: value})));
        let (found, warnings) = warned(read);
        assert_eq!(found, plain, "{name}");
        assert!(warnings.contains(&format!("{name} = {value}")), "{name}: {warnings}");
    }
}

#[test]
fn a_second_mtp_layer_is_not_dropped_silently() {
    const KEYS: [&str; 2] = ["mtp_num_hidden_layers", "num_nextn_predict_layers"];
    for (target, second) in [
        (QWEN3_5, "mtp.layers.1.input_layernorm.weight"),
        (&family("mimo"), "model.mtp_layers.1.input_layernorm.weight"),
    ] {
        // The settings of a wrapper's text model are nested.
        let stated = |layers: &Value| {
            let state = |fields: &mut Value| {
                let fields = fields.as_object_mut().into_iter();
                fields
                    .for_each(|fields| KEYS.iter().for_each(|key| drop(fields.insert((*key).into(), layers.clone()))));
            };
            let changed = KEYS.iter().fold(with(target, second), |changed, key| changed.with(json!({*key: layers})));
            recurrent(target, &changed.change("text_config", state))
        };
        check_refused(stated(&json!(null)), "2 MTP layers (judging by the tensors");
        check_refused(stated(&json!(2)), "in config.json), one per draft step");
        let (found, warnings) = warned(|| stated(&json!(1)));
        assert_eq!(found, recurrent(target, &Changed::from_checkpoint(target)));
        assert!(warnings.contains("the checkpoint has 2 MTP layers, but num_nextn_predict_layers is 1"), "{warnings}");
    }
}

/// Bytes of a map of tokens.
fn map(offsets: &[i64]) -> (Dtype, Vec<usize>, Vec<u8>) {
    (Dtype::I64, vec![offsets.len()], offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect())
}

#[test]
fn a_map_of_all_tokens_is_applied() {
    let mut offsets = vec![0; 2048];
    let tokens = |offsets: Option<&[i64]>| {
        let whole = Changed::from_checkpoint(EAGLE3).with(json!({"draft_vocab_size": 2048})).with_tensors(|tensors| {
            let (dtype, shape, bytes) = tensors.get_mut("lm_head.weight").expect("a head");
            *shape = vec![2048, 128];
            bytes.resize(2048 * 128 * if *dtype == Dtype::F32 { 4 } else { 2 }, 0);
            tensors.remove("d2t");
            tensors.insert("t2d".into(), (Dtype::BOOL, vec![2048], vec![1; 2048]));
            drop(offsets.map(|offsets| tensors.insert("d2t".into(), map(offsets))));
        });
        recurrent(TINY, &whole).map(|head| head.tokens)
    };
    assert_eq!(tokens(None), Ok(None));
    assert_eq!(tokens(Some(&offsets)), Ok(None));
    (offsets[0], offsets[1]) = (1, -1);
    let expected: Vec<u32> = [1, 0].into_iter().chain(2..2048).collect();
    assert_eq!(tokens(Some(&offsets)), Ok(Some(expected)));

    let block = block(&Changed::block_head().with_tensors(|tensors| {
        tensors.insert("lm_head.weight".into(), (Dtype::F32, vec![64, 32], vec![0; 4 * 64 * 32]));
        tensors.insert("d2t".into(), map(&offsets[..64]));
    }));
    let expected: Vec<u32> = [1, 0].into_iter().chain(2..64).collect();
    assert_eq!(block.map(|head| head.tokens), Ok(Some(expected)));
}

#[test]
fn maps_of_tokens_name_each_token_once_and_agree() {
    let with = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let changed = Changed::from_checkpoint(EAGLE3);
        recurrent(TINY, &changed.with_tensors(|tensors| change(&mut tensors.get_mut(name).expect("a map").2)))
    };
    // The token of row 1 is that of row 0.
    let twice = |bytes: &mut Vec<u8>| {
        let first = i64::from_le_bytes(bytes[..8].try_into().expect("a number"));
        bytes[8..16].copy_from_slice(&(first - 1).to_le_bytes());
    };
    check_refused(with("d2t", &twice), "another token of the draft too");
    let at = |bytes: &[u8], value: u8| bytes.iter().position(|byte| *byte == value).expect("a mark");
    let removed = |bytes: &mut Vec<u8>| {
        let at = at(bytes, 1);
        bytes[at] = 0;
    };
    check_refused(with("t2d", &removed), "but t2d does not mark it");
    let added = |bytes: &mut Vec<u8>| {
        let at = at(bytes, 0);
        bytes[at] = 1;
    };
    check_refused(with("t2d", &added), "t2d marks 1025 tokens, but d2t has 1024");
    // Values with which training code creates the map.
    let plain = recurrent(TINY, &Changed::from_checkpoint(EAGLE3));
    for value in [0, 1] {
        assert_eq!(with("t2d", &|bytes| bytes.fill(value)), plain);
    }
}

#[test]
fn a_value_scale_of_a_block_head_is_read_in_both_places() {
    let plain = || json!({"mask_token_id": 3, "target_layer_ids": [0, 1]});
    let outside = head(json!({"attention_value_scale": 0.5}), plain());
    assert_eq!(outside.as_ref().map(|head| head.value_scale), Ok(0.5));
    let nested = json!({"mask_token_id": 3, "target_layer_ids": [0, 1], "attention_value_scale": 0.5});
    assert_eq!(outside, head(json!({}), nested));
}

#[test]
fn captured_layers_out_of_order_are_warned_about() {
    let read = |ids: &[usize]| {
        let (found, warnings) = warned(|| head(json!({}), json!({"mask_token_id": 3, "target_layer_ids": ids})));
        (found.expect("a head").features.at, warnings)
    };
    assert_eq!(read(&[0, 1]), (vec![1, 2], String::new()));
    for (ids, expected) in [([1, 0], [2, 1]), ([1, 1], [2, 2])] {
        let (at, warnings) = read(&ids);
        assert_eq!(at, expected);
        assert!(warnings.contains("target_layer_ids is not in the order of the layers"), "{warnings}");
    }
}
