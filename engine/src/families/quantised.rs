//! The quantisation settings in config.json: supported methods, and unsupported ones, which are
//! rejected by name.
//!
//! The methods' names and fields are those of transformers' and SGLang's loaders. The tensors show
//! which matrices are quantised, so lists of excluded modules (`modules_to_not_convert`, `ignore`)
//! are not needed.

use serde_json::{Map, Value as Json};

use super::Config;
use crate::{
    checkpoint::{is_input_scale, is_unused_scale},
    error::EngineError,
    spec::DraftSpec,
};

/// Side length of the blocks that share a scale.
const BLOCK: u64 = 128;

const READ: &str = "the supported quantised format is FP8 (e4m3) with scales per block of 128 × 128, per row or per tensor, and for the experts of gpt-oss MXFP4: use such a release, or the 16-bit release (--quantization fp8 quantises it at load time)";

/// Refuses unsupported quantised weights, and a config.json that declares quantisation which the
/// tensors do not have.
///
/// # Errors
/// An error with the method, its file and its key.
pub fn check(config: &Config<'_>) -> Result<(), EngineError> {
    check_method(config)?;
    check_stored(config)
}

/// Checks what config.json declares about a draft that has been read. It is often copied from the
/// target's, so tensors that are stored plainly make it a warning.
///
/// # Errors
/// The error of reading the draft; or, where a tensor is missing or packed, that of the declared
/// method.
pub fn check_draft(
    config: &Config<'_>,
    draft: Result<DraftSpec, EngineError>,
    vocabulary: usize,
) -> Result<DraftSpec, EngineError> {
    let declared = check_method(config);
    let is_plain = |draft: &DraftSpec| {
        let tensors = draft.tensors(vocabulary);
        tensors.iter().filter(|tensor| tensor.shape.len() > 1).all(|tensor| config.tensors.is_plain(&tensor.name))
    };
    match (declared, draft) {
        (Err(declared), Ok(draft)) if is_plain(&draft) => {
            tracing::warn!("{declared}: ignored, since the tensors of the draft are not stored so");
            Ok(draft)
        }
        (Err(declared), Ok(_)) => Err(declared),
        (Err(declared), Err(_)) if config.tensors.all().any(is_packed) => Err(declared),
        (_, draft) => draft,
    }
}

/// Whether a tensor is part of a quantised matrix in a format that is not supported.
fn is_packed(name: &str) -> bool {
    [".qweight", ".weight_packed", ".weight_scale_2", "_blocks"].iter().any(|end| name.ends_with(end))
}

/// Refuses unsupported quantised weights.
fn check_method(config: &Config<'_>) -> Result<(), EngineError> {
    check_file_next_to(config)?;
    let Some(settings) = settings(config) else { return Ok(()) };
    let refused = |key: &str, value: &Json| {
        let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        config.unsupported(format!("quantization_config.{key} = {value} in config.json"), READ)
    };
    let method = settings.get("quant_method").unwrap_or(&Json::Null);
    match method.as_str() {
        Some("fp8" | "fbgemm_fp8") => check_blocks(settings, &refused)?,
        Some("mxfp4") if config.fields().architecture() == Some("GptOssForCausalLM") => {}
        Some("compressed-tensors") if has_no_groups(settings) => {}
        Some("compressed-tensors") => check_groups(settings, &refused)?,
        Some("modelopt" | "modelopt_fp8") => match algorithm(settings) {
            None => {}
            Some(algorithm) if algorithm.as_str().is_some_and(|name| name.eq_ignore_ascii_case("fp8")) => {}
            Some(other) => return Err(refused("quant_algo", other)),
        },
        _ => return Err(refused("quant_method", method)),
    }
    Ok(())
}

/// `quantization_config`, unless it is empty.
fn settings<'a>(config: &Config<'a>) -> Option<&'a Json> {
    let settings = config.fields().quantization_config.as_ref();
    settings.filter(|value| !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty()))
}

/// Whether compressed-tensors names no group of layers, so that weights are plain: the cache alone
/// is quantised.
fn has_no_groups(settings: &Json) -> bool {
    let groups = settings.get("config_groups").and_then(Json::as_object);
    settings.get("format").and_then(Json::as_str) == Some("dense") && groups.is_none_or(Map::is_empty)
}

/// ModelOpt's name of the format of weights, in either place; `None` if they are not quantised, as
/// where only the cache is.
fn algorithm(settings: &Json) -> Option<&Json> {
    let places = [settings.get("quant_algo"), settings.pointer("/quantization/quant_algo")];
    places.into_iter().flatten().find(|algorithm| !algorithm.is_null())
}

