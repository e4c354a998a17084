//! The mode in which layers in FP8 multiply if no option names one, and what GPUs refuse.

use kernels::{
    device::{Device, Element},
    reference::Fp8Rows,
};
use serde_json::Value as Json;

use crate::{
    checkpoint::Tensors,
    description::Described,
    error::EngineError,
    options::EngineOptions,
    quantization::{Fp8Compute, StoredIn, computed, quantised_draft, quantised_target},
    spec::{DraftSpec, LayerSpec, TargetSpec},
};

/// Models whose mode is not known yet.
pub(super) struct Fp8Models<'a> {
    target: &'a mut TargetSpec,
    draft: Option<&'a mut DraftSpec>,
    /// Where the matrices of both are.
    stored: (StoredIn<'a>, StoredIn<'a>),
    /// Whether the engines for which the weights were made quantise activations.
    quantises: bool,
}

impl<'a> Fp8Models<'a> {
    /// Those of a checkpoint.
    pub fn described(models: &'a mut Described, options: &EngineOptions) -> Self {
        let quantises = activations_are_quantised(models.folder.config.quantization_config.as_ref(), options);
        let stored = Tensors::new(&models.weights);
        let (draft, own) = match &mut models.draft {
            Some((spec, own)) => (Some(spec), own.as_ref()),
            None => (None, None),
        };
        let stored = (StoredIn::Checkpoint(stored), StoredIn::Checkpoint(own.map_or(stored, Tensors::new)));
        Self { target: &mut models.spec, draft, stored, quantises }
    }

    /// Those of a published shape with random weights; all published formats quantise activations.
    pub fn random(target: &'a mut TargetSpec, draft: &'a mut DraftSpec) -> Self {
        Self { target, draft: Some(draft), stored: (StoredIn::Nowhere, StoredIn::Nowhere), quantises: true }
    }
}

/// Chooses the mode of models if the options name none, and puts their layers in it. On Hopper GPUs
/// it is the mode of the engines for which the weights were made: products, if they quantise
/// activations. It stays `weights` if some layer cannot have products, and for targets with
/// experts, where products are slower (docs/notes/performance/fp8.md).
pub(super) fn default_mode(
    models: Fp8Models<'_>,
    options: &EngineOptions,
    devices: &[(Device, String)],
    element: Option<Element>,
) -> Fp8Compute {
    if let Some(compute) = options.fp8_compute {
        return compute;
    }
    let is_hopper = |(device, _): &(Device, String)| device.properties().is_hopper();
    let element = element.filter(|_| models.quantises && !devices.is_empty() && devices.iter().all(is_hopper));
    let of_draft = models.draft.as_deref();
    match element.and_then(|element| in_products(models.target, of_draft, models.stored, options, element)) {
        Some((target, draft)) => {
            *models.target = target;
            if let (Some(own), Some(draft)) = (models.draft, draft) {
                *own = draft;
            }
            Fp8Compute::Products
        }
        None => Fp8Compute::Weights,
    }
}

/// Target and draft with products; `None` if a part of them cannot have any, or has experts.
fn in_products(
    target: &TargetSpec,
    draft: Option<&DraftSpec>,
    (stored, of_draft): (StoredIn<'_>, StoredIn<'_>),
    options: &EngineOptions,
    element: Element,
) -> Option<(TargetSpec, Option<DraftSpec>)> {
    let products = Fp8Compute::Products;
    computed(&target.layers)?;
    if target.layers.iter().any(|layer| layer.ffn.experts().is_some()) {
        return None;
    }
    let in_products = || {
        let target = quantised_target(target.clone(), stored, options.quantization, products)?;
        let draft = draft.cloned().map(|draft| quantised_draft(draft, of_draft, options.draft_quantization, products));
        let draft = draft.transpose()?;
        check_products(&target, draft.as_ref(), element)?;
        Ok::<_, EngineError>((target, draft))
    };
    let why_not = |error: &EngineError| tracing::warn!("FP8 weights are multiplied in 16 bits: {error}");
    in_products().inspect_err(why_not).ok()
}

