//! Queries on a launch that many rules share.

use launch::{Argument, Setting, VllmSpeculation};
use schemas::{
    algorithm::Algorithm,
    diagnostic::Edit,
    engines::{Engine, newest_known},
    flags::Key,
    gpu::{Architecture, architecture_of},
    model::{DraftKind, ModelConfig, ModelFacts},
    text::{Located, Span},
    version::EngineVersion,
};

use super::{Context, Finding, vllm::vl21_mtp_without_layers::has_none};

impl<'a> Context<'a> {
    /// Without facts of a draft that is named but not loaded.
    pub(super) fn with_loaded(&self) -> Self {
        Self { draft: self.draft.filter(|_| self.loads_draft()), ..*self }
    }

    /// The architecture of the GPUs: that of the given one, or else the only one that the text
    /// names.
    pub fn architecture(&self) -> Option<Architecture> {
        self.gpu_memory.and_then(architecture_of).or(self.hardware.architecture)
    }

    /// An attention backend to try instead of another one, which the GPU has if it is known.
    pub(super) fn other_backend(&self) -> &'static str {
        match self.architecture() {
            Some(Architecture::Sm(8 | 9, _)) | None => "fa3",
            Some(_) => "triton",
        }
    }

    /// The SGLang version to check against.
    pub(super) fn version(&self) -> EngineVersion {
        self.resolved.version
    }

    /// Whether the version has what a release was the first to have, or may have it: a build of a
    /// day between two releases has parts of the next one, and of the one after it, whose branch
    /// was cut later.
    pub(super) fn may_have(&self, since: EngineVersion) -> bool {
        let version = self.version();
        let is_of_day = self.launch.version_of_day == Some(version) && !self.resolved.version_given;
        let releases = self.launch.engine.registered().versions();
        let is_between = |known: &&EngineVersion| known.post.is_none() && version < **known && **known <= since;
        version >= since || (is_of_day && releases.iter().filter(is_between).count() <= 2)
    }

    /// The algorithm that runs, if known.
    pub(super) fn algorithm(&self) -> Option<Algorithm> {
        self.resolved.algorithm.as_ref().map(|algorithm| algorithm.value)
    }

    /// The algorithm, if it drafts step by step, so that steps, topk and draft tokens have their
    /// usual meaning.
    pub(super) fn tree_algorithm(&self) -> Option<Algorithm> {
        self.algorithm().filter(|algorithm| algorithm.drafts_trees())
    }

    /// `Some` if the algorithm is this one.
    pub(super) fn only(&self, algorithm: Algorithm) -> Option<()> {
        (self.algorithm() == Some(algorithm)).then_some(())
    }

    /// Whether steps are chosen at run time.
    pub(super) fn is_adaptive(&self) -> bool {
        self.launch.has(Key::SpeculativeAdaptive)
    }

    /// The target's config, if anything is known about it.
    pub(super) fn target_config(&self) -> Option<&'a ModelConfig> {
        self.target.map(|target| &target.config)
    }

    /// The draft's config, if the launch names a draft and anything is known about it.
    pub(super) fn draft_config(&self) -> Option<&'a ModelConfig> {
        self.draft.filter(|_| self.launch.has(Key::SpeculativeDraftModelPath)).map(|draft| &draft.config)
    }

    /// The draft's name or folder, if the launch names one and loads it.
    pub(super) fn draft_name(&self) -> Option<Located<&'a str>> {
        self.launch.text(Key::SpeculativeDraftModelPath).filter(|_| self.loads_draft())
    }

    /// Whether a draft that the launch names is loaded.
    pub(super) fn loads_draft(&self) -> bool {
        self.launch.loads_draft(self.version())
    }

    /// The kind of the draft that the launch names.
    pub(super) fn draft_kind(&self) -> Option<DraftKind> {
        self.draft.filter(|_| self.launch.has(Key::SpeculativeDraftModelPath))?.draft_kind()
    }

    /// A key of the speculative configuration with a value in JSON, as this launch's user writes
    /// them.
    pub(super) fn config_pair(&self, key: &str, value: &str) -> String {
        if self.launch.config_is_call {
            return format!("{key}={value}");
        }
        let is_whole = |flag: &str| matches!(flag.replace('_', "-").as_str(), "--speculative-config" | "-sc");
        let has = |wanted: &dyn Fn(&str) -> bool| {
            self.launch.arguments.iter().any(|argument| wanted(argument.flag.value.as_str()))
        };
        let flag = match self.launch.vllm_key_flag(key) {
            Some(flag) => flag.to_owned(),
            None if has(&is_whole) => return format!("\"{key}\": {value}"),
            None if key == "num_speculative_tokens" && has(&|flag| flag.starts_with("--spec-")) => {
                "--spec-tokens".into()
            }
            None => format!("--speculative-config.{key}"),
        };
        format!("{flag} {}", value.trim_matches('"'))
    }

    /// The method that vLLM uses: if none is given, the draft's type decides for models that are no
    /// language models.
    pub(super) fn vllm_method<'c>(&self, config: &'c VllmSpeculation) -> Option<&'c str> {
        self.method_of_type(config).or_else(|| method_of(config))
    }

    /// The method that the type of the draft is, if none is given.
    pub(super) fn method_of_type(&self, config: &VllmSpeculation) -> Option<&'static str> {
        let draft = self.draft_config().filter(|_| !config.may_give("method"))?;
        TYPES.into_iter().find(|own| draft.model_type.as_deref() == Some(own))
    }

    /// Whether the draft is a whole model without layers that predict several tokens: no head.
    pub(super) fn drafts_with_whole_model(&self) -> bool {
        let class = self.draft_config().and_then(|draft| draft.architecture());
        class.is_some_and(has_none) && self.draft.is_some_and(ModelFacts::is_whole_model)
    }

    /// Whether the draft that the launch names is a DSPARK head without a Markov head.
    pub(super) fn drafts_with_plain_dspark(&self) -> bool {
        self.draft_config().is_some() && self.draft.is_some_and(ModelFacts::is_plain_dspark)
    }

    /// Whether it is one that proposes from its first row on.
    pub(super) fn drafts_anchor_first(&self) -> bool {
        self.draft_config().is_some() && self.draft.is_some_and(ModelFacts::is_anchor_first)
    }

    /// The setting of a key, if the launch gives it.
    pub(super) fn setting(&self, key: Key) -> Option<&'a Setting> {
        self.launch.settings.get(&key)
    }

    /// Whether a key is certainly not given: not visibly, in no branch, in no unknown word, in no
    /// file, and not under a name that slime does not pass on (which is another finding).
    pub(super) fn is_absent(&self, key: Key) -> bool {
        let launch = self.launch;
        let overridden = launch.engine == Engine::Slime && launch.has(Key::SglangConfig);
        let bare = || {
            let flag = key.flag();
            let mut bare = launch.arguments.iter().filter_map(|argument| argument.flag.value.strip_prefix("--"));
            launch.engine == Engine::Slime && bare.any(|name| flag.names().any(|known| known == name))
        };
        !launch.has(key) && !launch.perhaps.contains(&key) && launch.is_complete() && !overridden && !bare()
    }

    /// The span where an environment variable is turned on, if it is.
    pub(super) fn switched_on(&self, variable: &str) -> Option<Span> {
        let value = self.launch.variable(variable)?;
        let on = ["1", "true", "yes", "y", "on"].iter().any(|on| value.value.eq_ignore_ascii_case(on));
        on.then_some(value.span)
    }

    /// For slime: the most requests that a rollout has in flight, of all engines together, if the
    /// flags that bound them are in the text and nothing else sends requests.
    pub(super) fn rollout_requests(&self) -> Option<usize> {
        let launch = self.launch;
        if launch.engine != Engine::Slime || !launch.is_complete() {
            return None;
        }
        let argument = |name: &str| launch.arguments.iter().rfind(|argument| argument.flag.value == name);
        let count = |name: &str| {
            let argument = argument(name)?;
            let value = argument.values.first()?.value.known()?.parse::<usize>().ok();
            value.filter(|_| !argument.in_branch)
        };
        if ["--eval-interval", "--eval-prompt-data", "--eval-config"].iter().any(|name| argument(name).is_some()) {
            return None;
        }
        let prompts = count("--rollout-batch-size")?;
        let prompts = match argument("--over-sampling-batch-size") {
            Some(_) => prompts.max(count("--over-sampling-batch-size")?),
            None => prompts,
        };
        prompts.checked_mul(count("--n-samples-per-prompt")?)
    }

    /// The last argument of a flag without its own key.
    pub(super) fn argument(&self, name: &str) -> Option<&'a Argument> {
        self.launch.argument(name)
    }

    /// The span of a key, or else of the launch.
    pub(super) fn place(&self, key: Key) -> Span {
        self.setting(key).map_or(self.launch.anchor, |setting| setting.span)
    }

    /// The span of a key's value, or else of the launch.
    pub(super) fn value_place(&self, key: Key) -> Span {
        self.setting(key).map_or(self.launch.anchor, |setting| setting.value.unwrap_or(setting.span))
    }

    /// The span of a key, if it is given.
    pub(super) fn span(&self, key: Key) -> Option<Span> {
        self.setting(key).map(|setting| setting.span)
    }

    /// A flag's name as this launch's user writes it.
    pub(super) fn flag(&self, key: Key) -> String {
        self.launch.spelled(key, self.version())
    }

    /// A flag with its value as this launch's user writes them.
    pub(super) fn line(&self, key: Key, value: &str) -> String {
        self.launch.line(key, self.version(), value)
    }

    /// The edit that gives a key a value.
    pub(super) fn set(&self, key: Key, value: &str) -> Vec<Edit> {
        vec![self.launch.set(key, self.version(), value)]
    }

    /// The edit that removes a flag.
    pub(super) fn remove(&self, key: Key) -> Vec<Edit> {
        self.launch.remove(key).into_iter().collect()
    }

    /// The verb of an advice: `add` for a key that is not given, `write` for one that is.
    pub(super) fn add_or_write(&self, key: Key) -> &'static str {
        if self.launch.has(key) { "write" } else { "add" }
    }

    /// The flag and value, as this launch's user writes them, that set tensor parallelism to
    /// `size`.
    pub(super) fn tensor_parallel_line(&self, size: usize) -> String {
        if self.launch.engine == Engine::Slime {
            let pipeline = self.launch.count(Key::PpSize).map_or(1, |pipeline| pipeline.value.max(1));
            return self.line(Key::RolloutNumGpusPerEngine, &size.saturating_mul(pipeline).to_string());
        }
        self.line(Key::TpSize, &size.to_string())
    }

    /// Maximum number of running requests per worker, if known.
    pub(super) fn requests_per_worker(&self) -> Option<usize> {
        let limit = self.resolved.max_running_requests.as_ref()?.value;
        Some((limit / self.launch.attention_ranks()?).max(1))
    }

    /// Whether the version is the one that the text around the launch states, so that it may be
    /// that of another launch.
    pub(super) fn version_is_inferred(&self) -> bool {
        let stated = self.launch.engine_version.map(|stated| stated.value);
        self.launch.version_is_inferred && stated == Some(self.version())
    }

    /// Whether the user or the launch itself states the version.
    pub(super) fn version_is_certain(&self) -> bool {
        self.resolved.version_given && !self.version_is_inferred()
    }

    /// A note that the version is an assumption, or newer than every known one.
    pub(super) fn assumed_version(&self) -> Option<String> {
        let version = self.version();
        let engine = self.launch.engine.reference();
        let newest = newest_known(self.launch.engine);
        if !self.resolved.version_given {
            let day = self.launch.dated.filter(|_| self.launch.version_of_day == Some(version));
            let whose = match (self.launch.engine, day) {
                (Engine::Slime, _) => "the one that slime pins".to_owned(),
                (_, Some(day)) => format!("the newest of {day}, the latest day in the text"),
                _ => "the newest known".to_owned(),
            };
            return Some(format!("checked for {engine} {version}, {whose}; choose another with `--engine-version`"));
        }
        (version > newest).then(|| format!("{engine} {version} is not known; checked as {newest}"))
    }
}

