//! Known faults of engines over ranges of versions: one table, used by several rules.
//!
//! A row of `known/faults.json` states the engine and versions, the conditions on a launch, what
//! happens, what helps, and the sources. Every condition of a row must be known to hold, so a
//! launch with unknown parts matches no row that depends on them.

mod names;

use std::sync::OnceLock;

use launch::Argument;
use schemas::{
    diagnostic::Severity,
    engines::{
        Engine,
        releases::{Day, published},
    },
    text::Span,
    version::EngineVersion,
};
use serde::Deserialize;

use super::{
    Context, Finding,
    platform::{Platform, platform_of},
    support::method_of,
};

/// The kind of fault, which decides the rule that reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Harm {
    /// The server crashes, at start or under load.
    Crash,
    /// The output is wrong, or drafts are rejected without cause.
    Corruption,
}

/// A row of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    /// A short name in kebab case.
    #[cfg_attr(not(test), expect(dead_code, reason = "names the row for readers and tests"))]
    id: String,
    engine: FaultScope,
    harm: Harm,
    /// First version with the fault; omitted if no older version is known to be free of it.
    since: Option<String>,
    /// First version without the fault; omitted if none is known.
    until: Option<String>,
    /// Whether `since` and `until` enclose the version of the report, and nothing is known of
    /// others.
    #[serde(default)]
    reported: bool,
    /// SGLang's resolved algorithms, or vLLM's methods (`none`: no method is given, and the draft's
    /// name implies none); any of them. Empty if the fault does not depend on speculation.
    methods: Vec<String>,
    /// Prefixes of the target's architecture, any of them. If the architecture is unknown, `models`
    /// decides.
    #[serde(default)]
    classes: Vec<String>,
    /// Lower-case substrings of the target's name, any of them.
    #[serde(default)]
    models: Vec<String>,
    /// Lower-case substrings of its name that identify another checkpoint without the fault.
    #[serde(default)]
    not_models: Vec<String>,
    /// Lower-case substrings of the draft's name, any of them.
    #[serde(default)]
    drafts: Vec<String>,
    /// Whether the draft must be a block head that proposes from its first row on and has no Markov
    /// head: one that looks like a DFLASH head.
    #[serde(default)]
    anchor_first: bool,
    /// Lower-case substrings of the target's name or quantisation method, any of them.
    #[serde(default)]
    formats: Vec<String>,
    /// Lower-case substrings of the name of the image that runs it, any of them: for faults of
    /// plugins.
    #[serde(default)]
    images: Vec<String>,
    /// Flags that must be given with such values.
    #[serde(default)]
    with: Vec<GivenFlags>,
    /// Flags that must not be given with such values.
    #[serde(default)]
    without: Vec<GivenFlags>,
    /// Keys of vLLM's speculative configuration that must be given with such values.
    #[serde(default)]
    keys: Vec<GivenKey>,
    /// Keys of it that must not be given.
    #[serde(default)]
    no_keys: Vec<String>,
    /// Draft tokens: SGLang's `num_draft_tokens`, vLLM's `num_speculative_tokens`; any of them.
    #[serde(default)]
    tokens: Vec<u64>,
    /// Minimum number of draft tokens.
    tokens_at_least: Option<u64>,
    /// Architectures of the GPU as printed (`SM 12.0`, `CDNA 3`), any of them.
    #[serde(default)]
    gpus: Vec<String>,
    /// The platforms that have the fault, any of them; the launch or the text around it must name
    /// one.
    #[serde(default)]
    platforms: Vec<Platform>,
    /// Platforms without the fault; the launch or the text around it names one.
    #[serde(default)]
    not_platforms: Vec<Platform>,
    /// Whether only engines that slime starts have it, which sends them weights.
    #[serde(default)]
    slime: bool,
    /// Whether it takes requests of a kind, such as one to sleep: information then.
    #[serde(default)]
    requests: bool,
    /// Environment variables that must not be set.
    #[serde(default)]
    no_variables: Vec<String>,
    /// Environment variables that must be set to this.
    #[serde(default)]
    variables: Vec<SetVariable>,
    /// What happens, in one sentence.
    message: String,
    /// A short label for the place.
    label: String,
    /// The engine's message, if it prints one.
    says: Option<String>,
    /// What to do.
    help: String,
    /// Issues and pull requests: `sglang#36140`.
    sources: Vec<String>,
    /// Whether it happens at every start or request, which makes it an error if the version is
    /// known.
    certain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FaultScope {
    Sglang,
    Vllm,
}

