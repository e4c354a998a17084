//! # SD009: draftless-algorithms
//!
//! The algorithm needs a draft path and has none, or has one and takes none.
//!
//! ## What it does
//!
//! Looks at DFLASH without a draft path, at UNO with one or without its LoRA, and at look-ups in
//! the text (NGRAM; `ngram`, `ngram_gpu` and `suffix` of vLLM) with a draft.
//!
//! ## Why is this bad?
//!
//! DFLASH and UNO: the server does not start. Look-ups load no draft: the one that is given is not
//! used, which is a warning.
//!
//! ## What SGLang does
//!
//! - DFLASH: `DFLASH speculative decoding requires setting --speculative-draft-model-path.`
//! - UNO: `UNO reuses the target model and does not accept --speculative-draft-model-path.`
//! - NGRAM: its worker starts with the target alone.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm UNO --uno-lora-path lora --speculative-num-draft-tokens 4 \
//!   --speculative-draft-model-path draft --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --speculative-draft-model-path draft \
//!   --speculative-num-draft-tokens 8 --max-running-requests 16 --attention-backend fa3
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLM"], "num_attention_heads": 7, "max_position_embeddings": 512}
//! ```
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "ngram", "model": "draft", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3
//! ```
//!
//! ## Versions
//!
//! As read in 0.5.23; DFLASH has behaved the same since it was added.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`, `speculative/ngram_worker.py`; vLLM
//! `config/speculative.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD009",
    name: "draftless-algorithms",
    severity: Severity::Error,
    applies: Applies::All,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let draft = Key::SpeculativeDraftModelPath;
    if context.launch.engine == Engine::Vllm {
        return not_loaded_by_vllm(context);
    }
    let algorithm = context.value_place(Key::SpeculativeAlgorithm);
    match context.algorithm()? {
        Algorithm::Dflash if context.is_absent(draft) => Some(
            Finding::new(algorithm, "DFLASH has no draft model", "drafts blocks with a separate model")
                .sglang_says("DFLASH speculative decoding requires setting --speculative-draft-model-path.")
                .help(format!("add `{}`", context.line(draft, "…"))),
        ),
        Algorithm::Uno if context.launch.has(draft) => Some(
            Finding::new(context.place(draft), "UNO takes no draft model", "the target drafts with a LoRA")
                .sglang_says("UNO reuses the target model and does not accept --speculative-draft-model-path.")
                .help(format!("take `{}` out", context.flag(draft))),
        ),
        Algorithm::Uno if context.is_absent(Key::UnoLoraPath) => Some(
            Finding::new(algorithm, "UNO has no LoRA to draft with", "the target drafts with a LoRA")
                .help(format!("add `{}`", context.line(Key::UnoLoraPath, "…"))),
        ),
        Algorithm::Ngram if context.launch.has(draft) => Some(
            Finding::new(context.place(draft), "NGRAM loads no draft model", "not used")
                .related(context.span(Key::SpeculativeAlgorithm), "looks drafts up in the text")
                .at_most(Severity::Warning)
                .help(format!("take `{}` out, or write the algorithm of this draft", context.flag(draft))),
        ),
        _ => None,
    }
}

/// A draft that vLLM is given for a look-up. `"model": "ngram"` was the method's name once.
fn not_loaded_by_vllm(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation().filter(|_| !context.loads_draft())?;
    let method = config.method.as_deref()?;
    config.model.as_deref().filter(|model| !matches!(*model, "ngram" | "[ngram]" | "suffix"))?;
    let place = context.launch.vllm_key_place("model").unwrap_or(config.span);
    Some(
        Finding::new(place, format!("the method {method} loads no draft model"), "`model` is not used")
            .at_most(Severity::Warning)
            .help("take `model` out, or write the method of this draft"),
    )
}
