//! Drafts that are built on another kind and draft something else: how their names are written, and
//! what runs them.

use schemas::{engines::Engine, version::EngineVersion};

use super::Context;

/// A kind of draft that is a variant of another.
pub(super) struct DraftVariant {
    /// Its published name.
    pub name: &'static str,
    /// How it is spelled in names of checkpoints, classes and methods: in lower case, without
    /// separators.
    signs: &'static [&'static str],
    sglang: Runs,
    vllm: Runs,
}

/// In which versions of an engine a variant runs, and how it is requested.
pub(super) enum Runs {
    /// In no version that was read.
    Never,
    Since(Since),
}

/// The versions that run a variant. Those between the two were not read.
pub(super) struct Since {
    pub last_without: EngineVersion,
    pub first_with: EngineVersion,
    /// The algorithm or method that runs it.
    pub under: &'static str,
}

const VARIANTS: [DraftVariant; 6] = [
    DraftVariant {
        name: "DFlash2",
        signs: &["dflash2"],
        sglang: since([0, 5, 18], [0, 5, 19], "--speculative-algorithm DFLASH"),
        // Older versions are a row of the known faults.
        vllm: since([0, 0, 0], [0, 28, 0], "\"method\": \"dflash\""),
    },
    DraftVariant {
        name: "Domino",
        signs: &["domino"],
        sglang: since([0, 5, 19], [0, 5, 20], "--speculative-algorithm DFLASH"),
        vllm: Runs::Never,
    },
    DraftVariant {
        name: "LiLiCorr",
        signs: &["lilicorr"],
        sglang: since([0, 5, 20], [0, 5, 21], "--speculative-algorithm DFLASH"),
        vllm: since([0, 30, 0], [0, 33, 0], "\"method\": \"dflash\""),
    },
    DraftVariant {
        name: "XPress",
        signs: &["xpress"],
        sglang: Runs::Never,
        vllm: since([0, 30, 0], [0, 33, 0], "\"method\": \"dflash\""),
    },
    DraftVariant {
        name: "P-EAGLE",
        signs: &["peagle"],
        sglang: Runs::Never,
        vllm: since([0, 15, 1], [0, 16, 0], "\"method\": \"eagle3\", \"parallel_drafting\": true"),
    },
    DraftVariant {
        name: "PARD",
        signs: &["pard", "pard2"],
        sglang: Runs::Never,
        vllm: since([0, 15, 1], [0, 16, 0], "\"method\": \"draft_model\", \"parallel_drafting\": true"),
    },
];

const fn since(last_without: [u32; 3], first_with: [u32; 3], under: &'static str) -> Runs {
    Runs::Since(Since {
        last_without: EngineVersion::new(last_without[0], last_without[1], last_without[2]),
        first_with: EngineVersion::new(first_with[0], first_with[1], first_with[2]),
        under,
    })
}

impl DraftVariant {
    /// The variant that a name names: of a checkpoint (`z-lab/Qwen3.8-27B-DFlash2`), a class
    /// (`DFlash2DraftModel`) or a method (`p-eagle`). A word counts only as a whole, or at the
    /// start of a class.
    pub fn named(name: &str) -> Option<&'static Self> {
        let name = name.rsplit('/').next()?.to_ascii_lowercase();
        let words: Vec<&str> = name.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
        let is_class = |word: &str, sign: &str| {
            word.strip_prefix(sign).is_some_and(|rest| rest.contains("model") || rest.contains("for"))
        };
        let is_word = |sign: &str| words.iter().any(|word| *word == sign || is_class(word, sign));
        let is_pair = |sign: &str| words.windows(2).any(|pair| pair.concat() == sign);
        VARIANTS.iter().find(|variant| variant.signs.iter().any(|sign| is_word(sign) || is_pair(sign)))
    }

    /// The variant that a launch's draft is, and whether its config says so, not only its name.
    pub fn from_context(context: &Context<'_>) -> Option<(&'static Self, bool)> {
        let classes = context.draft_config().map(|config| config.architectures.as_slice()).unwrap_or_default();
        if let Some(variant) = classes.iter().find_map(|class| Self::named(class)) {
            return Some((variant, true));
        }
        let name = context.draft_name()?;
        Some((Self::named(name.value)?, false))
    }

    /// Where an engine runs it.
    pub fn runs_in(&self, engine: Engine) -> &Runs {
        if engine == Engine::Vllm { &self.vllm } else { &self.sglang }
    }

    /// What runs it, in words: `sglang 0.5.19 and later (…)`.
    pub fn runs(&self) -> String {
        let engines =
            [("sglang", &self.sglang), ("vllm", &self.vllm)].into_iter().filter_map(|(engine, runs)| match runs {
                Runs::Since(since) => {
                    Some(format!("{engine} {} and later run it (`{}`)", since.first_with, since.under))
                }
                Runs::Never => None,
            });
        engines.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_checkpoints_classes_and_methods_are_recognised() {
        for (name, variant) in [
            ("z-lab/Qwen3.8-27B-DFlash2", "DFlash2"),
            ("incoai/Qwen3.8-27B-DFlash-2", "DFlash2"),
            ("DFlash2DraftModel", "DFlash2"),
            ("Huang2020/Qwen3-8B-Domino-b16", "Domino"),
            ("LiLiCorrDraftModel", "LiLiCorr"),
            ("amazon/GPT-OSS-120B-P-EAGLE", "P-EAGLE"),
            ("PEagleDraftModel", "P-EAGLE"),
            ("PeagleLlamaForCausalLM", "P-EAGLE"),
            ("p_eagle", "P-EAGLE"),
            ("amd/PARD-Llama-3.2-1B", "PARD"),
        ] {
            assert_eq!(DraftVariant::named(name).map(|found| found.name), Some(variant), "{name}");
        }
        for name in ["z-lab/Qwen3-8B-DFlash-b16", "a/Leopard-8B", "domino/plain", "x/MLP-EAGLE", "yuhuili/EAGLE3-LLaMA"]
        {
            assert!(DraftVariant::named(name).is_none(), "{name}");
        }
    }
}