/// Parts of vLLM that plugins of other platforms do not replace.
const SHARED_PARTS: [&str; 2] = ["vllm config/", "vllm v1/structured_output/"];

/// How certain a launch is about the target's family, or the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelEvidence {
    /// By the model's name or config; by the method's own key.
    Surely,
    /// By something specific to the family: a parser, or the name that clients use. By the method
    /// that vLLM infers from the draft's name.
    Probably,
}

/// A flag with any of these values; with any value if none is listed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenFlags {
    flag: String,
    #[serde(default)]
    values: Vec<String>,
    /// Lower-case substrings of the value, such as parts of its JSON; any of them.
    #[serde(default)]
    parts: Vec<String>,
}

/// A key of vLLM's speculative configuration whose value, as JSON, contains any of these
/// substrings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenKey {
    key: String,
    parts: Vec<String>,
}

/// An environment variable with this value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetVariable {
    name: String,
    value: String,
}

/// All rows.
fn faults() -> &'static [Fault] {
    static FAULTS: OnceLock<Vec<Fault>> = OnceLock::new();
    FAULTS.get_or_init(|| serde_json::from_str(include_str!("known/faults.json")).unwrap_or_default())
}

/// The faults of one kind that match a launch.
pub(super) fn met(context: &Context<'_>, harm: Harm) -> Vec<Finding> {
    let whose = if context.launch.engine == Engine::Vllm { FaultScope::Vllm } else { FaultScope::Sglang };
    let rows = faults().iter().filter(|fault| fault.engine == whose && fault.harm == harm);
    rows.filter_map(|fault| fault.look(context)).collect()
}

impl Fault {
    fn look(&self, context: &Context<'_>) -> Option<Finding> {
        let stated = self.stated_version(context);
        let is_stated = stated.is_some();
        if stated.is_some_and(|version| !self.is_in(version)) {
            return None;
        }
        if (!is_stated && !self.is_possible(context)) || !self.is_platform(context) {
            return None;
        }
        if is_stated && self.may_be_fixed(context) {
            return None;
        }
        let (place, method) = self.method(context)?;
        let target = self.target(context)?;
        if !self.is_draft(context) || !self.is_gpu(context) || !self.has_tokens(context) {
            return None;
        }
        if !self.has_keys(context) || !self.is_image(context) {
            return None;
        }
        if self.slime && context.launch.engine != Engine::Slime {
            return None;
        }
        let is_set = |set: &SetVariable| context.launch.variable(&set.name).is_some_and(|own| own.value == set.value);
        if !self.no_variables.iter().all(|name| context.launch.lacks_variable(name))
            || !self.variables.iter().all(is_set)
        {
            return None;
        }
        let mut causes = Vec::new();
        for given in &self.with {
            causes.push(given.find(context)?);
        }
        if self.without.iter().any(|given| given.may_be(context)) {
            return None;
        }
        let main = causes.first().copied().unwrap_or(place);
        let second = (!self.methods.is_empty()).then_some(place);
        let finding = Finding::new(main, self.message.clone(), self.label.clone()).related(second, "with this");
        let finding = causes.iter().skip(1).fold(finding, |finding, cause| finding.related(Some(*cause), "and this"));
        let finding = match &self.says {
            Some(words) => finding.engine_says(context.launch.engine.reference(), words),
            None => finding,
        };
        // A modified engine may have the fix.
        let finding = finding.note(self.stated(context)).help(self.help.clone()).by_engine();
        let is_released = !is_nightly(context) || self.until.is_none();
        let sure = self.certain
            && is_stated
            && is_released
            && method == ModelEvidence::Surely
            && target == ModelEvidence::Surely;
        // A plugin with models and kernels of its own may lack the fault.
        let is_fork = self.images.is_empty() && context.launch.forks.any_of(context.launch.engine);
        Some(match (is_fork || self.requests, sure) {
            (true, _) => finding.at_most(Severity::Info),
            (false, true) => finding,
            (false, false) => finding.at_most(Severity::Warning),
        })
    }

