//! The engines for which launches are written, and their newest known versions.

pub mod releases;

use std::{fmt, str::FromStr};

use crate::{
    flags::{self, Registered},
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
}
