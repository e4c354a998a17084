//! The flags that an engine knows, and how its words are told from values.

use schemas::{
    flags::{self, Arity, Key, Lookup},
    keywords::Callee,
    version::EngineVersion,
};

use super::super::{Engine, vllm};

/// SGLang arguments that slime sets itself and so does not take after its prefix
/// (slime `backends/sglang_utils/arguments.py`).
const NOT_FORWARDED: &[&str] = &[
    "base-gpu-id",
    "config",
    "dist-init-addr",
    "enable-memory-saver",
    "enable-return-routed-experts",
    "gpu-id-step",
    "model-path",
    "nccl-port",
    "nnodes",
    "node-rank",
    "port",
    "random-seed",
    "skip-server-warmup",
    "tp-size",
    "trust-remote-code",
];

/// Whether a word is written as a flag, not as a value (negative numbers are values) or a ruler
/// (`-----`, `--- or ---`).
pub(crate) fn is_flag(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('-') else { return false };
    match rest.strip_prefix('-') {
        Some(name) => {
            let own = name.trim_start_matches('-');
            let spelling = own.split('=').next().unwrap_or_default();
            // Lines of dashes under headings and around logs.
            let is_ruler = own.len() < name.len() && spelling.ends_with('-');
            !own.is_empty() && !own.starts_with('=') && !is_ruler
        }
        None => rest.chars().next().is_some_and(|first| first.is_ascii_alphabetic()),
    }
}

/// The names that an engine's command line, or one of its classes, knows.
#[derive(Clone, Copy)]
pub(crate) struct FlagNames {
    pub engine: Engine,
    pub version: Option<EngineVersion>,
    /// The class whose keywords the names are.
    pub callee: Option<Callee>,
    /// Whether the engine's own parser reads the words, and nothing else.
    pub is_command_line: bool,
    /// Whether the words follow `vllm serve`, rather than an image or a module.
    pub is_after_serve: bool,
}

impl FlagNames {
    /// The names of an engine's command line.
    pub fn for_engine(engine: Engine, version: Option<EngineVersion>) -> Self {
        Self { engine, version, callee: None, is_command_line: false, is_after_serve: false }
    }

    /// How many words follow a flag of `vllm serve`.
    pub(super) fn arity_in_vllm(&self, spelling: &str) -> Option<Arity> {
        let is_read = self.engine == Engine::Vllm && self.is_command_line;
        is_read.then(|| vllm::arity(spelling, self.version)).flatten()
    }

    /// What a flag means to the engine, and how many words follow it where that is known. A class
    /// knows neither aliases nor abbreviations.
    pub fn meaning(&self, spelling: &str) -> (Option<Key>, Option<Arity>) {
        let name = spelling.trim_start_matches('-');
        // A keyword of which no flag has the name is not the abbreviation of another one.
        let is_flag = || self.engine.registered().spelling(name).is_some();
        let is_keyword = |callee: Callee| callee.keyword_of_flag(name).is_some() && is_flag();
        match self.callee {
            Some(callee) if !is_keyword(callee) => (None, None),
            _ => meaning(spelling, self.engine, self.version),
        }
    }
}

fn meaning(spelling: &str, engine: Engine, version: Option<EngineVersion>) -> (Option<Key>, Option<Arity>) {
    // Anything that is not a flag has no name in any table.
    let name = spelling.strip_prefix("--").filter(|name| !name.starts_with('-')).unwrap_or_default();
    match engine {
        Engine::Vllm => vllm::meaning(spelling),
        _ if name.is_empty() => (None, None),
        // The target has a name of slime's own too.
        Engine::Slime => match flags::by_name(name).filter(|flag| flag.of_slime || name == "hf-checkpoint") {
            Some(flag) => (Some(flag.key), Some(flag.arity())),
            None => match name.strip_prefix("sglang-").filter(|name| !NOT_FORWARDED.contains(name)) {
                Some(name) => sglang(name, version),
                None => (None, None),
            },
        },
        Engine::Spectune => match (flags::by_name(name), flags::arity_in_serve(name)) {
            (Some(flag), _) => (Some(flag.key), Some(flag.arity())),
            (None, Some(arity)) => (None, Some(arity)),
            (None, None) => sglang(name, version),
        },
        Engine::Sglang => sglang(name, version),
    }
}

fn sglang(name: &str, version: Option<EngineVersion>) -> (Option<Key>, Option<Arity>) {
    let found = match flags::lookup(name, version) {
        // A flag of another version is still the user's flag; a rule reports that it was removed.
        Lookup::Unknown | Lookup::Ambiguous(_) if version.is_some() => flags::lookup(name, None),
        found => found,
    };
    let spelling = match found {
        Lookup::Exact(spelling) | Lookup::Abbreviation(spelling) => spelling,
        // What it stood for before there were others that begin alike.
        Lookup::Ambiguous(several) => {
            let mut old = several.into_iter().filter(|spelling| spelling.since.is_none());
            match (old.next(), old.next()) {
                (Some(spelling), None) => spelling,
                _ => return (None, None),
            }
        }
        Lookup::Unknown => return (None, None),
    };
    // It took an optional word before 0.5.8.
    let is_optional = spelling.canonical == "hybrid-kvcache-ratio";
    let arity = if is_optional { Arity::Optional } else { spelling.arity };
    let key = flags::by_name(spelling.canonical).or_else(|| flags::by_name(spelling.name)).map(|flag| flag.key);
    (key, Some(arity))
}