    /// The version that the launch states; of a row about Ascend, also that of the plugin's image,
    /// which is numbered like the engine.
    fn stated_version(&self, context: &Context<'_>) -> Option<EngineVersion> {
        if context.resolved.version_given {
            return Some(context.version());
        }
        let image = context.launch.image.as_deref().filter(|_| self.platforms.contains(&Platform::Ascend))?;
        let (_, tag) = image.rsplit_once("vllm-ascend:")?;
        // A build of a release's branch: `nightly-releases-v0.24.0rc-a3`, `releases-v0.18.0-a3`.
        let number = tag
            .trim_start_matches("nightly-")
            .trim_start_matches("releases-")
            .trim_start_matches('v')
            .split('-')
            .next()?;
        if number.ends_with("rc") { format!("{number}1").parse().ok() } else { number.parse().ok() }
    }

    fn is_in(&self, version: EngineVersion) -> bool {
        edge(&self.since).is_none_or(|since| since <= version) && edge(&self.until).is_none_or(|until| version < until)
    }

    /// Whether a nightly build is from the weeks before the release that has the fix. Its number
    /// names the last release only (`0.26.1rc1.dev1045`).
    fn may_be_fixed(&self, context: &Context<'_>) -> bool {
        // What is only reported has no known fix.
        if self.reported {
            return false;
        }
        let day = edge(&self.until).and_then(|until| published(context.launch.engine, until));
        let near = day.zip(context.launch.dated).is_some_and(|(day, dated)| day.is_at_most_a_month_after(dated));
        is_nightly(context) && near
    }

    /// Whether a launch that states no version may have the fault: a fixed one is reported only if
    /// the text is older than the fix, and no fault is if the text is older than the fault.
    fn is_possible(&self, context: &Context<'_>) -> bool {
        let day_of = |edge: Option<EngineVersion>| edge.and_then(|version| published(context.launch.engine, version));
        let Some(dated) = context.launch.dated else { return self.until.is_none() };
        // What a release brings has been on the main branch for some weeks.
        let is_near = |since: Day| since.is_at_most_a_month_after(dated);
        let begun = self.since.is_none() || day_of(edge(&self.since)).is_some_and(is_near);
        begun && (self.until.is_none() || day_of(edge(&self.until)).is_some_and(|until| dated < until))
    }

    /// A note on the affected versions and the sources.
    fn stated(&self, context: &Context<'_>) -> String {
        let engine = context.launch.engine.reference();
        let range = match (&self.since, &self.until) {
            (Some(since), Some(_)) if self.reported => {
                format!("reported with {engine} {since}; others were not examined")
            }
            (Some(since), Some(until)) => format!("known from {engine} {since} on, fixed in {until}"),
            (Some(since), None) => format!("known from {engine} {since} on; no version without it is known"),
            (None, Some(until)) => format!("fixed in {engine} {until}"),
            (None, None) if !self.images.is_empty() => "told of this image".to_owned(),
            (None, None) => format!("no version of {engine} without it is known"),
        };
        let dated = context.launch.dated.filter(|_| !context.resolved.version_given && self.until.is_some());
        let age = dated.map_or_else(String::new, |day| format!("; the text is of {day} and states no version"));
        format!("{range} ({}){age}", self.sources.join(", "))
    }

    /// The span of the method, if it is one of the row's; the span of the launch if the row lists
    /// none. A method that is not given is only probable, since the draft's config may imply
    /// another.
    fn method(&self, context: &Context<'_>) -> Option<(Span, ModelEvidence)> {
        if self.methods.is_empty() {
            return Some((context.launch.anchor, ModelEvidence::Surely));
        }
        let is_own = |method: &str| self.methods.iter().any(|own| own == method);
        if context.launch.engine == Engine::Vllm {
            let config = context.launch.vllm_speculation()?;
            if let Some(method) = config.method.as_deref() {
                return is_own(method).then_some((config.span, ModelEvidence::Surely));
            }
            if config.may_give("method") || config.is_legacy {
                return None;
            }
            let taken = method_of(&config);
            let stated = if taken.is_none() { ModelEvidence::Surely } else { ModelEvidence::Probably };
            return is_own(taken.unwrap_or("none")).then_some((config.span, stated));
        }
        let place = || context.value_place(schemas::flags::Key::SpeculativeAlgorithm);
        is_own(context.algorithm()?.name()).then(|| (place(), ModelEvidence::Surely))
    }

