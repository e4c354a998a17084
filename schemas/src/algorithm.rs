//! SGLang's algorithms of speculation.

use crate::version::EngineVersion;

/// From here on (wheel 0.5.12.post1) the case of the name does not matter.
pub const ANY_CASE_SINCE: EngineVersion = EngineVersion::new(0, 5, 12);

/// Speculation algorithms that rules distinguish (after NEXTN became EAGLE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the engine's own")]
pub enum Algorithm {
    Eagle,
    Eagle3,
    Standalone,
    Ngram,
    Dflash,
    Dspark,
    Uno,
    FrozenKvMtp,
}

/// The algorithm that a version understands by a name, and whether the name is an alias.
pub fn parse_algorithm(name: &str, version: EngineVersion) -> Option<(Algorithm, bool)> {
    let folded = name.to_ascii_uppercase();
    if folded != name && version < ANY_CASE_SINCE {
        return None;
    }
    Some(match folded.as_str() {
        "EAGLE" => (Algorithm::Eagle, false),
        "NEXTN" => (Algorithm::Eagle, true),
        "EAGLE3" => (Algorithm::Eagle3, false),
        "STANDALONE" => (Algorithm::Standalone, false),
        "NGRAM" => (Algorithm::Ngram, false),
        "DFLASH" => (Algorithm::Dflash, false),
        "DSPARK" => (Algorithm::Dspark, false),
        "UNO" => (Algorithm::Uno, false),
        "FROZEN_KV_MTP" => (Algorithm::FrozenKvMtp, false),
        _ => return None,
    })
}

impl Algorithm {
    /// The first version that was read and has it; `None` if the oldest one has.
    pub fn since(self) -> Option<EngineVersion> {
        let patch = match self {
            Self::Eagle | Self::Eagle3 => return None,
            Self::Standalone => 2,
            Self::Ngram => 3,
            Self::Dflash => 11,
            Self::FrozenKvMtp => 12,
            Self::Dspark => 16,
            Self::Uno => 20,
        };
        Some(EngineVersion::new(0, 5, patch))
    }

    /// The name as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eagle => "EAGLE",
            Self::Eagle3 => "EAGLE3",
            Self::Standalone => "STANDALONE",
            Self::Ngram => "NGRAM",
            Self::Dflash => "DFLASH",
            Self::Dspark => "DSPARK",
            Self::Uno => "UNO",
            Self::FrozenKvMtp => "FROZEN_KV_MTP",
        }
    }

    /// Whether it loads a draft; otherwise it looks drafts up, or the target itself drafts.
    pub fn loads_draft(self) -> bool {
        !matches!(self, Self::Ngram | Self::Uno)
    }

    /// Whether it drafts a tree step by step, so that the triple has its usual meaning.
    pub fn drafts_trees(self) -> bool {
        matches!(self, Self::Eagle | Self::Eagle3 | Self::Standalone)
    }
}
