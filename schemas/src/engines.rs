//! The engines for which launches are written, and their newest known versions.

pub mod releases;

use std::{borrow::Cow, fmt, str::FromStr};

use crate::{
    flags::{self, Lookup, Registered},
    text::shortened,
    version::EngineVersion,
};

/// The engine that a launch is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// SGLang's own flags.
    Sglang,
    /// slime (and miles): SGLang's flags with the prefix `--sglang-`.
    Slime,
    /// vLLM.
    Vllm,
    /// spectune's built-in engine.
    Spectune,
}

impl Engine {
    /// The word on the command line and in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Slime => "slime",
            Self::Vllm => "vllm",
            Self::Spectune => "spectune",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// The text does not name an engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an engine (expected sglang, slime, vllm or spectune)")]
pub struct UnknownEngine(pub String);

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<Self, UnknownEngine> {
        [Self::Sglang, Self::Slime, Self::Vllm, Self::Spectune]
            .into_iter()
            .find(|engine| engine.word() == text)
            .ok_or_else(|| UnknownEngine(shortened(text)))
    }
}

impl Engine {
    /// The engine whose code and versions count: SGLang for slime, which starts it, and for
    /// spectune, which has its flags.
    pub fn reference(self) -> Self {
        if self == Self::Vllm { Self::Vllm } else { Self::Sglang }
    }

    /// The flags that the engine's own parser registers.
    pub fn registered(self) -> &'static Registered {
        if self == Self::Vllm { flags::vllm() } else { flags::sglang() }
    }

    /// What the engine's flags begin with in a launch.
    pub fn flag_prefix(self) -> &'static str {
        if self == Self::Slime { "--sglang-" } else { "--" }
    }

    /// The name, without prefix, that the engine's parser looks up for a flag as written; `None` if
    /// the parser does not see it as one. vLLM's is the long name, with the dashes for which its
    /// parser takes underscores; a key after a dot stays as it is.
    pub fn flag_name(self, written: &str) -> Option<Cow<'_, str>> {
        if self != Self::Vllm {
            return self.without_prefix(written).map(Cow::Borrowed);
        }
        let (flag, key) = written.split_at(written.find('.').unwrap_or(written.len()));
        let name = match flags::vllm_long_name(flag) {
            Some(long) => long.to_owned(),
            None => self.without_prefix(flag)?.replace('_', "-"),
        };
        Some(Cow::Owned(name + key))
    }

    fn without_prefix(self, flag: &str) -> Option<&str> {
        flag.strip_prefix(self.flag_prefix()).filter(|name| !name.is_empty() && !name.starts_with('-'))
    }

    /// The name of the argument that a flag as written sets, in any version: by its name, an alias,
    /// vLLM's short name, or an abbreviation. `None` if it sets none, or may set several.
    pub fn canonical_flag(self, written: &str) -> Option<&'static str> {
        match self.registered().lookup(&self.flag_name(written)?, None) {
            Lookup::Exact(spelling) | Lookup::Abbreviation(spelling) => Some(spelling.canonical),
            Lookup::Ambiguous(_) | Lookup::Unknown => None,
        }
    }
}

/// The newest SGLang version whose behaviour is known.
pub const NEWEST_SGLANG: EngineVersion = EngineVersion::new(0, 5, 23);

/// The newest vLLM version whose behaviour is known.
pub const NEWEST_VLLM: EngineVersion = EngineVersion::new(0, 33, 0);

/// The newest version of an engine whose behaviour is known; SGLang's for slime and for spectune.
pub fn newest_known(engine: Engine) -> EngineVersion {
    if engine == Engine::Vllm { NEWEST_VLLM } else { NEWEST_SGLANG }
}

/// The SGLang version that slime pins (its `docker/` folder in August 2026).
pub const SLIME_PIN: EngineVersion = EngineVersion::new(0, 5, 15).post(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_named_by_their_words() {
        assert_eq!("slime".parse(), Ok(Engine::Slime));
        assert!("Slime".parse::<Engine>().is_err());
    }

    #[test]
    fn flags_are_found_by_every_name_that_the_parser_takes() {
        for (engine, written, expected) in [
            (Engine::Sglang, "--tp", Some("tp-size")),
            (Engine::Sglang, "--tensor-parallel-size", Some("tp-size")),
            (Engine::Sglang, "--mem-frac", Some("mem-fraction-static")),
            // SGLang's parser has no short names, and takes no underscores.
            (Engine::Sglang, "-tp", None),
            (Engine::Sglang, "--tp_size", None),
            (Engine::Slime, "--sglang-tp", Some("tp-size")),
            (Engine::Slime, "--tp-size", None),
            (Engine::Vllm, "-tp", Some("tensor-parallel-size")),
            (Engine::Vllm, "--tensor_parallel_size", Some("tensor-parallel-size")),
            (Engine::Vllm, "--tensor-parallel", Some("tensor-parallel-size")),
            (Engine::Vllm, "--tp", None),
            (Engine::Vllm, "--max-num", None),
            (Engine::Vllm, "--", None),
            (Engine::Vllm, "---tensor_parallel_size", None),
            (Engine::Vllm, "model", None),
        ] {
            assert_eq!(engine.canonical_flag(written), expected, "{engine}: {written}");
        }
        let name = |written: &str| Engine::Vllm.flag_name(written).map(Cow::into_owned);
        assert_eq!(name("-sc.draft_model").as_deref(), Some("speculative-config.draft_model"));
        assert_eq!(name("--speculative_config.method").as_deref(), Some("speculative-config.method"));
    }
}
