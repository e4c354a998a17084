//! # SD099: lora-algorithm
//!
//! LoRA does not run with this algorithm.
//!
//! ## What it does
//!
//! Looks for `--enable-lora` or `--lora-paths` with STANDALONE, UNO or FROZEN_KV_MTP, and from
//! 0.5.6 to 0.5.18 with any algorithm but NGRAM.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: LoRA is only compatible with NGRAM, EAGLE, NEXTN, EAGLE3, DFLASH, or DSPARK
//! speculative decoding, not STANDALONE.` Older versions: `ValueError: Currently LoRA is only
//! compatible with NGRAM speculative decoding.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm STANDALONE --speculative-draft-model-path draft --max-running-requests 16 \
//!   --lora-paths a=adapter --attention-backend fa3
//! ```
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --lora-paths a=adapter --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch bad version:0.5.18
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --lora-paths a=adapter --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --lora-paths a=adapter --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! The list is that of 0.5.19 and later; from 0.5.6 to 0.5.18 it is NGRAM only.
//!
//! ## Source
//!
//! sglang `arg_groups/lora_hook.py`; `server_args.py` of the older versions.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD099",
    name: "lora-algorithm",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let key = [Key::EnableLora, Key::LoraPaths].into_iter().find(|key| context.launch.has(*key))?;
    let algorithm = context.algorithm()?;
    let ngram_alone = (V0_5_6..=V0_5_18).contains(&context.version()) && algorithm != Algorithm::Ngram;
    if !ngram_alone && !matches!(algorithm, Algorithm::Standalone | Algorithm::Uno | Algorithm::FrozenKvMtp) {
        return None;
    }
    let name = algorithm.name();
    let says = match ngram_alone {
        true => "Currently LoRA is only compatible with NGRAM speculative decoding.".to_owned(),
        false => format!(
            "LoRA is only compatible with NGRAM, EAGLE, NEXTN, EAGLE3, DFLASH, or DSPARK speculative decoding, not \
             {name}."
        ),
    };
    Some(
        Finding::new(context.place(key), format!("LoRA does not run with {name}"), "not with this algorithm")
            .related(context.span(Key::SpeculativeAlgorithm), "here")
            .sglang_says(says)
            .by_version()
            .help(format!("take `{}` out, or use another algorithm", context.flag(key))),
    )
}
