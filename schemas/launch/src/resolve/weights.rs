//! Dtypes, context length and tensor parallelism.

use schemas::{
    engines::Engine,
    flags::Key,
    model::{ModelFacts, normal_dtype},
    text::Located,
};

use super::{Decided, Given, Origin};

const SOURCE: &str = "sglang configs/model_config.py";

pub(super) fn target_dtype(given: &Given<'_>) -> Option<Decided<String>> {
    dtype(given, given.target)
}

/// The draft's dtype follows the same rules as the target's, with the draft's config; `None`
/// without a draft.
pub(super) fn draft_dtype(given: &Given<'_>) -> Option<Decided<String>> {
    if !given.launch.has(Key::SpeculativeDraftModelPath) {
        return None;
    }
    dtype(given, given.draft)
}

fn dtype(given: &Given<'_>, model: Option<&ModelFacts>) -> Option<Decided<String>> {
    let launch = given.launch;
    match launch.text(Key::Dtype) {
        Some(Located { value, span }) if !value.eq_ignore_ascii_case("auto") => {
            let name = normal_dtype(value)?.to_owned();
            return Some(Decided { value: name, origin: Origin::Written(span) });
        }
        None if launch.has(Key::Dtype) => return None,
        _ => {}
    }
    if let Some(switch) = launch.setting(Key::Fp16).filter(|_| launch.engine == Engine::Slime) {
        return Some(Decided { value: "float16".into(), origin: Origin::Written(switch.span) });
    }
    let model = model?;
    let stated = model.config.weights_dtype();
    if stated.is_none() && model.partial {
        return None;
    }
    let default = |name: &str, reason: &str| Some(Decided::default(name.to_owned(), reason, SOURCE));
    let gemma = model.config.model_type.as_deref().is_some_and(|family| family.starts_with("gemma"));
    match stated {
        None if gemma => {
            default("bfloat16", "the config has no dtype, which counts as float32, and Gemma runs in bfloat16 then")
        }
        None => default("float16", "the config has no dtype, which counts as float32, and float32 runs in float16"),
        Some("float32") if gemma => default("bfloat16", "Gemma in float32 runs in bfloat16"),
        Some("float32") => default("float16", "float32 runs in float16 by default"),
        Some(name) => default(name, "as the config says"),
    }
}

pub(super) fn context_length(given: &Given<'_>) -> Option<Decided<usize>> {
    if given.launch.has(Key::ContextLength) {
        return given.written(Key::ContextLength);
    }
    let target = given.target.filter(|target| target.config.states_context_length() || !target.partial)?;
    let length = target.config.derived_context_length();
    Some(Decided::default(length, "derived from the target's config", "sglang hf_transformers/common.py"))
}

/// Tensor-parallel size. slime gives the GPUs of each engine, so there it is their number /
/// pipeline parallelism. `None` if a size is given but not known.
pub(super) fn tp_size(given: &Given<'_>) -> Option<Decided<usize>> {
    if given.launch.engine == Engine::Slime {
        let pipeline = pipeline_stages(given)?;
        return Some(match given.launch.count(Key::RolloutNumGpusPerEngine) {
            Some(gpus) if pipeline == 1 => Decided { value: gpus.value.max(1), origin: Origin::Written(gpus.span) },
            Some(gpus) => Decided::forced(
                (gpus.value / pipeline).max(1),
                Some(gpus.span),
                format!("the engine's GPUs over pipeline parallelism {pipeline}"),
                "slime backends/sglang_utils/arguments.py",
            ),
            None if given.launch.has(Key::RolloutNumGpusPerEngine) => return None,
            None => Decided::default(1, "slime gives an engine one GPU by default", "slime arguments"),
        });
    }
    match given.written(Key::TpSize) {
        Some(size) if size.value > 0 => Some(size),
        None if given.launch.has(Key::TpSize) => None,
        _ => Some(Decided::default(1, "one GPU by default", "sglang server_args")),
    }
}

/// Number of pipeline-parallel stages; `None` if it is given but not known.
pub(super) fn pipeline_stages(given: &Given<'_>) -> Option<usize> {
    match given.launch.count(Key::PpSize) {
        Some(size) => Some(size.value.max(1)),
        None => (!given.launch.has(Key::PpSize)).then_some(1),
    }
}