/// Warns about settings of a quantised checkpoint that are ignored.
pub fn warn(config: &Config<'_>) {
    let unused = config.tensors.all().find(|name| is_unused_scale(name) && !is_input_scale(name));
    if let Some(name) = unused {
        tracing::warn!(
            "{}: scales of caches and bounds of scales are ignored ({name} and others): caches keep the compute dtype",
            config.folder().path().display()
        );
    }
}

/// `fp8` as written by transformers and DeepSeek.
fn check_blocks(settings: &Json, refused: &dyn Fn(&str, &Json) -> EngineError) -> Result<(), EngineError> {
    if let Some(format) = settings.get("fmt").filter(|format| !format.is_null() && format.as_str() != Some("e4m3")) {
        return Err(refused("fmt", format));
    }
    match settings.get("weight_block_size").filter(|size| !size.is_null()) {
        Some(size) if size.as_array().is_none_or(|sides| sides.iter().any(|side| side.as_u64() != Some(BLOCK))) => {
            Err(refused("weight_block_size", size))
        }
        _ => Ok(()),
    }
}

/// compressed-tensors: each group of layers must have 8-bit floating-point weights.
fn check_groups(settings: &Json, refused: &dyn Fn(&str, &Json) -> EngineError) -> Result<(), EngineError> {
    let format = settings.get("format").unwrap_or(&Json::Null);
    if !matches!(format, Json::Null) && !matches!(format.as_str(), Some("float-quantized" | "naive-quantized")) {
        return Err(refused("format", format));
    }
    check_transforms(settings, refused)?;
    for (name, group) in settings.get("config_groups").and_then(Json::as_object).into_iter().flatten() {
        let key = |of: &str| format!("config_groups.{name}.weights.{of}");
        let weights = group.get("weights").unwrap_or(&Json::Null);
        let field = |of: &str| weights.get(of).unwrap_or(&Json::Null);
        if field("num_bits").as_u64() != Some(8) {
            return Err(refused(&key("num_bits"), field("num_bits")));
        }
        if field("type").as_str() != Some("float") {
            return Err(refused(&key("type"), field("type")));
        }
        if !matches!(field("strategy").as_str(), Some("tensor" | "channel" | "block")) {
            return Err(refused(&key("strategy"), field("strategy")));
        }
        if field("symmetric").as_bool() == Some(false) {
            return Err(refused(&key("symmetric"), field("symmetric")));
        }
    }
    Ok(())
}

/// Rotations of weights are part of the stored weights; those of activations happen while the model
/// runs, which is not implemented.
fn check_transforms(settings: &Json, refused: &dyn Fn(&str, &Json) -> EngineError) -> Result<(), EngineError> {
    let groups = settings.pointer("/transform_config/config_groups").and_then(Json::as_object);
    for (name, group) in groups.into_iter().flatten() {
        for applied in group.get("apply").and_then(Json::as_array).into_iter().flatten() {
            let location = applied.get("location").unwrap_or(&Json::Null);
            if !location.as_str().is_some_and(|location| location.starts_with("weight_")) {
                return Err(refused(&format!("transform_config.config_groups.{name}.apply.location"), location));
            }
        }
    }
    Ok(())
}

/// hf_quant_config.json, which modelopt writes next to config.json.
fn check_file_next_to(config: &Config<'_>) -> Result<(), EngineError> {
    const NAME: &str = "hf_quant_config.json";
    let Some(text) = config.folder().optional(NAME)? else { return Ok(()) };
    let path = config.folder().path().join(NAME);
    let json: Json = serde_json::from_str(&text)
        .map_err(|error| EngineError::Malformed { path: path.clone(), reason: error.to_string() })?;
    match json.pointer("/quantization/quant_algo").and_then(Json::as_str) {
        Some(algorithm) if !algorithm.eq_ignore_ascii_case("fp8") => Err(EngineError::Unsupported {
            path,
            feature: format!("quantization.quant_algo = {algorithm}"),
            hint: READ.into(),
        }),
        _ => Ok(()),
    }
}

/// Refuses a config.json that declares quantised weights while no tensor is quantised.
fn check_stored(config: &Config<'_>) -> Result<(), EngineError> {
    let settings = settings(config);
    let says_plain = |settings: &Json| {
        let method = settings.get("quant_method").and_then(Json::as_str);
        if method == Some("compressed-tensors") {
            return has_no_groups(settings);
        }
        let states = ["/quant_algo", "/quantization/quant_algo"].iter().any(|at| settings.pointer(at).is_some());
        method.is_some_and(|method| method.starts_with("modelopt")) && states && algorithm(settings).is_none()
    };
    if settings.is_none_or(says_plain) || config.tensors.has_fp8() || config.tensors.has_mxfp4() {
        return Ok(());
    }
    Err(config.malformed(
        "quantization_config declares quantised weights, but no tensor in this folder is FP8 (F8_E4M3) or MXFP4: remove it, \
         or use the quantised tensors"
            .into(),
    ))
}
