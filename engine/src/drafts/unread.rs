//! Refuses tensors of a draft that nothing would read: a sign of another kind of head.

use std::collections::BTreeSet;

use crate::{
    checkpoint::{is_unused_scale, scaled_matrix},
    error::EngineError,
    families::Config,
    spec::{DraftSpec, Features, Join, RecurrentSpec, RecurrentTensorLayout, TensorSpec},
};

/// Ends of names that no draft has to read: tables of rotations, maps of tokens (which are not
/// weights), and parts of the target in heads of the speculators library, which vLLM skips too.
const UNUSED: [&str; 5] = ["rotary_emb.inv_freq", "d2t", "t2d", "verifier_norm.weight", "verifier_lm_head.weight"];

/// Copies of the target's embedding and head in a recurrent draft, which SGLang skips too.
const COPIES: [&str; 3] = ["embed_tokens.weight", "lm_head.weight", "shared_head.head.weight"];

/// Beginning of the names of additional heads that ModelOpt trains with an EAGLE head, for tokens
/// after its own.
const ADDITIONAL_HEADS: &str = "parallel_draft";

/// Refuses tensors of a recurrent draft that nothing would read. Of an MTP layer only the tensors
/// under its own prefix are considered: the others may be a whole target.
///
/// # Errors
/// With the first such tensor.
pub fn check_recurrent(config: &Config<'_>, draft: &DraftSpec, vocabulary: usize) -> Result<(), EngineError> {
    let DraftSpec::Recurrent(spec) = draft else { return Ok(()) };
    let words = match spec.join {
        Join::Linear { .. } => "an EAGLE-1/2 head",
        Join::NormedIntoAttention { .. } => "an EAGLE-3 head",
        Join::NormedLinear { .. } => "an MTP layer",
    };
    check(config, words, &spec.tensors(vocabulary).all(), |name| is_unused(spec, name))
}

/// Refuses tensors that are not among those that are `read`, nor scales of these, nor unused in a
/// kind of draft. `words` are what the draft is.
///
/// # Errors
/// With the first such tensor.
pub fn check(
    config: &Config<'_>,
    words: &str,
    read: &[&TensorSpec],
    is_unused: impl Fn(&str) -> bool,
) -> Result<(), EngineError> {
    let plain = |name: &str| name.strip_prefix("model.").unwrap_or(name).to_owned();
    let read: BTreeSet<String> = read.iter().map(|tensor| plain(&tensor.name)).collect();
    let is_known = |name: &str| read.contains(name) || UNUSED.iter().any(|end| name.ends_with(end)) || is_unused(name);
    let is_scale = |name: &str| is_unused_scale(name) || scaled_matrix(name).is_some_and(is_known);
    match config.tensors.all().find(|name| !is_known(name) && !is_scale(name)) {
        None => Ok(()),
        Some(name) => Err(config.unsupported(
            format!("the tensor {name} in {words}"),
            "nothing would read it, so the head is of another kind, or its config.json does not belong to it",
        )),
    }
}

/// Whether a tensor changes nothing in this draft, although published checkpoints may have it.
fn is_unused(spec: &RecurrentSpec, name: &str) -> bool {
    let is_copy =
        COPIES.iter().any(|copy| name.strip_suffix(copy).is_some_and(|rest| matches!(rest, "") || rest.ends_with('.')));
    let of_kind = match &spec.tensors {
        // SGLang drops the norm: the layer reads the output of `fc` as it is.
        RecurrentTensorLayout::Eagle { layer } => *name == format!("{layer}.input_layernorm.weight"),
        // Without captured features engines skip the projection of features.
        RecurrentTensorLayout::Eagle3 { .. } => spec.features == Features::Final && name.starts_with("fc."),
        RecurrentTensorLayout::Mimo { prefix } | RecurrentTensorLayout::NextN { prefix } => {
            !is_under(name, prefix.strip_prefix("model.").unwrap_or(prefix))
        }
        // Further layers are counted where the layer is read.
        RecurrentTensorLayout::QwenMtp => {
            !is_under(name, "mtp") || is_under(name, "mtp.layers") && !is_under(name, "mtp.layers.0")
        }
    };
    is_copy || of_kind || name.starts_with(ADDITIONAL_HEADS)
}

/// Whether a tensor is in a module.
fn is_under(name: &str, module: &str) -> bool {
    name.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'))
}
