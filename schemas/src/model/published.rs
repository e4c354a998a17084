//! Facts about well-known published checkpoints, for launches whose files are not available.
//!
//! They are in `published.json`. Each row names the fields that a public source states, and that
//! source; the other fields are recalled and may be wrong. Rows are partial: a field that a row
//! lacks may be in the real config.json.

use std::sync::OnceLock;

use serde::Deserialize;

use super::{ModelConfig, ModelFacts};

/// One checkpoint.
#[derive(Clone, Debug)]
pub struct Published {
    /// Its id on the hub, as published.
    pub name: String,
    /// Other ids with the same config; their weights may be of another training.
    pub aliases: Vec<String>,
    /// For a draft, the ids of the target whose weights it was trained for, the usual one first.
    pub draft_for: Vec<String>,
    /// Whether its weights are published in PyTorch's pickle format alone, which this engine
    /// refuses.
    pub pickle: bool,
    /// The series of models that it is part of: all of a series have one tokenizer and the same
    /// purpose, so that a small one can draft for a large one.
    pub series: Option<String>,
    /// The fields that are known.
    pub config: ModelConfig,
    /// Names of the fields that a public source states.
    pub stated: Vec<String>,
    /// That source, or a remark that the row is recalled.
    pub source: String,
}

/// All rows.
pub fn published() -> &'static [Published] {
    #[derive(Deserialize)]
    struct PublishedRow {
        name: String,
        #[serde(default)]
        aliases: Vec<String>,
        #[serde(default)]
        draft_for: Vec<String>,
        #[serde(default)]
        pickle: bool,
        #[serde(default)]
        series: Option<String>,
        config: serde_json::Value,
        stated: Vec<String>,
        source: String,
    }
    static ROWS: OnceLock<Vec<Published>> = OnceLock::new();
    ROWS.get_or_init(|| {
        // Bundled with the program, but this crate panics on no input.
        let rows: Vec<PublishedRow> = serde_json::from_str(include_str!("published.json")).unwrap_or_default();
        rows.into_iter()
            .filter_map(|row| {
                Some(Published {
                    config: ModelConfig::parse(&row.config.to_string()).ok()?,
                    name: row.name,
                    aliases: row.aliases,
                    draft_for: row.draft_for,
                    pickle: row.pickle,
                    series: row.series,
                    stated: row.stated,
                    source: row.source,
                })
            })
            .collect()
    })
}

/// The row of a model id, or of a path whose last component is the last part of an id:
/// `/root/Llama-3.1-8B-Instruct`. Case does not matter. A folder of the hub's cache
/// (`models--org--name/snapshots/…`) counts as its id.
pub fn find(name: &str) -> Option<&'static Published> {
    find_with_id(name).map(|(row, _)| row)
}

/// The table's id for a name or path, matched as in [`find`].
pub fn id_of(name: &str) -> Option<&'static str> {
    find_with_id(name).map(|(_, id)| id)
}

fn find_with_id(name: &str) -> Option<(&'static Published, &'static str)> {
    let name = name.trim_end_matches('/');
    // Only the first pair of dashes separates: a name may contain another.
    let cached = name.split('/').find_map(|part| part.strip_prefix("models--")).map(|id| id.replacen("--", "/", 1));
    let name = cached.as_deref().unwrap_or(name);
    let last = |id: &str| id.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let wanted = last(name);
    if wanted.is_empty() {
        return None;
    }
    let all = || published().iter().flat_map(|row| row.ids().map(move |id| (row, id)));
    // The exact id first, since several organisations publish under the same last part.
    all().find(|(_, id)| id.eq_ignore_ascii_case(name)).or_else(|| all().find(|(_, id)| last(id) == wanted))
}

