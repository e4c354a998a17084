//! Kinds of heads that draft a block, by class, setting and tensor.

use crate::{error::EngineError, families::Config};

/// Whether a folder contains a block head: the features' norm is outside its layers.
pub fn is_block(config: &Config<'_>) -> bool {
    CONTEXT_NORMS.iter().any(|name| config.tensors.has(&format!("{name}.weight")))
}

/// Whether the tensors of a block head are those of DSPARK.
pub fn is_dspark(config: &Config<'_>) -> bool {
    config.tensors.has("markov_head.markov_w1.weight")
}

/// Names of the norm of the features, in the published layouts.
pub const CONTEXT_NORMS: [&str; 2] = ["hidden_norm", "encoder.output_norm_enc"];

/// Heads that are built on a block and draft something else: what identifies each, by class, tensor or setting.
const OTHERS: [(&str, &[&str]); 5] = [
    ("DFlash2", &["dflash2", "candidate_selector.", "attention_conv.", "mlp_conv.", "museglimmerassistant"]),
    ("LiLiCorr", &["lilicorr"]),
    ("Domino", &["domino", "prefix_gru.", "embed_proj."]),
    ("XPress", &["xpress"]),
    ("P-EAGLE", &["peagle", "p_eagle", "mask_hidden"]),
];

/// Refuses heads that would load as another kind and draft something else.
///
/// # Errors
/// With the name of the kind.
pub fn check_kind(config: &Config<'_>) -> Result<(), EngineError> {
    let fields = config.fields();
    let classes = fields.architectures.iter().map(|name| name.to_ascii_lowercase());
    let kind = fields.dflash_config.as_ref().and_then(|dflash| dflash.other.get("projector_type"));
    let kind = kind.or(fields.other.get("projector_type")).and_then(|kind| kind.as_str());
    let kind = kind.or(fields.speculators_model_type.as_deref()).map(str::to_ascii_lowercase);
    let named: Vec<String> = classes.chain(kind).collect();
    for (name, signs) in OTHERS {
        let class = signs.iter().find(|sign| named.iter().any(|class| class.contains(**sign)));
        let tensor = || signs.iter().find_map(|sign| config.tensors.all().find(|tensor| tensor.contains(*sign)));
        let found = match class {
            Some(_) => named.iter().find(|class| signs.iter().any(|sign| class.contains(sign))).map(String::as_str),
            None => tensor(),
        };
        if let Some(found) = found {
            return Err(config.unsupported(
                format!("a {name} head (judging by {found})"),
                "supported block heads: DFLASH and DSPARK; read as one of these it would draft worse",
            ));
        }
    }
    Ok(())
}