/// Whether SGLang and vLLM quantise the activations that layers in FP8 read: always, except with
/// groups of compressed-tensors that describe weights alone.
fn activations_are_quantised(settings: Option<&Json>, options: &EngineOptions) -> bool {
    let Some(settings) = settings.filter(|value| !value.is_null()) else { return options.quantization.is_some() };
    let groups = settings.get("config_groups").and_then(Json::as_object);
    groups.into_iter().flatten().all(|(_, group)| group.get("input_activations").is_some_and(|value| !value.is_null()))
}

/// On a GPU, quantised weights need 16-bit activations.
pub(super) fn check_quantization(options: &EngineOptions, element: Element) -> Result<(), EngineError> {
    match (options.quantization.or(options.draft_quantization), element) {
        (Some(by), Element::F32) => Err(EngineError::Configuration(format!(
            "--quantization {} on a GPU needs --dtype bfloat16 or float16; for float32 use --device cpu",
            by.name()
        ))),
        _ => Ok(()),
    }
}

/// What a GPU cannot multiply in FP8 is refused by name.
pub(super) fn check_products(
    target: &TargetSpec,
    draft: Option<&DraftSpec>,
    element: Element,
) -> Result<(), EngineError> {
    let layers = || target.layers.iter().chain(draft.into_iter().flat_map(DraftSpec::layers));
    let refused = |what: &str| {
        Err(EngineError::Configuration(format!(
            "--fp8-compute products: {what}: give --fp8-compute weights, or --device cpu"
        )))
    };
    // On a GPU shared experts are computed with the others, as several of their width if they are
    // wider.
    let shared = |layer: &LayerSpec| match (layer.ffn.experts(), layer.formats.ffn_rows) {
        (Some(experts), Some(Fp8Rows::Tensor)) => experts.shared.is_some(),
        (Some(experts), Some(Fp8Rows::Row)) => experts.shared.is_some_and(|shared| shared > experts.intermediate),
        _ => false,
    };
    if layers().any(shared) {
        return refused("a GPU has no static scales of shared experts, and no scale of a row of several of them");
    }
    let multiplies = layers().any(|layer| layer.formats.attention_rows.or(layer.formats.ffn_rows).is_some());
    if multiplies && element == Element::F32 {
        return refused("a GPU needs --dtype bfloat16 or float16 for them");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;
    use crate::description::describe;

    fn family(name: &str) -> EngineOptions {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/families").join(name);
        EngineOptions { model_path: folder, ..EngineOptions::default() }
    }

    /// The mode of a checkpoint's target with products where they are possible.
    fn mode(name: &str) -> Option<Fp8Compute> {
        let options = family(name);
        let models = describe(&options).expect("a checkpoint");
        let stored = StoredIn::Checkpoint(Tensors::new(&models.weights));
        let made = in_products(&models.spec, None, (stored, stored), &options, Element::BF16);
        made.and_then(|(target, _)| computed(&target.layers))
    }

    #[test]
    fn checkpoint_in_fp8_can_have_products_and_one_in_16_bits_cannot() {
        assert_eq!(mode("llama_fp8_blocks"), Some(Fp8Compute::Products));
        assert_eq!(mode("qwen3_5"), None);
        assert_eq!(mode("qwen3_5_moe"), None);
    }

    #[test]
    fn device_that_does_not_multiply_in_fp8_keeps_weights_and_a_given_mode_stays() {
        let options = family("llama_fp8_blocks");
        let mut models = describe(&options).expect("a checkpoint");
        assert_eq!(default_mode(Fp8Models::described(&mut models, &options), &options, &[], None), Fp8Compute::Weights);
        let given = EngineOptions { fp8_compute: Some(Fp8Compute::Products), ..options };
        assert_eq!(default_mode(Fp8Models::described(&mut models, &given), &given, &[], None), Fp8Compute::Products);
    }

    #[test]
    fn activations_are_quantised_unless_groups_describe_weights_alone() {
        let plain = EngineOptions::default();
        let quantised = |settings: &Json| activations_are_quantised(Some(settings), &plain);
        assert!(quantised(&json!({"quant_method": "fp8", "activation_scheme": "dynamic"})));
        assert!(quantised(&json!({"quant_method": "modelopt", "quant_algo": "FP8"})));
        let group = |inputs: Json| json!({"config_groups": {"group_0": {"input_activations": inputs}}});
        assert!(quantised(&group(json!({"dynamic": true, "num_bits": 8}))));
        assert!(!quantised(&group(Json::Null)));
        assert!(!activations_are_quantised(None, &plain));
    }
}