/// Types of drafts that are methods of vLLM.
const TYPES: [&str; 2] = ["medusa", "mlp_speculator"];

/// A finding about a missing flag, at the launch.
pub(super) fn missing(context: &Context<'_>, key: Key, message: impl Into<String>) -> Finding {
    Finding::new(context.launch.anchor, message, format!("no `{}` here", context.flag(key)))
}

/// A finding on a head whose features are of another width than the target's.
pub(super) fn draft_width(context: &Context<'_>, place: Span) -> Option<Finding> {
    let (target, facts) = (context.target_config()?.hidden_size?, context.draft?);
    let draft = context.draft_config()?;
    // If the config is only partly known, the field that explains the difference may exist.
    let own = || draft.hidden_size.filter(|own| !facts.partial || *own == target);
    let expected = draft.target_hidden_size.or_else(own)?;
    (expected != target).then(|| {
        let message = format!("the draft is for hidden states of width {expected}, and the target's are {target} wide");
        Finding::new(place, message, format!("for {expected}"))
            .related(context.span(Key::ModelPath), format!("hidden size {target}"))
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help("use the draft that was trained for this target")
    })
}

/// A number with its noun, in the plural unless the number is one.
pub(super) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// The method that vLLM uses, as far as the launch tells.
pub(super) fn method_of(config: &VllmSpeculation) -> Option<&str> {
    config.method_in_use()
}
