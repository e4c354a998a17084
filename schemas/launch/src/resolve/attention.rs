//! The attention backend and the size of a KV page.

use schemas::{flags::Key, model::ModelConfig, version::EngineVersion};

use super::{Decided, Given, Origin, Resolved};

const SOURCE: &str = "sglang get_default_attn_backend";

const V0_4_10: EngineVersion = EngineVersion::new(0, 4, 10);
const V0_5_2: EngineVersion = EngineVersion::new(0, 5, 2);
/// From here on the backend is chosen before the tree shape, so that an automatic topk does not
/// count.
const V0_5_6: EngineVersion = EngineVersion::new(0, 5, 6);
/// From here on any architecture may get fa3 on Hopper.
const V0_5_9: EngineVersion = EngineVersion::new(0, 5, 9);
const V0_5_15: EngineVersion = EngineVersion::new(0, 5, 15);

/// Architectures that get fa3 on Hopper before 0.5.9, each with the first version that has it in
/// the list (`utils.py`, `is_fa3_default_architecture`).
const FA3_ARCHITECTURES: &[(&str, EngineVersion)] = &[
    ("Gemma2ForCausalLM", EngineVersion::new(0, 0, 0)),
    ("Gemma3ForConditionalGeneration", EngineVersion::new(0, 0, 0)),
    ("Glm4MoeForCausalLM", V0_4_10),
    ("Glm4vMoeForConditionalGeneration", V0_5_2),
    ("Llama4ForConditionalGeneration", EngineVersion::new(0, 0, 0)),
    ("LlamaForCausalLM", EngineVersion::new(0, 0, 0)),
    ("Olmo2ForCausalLM", V0_5_6),
    ("Qwen2ForCausalLM", EngineVersion::new(0, 0, 0)),
    ("Qwen3ForCausalLM", EngineVersion::new(0, 0, 0)),
    ("Qwen3MoeForCausalLM", EngineVersion::new(0, 0, 0)),
    ("Step3VLForConditionalGeneration", V0_5_2),
];

/// Architectures with DeepSeek's sparse attention, which has its own backend and pages of 64
/// tokens.
const SPARSE_ARCHITECTURES: &[&str] = &["DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"];

/// Prefixes of architectures whose backend is chosen by rules that are not modelled here.
const OWN_RULES: &[&str] = &[
    "BailingMoeV2",
    "DeepseekV4",
    "EmbeddingGemma2",
    "Exaone4",
    "FalconH1",
    "Gemma3n",
    "Glm5Next",
    "GraniteMoeHybrid",
    "Inkling",
    "KimiLinear",
    "KimiK3",
    "Lfm2",
    "Llama4",
    "MiMoV2",
    "MiniMax",
    "NemotronH",
    "Qwen3Next",
    "Qwen3_5",
    "Qwen4Exp",
    "Step3p",
    "Whisper",
];

/// Prefixes of architectures with multi-head latent attention, for configs that are only partly
/// known.
const LATENT_ARCHITECTURES: &[&str] = &[
    "BailingMoeV2_5",
    "DeepseekV2",
    "DeepseekV3",
    "Eagle3DeepseekV2",
    "Glm4MoeLite",
    "GlmMoeDsa",
    "KimiK25",
    "KimiVL",
    "LongcatFlash",
    "MiniCPM3",
    "MistralLarge3",
];

/// The generation of a GPU, inferred from its memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Generation {
    Older,
    Hopper,
    Blackwell,
}

/// Whether a model uses multi-head latent attention, according to its config or its class.
pub fn uses_mla(config: &ModelConfig) -> bool {
    let class = config.architecture().unwrap_or_default();
    config.is_mla() || LATENT_ARCHITECTURES.iter().any(|known| class.starts_with(known))
}

