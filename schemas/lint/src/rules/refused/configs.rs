//! Conditions on a checkpoint's config.json that an engine checks when it loads it: one table per
//! engine. A row is a condition in the engine's source, with the versions that have it.

use std::sync::OnceLock;

use schemas::{
    engines::Engine,
    flags::Key,
    model::{ModelConfig, ModelFacts},
};
use serde::Deserialize;
use serde_json::Value as Json;

use super::{condition::is_absent, is_between};
use crate::rules::{Context, Finding};

/// A row of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigRefusal {
    /// A short name in kebab case.
    #[cfg_attr(not(test), expect(dead_code, reason = "names the row for readers and tests"))]
    id: String,
    /// First version with the condition.
    since: Option<String>,
    /// First version without it; omitted if the newest one has it.
    until: Option<String>,
    /// SGLang's resolved algorithms, or vLLM's methods, any of them.
    methods: Vec<String>,
    /// Whose config it is.
    of: ConfigOwner,
    /// What the class's name begins with, any of them; any class if omitted.
    #[serde(default)]
    classes: Vec<String>,
    /// Flags that must be absent.
    #[serde(default)]
    without: Vec<String>,
    /// An environment variable that must have one of some values.
    variable: Option<(String, Vec<String>)>,
    /// What must hold together.
    when: Vec<FieldCondition>,
    /// What is wrong, in one sentence. `{}` is replaced by the value of the first condition.
    message: String,
    /// The engine's message.
    says: String,
    /// What to do.
    help: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum ConfigOwner {
    Draft,
    Target,
}

/// What must be known of a field.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldCondition {
    /// Names of the field, of which the first one that is present counts; a dot is before a field
    /// of an object.
    fields: Vec<String>,
    is: FieldTest,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FieldTest {
    Absent,
    /// Absent, 0, false or an empty list.
    Nothing,
    /// Neither of them.
    Something,
    OneOf(Vec<Json>),
    NoneOf(Vec<Json>),
    /// Absent, or none of these.
    AbsentOrNoneOf(Vec<Json>),
    /// A list with this item.
    With(Json),
    /// A list with another item than these.
    WithOtherThan(Vec<Json>),
    /// A list with fewer items than the number in this field of the same config.
    ShorterThan(String),
    EmptyList,
    Below(i64),
    /// Not below this number of the target's config.
    NotBelowOfTarget(String),
    /// A list with a number that is negative or not below this number of the target's config.
    WithItemBeyondTarget(String),
    /// Does not divide this number of the same config.
    NoDivisorOf(String),
    NoBool,
}

/// The rows of an engine.
fn rows(engine: Engine) -> &'static [ConfigRefusal] {
    static SGLANG: OnceLock<Vec<ConfigRefusal>> = OnceLock::new();
    static VLLM: OnceLock<Vec<ConfigRefusal>> = OnceLock::new();
    let read = |text| serde_json::from_str(text).unwrap_or_default();
    match engine {
        Engine::Vllm => VLLM.get_or_init(|| read(include_str!("vllm_configs.json"))),
        _ => SGLANG.get_or_init(|| read(include_str!("sglang_configs.json"))),
    }
}

/// The rows that a launch matches.
pub(in crate::rules) fn refused_configs(context: &Context<'_>) -> Vec<Finding> {
    let Some(method) = super::method_in_use(context) else { return Vec::new() };
    let of_method = rows(context.launch.engine).iter().filter(|row| row.methods.contains(&method));
    of_method.filter_map(|row| row.look(context)).collect()
}

impl ConfigRefusal {
    fn look(&self, context: &Context<'_>) -> Option<Finding> {
        let launch = context.launch;
        let facts = match self.of {
            ConfigOwner::Draft => context.draft.filter(|_| context.loads_draft()),
            ConfigOwner::Target => context.target,
        }?;
        let class = facts.config.architecture();
        let is_class = |prefix: &String| class.is_some_and(|class| class.starts_with(prefix.as_str()));
        let is_set = self.variable.as_ref().is_none_or(|(name, values)| {
            launch.variable(name).is_some_and(|value| values.iter().any(|one| one == value.value))
        });
        let applies = is_between(self.since.as_deref(), self.until.as_deref(), context.version())
            && (self.classes.is_empty() || self.classes.iter().any(is_class))
            && self.without.iter().all(|flag| is_absent(context, flag))
            && is_set;
        if !applies || !self.when.iter().all(|condition| condition.holds(facts, context.target_config())) {
            return None;
        }
        let (key, who) = match self.of {
            ConfigOwner::Draft => (Key::SpeculativeDraftModelPath, "draft"),
            ConfigOwner::Target => (Key::ModelPath, "target"),
        };
        let place = match self.of {
            ConfigOwner::Draft => launch.vllm_key_place("model"),
            ConfigOwner::Target => None,
        };
        let value = self.when.first().and_then(|condition| condition.value(&facts.config));
        let shown = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        let message = self.message.replace("{}", &shown.unwrap_or_default());
        let finding =
            Finding::new(place.unwrap_or_else(|| context.value_place(key)), message, format!("this {who}'s config"));
        Some(
            finding
                .engine_says(launch.engine.reference(), &self.says)
                .on_facts(who, Some(facts))
                .by_engine()
                .by_version()
                .help(self.help.clone()),
        )
    }
}

