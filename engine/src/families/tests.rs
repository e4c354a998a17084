use kernels::reference::RopeScaling;
use safetensors::Dtype;
use serde_json::{Value, json};

use super::*;
use crate::{
    checkpoint::Changed,
    spec::{AttentionSpec, RopeSpec},
    warnings::warned,
};

fn family_of(name: &str) -> Changed {
    Changed::from_checkpoint(&format!("tests/data/families/{name}"))
}

fn read(checkpoint: &Changed) -> Result<TargetSpec, String> {
    let (folder, weights) = checkpoint.open();
    read_target(&folder, &weights).map_err(|error| error.to_string())
}

/// The rotation of the first layer of a Qwen3 with these fields.
fn rope(fields: Value) -> Result<RopeSpec, String> {
    let target = read(&family_of("qwen3").with(fields))?;
    let AttentionSpec::Grouped(attention) = &target.layers[0].attention else { panic!("grouped attention") };
    Ok(attention.rope)
}

fn yarn(more: Value) -> Result<RopeSpec, String> {
    let mut fields = json!({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 128});
    fields.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    rope(json!({"rope_scaling": fields}))
}

#[test]
fn yarn_next_to_newer_parameters_is_read_and_keeps_their_base() {
    let found = yarn(json!({})).expect("it is read");
    assert_eq!(found.theta, 1e6);
    assert!(matches!(found.scaling, RopeScaling::Yarn { factor: 4.0, original: 128.0, .. }), "{found:?}");
    // Qwen3's 512 positions are four times as many.
    assert_eq!(yarn(json!({"factor": null})), Ok(found));
    assert!(rope(json!({"rope_scaling": {"type": "yarn"}})).is_err_and(|error| error.contains("has no factor")));
}

#[test]
fn the_scale_of_yarn_follows_from_all_of_its_settings() {
    let scale = 0.1 * 4_f32.ln() + 1.0;
    for (fields, expected) in [
        (json!({}), scale),
        (json!({"attn_factor": 0.5}), scale * 0.5),
        (json!({"attention_factor": 0.5, "attn_factor": 1.0}), 0.5),
        (json!({"mscale": 1.0, "mscale_all_dim": 1.0, "attn_factor": 0.5}), 0.5),
        (json!({"mscale": 0.0, "mscale_all_dim": 1.0}), scale),
        (json!({"mscale": 1.0, "mscale_all_dim": 0.0}), scale),
        (json!({"mscale": 1.0, "mscale_all_dim": 0.5}), scale / (0.05 * 4_f32.ln() + 1.0)),
    ] {
        match yarn(fields.clone()).expect("it is read").scaling {
            RopeScaling::Yarn { attention_factor, .. } => {
                assert!((attention_factor - expected).abs() < 1e-6, "{fields}: {attention_factor}, not {expected}");
            }
            other => panic!("{other:?}"),
        }
    }
    let both = yarn(json!({"attention_factor": 0.5, "attn_factor": 0.5}));
    assert!(both.is_err_and(|error| error.contains("engines differ")));
}

