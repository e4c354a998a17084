//! Combinations of flags that an engine refuses at start, or cannot run: one table per engine, used
//! by several rules.
//!
//! A row of `refused/ENGINE.json` is a condition in the engine's source, with the versions that
//! have it. Every condition of a row must be known to hold, so a launch with unknown parts matches
//! no row that depends on them.

mod condition;
mod configs;
mod key_condition;
mod variable_condition;

use std::sync::OnceLock;

use schemas::{diagnostic::Severity, engines::Engine, text::Span, version::EngineVersion};
use serde::Deserialize;

use super::{
    Context, Finding,
    platform::{Platform, platform_of},
};
use condition::{Condition, is_absent};
pub(super) use configs::refused_configs;
use key_condition::KeyCondition;
use variable_condition::VariableCondition;

/// Whether a version has a condition: from the first on with it (from the oldest that was read, if
/// it is omitted), up to the first one without it.
fn is_between(since: Option<&str>, until: Option<&str>, version: EngineVersion) -> bool {
    let edge = |text: Option<&str>| text.and_then(|text| text.parse::<EngineVersion>().ok());
    edge(since).is_none_or(|since| since <= version) && edge(until).is_none_or(|until| version < until)
}

/// Whether both are versions, in order.
#[cfg(test)]
fn are_edges(since: Option<&str>, until: Option<&str>) -> bool {
    let edge = |text: Option<&str>| text.map(str::parse::<EngineVersion>);
    match (edge(since), edge(until)) {
        (Some(Err(_)), _) | (_, Some(Err(_))) => false,
        (Some(Ok(since)), Some(Ok(until))) => since < until,
        _ => true,
    }
}

/// A row of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refusal {
    /// A short name in kebab case.
    #[cfg_attr(not(test), expect(dead_code, reason = "names the row for readers and tests"))]
    id: String,
    /// First version with the condition; omitted if the oldest one that was read has it.
    since: Option<String>,
    /// First version without it; omitted if the newest one has it.
    until: Option<String>,
    /// What must hold together. The finding is at the first flag that is given.
    when: Vec<Condition>,
    /// What must hold of keys of vLLM's speculative configuration.
    #[serde(default)]
    keys: Vec<KeyCondition>,
    /// The runner of vLLM that certainly runs.
    runner: Option<String>,
    /// Flags that must be absent, since they change the meaning of the others.
    #[serde(default)]
    without: Vec<String>,
    /// What must hold of environment variables.
    #[serde(default)]
    variables: Vec<VariableCondition>,
    /// Environment variables that must not be set.
    #[serde(default)]
    no_variables: Vec<String>,
    /// Whether something must draft, or nothing may.
    speculation: Option<bool>,
    /// SGLang's resolved algorithms, or vLLM's methods, any of them.
    #[serde(default)]
    methods: Vec<String>,
    /// Algorithms or methods that the engine does not refuse.
    #[serde(default)]
    not_methods: Vec<String>,
    #[serde(default)]
    not_platforms: Vec<Platform>,
    /// Whether the engine may change one of the values before it checks them.
    #[serde(default)]
    doubtful: bool,
    /// What is wrong, in one sentence. `{flag}` is replaced by the flag's value.
    message: String,
    /// The engine's message.
    says: String,
    /// What to do.
    help: String,
}

/// The rows of an engine.
fn rows(engine: Engine) -> &'static [Refusal] {
    static SGLANG: OnceLock<Vec<Refusal>> = OnceLock::new();
    static VLLM: OnceLock<Vec<Refusal>> = OnceLock::new();
    let read = |text| serde_json::from_str(text).unwrap_or_default();
    match engine {
        Engine::Vllm => VLLM.get_or_init(|| read(include_str!("refused/vllm.json"))),
        _ => SGLANG.get_or_init(|| read(include_str!("refused/sglang.json"))),
    }
}

/// SGLang's algorithm or vLLM's method, if it is known.
fn method_in_use(context: &Context<'_>) -> Option<String> {
    match context.launch.engine {
        Engine::Vllm => {
            let config = context.launch.vllm_speculation()?;
            context.vllm_method(&config).map(str::to_owned)
        }
        _ => context.algorithm().map(|algorithm| algorithm.name().to_owned()),
    }
}

/// Whether vLLM certainly runs the runner that a row is about.
fn runs_in(wanted: Option<&str>, context: &Context<'_>) -> bool {
    let runner = || context.resolved.vllm.as_ref()?.runner.as_ref();
    wanted.is_none_or(|wanted| runner().is_some_and(|runner| runner.value == wanted))
}

/// The rows that a launch matches.
pub(super) fn refused(context: &Context<'_>) -> Vec<Finding> {
    let engine = context.launch.engine;
    rows(engine).iter().filter_map(|row| row.look(context)).collect()
}

impl Refusal {
    fn look(&self, context: &Context<'_>) -> Option<Finding> {
        let is_in = is_between(self.since.as_deref(), self.until.as_deref(), context.version());
        if !is_in || !self.drafts(context) || !runs_in(self.runner.as_deref(), context) {
            return None;
        }
        let platform = platform_of(context);
        if platform.is_some_and(|platform| self.not_platforms.contains(&platform)) {
            return None;
        }
        let mut places: Vec<Span> = Vec::new();
        for condition in &self.when {
            places.extend(condition.holds(context)?);
        }
        for condition in &self.variables {
            places.push(condition.holds(context)?);
        }
        let config = context.launch.vllm_speculation();
        for condition in &self.keys {
            places.push(condition.holds(config.as_ref()?)?);
        }
        let is_undisturbed = self.without.iter().all(|flag| is_absent(context, flag))
            && self.no_variables.iter().all(|name| context.launch.lacks_variable(name));
        if !is_undisturbed {
            return None;
        }
        let place = places.first().copied().unwrap_or(context.launch.anchor);
        let finding = Finding::new(place, self.worded(context), "refused")
            .engine_says(context.launch.engine.reference(), &self.says)
            .help(self.help.clone())
            .by_engine()
            .by_version();
        let finding =
            places.iter().skip(1).fold(finding, |finding, other| finding.related(Some(*other), "together with this"));
        Some(if self.doubtful { finding.at_most(Severity::Warning) } else { finding })
    }

    /// Whether the launch drafts as the row says. An unknown method matches no row that depends on
    /// it.
    fn drafts(&self, context: &Context<'_>) -> bool {
        let method = method_in_use(context);
        let (is_speculative, is_plain) = match context.launch.engine {
            Engine::Vllm => {
                let is_plain = !context.launch.has_vllm_speculation() && context.launch.is_complete();
                (context.launch.vllm_speculation().is_some(), is_plain)
            }
            _ => (context.resolved.speculative, context.is_absent(schemas::flags::Key::SpeculativeAlgorithm)),
        };
        let fits = match self.speculation {
            Some(true) => is_speculative,
            Some(false) => is_plain,
            None => true,
        };
        let is_in = |list: &[String]| method.as_ref().map(|method| list.contains(method));
        fits && (self.methods.is_empty() || is_in(&self.methods) == Some(true))
            && (self.not_methods.is_empty() || is_in(&self.not_methods) == Some(false))
    }

    /// The message with the values of flags.
    fn worded(&self, context: &Context<'_>) -> String {
        let flags = self.when.iter().flat_map(Condition::flags);
        flags.fold(self.message.clone(), |message, flag| match condition::shown(context, flag) {
            Some(value) => message.replace(&format!("{{{flag}}}"), &value),
            None => message,
        })
    }
}

#[cfg(test)]
mod tests;