pub(super) fn backend(given: &Given<'_>, resolved: &Resolved) -> Option<Decided<String>> {
    let launch = given.launch;
    for key in [Key::DecodeAttentionBackend, Key::AttentionBackend] {
        if launch.has(key) {
            let written = launch.text(key)?;
            let fp8_e5m2 = launch.text(Key::KvCacheDtype).is_some_and(|dtype| dtype.value == "fp8_e5m2");
            if written.value == "fa3" && fp8_e5m2 {
                let reason = "fa3 reads fp8_e4m3 only";
                return Some(Decided::forced(
                    "triton".into(),
                    Some(written.span),
                    reason,
                    "sglang arg_groups/overrides.py",
                ));
            }
            return Some(Decided { value: written.value.to_owned(), origin: Origin::Written(written.span) });
        }
    }
    // The defaults below are those of NVIDIA's GPUs.
    if launch.text(Key::Device).is_some_and(|device| !device.value.starts_with("cuda") && device.value != "auto") {
        return None;
    }
    let config = &given.target?.config;
    let class = config.architecture()?;
    let (generation, on) = generation(given.gpu_memory);
    let default = |name: &str, why: &str| Some(Decided::default(name.to_owned(), format!("{why}, {on}"), SOURCE));
    if SPARSE_ARCHITECTURES.contains(&class) && given.version >= V0_5_6 {
        let name = if given.version >= V0_5_15 { "dsa" } else { "nsa" };
        return default(name, "the model's attention is sparse");
    }
    if class == "GptOssForCausalLM" && given.version >= V0_5_2 {
        return match generation {
            Generation::Hopper => default("fa3", "for gpt-oss"),
            Generation::Blackwell => default("trtllm_mha", "for gpt-oss"),
            Generation::Older => default("triton", "for gpt-oss"),
        };
    }
    if OWN_RULES.iter().any(|known| class.starts_with(known)) && given.version >= V0_5_6 {
        return None;
    }
    if uses_mla(config) {
        return match generation {
            Generation::Hopper => default("fa3", "for latent attention"),
            Generation::Blackwell => default("flashinfer", "for latent attention"),
            Generation::Older => default("triton", "for latent attention"),
        };
    }
    let topk = topk_at_choice(given, resolved)?;
    let page = launch.count(Key::PageSize).map(|page| page.value);
    let chain = topk.is_none_or(|topk| topk == 1 && page.is_none_or(|page| page == 1));
    let listed = FA3_ARCHITECTURES.iter().any(|(name, since)| *name == class && *since <= given.version);
    if generation == Generation::Hopper && chain && (listed || given.version >= V0_5_9) {
        return default("fa3", "for a chain or no speculation");
    }
    // A topk that the engine itself derives is set only after it has chosen the backend.
    let explicit = !resolved.speculative || topk.is_some();
    if generation == Generation::Blackwell && chain && explicit && given.version >= V0_5_9 {
        return default("trtllm_mha", "for an explicit chain or no speculation");
    }
    if chain {
        default("flashinfer", "for this model")
    } else {
        default("flashinfer", "for topk above 1, or pages above 1")
    }
}

/// The topk when the engine chooses the backend: `Some(None)` if it is not set yet, `None` if it is
/// not known.
fn topk_at_choice(given: &Given<'_>, resolved: &Resolved) -> Option<Option<usize>> {
    if !resolved.speculative {
        return Some(None);
    }
    if given.version >= V0_5_6 {
        return match given.launch.setting(Key::SpeculativeEagleTopk) {
            None => Some(None),
            Some(_) => given.launch.count(Key::SpeculativeEagleTopk).map(|topk| Some(topk.value)),
        };
    }
    resolved.topk.as_ref().map(|topk| Some(topk.value))
}

fn generation(memory: Option<u64>) -> (Generation, String) {
    match memory {
        None => (Generation::Hopper, "assuming a Hopper GPU".into()),
        Some(memory) if memory < 60 * 1024 => (Generation::Older, format!("a GPU of {memory} MiB is not a Hopper")),
        Some(memory) if memory < 160 * 1024 => {
            (Generation::Hopper, format!("taking a GPU of {memory} MiB for a Hopper"))
        }
        Some(memory) => (Generation::Blackwell, format!("taking a GPU of {memory} MiB for a Blackwell")),
    }
}

pub(super) fn page_size(given: &Given<'_>, resolved: &Resolved) -> Option<Decided<usize>> {
    let launch = given.launch;
    if launch.has(Key::PageSize) && launch.count(Key::PageSize).is_none() {
        return None;
    }
    let written = given.written(Key::PageSize);
    let class = given.target.and_then(|target| target.config.architecture()).unwrap_or_default();
    if SPARSE_ARCHITECTURES.contains(&class) && given.version >= V0_5_6 {
        return Some(snapped(written, 64, &[64], "the model's sparse attention"));
    }
    let mut result = written.clone();
    let backends = [Key::AttentionBackend, Key::DecodeAttentionBackend, Key::PrefillAttentionBackend];
    let mut names: Vec<String> =
        backends.iter().filter_map(|key| launch.text(*key)).map(|name| name.value.to_owned()).collect();
    names.extend(resolved.attention_backend.as_ref().map(|backend| backend.value.clone()));
    for name in names {
        let (pages, fallback): (&[usize], usize) = match name.as_str() {
            "flashmla" => (&[64], 64),
            "cutlass_mla" => (&[128], 128),
            "trtllm_mla" | "cutedsl_mla" => (&[32, 64], 64),
            "trtllm_mha" if given.version >= V0_5_15 => (&[16, 32, 64, 128], 64),
            "trtllm_mha" => (&[16, 32, 64], 64),
            _ => continue,
        };
        result = Some(snapped(result, fallback, pages, &name));
    }
    let architecture_decides = OWN_RULES.iter().any(|known| class.starts_with(known));
    match result {
        Some(page) => Some(page),
        None if architecture_decides => None,
        None => Some(Decided::default(1, "a page is one token by default", "sglang arg_groups/overrides.py")),
    }
}

/// `present` if the backend allows this page size, else `fallback`.
fn snapped(present: Option<Decided<usize>>, fallback: usize, allowed: &[usize], who: &str) -> Decided<usize> {
    let written = match &present {
        Some(page) if allowed.contains(&page.value) => return page.clone(),
        Some(Decided { origin: Origin::Written(span) | Origin::Rewritten { written: span, .. }, .. }) => Some(*span),
        _ => None,
    };
    let reason = format!("{who} works with pages of {} tokens only", list(allowed));
    Decided::forced(fallback, written, reason, "sglang attention backend checks")
}

fn list(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}