/// The class of a target whose name is that of a published family in another size, precision or
/// tuning: `org/Qwen3.5-9B-AWQ`, and its shape if the size is published. `None` if the name says
/// anything else.
pub fn variant_of(name: &str) -> Option<ModelFacts> {
    let wanted = family_of(name)?;
    let mut rows = published().iter().filter(|row| row.ids().any(|id| family_of(id).as_deref() == Some(&wanted)));
    let first = rows.next()?;
    let class = first.config.architecture()?;
    // A family with several classes does not tell which of them a name means.
    if !is_target(class) || rows.any(|row| row.config.architecture() != Some(class)) {
        return None;
    }
    let own = &first.config;
    // The same weights in another precision or tuning keep their shape.
    let sized = sized_name(name);
    let all = published().iter().filter(|row| row.ids().any(|id| sized_name(id) == sized));
    let same = all.map(|row| &row.config).find(|config| config.hidden_size.is_some());
    let shape = same.cloned().unwrap_or_default();
    // What all sizes have in common: latent attention, MTP layers, experts.
    let config = ModelConfig {
        hidden_size: shape.hidden_size,
        num_hidden_layers: shape.num_hidden_layers,
        num_attention_heads: shape.num_attention_heads,
        num_key_value_heads: shape.num_key_value_heads,
        head_dim: shape.head_dim,
        vocab_size: shape.vocab_size,
        architectures: own.architectures.clone(),
        model_type: own.model_type.clone(),
        kv_lora_rank: own.kv_lora_rank,
        qk_nope_head_dim: own.qk_nope_head_dim,
        qk_rope_head_dim: own.qk_rope_head_dim,
        v_head_dim: own.v_head_dim,
        num_nextn_predict_layers: own.num_nextn_predict_layers,
        mtp_num_hidden_layers: own.mtp_num_hidden_layers,
        num_mtp_layers: own.num_mtp_layers,
        num_experts: own.num_experts,
        num_local_experts: own.num_local_experts,
        n_routed_experts: own.n_routed_experts,
        ..ModelConfig::default()
    };
    Some(ModelFacts {
        name: name.to_owned(),
        origin: format!("its name, which is like that of {}", first.name),
        config,
        partial: true,
        by_name: true,
        ..ModelFacts::default()
    })
}