    /// How certain it is that the target is one of the row's; `None` if it is not.
    fn target(&self, context: &Context<'_>) -> Option<ModelEvidence> {
        let class = context.target_config().and_then(|config| config.architecture());
        let name = names::of_target(context);
        let has = |name: &str, parts: &[String]| parts.iter().any(|part| name.contains(part.as_str()));
        if has(&name, &self.not_models) {
            return None;
        }
        let stated = match class {
            Some(class) if !self.classes.is_empty() => {
                self.classes.iter().any(|known| class.starts_with(known.as_str())).then_some(ModelEvidence::Surely)
            }
            _ if self.classes.is_empty() && self.models.is_empty() || has(&name, &self.models) => {
                Some(ModelEvidence::Surely)
            }
            // Other hints do not count if the architecture is known.
            None if names::hints(context).iter().any(|hint| has(hint, &self.models)) => Some(ModelEvidence::Probably),
            _ => None,
        };
        let method = context.target_config().and_then(|config| config.quantization_method());
        let method = method.unwrap_or_default().to_ascii_lowercase();
        let given =
            context.launch.text(schemas::flags::Key::Quantization).map(|given| given.value.to_ascii_lowercase());
        let stated_of = [name.as_str(), method.as_str(), given.as_deref().unwrap_or_default()];
        let is_format = |part: &String| stated_of.iter().any(|text| text.contains(part.as_str()));
        stated.filter(|_| self.formats.is_empty() || self.formats.iter().any(is_format))
    }

    fn is_draft(&self, context: &Context<'_>) -> bool {
        if self.anchor_first && !context.drafts_anchor_first() {
            return false;
        }
        let name = context.draft_name();
        let name = name.map(|name| name.value.to_ascii_lowercase()).unwrap_or_default();
        self.drafts.is_empty() || self.drafts.iter().any(|part| name.contains(part.as_str()))
    }

    fn has_keys(&self, context: &Context<'_>) -> bool {
        if self.keys.is_empty() && self.no_keys.is_empty() {
            return true;
        }
        let Some(config) = context.launch.vllm_speculation() else { return false };
        let is_given = |given: &GivenKey| {
            let text = config.shown(&given.key).unwrap_or_default().to_ascii_lowercase();
            given.parts.iter().any(|part| text.contains(part.as_str()))
        };
        self.keys.iter().all(is_given) && !self.no_keys.iter().any(|key| config.may_give(key))
    }

    fn is_image(&self, context: &Context<'_>) -> bool {
        let name = context.launch.image.as_deref().unwrap_or_default().to_ascii_lowercase();
        self.images.is_empty() || self.images.iter().any(|part| name.contains(part.as_str()))
    }

    /// Ascend's plugin has its own kernels and its own rows; rows about architectures are for the
    /// GPUs that have them.
    fn is_platform(&self, context: &Context<'_>) -> bool {
        let named = platform_of(context);
        if named.is_some_and(|named| self.not_platforms.contains(&named)) {
            return false;
        }
        if !self.platforms.is_empty() {
            return named.is_some_and(|named| self.platforms.contains(&named));
        }
        let values = self.with.iter().flat_map(|given| given.values.iter().chain(&given.parts));
        let mut names = self.images.iter().chain(&self.sources).chain(values);
        let mut is_ascend = || names.any(|text| text.contains("ascend"));
        let is_shared = self.sources.iter().all(|source| SHARED_PARTS.iter().any(|part| source.starts_with(part)));
        match named {
            Some(Platform::Ascend) => is_shared || is_ascend(),
            Some(Platform::Rocm | Platform::Xpu | Platform::Other) => self.gpus.is_empty(),
            Some(Platform::Cuda) | None => true,
        }
    }

    fn is_gpu(&self, context: &Context<'_>) -> bool {
        let own = context.architecture().map(|architecture| architecture.to_string());
        self.gpus.is_empty() || own.is_some_and(|own| self.gpus.contains(&own))
    }

    fn has_tokens(&self, context: &Context<'_>) -> bool {
        if self.tokens.is_empty() && self.tokens_at_least.is_none() {
            return true;
        }
        let tokens = if context.launch.engine == Engine::Vllm {
            context.launch.vllm_speculation().and_then(|config| config.num_speculative_tokens)
        } else {
            context.resolved.num_draft_tokens.as_ref().and_then(|tokens| i64::try_from(tokens.value).ok())
        };
        let Some(tokens) = tokens.and_then(|tokens| u64::try_from(tokens).ok()) else { return false };
        (self.tokens.is_empty() || self.tokens.contains(&tokens))
            && self.tokens_at_least.is_none_or(|least| least <= tokens)
    }
}