impl FieldCondition {
    fn value(&self, config: &ModelConfig) -> Option<Json> {
        self.fields.iter().find_map(|name| config.field(name))
    }

    /// Whether it is known to hold.
    fn holds(&self, facts: &ModelFacts, target: Option<&ModelConfig>) -> bool {
        let config = &facts.config;
        let value = self.value(config);
        let is_nothing = |value: &Json| match value {
            Json::Bool(is) => !is,
            Json::Number(number) => number.as_f64() == Some(0.0),
            Json::Array(items) => items.is_empty(),
            _ => false,
        };
        // What a partly known config lacks may be in the file.
        let is_absent = value.is_none() && !facts.partial;
        let number = |config: &ModelConfig, name: &String| config.field(name)?.as_i64();
        let of_target = |name: &String| number(target?, name);
        let list = value.as_ref().and_then(Json::as_array);
        let whole = value.as_ref().and_then(Json::as_i64);
        match &self.is {
            FieldTest::Absent => is_absent,
            FieldTest::Nothing => is_absent || value.as_ref().is_some_and(is_nothing),
            FieldTest::Something => value.as_ref().is_some_and(|value| !is_nothing(value)),
            FieldTest::OneOf(known) => value.is_some_and(|value| known.contains(&value)),
            FieldTest::NoneOf(known) => value.is_some_and(|value| !known.contains(&value)),
            FieldTest::AbsentOrNoneOf(known) => is_absent || value.is_some_and(|value| !known.contains(&value)),
            FieldTest::With(item) => list.is_some_and(|list| list.contains(item)),
            FieldTest::WithOtherThan(known) => list.is_some_and(|list| list.iter().any(|item| !known.contains(item))),
            FieldTest::ShorterThan(name) => list
                .zip(number(config, name))
                .is_some_and(|(list, number)| i64::try_from(list.len()).is_ok_and(|length| length < number)),
            FieldTest::EmptyList => list.is_some_and(Vec::is_empty),
            FieldTest::Below(least) => whole.is_some_and(|whole| whole < *least),
            FieldTest::NotBelowOfTarget(name) => {
                whole.zip(of_target(name)).is_some_and(|(whole, bound)| whole >= bound)
            }
            FieldTest::WithItemBeyondTarget(name) => list.zip(of_target(name)).is_some_and(|(list, bound)| {
                list.iter().filter_map(Json::as_i64).any(|item| item < 0 || item >= bound)
            }),
            FieldTest::NoDivisorOf(name) => whole
                .filter(|whole| *whole > 0)
                .zip(number(config, name))
                .is_some_and(|(whole, number)| number % whole != 0),
            FieldTest::NoBool => value.is_some_and(|value| !value.is_boolean()),
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::{engines::Engine, flags};

    use super::{super::are_edges, *};
    use crate::rules::examples::found_in;

    #[test]
    fn every_row_is_read_and_names_flags_that_exist() {
        for (engine, known, least) in [(Engine::Sglang, flags::sglang(), 25), (Engine::Vllm, flags::vllm(), 2)] {
            let rows = rows(engine);
            assert!(rows.len() >= least, "{} rows only", rows.len());
            let mut ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
            ids.sort_unstable();
            assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
            for row in rows {
                assert!(are_edges(row.since.as_deref(), row.until.as_deref()), "{}", row.id);
                assert!(!row.when.is_empty() && !row.methods.is_empty(), "{}", row.id);
                assert!(row.without.iter().all(|flag| known.spelling(flag).is_some()), "{}", row.id);
                assert!(row.message.len() < 160 && !row.message.ends_with('.'), "{}", row.id);
                assert!(row.when.iter().all(|condition| !condition.fields.is_empty()), "{}", row.id);
            }
        }
    }

    /// What SD205 says in a version of a DFLASH or DSPARK draft with these fields.
    fn says(algorithm: &str, class: &str, fields: &str, version: &str) -> Vec<String> {
        let target = r#"{"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "vocab_size": 1000}"#;
        let draft = format!(r#"{{"architectures": ["{class}"], {fields}}}"#);
        let text = format!(
            "SGLANG_RAGGED_VERIFY_MODE=compact sglang serve --model-path target --speculative-algorithm {algorithm} \
             --speculative-draft-model-path draft"
        );
        let found = found_in(&text, version, target, &draft);
        found.into_iter().filter(|found| found.code == "SD205").map(|found| found.message).collect()
    }

    #[test]
    fn configs_of_blocks_are_refused_from_their_version_on() {
        let window = r#""num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]"#;
        for (fields, before, first) in [
            (window, "0.5.13", "0.5.14"),
            (r#""num_hidden_layers": 3, "layer_types": ["full_attention"]"#, "0.5.13", "0.5.14"),
            (r#""layer_types": ["linear_attention"]"#, "0.5.13", "0.5.14"),
            (r#""dflash_config": {"mask_token_id": 1000}"#, "0.5.11", "0.5.12"),
            (r#""mask_token_id": -1"#, "0.5.11", "0.5.12"),
            (r#""dflash_config": {"target_layer_ids": [1, 36]}"#, "0.5.11", "0.5.12"),
            (r#""target_layer_ids": []"#, "0.5.11", "0.5.12"),
            (r#""dflash_config": {"conv_kernel_size": 4}"#, "0.5.18", "0.5.19"),
            (
                r#""hidden_size": 64, "dflash_config": {"conv_kernel_size": 4, "conv_group_size": 3}"#,
                "0.5.18",
                "0.5.19",
            ),
            (r#""dflash_config": {"selector_rank": 4}"#, "0.5.18", "0.5.19"),
            (
                r#""dflash_config": {"projector_type": "domino", "pure_draft_prefix_len": 1, "emb_dim": 8}"#,
                "0.5.19",
                "0.5.20",
            ),
            (r#""hidden_act": "gelu""#, "0.5.11", "0.5.12"),
            (r#""dflash_config": {"attention_sink_bias": 1}"#, "0.5.14", "0.5.23"),
        ] {
            assert_eq!(says("DFLASH", "DFlashDraftModel", fields, before).len(), 0, "{fields} {before}");
            assert_eq!(says("DFLASH", "DFlashDraftModel", fields, first).len(), 1, "{fields} {first}");
        }
        assert_eq!(
            says("DFLASH", "DFlashDraftModel", &format!(r#"{window}, "sliding_window": 128"#), "0.5.23").len(),
            0
        );
        assert_eq!(says("DFLASH", "DFlashDraftModel", r#""hidden_act": "swigluoai""#, "0.5.22").len(), 1);
        assert_eq!(says("DFLASH", "DFlashDraftModel", r#""hidden_act": "swigluoai""#, "0.5.23").len(), 0);
    }

    #[test]
    fn configs_of_dspark_and_eagle3_are_refused() {
        let whole = r#""markov_rank": 8, "markov_head_type": "vanilla", "mask_token_id": 7"#;
        let check = |fields: &str, count: usize| {
            assert_eq!(says("DSPARK", "Qwen3DSparkModel", fields, "0.5.23").len(), count, "{fields}");
        };
        check(whole, 0);
        check(&whole.replace(r#""markov_rank": 8,"#, ""), 1);
        // A rank of 0 is that of another kind of head (SD019).
        check(&whole.replace("8", "0"), 0);
        check(&whole.replace("vanilla", "lstm"), 1);
        check(&whole.replace(r#""mask_token_id": 7"#, r#""x": 1"#), 1);
        check(&whole.replace('7', "1000"), 1);
        check(&whole.replace(r#""markov_head_type": "vanilla","#, ""), 1);
        check(&format!(r#"{whole}, "enable_confidence_head": false"#), 1);
        let layers = r#""num_hidden_layers": 2"#;
        assert_eq!(says("EAGLE3", "LlamaForCausalLMEagle3", layers, "0.5.11").len(), 1);
        assert_eq!(says("EAGLE3", "LlamaForCausalLMEagle3", layers, "0.5.12").len(), 0);
        assert_eq!(says("EAGLE3", "Eagle3DeepseekV2ForCausalLM", layers, "0.5.23").len(), 2);
    }
}
