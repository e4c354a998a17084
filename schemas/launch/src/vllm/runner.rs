//! vLLM's two model runners, and what each of them lacks (`config/vllm.py` of 0.20.2 to 0.33.0).

use schemas::{engines::Engine, flags::Key, text::Span, version::EngineVersion};
use serde_json::Value as Json;

use super::{
    super::{Argument, Launch},
    VllmSpeculation,
};

/// The variable that chooses the runner: `1` for V2, `0` for V1. Without it vLLM chooses.
pub const RUNNER_VARIABLE: &str = "VLLM_USE_V2_MODEL_RUNNER";

/// The oldest version whose choice of runner was read.
pub const OLDEST_WITH_RUNNERS: EngineVersion = EngineVersion::new(0, 20, 2);

/// The methods of runner V2, with the first version in which it has each.
const IN_V2: [(&str, EngineVersion); 9] = [
    ("eagle", OLDEST_WITH_RUNNERS),
    ("eagle3", OLDEST_WITH_RUNNERS),
    ("mtp", OLDEST_WITH_RUNNERS),
    ("dflash", EngineVersion::new(0, 24, 0)),
    ("dspark", EngineVersion::new(0, 25, 0)),
    ("extract_hidden_states", EngineVersion::new(0, 29, 0)),
    ("draft_model", EngineVersion::new(0, 31, 0)),
    ("ngram", EngineVersion::new(0, 32, 0)),
    ("ngram_gpu", EngineVersion::new(0, 32, 0)),
];

/// Methods that runner V2 never had.
const NEVER_IN_V2: [&str; 4] = ["suffix", "medusa", "mlp_speculator", "custom_class"];

/// The first version that names what V1 does not have.
const CHECKS_V1: EngineVersion = EngineVersion::new(0, 29, 0);

/// The first version that names parallel drafting as missing in V2.
const CHECKS_PARALLEL: EngineVersion = EngineVersion::new(0, 22, 1);

/// The version with vocabularies of drafts that differ from the target's.
const CHECKS_VOCABULARY: EngineVersion = EngineVersion::new(0, 32, 0);

/// The first version whose V2 leaves pipeline stages of an external launcher to V1.
const CHECKS_LAUNCHER: EngineVersion = EngineVersion::new(0, 24, 0);

/// What V1 does not have of flags with several ranks, or that are switched on, with the first
/// version that says so.
const NOT_IN_V1: [(&str, bool, EngineVersion, &str); 2] = [
    ("prefill-context-parallel-size", true, CHECKS_V1, "prefill context parallel"),
    ("enable-batch-sharded-sampling", false, CHECKS_V1, "batch-sharded sampling"),
];

/// The first version that refuses asynchronous scheduling over pipeline stages in V1.
const CHECKS_ASYNC_STAGES: EngineVersion = EngineVersion::new(0, 31, 0);

/// The first version with a quantised LM head of a draft.
const CHECKS_DRAFT_HEAD: EngineVersion = EngineVersion::new(0, 33, 0);

/// The versions whose V2 has no EAGLE-3 under pipeline parallelism.
const NO_PIPELINE: std::ops::Range<EngineVersion> = EngineVersion::new(0, 22, 1)..EngineVersion::new(0, 30, 0);

/// A feature that a runner does not have, in vLLM's words, and where it is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// As vLLM names it: `speculative method 'suffix'`.
    pub words: String,
    /// The span of the request.
    pub place: Span,
}