/// Whether the version is that of a build between two releases.
fn is_nightly(context: &Context<'_>) -> bool {
    context.version().to_string().contains("rc")
}

/// Whether the target, whose config is not known, has the name of a family with latent attention.
pub(super) fn is_named_latent(context: &Context<'_>) -> bool {
    let named = |name: &String| {
        let is_family = ["deepseek-r1", "deepseek-v3", "deepseek-v2", "kimi-k2"].iter().any(|part| name.contains(part));
        is_family && !name.contains("distill")
    };
    named(&names::of_target(context)) || names::hints(context).iter().any(named)
}

/// The version at the edge of a row's range.
fn edge(text: &Option<String>) -> Option<EngineVersion> {
    text.as_deref().and_then(|text| text.parse().ok())
}

impl GivenFlags {
    /// Its span.
    fn find(&self, context: &Context<'_>) -> Option<Span> {
        let mut own = context.launch.arguments.iter().filter(|argument| self.is_flag(context, argument));
        let last = own.next_back()?;
        let known = last.known();
        let is_value = self.takes_any() || known.is_some_and(|known| self.is_value(known));
        is_value.then_some(last.span)
    }

    /// Whether it is, or may be, present.
    fn may_be(&self, context: &Context<'_>) -> bool {
        let mut own = context.launch.arguments.iter().filter(|argument| self.is_flag(context, argument));
        let Some(last) = own.next_back() else { return !context.launch.is_complete() };
        match last.values.first().map(|value| value.value.known()) {
            Some(None) => true,
            Some(Some(known)) => self.takes_any() || self.is_value(known),
            None => self.takes_any(),
        }
    }

    fn takes_any(&self) -> bool {
        self.values.is_empty() && self.parts.is_empty()
    }

    fn is_value(&self, known: &str) -> bool {
        let small = known.to_ascii_lowercase();
        self.values.iter().any(|value| value == known) || self.parts.iter().any(|part| small.contains(part.as_str()))
    }

    fn is_flag(&self, context: &Context<'_>, argument: &Argument) -> bool {
        argument.is_flag(context.launch.engine, &self.flag)
    }
}

#[cfg(test)]
mod tests {
    use schemas::flags;

    use super::*;

    #[test]
    fn every_row_is_read_and_says_what_it_must() {
        let rows: Vec<Fault> = serde_json::from_str(include_str!("known/faults.json")).expect("rows");
        let mut ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
        for row in &rows {
            let versions = [&row.since, &row.until].map(|edge| {
                edge.as_ref().map(|text| text.parse::<EngineVersion>().unwrap_or_else(|_| panic!("{}: {text}", row.id)))
            });
            if let [Some(since), Some(until)] = versions {
                assert!(since < until, "{}", row.id);
            }
            assert!(!row.reported || versions.iter().all(Option::is_some), "{}", row.id);
            assert!(!row.sources.is_empty(), "{}", row.id);
            let has_condition = !row.methods.is_empty() || !row.with.is_empty();
            assert!(has_condition || !row.models.is_empty() || !row.formats.is_empty(), "{}", row.id);
            assert!(row.sources.iter().all(|source| source.contains('#') || source.contains('.')), "{}", row.id);
            assert!(!row.message.ends_with('.') && row.message.len() < 160, "{}", row.id);
            for given in row.with.iter().chain(&row.without) {
                let known = if row.engine == FaultScope::Vllm { flags::vllm() } else { flags::sglang() };
                assert!(known.spelling(&given.flag).is_some(), "{}: {}", row.id, given.flag);
            }
            let small = |parts: &[String]| parts.iter().all(|part| *part == part.to_ascii_lowercase());
            assert!(row.with.iter().chain(&row.without).all(|given| small(&given.parts)), "{}", row.id);
            assert!(row.keys.iter().all(|given| small(&given.parts)), "{}", row.id);
            assert!(small(&row.models) && small(&row.formats) && small(&row.drafts), "{}", row.id);
            assert!(small(&row.not_models), "{}", row.id);
        }
        assert!(rows.len() >= 12, "{} rows only", rows.len());
    }
}
