//! The attention backend and the size of a KV page.

use std::sync::OnceLock;

use schemas::{flags::Key, model::ModelConfig, version::EngineVersion};

use super::{Decided, Given, Origin, Resolved};

const SOURCE: &str = "sglang get_default_attn_backend";

const V0_5_1: EngineVersion = EngineVersion::new(0, 5, 1);
/// From here on the backend is chosen before the tree shape, so that an automatic topk does not
/// count.
const V0_5_6: EngineVersion = EngineVersion::new(0, 5, 6);
const V0_5_15: EngineVersion = EngineVersion::new(0, 5, 15);

/// What SGLang chooses by itself, for which class or except with which flag, and in which versions:
/// generated from wheels by `scripts/read_attention.py`. A version that was not read counts as the
/// one read before it.
struct Choice {
    chosen: &'static str,
    of: &'static str,
    since: EngineVersion,
    until: Option<EngineVersion>,
}

fn choices() -> &'static [Choice] {
    static TABLE: OnceLock<Vec<Choice>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let row = |line: &'static str| {
            let mut columns = line.split('\t');
            let (chosen, of, since) = (columns.next()?, columns.next()?, columns.next()?.parse().ok()?);
            Some(Choice { chosen, of, since, until: columns.next()?.parse().ok() })
        };
        include_str!("fa3_classes.tsv").lines().filter_map(row).collect()
    })
}

/// Whether a version chooses this for this class, or except with this flag.
fn chooses(chosen: &str, of: &str, version: EngineVersion) -> bool {
    let is_row = |row: &&Choice| row.chosen == chosen && (row.of == of || row.of == "*");
    let holds = |row: &Choice| row.since <= version && row.until.is_none_or(|until| version < until);
    choices().iter().filter(is_row).any(holds)
}

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
    if class == "GptOssForCausalLM" && given.version >= V0_5_1 {
        return match generation {
            Generation::Hopper => default("fa3", "for gpt-oss"),
            Generation::Blackwell => default("trtllm_mha", "for gpt-oss"),
            Generation::Older => default("triton", "for gpt-oss"),
        };
    }
    if OWN_RULES.iter().any(|known| class.starts_with(known)) && given.version >= V0_5_6 {
        return None;
    }
    let is_without_fa3 =
        launch.has(Key::EnableHierarchicalCache) && chooses("fa3-not-by", "enable-hierarchical-cache", given.version);
    if uses_mla(config) {
        return match generation {
            Generation::Hopper if !is_without_fa3 => default("fa3", "for latent attention"),
            Generation::Blackwell => default("flashinfer", "for latent attention"),
            Generation::Hopper | Generation::Older => default("triton", "for latent attention"),
        };
    }
    let topk = topk_at_choice(given, resolved)?;
    let page = launch.count(Key::PageSize).map(|page| page.value);
    let chain = topk.is_none_or(|topk| topk == 1 && page.is_none_or(|page| page == 1));
    let listed = chooses("fa3", class, given.version) && !is_without_fa3;
    if generation == Generation::Hopper && chain && listed {
        return default("fa3", "for a chain or no speculation");
    }
    // A topk that the engine itself derives is set only after it has chosen the backend.
    let explicit = !resolved.speculative || topk.is_some();
    if generation == Generation::Blackwell && chain && explicit && chooses("trtllm_mha", class, given.version) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_read() {
        let rows = include_str!("fa3_classes.tsv").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(choices().len(), rows.clone().count());
        for line in rows {
            let until = line.split('\t').nth(3).expect("four columns");
            let read = choices().iter().filter(|row| line.contains(row.of) && line.contains(row.chosen));
            assert!(read.into_iter().any(|row| row.until.is_none() == (until == "-")), "{line}");
        }
    }

    #[test]
    fn classes_get_fa3_in_the_versions_that_list_them() {
        let check = |class: &str, version: &str, expected: bool| {
            let version = version.parse().expect("a version");
            assert_eq!(chooses("fa3", class, version), expected, "{class} {version}");
        };
        for (class, before, first) in [
            ("Glm4MoeForCausalLM", "0.4.9.post4", "0.4.9.post5"),
            ("Glm4vMoeForConditionalGeneration", "0.4.10.post2", "0.5.1"),
            ("Olmo2ForCausalLM", "0.5.3.post3", "0.5.4"),
            ("Qwen3VLForConditionalGeneration", "0.5.6", "0.5.6.post2"),
            ("MixtralForCausalLM", "0.5.7", "0.5.8"),
        ] {
            check(class, before, false);
            check(class, first, true);
            check(class, "0.5.23", true);
        }
    }
}