/// The class of an EAGLE-3 head by its name: nearly all that were published are of one class, and
/// those with latent attention say so. `None` for any other name.
pub fn head_by_name(name: &str) -> Option<ModelFacts> {
    let last = name.trim_end_matches('/').rsplit('/').next()?.to_ascii_lowercase();
    let words: Vec<&str> = last.split(['-', '_', '.']).collect();
    let is_eagle3 = words.contains(&"eagle3") || words.windows(2).any(|pair| pair == ["eagle", "3"]);
    if !is_eagle3 || words.contains(&"mla") || last.contains("deepseek") {
        return None;
    }
    Some(ModelFacts {
        name: name.to_owned(),
        origin: "its name, which is that of an EAGLE-3 head".to_owned(),
        config: ModelConfig::parse(r#"{"architectures": ["LlamaForCausalLMEagle3"]}"#).ok()?,
        partial: true,
        by_name: true,
        ..ModelFacts::default()
    })
}

/// The words of a name that tell its family, the size as `#b`; `None` if there is only one.
fn family_of(name: &str) -> Option<String> {
    let last = name.trim_end_matches('/').rsplit('/').next()?.to_ascii_lowercase();
    let words = last.split(['-', '_']).filter(|word| !is_of_variant(word)).map(|word| match word.strip_suffix('b') {
        Some(size) if size.parse::<f64>().is_ok() => "#b".to_owned(),
        // Active parameters of experts, as in 30B-A3B.
        Some(active) if active.strip_prefix('a').is_some_and(|size| size.parse::<f64>().is_ok()) => "a#b".to_owned(),
        _ => word.to_owned(),
    });
    let words: Vec<String> = words.collect();
    (words.len() > 1).then(|| words.join("-"))
}

/// The words of a name that tell its family and its size, which a variant has in common with it.
fn sized_name(name: &str) -> Vec<String> {
    let last = name.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    last.split(['-', '_']).filter(|word| !is_of_variant(word)).map(str::to_owned).collect()
}

/// Whether a word of a name says how the weights are kept, tuned or dated, which leaves the class.
fn is_of_variant(word: &str) -> bool {
    const WORDS: [&str; 31] = [
        "abliterated",
        "autoround",
        "awq",
        "bf16",
        "bnb",
        "chat",
        "dynamic",
        "exl3",
        "fp16",
        "fp4",
        "fp8",
        "gptq",
        "heretic",
        "hf",
        "instruct",
        "int4",
        "int8",
        "it",
        "marlin",
        "mxfp4",
        "mxfp8",
        "nvfp4",
        "quantized",
        "quark",
        "sft",
        "terminus",
        "thinking",
        "torchao",
        "uncensored",
        "w4afp8",
        "block",
    ];
    let is_width = |word: &str| {
        let (weights, activations) = word.strip_prefix('w').and_then(|rest| rest.split_once('a')).unwrap_or_default();
        [weights, activations].iter().all(|bits| !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    // A date of release, such as 0528 or 2507.
    let is_day = word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    WORDS.contains(&word) || is_width(word) || is_day || word.strip_suffix("bit").is_some_and(|bits| bits.len() == 1)
}

/// Whether a class is that of a whole model, not of a draft.
fn is_target(class: &str) -> bool {
    !["Eagle", "Draft", "DSpark", "DFlash", "NextN"].iter().any(|part| class.contains(part))
}

/// The drafts that were published for a target, by its id, an alias, or a path as in [`find`]. What
/// counts is the id and not its row: checkpoints with one config may be of several trainings, and a
/// head of one drafts badly for another.
pub fn drafts_of(target: &str) -> Vec<&'static Published> {
    let Some(id) = id_of(target) else { return Vec::new() };
    published().iter().filter(|draft| draft.is_for(id)).collect()
}

/// The whole models that can draft for a target (STANDALONE), the smallest first: those of its
/// series with as many tokens, of whose weights a pass reads at most a quarter of the target's. A
/// larger one makes a draft pass too slow to pay.
pub fn small_models_of(target: &str) -> Vec<&'static Published> {
    let weights = |row: &Published| row.config.active_parameters();
    let of = |target: &Published| {
        let (most, tokens) = (weights(target)? / 4, target.config.vocab_size?);
        let series = target.series.as_ref()?;
        let fits = |row: &&Published| {
            row.series.as_ref() == Some(series)
                && row.config.vocab_size == Some(tokens)
                && weights(row).is_some_and(|weights| weights <= most)
        };
        let mut small: Vec<&'static Published> = published().iter().filter(fits).collect();
        small.sort_by_key(|row| weights(row));
        Some(small)
    };
    find(target).and_then(of).unwrap_or_default()
}

impl Published {
    /// Whether it is a draft for the weights of this id.
    pub fn is_for(&self, id: &str) -> bool {
        self.draft_for.iter().any(|own| own.eq_ignore_ascii_case(id))
    }

    /// The id and its aliases, the id first.
    fn ids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.aliases).map(String::as_str)
    }

    /// The facts under the name that the user wrote.
    pub fn facts(&self, name: &str) -> ModelFacts {
        let stated =
            if self.stated.is_empty() { String::new() } else { format!(", {} stated there", self.stated.join(", ")) };
        ModelFacts {
            name: name.to_owned(),
            origin: format!("bundled table, row {} ({}{stated})", self.name, self.source),
            config: self.config.clone(),
            partial: true,
            ..ModelFacts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_and_names_are_unique() {
        let rows = include_str!("published.json").lines().filter(|line| line.starts_with('{')).count();
        assert_eq!(published().len(), rows);
        let mut names: Vec<_> = published().iter().flat_map(Published::ids).map(str::to_ascii_lowercase).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_draft_names_a_target_of_the_table() {
        for row in published() {
            // Proposals name drafts as the hub does.
            assert!(row.draft_for.is_empty() || row.name.contains('/'), "{} has no organisation", row.name);
            for target in &row.draft_for {
                assert_eq!(id_of(target), Some(target.as_str()), "{} is for {target}", row.name);
            }
            for field in &row.stated {
                assert!(row.source.len() > 5, "{field} of {}", row.name);
            }
        }
    }

    fn check(name: &str, expected: Option<&str>) {
        assert_eq!(find(name).map(|row| row.name.as_str()), expected, "{name}");
    }

    #[test]
    fn the_drafts_of_a_target_are_found_by_any_of_its_names() {
        let names = |target: &str| drafts_of(target).into_iter().map(|row| row.name.as_str()).collect::<Vec<_>>();
        let found = names("/data/Qwen3-8B");
        assert!(
            found.contains(&"AngelSlim/Qwen3-8B_eagle3") && found.contains(&"z-lab/Qwen3-8B-DFlash-b16"),
            "{found:?}"
        );
        let algorithm = |name: &str| find(name).and_then(|row| row.config.draft_algorithm());
        assert_eq!(algorithm("AngelSlim/Qwen3-8B_eagle3"), Some("EAGLE3"));
        assert_eq!(algorithm("yuhuili/EAGLE-LLaMA3-Instruct-8B"), Some("EAGLE"));
        assert_eq!(algorithm("z-lab/Qwen3-8B-DFlash-b16"), Some("DFLASH"));
        assert_eq!(algorithm("deepseek-ai/dspark_qwen3_8b_block7"), Some("DSPARK"));
        assert_eq!(
            algorithm("deepseek-ai/dflash_qwen3_8b_block7"),
            Some("DSPARK"),
            "it proposes from its first row on"
        );
        assert_eq!(algorithm("deepseek-ai/eagle3_qwen3_8b_ttt7"), Some("EAGLE3"));
        assert_eq!(algorithm("z-lab/Qwen3.8-27B-DFlash2"), None, "no engine runs it by this name");
        assert_eq!(found, names("Qwen/Qwen3-8B"));
        assert_eq!(names("org/unknown"), Vec::<&str>::new());
        assert_eq!(names("AngelSlim/Qwen3-8B_eagle3"), Vec::<&str>::new(), "a draft has no draft");
    }

    #[test]
    fn ids_with_one_config_have_the_drafts_of_their_own_weights() {
        let names = |target: &str| drafts_of(target).into_iter().map(|row| row.name.as_str()).collect::<Vec<_>>();
        for (target, expected) in [
            ("deepseek-ai/DeepSeek-V3", &["SGLang/DeepSeek-V3-NextN"][..]),
            ("deepseek-ai/DeepSeek-V3-0324", &["SGLang/DeepSeek-V3-0324-NextN"]),
            ("/data/DeepSeek-V3.1", &[]),
            ("deepseek-ai/DeepSeek-R1-0528", &[]),
            ("MiniMaxAI/MiniMax-M2.5", &["thoughtworks/MiniMax-M2.5-Eagle3"]),
            ("MiniMaxAI/MiniMax-M2.7", &[]),
        ] {
            assert_eq!(names(target), expected, "{target}");
        }
        // Copies under other names.
        assert_eq!(names("meta-llama/Meta-Llama-3.1-8B-Instruct"), names("meta-llama/Llama-3.1-8B-Instruct"));
        // No two ids of a row have a draft in common that does not list both.
        for row in published() {
            for id in row.ids() {
                assert!(drafts_of(id).iter().all(|draft| draft.draft_for.iter().any(|own| own == id)), "{id}");
            }
        }
    }

    #[test]
    fn a_small_model_of_the_same_series_and_vocabulary_drafts_for_a_large_one() {
        let names = |target: &str| small_models_of(target).into_iter().map(|row| row.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names("/data/Llama-3.1-8B-Instruct"), ["meta-llama/Llama-3.2-1B-Instruct"]);
        assert_eq!(names("Qwen/Qwen3-8B"), ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B"]);
        let large = names("meta-llama/Llama-3.3-70B-Instruct");
        assert_eq!(large.first(), Some(&"meta-llama/Llama-3.2-1B-Instruct"));
        assert_eq!(large.last(), Some(&"meta-llama/Llama-3.1-8B-Instruct"), "{large:?}");
        // Of 30 billion weights a token reads three, so a model of 1.7 billion is not small for it.
        assert_eq!(names("Qwen/Qwen3-30B-A3B"), ["Qwen/Qwen3-0.6B"]);
        // The small ones have 151,936 tokens, the large ones 152,064.
        assert_eq!(names("Qwen/Qwen2.5-72B-Instruct"), ["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-14B-Instruct"]);
        assert_eq!(names("Qwen/Qwen2.5-7B-Instruct"), Vec::<&str>::new());
        assert_eq!(names("Qwen/Qwen2.5-3B-Instruct"), ["Qwen/Qwen2.5-0.5B-Instruct"]);
        // Another tokenizer of as many tokens.
        assert_eq!(names("deepseek-ai/DeepSeek-R1-Distill-Llama-8B"), Vec::<&str>::new());
        assert_eq!(names("org/unknown"), Vec::<&str>::new());
    }

    #[test]
    fn variants_of_a_family_have_its_class() {
        for (name, class) in [
            ("org/Qwen3.5-9B-AWQ-4bit", Some("Qwen3_5ForConditionalGeneration")),
            ("/models/Qwen3-VL-32B-Instruct-FP8", Some("Qwen3VLForConditionalGeneration")),
            ("meta-llama/Llama-3.1-405B", Some("LlamaForCausalLM")),
            ("moonshotai/Kimi-K2.6-w4a8", Some("KimiK25ForConditionalGeneration")),
            ("Qwen/Qwen3-Coder-480B-A35B-Instruct", None),
            ("Qwen/Qwen3-Embedding-8B", None),
            ("org/Qwen3.5-27B-DFlash", None),
            ("org/Qwen3-8B-eagle3", None),
            ("target", None),
        ] {
            let facts = variant_of(name);
            assert_eq!(facts.as_ref().and_then(|facts| facts.config.architecture()), class, "{name}");
            assert!(facts.is_none_or(|facts| facts.partial && facts.by_name));
        }
    }

    #[test]
    fn variants_of_a_published_size_have_its_shape() {
        let width = |name: &str| variant_of(name).and_then(|facts| facts.config.hidden_size);
        assert_eq!(width("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4"), Some(4096));
        assert_eq!(width("/models/Qwen3-32B-abliterated-AWQ"), Some(5120));
        // Another size.
        assert_eq!(width("org/Qwen3.5-9B-AWQ-4bit"), None);
        // Tuning may stretch the context.
        let context = |name: &str| variant_of(name).and_then(|facts| facts.config.max_position_embeddings);
        assert_eq!(context("/models/Qwen3-32B-abliterated-AWQ"), None);
    }

    #[test]
    fn heads_are_known_by_their_names() {
        for (name, is_head) in [
            ("lightseekorg/kimi-k2.6-eagle3", true),
            ("/data/my_eagle3_head", true),
            ("org/Qwen3-8B-EAGLE-3", true),
            ("lightseekorg/kimi-k2.6-eagle3-mla", false),
            ("org/Qwen3-8B-EAGLE", false),
            ("org/Qwen3-8B", false),
        ] {
            assert_eq!(head_by_name(name).is_some(), is_head, "{name}");
        }
    }

    #[test]
    fn names_paths_and_cache_folders_are_recognised() {
        check("meta-llama/Llama-3.1-8B-Instruct", Some("meta-llama/Llama-3.1-8B-Instruct"));
        check("/root/sglang-EAGLE3-LLaMA3.1-Instruct-8B", Some("lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B"));
        check("/data/meta-llama-3.1-8b-instruct/", Some("meta-llama/Llama-3.1-8B-Instruct"));
        check("/hub/models--Qwen--Qwen3-8B/snapshots/abc", Some("Qwen/Qwen3-8B"));
        check("Qwen/Qwen3-8B-of-mine", None);
        check("", None);
        check("/", None);
        assert_eq!(id_of("/root/DeepSeek-R1-0528"), Some("deepseek-ai/DeepSeek-R1-0528"));
    }
}