#[test]
fn unknown_settings_of_the_rotation_are_refused() {
    for (fields, expected) in [
        (json!({"new_setting": 2}), "new_setting = 2"),
        (json!({"extrapolation_factor": 2}), "extrapolation_factor = 2"),
        (json!({"apply_yarn_scaling": false}), "apply_yarn_scaling = false"),
        (json!({"rope_dim": 4}), "rope_dim = 4"),
    ] {
        let found = yarn(fields.clone());
        assert!(found.as_ref().is_err_and(|error| error.contains(expected)), "{fields}: {found:?}");
    }
    let known = json!({
        "finetuned": true, "extrapolation_factor": 1, "apply_yarn_scaling": true, "rope_dim": 8, "new_setting": null,
        "truncate": true, "other_setting": false,
    });
    assert_eq!(yarn(known), yarn(json!({})));
    let sliding = rope(json!({"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}}));
    assert!(sliding.is_err_and(|error| error.contains("sliding_attention = ")));
}

#[test]
fn the_outer_config_of_a_wrapper_says_whether_the_head_is_tied() {
    let tied = |tied: bool| {
        let wrapper = family_of("qwen3_5").with(json!({"tie_word_embeddings": tied}));
        read(&wrapper).expect("it is read").tied
    };
    assert!(tied(true) && !tied(false));
}

#[test]
fn a_head_that_is_not_the_embedding_it_is_tied_to_is_noticed() {
    let differs = |change: fn(&mut Vec<u8>)| {
        let copy = Changed::from_checkpoint("models/tiny/target").with_tensors(|tensors| {
            let mut head = tensors["model.embed_tokens.weight"].clone();
            change(&mut head.2);
            tensors.insert("lm_head.weight".into(), head);
        });
        let (folder, weights) = copy.open();
        Config::new(&folder, &weights).has_another_head()
    };
    assert!(!differs(|_| ()));
    assert!(differs(|bytes| bytes[1] ^= 1));
    let (folder, weights) = Changed::from_checkpoint("models/tiny/target").open();
    assert!(!Config::new(&folder, &weights).has_another_head());
}

#[test]
fn frequencies_of_older_exports_are_not_read() {
    let with = |name: &str| {
        let copy = Changed::from_checkpoint("models/tiny/target");
        read(&copy.with_tensors(|tensors| drop(tensors.insert(name.into(), (Dtype::F32, vec![2], vec![0; 8])))))
    };
    for name in ["model.layers.3.self_attn.rotary_emb.inv_freq", "model.layers.0.rotary_emb.inv_freq"] {
        assert!(with(name).is_ok(), "{name}");
    }
    assert!(with("model.layers.3.self_attn.frequencies").is_err());
}

#[test]
fn quantisation_that_declares_no_format_of_weights_is_none() {
    let with = |settings: Value| read(&family_of("qwen3").with(json!({"quantization_config": settings})));
    for settings in [
        json!({"quant_method": "modelopt", "quant_algo": null, "kv_cache_scheme": null}),
        json!({"quant_method": "modelopt", "quantization": {"quant_algo": null}}),
    ] {
        assert_eq!(with(settings.clone()).err(), None, "{settings}");
    }
    let fp8 = with(json!({"quant_method": "modelopt", "quant_algo": null, "quantization": {"quant_algo": "FP8"}}));
    assert!(fp8.is_err_and(|error| error.contains("no tensor in this folder is FP8")));
}

#[test]
fn rotations_of_activations_are_refused_and_those_of_weights_are_part_of_them() {
    let weights = json!({"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true});
    let with = |location: &str| {
        let apply = json!([{"targets": ["Linear"], "location": location}]);
        read(&family_of("llama_fp8_rows").with(json!({"quantization_config": {
            "quant_method": "compressed-tensors", "format": "float-quantized",
            "config_groups": {"group_0": {"weights": weights}},
            "transform_config": {"config_groups": {"R1": {"type": "hadamard", "apply": apply}}},
        }})))
    };
    assert_eq!(with("weight_output").err(), None);
    assert!(with("input").is_err_and(|error| error.contains("config_groups.R1.apply.location = input")));
}

#[test]
fn absent_settings_have_the_defaults_of_the_family() {
    let epsilon = |name: &str| {
        let copy = family_of(name).with(json!({"rms_norm_eps": null}));
        read(&copy).expect("it is read").layers[0].epsilon
    };
    assert_eq!((epsilon("glm4_moe"), epsilon("gpt_oss"), epsilon("qwen3")), (1e-5, 1e-5, 1e-6));
    let gpt_oss = read(&family_of("gpt_oss").with(json!({"rope_theta": null, "rope_parameters": null})));
    let AttentionSpec::Grouped(attention) = &gpt_oss.expect("it is read").layers[0].attention else {
        panic!("grouped")
    };
    assert_eq!(attention.rope.theta, 150_000.0);
    let without = |text: &mut Value| {
        let text = text.as_object_mut().expect("an object");
        assert!(text.remove("layer_types").is_some() && text.remove("full_attention_interval").is_some());
    };
    assert_eq!(read(&family_of("qwen3_5").change("text_config", without)), read(&family_of("qwen3_5")));
}

#[test]
fn settings_that_may_change_a_target_are_warned_about_and_known_ones_are_not() {
    let warnings = |name: &str, fields: Value| {
        let (target, warnings) = warned(|| read(&family_of(name).with(fields)));
        assert!(target.is_ok(), "{target:?}");
        warnings
    };
    for name in ["qwen2", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe", "glm4_moe", "mimo", "deepseek_v3", "gpt_oss"]
    {
        assert_eq!(warnings(name, json!({})), "", "{name}");
    }
    for (name, value) in [
        ("residual_scale", json!(0.5)),
        ("logit_softcap", json!(30.0)),
        ("sliding_window_pattern", json!(4)),
        ("key_norm", json!("rms")),
    ] {
        let found = warnings("qwen3", json!({name: value}));
        assert!(found.contains(&format!("are ignored: {name} = {value}")), "{found}");
        assert_eq!(warnings("qwen3", json!({name: null})), "");
    }
    assert_eq!(warnings("qwen3", json!({"residual_scale": 1.0})), "");
    // Qwen2.5-1M.
    let chunks = json!({"dual_chunk_attention_config": {"chunk_size": 256, "original_max_position_embeddings": 256}});
    let found = warnings("qwen2", chunks.clone());
    assert!(found.contains("up to 256 tokens"), "{found}");
    let (folder, _) = family_of("qwen2").with(chunks).open();
    assert_eq!(folder.config.plain_context_length(), 256);
}

#[test]
fn windows_that_no_layer_has_are_none() {
    let window = |fields: Value| {
        let fields = [json!({"use_sliding_window": true, "sliding_window": 16}), fields];
        read(&fields.into_iter().fold(family_of("qwen3"), Changed::with))
    };
    let plain = read(&family_of("qwen3"));
    assert_eq!(window(json!({"max_window_layers": 3, "layer_types": null})), plain);
    let listed = |kind: &str| json!({"layer_types": [kind, kind, kind], "max_window_layers": 0});
    assert_eq!(window(listed("full_attention")), plain);
    for fields in [json!({"max_window_layers": 2, "layer_types": null}), listed("sliding_attention")] {
        assert!(window(fields).is_err_and(|error| error.contains("window 16") && !error.contains("Mistral")));
    }
}

#[test]
fn a_quantised_cache_alone_leaves_plain_weights() {
    let with = |settings: Value| read(&family_of("qwen3").with(json!({"quantization_config": settings})));
    let plain = read(&family_of("qwen3"));
    let cache = json!({"num_bits": 8, "type": "float"});
    let dense =
        json!({"quant_method": "compressed-tensors", "format": "dense", "config_groups": {}, "kv_cache_scheme": cache});
    assert_eq!(with(dense), plain);
    assert_eq!(with(json!({})), plain);
    assert!(with(json!({"quant_method": "compressed-tensors", "format": "int-quantized"})).is_err());
}
