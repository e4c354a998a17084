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
    /// Other ids with the same config.
    pub aliases: Vec<String>,
    /// For a draft, the id of the target that it was trained for.
    pub draft_for: Option<String>,
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
        draft_for: Option<String>,
        #[serde(default)]
        series: Option<String>,
        config: serde_json::Value,
        stated: Vec<String>,
        source: String,
    }
    static ROWS: OnceLock<Vec<Published>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let rows: Vec<PublishedRow> = serde_json::from_str(include_str!("published.json")).unwrap_or_default();
        rows.into_iter()
            .filter_map(|row| {
                Some(Published {
                    config: ModelConfig::parse(&row.config.to_string()).ok()?,
                    name: row.name,
                    aliases: row.aliases,
                    draft_for: row.draft_for,
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
    let cached = name.split('/').find_map(|part| part.strip_prefix("models--")).map(|id| id.replacen("--", "/", 1));
    let name = cached.as_deref().unwrap_or(name);
    let last = |id: &str| id.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let wanted = last(name);
    if wanted.is_empty() {
        return None;
    }
    let all = || published().iter().flat_map(|row| row.ids().map(move |id| (row, id)));
    all().find(|(_, id)| id.eq_ignore_ascii_case(name)).or_else(|| all().find(|(_, id)| last(id) == wanted))
}

/// The drafts that were published for a target, by its id, an alias, or a path as in [`find`].
pub fn drafts_of(target: &str) -> Vec<&'static Published> {
    let Some(row) = find(target) else { return Vec::new() };
    let is_of = |draft: &&Published| {
        let target = draft.draft_for.as_ref().and_then(|target| find(target));
        target.is_some_and(|target| target.name == row.name)
    };
    published().iter().filter(is_of).collect()
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
            if let Some(target) = &row.draft_for {
                assert!(find(target).is_some(), "{} is for {target}", row.name);
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
        assert_eq!(algorithm("z-lab/Qwen3.8-27B-DFlash2"), None, "no engine runs it by this name");
        assert_eq!(found, names("Qwen/Qwen3-8B"));
        assert_eq!(names("org/unknown"), Vec::<&str>::new());
        assert_eq!(names("AngelSlim/Qwen3-8B_eagle3"), Vec::<&str>::new(), "a draft has no draft");
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
