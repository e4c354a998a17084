//! Plugins and forks of the engines that add flags, methods and values: how texts refer to them, and the flags that
//! they add.

use schemas::text::Source;

use super::Engine;

/// A plugin or a fork.
#[derive(Debug)]
struct Fork {
    engine: Engine,
    /// Substrings that identify it: modules, packages, images, folders of repositories, environment variables.
    signs: &'static [&'static str],
    /// Flags that it adds, without dashes, if they resemble flags of the engine. A name that ends in a dash is a
    /// prefix, and alone identifies the fork.
    flags: &'static [&'static str],
}

/// Plugins and forks found in published launches, by engine.
static FORKS: [Fork; 9] = [
    // ArcticInference: flags for Ulysses and shift parallelism, methods `arctic` and `suffix`.
    Fork {
        engine: Engine::Vllm,
        signs: &["ArcticInference", "arctic-inference", "arctic_inference", "ARCTIC_INFERENCE"],
        flags: &["enable-shift-parallel", "shift-parallel-threshold", "ulysses-sequence-parallel-size"],
    },
    Fork { engine: Engine::Vllm, signs: &["tenstorrent", "tt-inference-server", "tt-metal"], flags: &["tt-device"] },
    Fork { engine: Engine::Vllm, signs: &["vllm-gcu", "vllm_gcu"], flags: &[] },
    Fork { engine: Engine::Vllm, signs: &["vllm-kunlun", "vllm_kunlun", "vLLM-Kunlun"], flags: &[] },
    Fork { engine: Engine::Vllm, signs: &["vllm-metax", "vllm_metax", "vLLM-metax"], flags: &[] },
    // KTransformers: experts on the CPU.
    Fork {
        engine: Engine::Sglang,
        signs: &["KTransformers", "ktransformers", "kt-kernel", "kt_kernel", "sglang-kt"],
        flags: &["kt-"],
    },
    Fork {
        engine: Engine::Sglang,
        signs: &["FluentLLM", "fluentllm", "SGLang-FL"],
        flags: &[
            "attn-tp-size",
            "dense-tp-size",
            "disable-mla",
            "draft-model-path-use-base",
            "drafter-attention-backend",
            "enable-deep-ep",
            "enable-sbo",
            "enable-tbo",
            "moe-parallel-strategy",
            "nprocs-per-node",
        ],
    },
    // TokenSpeed: a separate engine, with flags of both.
    Fork { engine: Engine::Sglang, signs: &["TokenSpeed", "tokenspeed"], flags: &["drafter-attention-backend"] },
    Fork { engine: Engine::Vllm, signs: &["TokenSpeed", "tokenspeed"], flags: &[] },
];

impl Fork {
    fn is_of(&self, engine: Engine) -> bool {
        self.engine == engine || (self.engine == Engine::Sglang && engine == Engine::Slime)
    }
}

/// The plugins and forks that a text or its path names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forks {
    /// Bit set over the rows of `FORKS`.
    named: u16,
}

impl Forks {
    /// The plugins and forks that a text names.
    pub(super) fn in_text(source: &Source) -> Self {
        let is_named =
            |fork: &Fork| fork.signs.iter().any(|sign| source.text().contains(sign) || source.name().contains(sign));
        let rows = FORKS.iter().zip(0..).filter(|(fork, _)| is_named(fork));
        Self { named: rows.fold(0, |named, (_, row)| named | (1 << row)) }
    }

    /// Whether any of them belongs to this engine.
    pub fn any_of(self, engine: Engine) -> bool {
        self.rows(engine).next().is_some()
    }

    /// Whether a flag that no version of the engine has belongs to a plugin or a fork: by its name, or because the text
    /// names one and the flag is not a typo (`is_slip`).
    pub fn may_have(self, engine: Engine, name: &str, is_slip: bool) -> bool {
        let has = |fork: &Fork| fork.flags.contains(&name);
        has_prefix(engine, name) || self.rows(engine).any(|fork| !is_slip || has(fork))
    }

    fn rows(self, engine: Engine) -> impl Iterator<Item = &'static Fork> {
        FORKS
            .iter()
            .zip(0..)
            .filter(move |(fork, row)| fork.is_of(engine) && self.named & (1 << row) != 0)
            .map(|(fork, _)| fork)
    }
}

/// Whether a flag starts with a fork's prefix.
pub(super) fn has_prefix(engine: Engine, name: &str) -> bool {
    let own = FORKS.iter().filter(|fork| fork.is_of(engine)).flat_map(|fork| fork.flags);
    own.into_iter().any(|flag| flag.ends_with('-') && name.starts_with(flag))
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
    fn no_release_has_their_flags() {
        assert!(FORKS.len() <= 16);
        for fork in &FORKS {
            let registered = if fork.engine == Engine::Vllm { flags::vllm() } else { flags::sglang() };
            for flag in fork.flags {
                assert!(registered.spelling(flag).is_none(), "{flag}");
            }
        }
    }
}
