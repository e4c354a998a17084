//! Conditions on a checkpoint's config.json that an engine checks when it loads it: one table per
//! engine. A row is a condition in the engine's source, with the versions that have it.

use std::sync::OnceLock;

use schemas::{
    engines::Engine,
    flags::Key,
    model::{ModelConfig, ModelFacts},
    text::Span,
};
use serde::Deserialize;
use serde_json::Value as Json;

use super::{
    condition::{Condition, is_absent},
    is_between, runs_in,
    variable_condition::VariableCondition,
};
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
    /// What must hold of flags; the finding is at the first of them.
    #[serde(default)]
    flags: Vec<Condition>,
    /// What must hold of environment variables.
    #[serde(default)]
    variables: Vec<VariableCondition>,
    /// The runner of vLLM that certainly runs.
    runner: Option<String>,
    /// What must hold of the config together; the class alone decides if nothing is listed.
    #[serde(default)]
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
    /// Above 1, below the number of draft tokens of vLLM, and no divisor of it.
    NoDivisorOfTokens,
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
        let mut places: Vec<Span> = Vec::new();
        for condition in &self.flags {
            places.extend(condition.holds(context)?);
        }
        if !self.variables.iter().all(|condition| condition.holds(context).is_some()) {
            return None;
        }
        let applies = is_between(self.since.as_deref(), self.until.as_deref(), context.version())
            && (self.classes.is_empty() || self.classes.iter().any(is_class))
            && self.without.iter().all(|flag| is_absent(context, flag))
            && runs_in(self.runner.as_deref(), context);
        if !applies || !self.when.iter().all(|condition| condition.holds(facts, context)) {
            return None;
        }
        let (key, who) = match self.of {
            ConfigOwner::Draft => (Key::SpeculativeDraftModelPath, "draft"),
            ConfigOwner::Target => (Key::ModelPath, "target"),
        };
        let named = match self.of {
            ConfigOwner::Draft => launch.vllm_key_place("model"),
            ConfigOwner::Target => None,
        };
        let place = places.first().copied().or(named);
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
    fn holds(&self, facts: &ModelFacts, context: &Context<'_>) -> bool {
        let config = &facts.config;
        let target = context.target_config();
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
            FieldTest::NoDivisorOfTokens => whole
                .filter(|whole| *whole > 1)
                .zip(draft_tokens(context))
                .is_some_and(|(whole, tokens)| tokens > whole && tokens % whole != 0),
            FieldTest::NoBool => value.is_some_and(|value| !value.is_boolean()),
        }
    }
}

/// vLLM's number of draft tokens, if it is known.
fn draft_tokens(context: &Context<'_>) -> Option<i64> {
    let vllm = context.resolved.vllm.as_ref()?;
    i64::try_from(vllm.num_speculative_tokens.as_ref()?.value).ok()
}

#[cfg(test)]
mod tests;
