//! Refuses tensors that nothing would read: a sign that the model is not what its config.json says.

use std::collections::BTreeSet;

use super::{Config, Family, MtpFamily};
use crate::{
    checkpoint::{is_unused_scale, scaled_matrix},
    error::EngineError,
    spec::TargetSpec,
};

/// Ends of the names of tensors of layers in some exports that contain no information.
const IGNORED: [&str; 2] = ["rotary_emb.inv_freq", "self_attn.masked_bias"];

/// Refuses tensors of decoder layers, of the final norm, of embedding or head that the spec does
/// not contain. MTP layers belong to the draft, or are unused.
///
/// # Errors
/// An error with the tensor, and what config.json would have to contain.
pub fn check(config: &Config<'_>, family: &Family, spec: &TargetSpec) -> Result<(), EngineError> {
    let tensors = spec.tensors();
    let plain = |name: &str| name.strip_prefix("model.").unwrap_or(name).to_owned();
    let read: BTreeSet<String> = tensors.all().into_iter().map(|tensor| plain(&tensor.name)).collect();
    let layers = spec.layers.len();
    // Scales are read with their matrix. Scales of a matrix in 16 or 32 bits are a sign of an
    // error.
    let is_read = |matrix: &str| read.contains(matrix) && !config.tensors.is_plain(matrix);
    let is_scale = |name: &str| is_unused_scale(name) || scaled_matrix(name).is_some_and(is_read);
    for name in config.tensors.all().filter(|name| !read.contains(*name) && !is_scale(name)) {
        let part = |prefix: &str| name.strip_prefix(prefix);
        let Some((number, rest)) = part("layers.").and_then(|rest| rest.split_once('.')) else {
            if part("norm.").is_some() || part("embed_tokens.").is_some() || part("lm_head.") == Some("bias") {
                return Err(not_read(config, name));
            }
            continue;
        };
        match number.parse::<usize>() {
            Ok(number) if is_mtp(config, family, layers, number) => {}
            Ok(number) if number < layers && IGNORED.iter().any(|end| rest.ends_with(end)) => {}
            Ok(number) if number < layers => return Err(not_read(config, name)),
            _ => {
                return Err(config.malformed(format!(
                    "num_hidden_layers is {layers}, but the checkpoint has one more layer: {name}"
                )));
            }
        }
    }
    Ok(())
}

/// Whether a layer after the last one is an MTP layer: the family stores them there, and
/// config.json announces this many.
fn is_mtp(config: &Config<'_>, family: &Family, layers: usize, number: usize) -> bool {
    let announced = config.fields().mtp_layers().unwrap_or_default();
    let prefix = |mtp: &MtpFamily| (mtp.layout)(number).layer_prefix();
    number.checked_sub(layers).is_some_and(|after| after < announced)
        && family.mtp.as_ref().map(prefix) == Some(TargetSpec::layer_prefix(number))
}

fn not_read(config: &Config<'_>, name: &str) -> EngineError {
    let architecture = config.fields().architecture().unwrap_or_default();
    const QUANTISED: [&str; 8] =
        ["_scale", "_scale_inv", "_scale_2", "qweight", "qzeros", "weight_packed", "_blocks", "_scales"];
    let hint = if QUANTISED.iter().any(|end| name.ends_with(end)) {
        "it belongs to a quantised checkpoint in an unsupported format: use the 16-bit or FP8 release"
    } else {
        "the checkpoint does not match its config.json, or the config.json lacks a setting"
    };
    config.unsupported(format!("the tensor {name}, which {architecture} does not have with these settings"), hint)
}
