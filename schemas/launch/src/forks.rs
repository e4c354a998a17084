//! Plugins and forks of the engines that add flags, methods and values: how texts refer to them,
//! and the flags that they add.

use std::sync::LazyLock;

use schemas::text::Source;
use serde::Deserialize;

use super::Engine;

/// A plugin or a fork: a row of `data/forks.toml`, which explains the fields.
#[derive(Debug, Deserialize)]
struct Fork {
    #[cfg_attr(not(test), expect(dead_code, reason = "the table is sorted by it"))]
    name: String,
    engine: ForkedEngine,
    signs: Vec<String>,
    flags: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
enum ForkedEngine {
    Sglang,
    Vllm,
}

#[derive(Debug, Default, Deserialize)]
struct ForkTable {
    fork: Vec<Fork>,
}

const TEXT: &str = include_str!("../data/forks.toml");

static TABLE: LazyLock<ForkTable> = LazyLock::new(|| toml::from_str(TEXT).unwrap_or_default());

impl Fork {
    fn is_of(&self, engine: Engine) -> bool {
        match self.engine {
            ForkedEngine::Sglang => matches!(engine, Engine::Sglang | Engine::Slime),
            ForkedEngine::Vllm => engine == Engine::Vllm,
        }
    }
}

/// The plugins and forks that a text or its path names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forks {
    /// Bit set over the rows of the table.
    named: u64,
}

impl Forks {
    /// The plugins and forks that a text names.
    pub(super) fn in_text(source: &Source) -> Self {
        let is_named = |fork: &Fork| {
            fork.signs.iter().any(|sign| source.text().contains(sign.as_str()) || source.name().contains(sign.as_str()))
        };
        let rows = TABLE.fork.iter().zip(0..).filter(|(fork, _)| is_named(fork));
        Self { named: rows.fold(0, |named, (_, row)| named | (1 << row)) }
    }

    /// Whether any of them belongs to this engine.
    pub fn any_of(self, engine: Engine) -> bool {
        self.rows(engine).next().is_some()
    }

    /// Whether a flag that no version of the engine has belongs to a plugin or a fork: by its name,
    /// or because the text names one and the flag is not a typo (`is_slip`).
    pub fn may_have(self, engine: Engine, name: &str, is_slip: bool) -> bool {
        let has = |fork: &Fork| fork.flags.iter().any(|flag| flag == name);
        has_prefix(engine, name) || self.rows(engine).any(|fork| !is_slip || has(fork))
    }

    fn rows(self, engine: Engine) -> impl Iterator<Item = &'static Fork> {
        TABLE
            .fork
            .iter()
            .zip(0..)
            .filter(move |(fork, row)| fork.is_of(engine) && self.named & (1 << row) != 0)
            .map(|(fork, _)| fork)
    }
}

/// Whether a flag starts with a fork's prefix.
pub(super) fn has_prefix(engine: Engine, name: &str) -> bool {
    let own = TABLE.fork.iter().filter(|fork| fork.is_of(engine)).flat_map(|fork| &fork.flags);
    own.into_iter().any(|flag| flag.ends_with('-') && name.starts_with(flag.as_str()))
}

#[cfg(test)]
mod tests {
    use schemas::flags;

    use super::*;

    #[test]
    fn texts_and_paths_name_forks() {
        let named = |name: &str, text: &str| Forks::in_text(&Source::new(name, text));
        assert!(named("run.sh", "pip install arctic-inference[vllm]").any_of(Engine::Vllm));
        assert!(!named("run.sh", "pip install arctic-inference[vllm]").any_of(Engine::Sglang));
        assert!(named("SGLang-FluentLLM/run.sh", "").any_of(Engine::Sglang));
        assert_eq!(named("run.sh", "vllm serve Snowflake/arctic"), Forks::default());
    }

    #[test]
    fn the_table_is_sorted_and_no_release_has_their_flags() {
        let rows = toml::from_str::<ForkTable>(TEXT).expect("a table of forks").fork;
        assert!(!rows.is_empty() && rows.len() <= 64);
        let key = |fork: &Fork| (fork.name.to_lowercase(), fork.engine);
        assert!(rows.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])));
        for fork in &rows {
            let registered = if fork.engine == ForkedEngine::Vllm { flags::vllm() } else { flags::sglang() };
            assert!(!fork.signs.is_empty() && fork.signs.is_sorted() && fork.flags.is_sorted(), "{}", fork.name);
            for flag in &fork.flags {
                assert!(registered.spelling(flag).is_none(), "{flag}");
            }
        }
    }
}
