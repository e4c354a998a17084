//! # NR20: ngram-lora
//!
//! NGRAM with LoRA fails at launch on 0.5.4.
//!
//! ## What it does
//!
//! Looks for LoRA with NGRAM on 0.5.3 to 0.5.5.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It fails while the LoRA manager is built.
//!
//! ## Example
//!
//! ```launch bad version:0.5.4.post3 also:SD193
//! sglang serve --model-path target --speculative-algorithm NGRAM --enable-lora --lora-paths a=lora --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm NGRAM --enable-lora --lora-paths a=lora --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ## Versions
//!
//! Reported for 0.5.4.post3; a warning for 0.5.3 to 0.5.5 otherwise.
//!
//! ## Source
//!
//! sglang issue #12726.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR20",
    name: "ngram-lora",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const REPORTED: EngineVersion = EngineVersion::new(0, 5, 4).post(3);
const FIRST: EngineVersion = EngineVersion::new(0, 5, 3);
const FIXED_IN: EngineVersion = EngineVersion::new(0, 5, 6);

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Ngram)?;
    let key = [Key::LoraPaths, Key::EnableLora].into_iter().find(|key| context.launch.has(*key))?;
    let version = context.version();
    if !(FIRST..FIXED_IN).contains(&version) {
        return None;
    }
    let finding =
        Finding::new(context.place(key), format!("LoRA does not start with NGRAM on sglang {version}"), "here")
            .related(context.span(Key::SpeculativeAlgorithm), "with this")
            .by_version()
            .help("use sglang 0.5.6 or later");
    Some(if version == REPORTED { finding } else { finding.at_most(Severity::Warning) })
}
