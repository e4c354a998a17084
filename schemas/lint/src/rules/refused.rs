//! Combinations of flags that an engine refuses at start, or cannot run: one table per engine, used
//! by several rules.
//!
//! A row of `refused/ENGINE.json` is a condition in the engine's source, with the versions that
//! have it. Every condition of a row must be known to hold, so a launch with unknown parts matches
//! no row that depends on them.

mod condition;

use std::sync::OnceLock;

use schemas::{diagnostic::Severity, engines::Engine, text::Span, version::EngineVersion};
use serde::Deserialize;

use super::{
    Context, Finding,
    platform::{Platform, platform_of},
};
use condition::{Condition, is_absent};

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
    /// Flags that must be absent, since they change the meaning of the others.
    #[serde(default)]
    without: Vec<String>,
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

/// The rows that a launch matches.
pub(super) fn refused(context: &Context<'_>) -> Vec<Finding> {
    let engine = context.launch.engine;
    rows(engine).iter().filter_map(|row| row.look(context)).collect()
}

impl Refusal {
    fn look(&self, context: &Context<'_>) -> Option<Finding> {
        if !self.is_in(context.version()) || !self.drafts(context) {
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

    fn is_in(&self, version: EngineVersion) -> bool {
        let edge = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<EngineVersion>().ok());
        edge(&self.since).is_none_or(|since| since <= version) && edge(&self.until).is_none_or(|until| version < until)
    }

    /// Whether the launch drafts as the row says. An unknown method matches no row that depends on
    /// it.
    fn drafts(&self, context: &Context<'_>) -> bool {
        let (is_speculative, is_plain, method) = match context.launch.engine {
            Engine::Vllm => {
                let config = context.launch.vllm_speculation();
                let method = config.as_ref().and_then(|config| context.vllm_method(config)).map(str::to_owned);
                let is_plain = !context.launch.has_vllm_speculation() && context.launch.is_complete();
                (config.is_some(), is_plain, method)
            }
            _ => {
                let is_plain = context.is_absent(schemas::flags::Key::SpeculativeAlgorithm);
                let method = context.algorithm().map(|algorithm| algorithm.name().to_owned());
                (context.resolved.speculative, is_plain, method)
            }
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
mod tests {
    use schemas::flags;

    use super::*;

    #[test]
    fn every_row_is_read_and_names_flags_that_exist() {
        for (engine, known) in [(Engine::Sglang, flags::sglang()), (Engine::Vllm, flags::vllm())] {
            let rows = rows(engine);
            assert!(rows.len() >= 20, "{} rows only", rows.len());
            let mut ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
            ids.sort_unstable();
            assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
            for row in rows {
                let edges = [&row.since, &row.until].map(|edge| {
                    edge.as_ref().map(|text| text.parse::<EngineVersion>().unwrap_or_else(|_| panic!("{}", row.id)))
                });
                if let [Some(since), Some(until)] = edges {
                    assert!(since < until, "{}", row.id);
                }
                let named = row.when.iter().flat_map(Condition::flags).chain(row.without.iter().map(String::as_str));
                for flag in named {
                    assert!(known.spelling(flag).is_some(), "{}: {flag}", row.id);
                }
                assert!(row.message.len() < 160 && !row.message.ends_with('.'), "{}", row.id);
                let named: Vec<&str> = row.when.iter().flat_map(Condition::flags).collect();
                for part in row.message.split('{').skip(1) {
                    let name = part.split('}').next().unwrap_or_default();
                    assert!(named.contains(&name), "{}: {name}", row.id);
                }
            }
        }
    }
}