impl Launch {
    /// What runner V2 of this version lacks for this launch.
    pub fn lacked_by_v2(&self, config: &VllmSpeculation, version: EngineVersion) -> Option<Lack> {
        let method = config.method_in_use()?;
        let method = if method.ends_with("_mtp") { "mtp" } else { method };
        let since = IN_V2.iter().find(|(own, _)| *own == method).map(|(_, since)| *since);
        let is_missing = NEVER_IN_V2.contains(&method) || since.is_some_and(|since| version < since);
        let place = config.keys.get("method").map_or(config.span, |key| key.span);
        if is_missing {
            let is_lookup = matches!(method, "ngram" | "ngram_gpu") && version < EngineVersion::new(0, 30, 0);
            let words = if is_lookup && version >= CHECKS_PARALLEL {
                "ngram/ngram_gpu speculative decoding".to_owned()
            } else {
                format!("speculative method '{method}'")
            };
            return Some(Lack { words, place });
        }
        let on = |key: &str| Some(config.keys.get(key)?).filter(|key| key.value == Some(Json::Bool(true)));
        if let Some(key) =
            on("parallel_drafting").filter(|_| !matches!(method, "dflash" | "dspark") && version >= CHECKS_PARALLEL)
        {
            return Some(Lack {
                words: "parallel drafting for EAGLE speculative decoding".to_owned(),
                place: key.span,
            });
        }
        if let Some(key) = on("use_heterogeneous_vocab").filter(|_| version >= CHECKS_VOCABULARY) {
            return Some(Lack { words: "heterogeneous-vocabulary draft models".to_owned(), place: key.span });
        }
        let stages = self.several("pipeline-parallel-size")?;
        let launcher = self.on(&["distributed-executor-backend"]);
        let is_external = |argument: &&Argument| argument.known() == Some("external_launcher");
        if let Some(launcher) = launcher.filter(is_external)
            && version >= CHECKS_LAUNCHER
        {
            let words = "pipeline parallelism with external_launcher".to_owned();
            return Some(Lack { words, place: launcher.span });
        }
        (method == "eagle3" && NO_PIPELINE.contains(&version))
            .then(|| Lack { words: "EAGLE3 with pipeline parallelism".to_owned(), place: stages })
    }

    /// The last argument of one of these names, unless a branch adds it.
    fn on(&self, names: &[&str]) -> Option<&Argument> {
        let is_own = |argument: &&Argument| names.iter().any(|name| argument.is_flag(Engine::Vllm, name));
        self.arguments.iter().rfind(is_own).filter(|argument| !argument.in_branch)
    }

    /// The span of a number of ranks above 1.
    fn several(&self, name: &str) -> Option<Span> {
        let argument = self.on(&[name])?;
        let ranks: usize = argument.known()?.parse().ok()?;
        (ranks > 1).then_some(argument.span)
    }

    /// What runner V1 of this version lacks for this launch.
    pub fn lacked_by_v1(&self, config: &VllmSpeculation, version: EngineVersion) -> Option<Lack> {
        if version < CHECKS_V1 {
            return None;
        }
        if config.method_in_use() == Some("dspark") {
            let draft = self.settings.get(&Key::SpeculativeDraftModelPath).map(|setting| setting.span);
            let place = config.keys.get("method").map(|key| key.span).or(draft).unwrap_or(config.span);
            return Some(Lack { words: "dspark speculative decoding".to_owned(), place });
        }
        let on = |key: &str| Some(config.keys.get(key)?).filter(|key| key.value == Some(Json::Bool(true)));
        if let Some(adaptive) = on("enable_adaptive_verification") {
            return Some(Lack { words: "adaptive draft verification".to_owned(), place: adaptive.span });
        }
        let head = config.keys.get("draft_lm_head_quantization");
        let head = head.filter(|head| head.value.as_ref().is_some_and(Json::is_string));
        if let Some(head) = head.filter(|_| version >= CHECKS_DRAFT_HEAD) {
            return Some(Lack { words: "draft lm_head quantization".to_owned(), place: head.span });
        }
        self.flag_lacked_by_v1(version)
    }

    /// A flag that only runner V2 of this version has.
    fn flag_lacked_by_v1(&self, version: EngineVersion) -> Option<Lack> {
        let stages = || self.several("pipeline-parallel-size");
        let asynchronous = self.on(&["async-scheduling", "no-async-scheduling"]);
        let is_first = |argument: &&Argument| argument.flag.value.starts_with("--async") && is_switched_on(argument);
        if let Some(asynchronous) = asynchronous.filter(is_first)
            && version >= CHECKS_ASYNC_STAGES
            && stages().is_some()
        {
            let words = "pipeline parallelism with async scheduling".to_owned();
            return Some(Lack { words, place: asynchronous.span });
        }
        NOT_IN_V1.iter().filter(|(_, _, since, _)| version >= *since).find_map(|(name, is_number, _, words)| {
            let switch = || self.on(&[name]).filter(|argument| is_switched_on(argument)).map(|argument| argument.span);
            let place = if *is_number { self.several(name) } else { switch() };
            Some(Lack { words: (*words).to_owned(), place: place? })
        })
    }
}

/// Whether a switch is certainly on: a program may give it a value.
fn is_switched_on(argument: &Argument) -> bool {
    argument.values.is_empty() || matches!(argument.known(), Some("True" | "true"))
}
