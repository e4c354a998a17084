//! # SD019: algorithm-of-another-draft
//!
//! The draft is of a kind that the algorithm cannot run.
//!
//! ## What it does
//!
//! Compares the algorithm with the kind of the draft: a head that proposes a block runs as DFLASH
//! or DSPARK only (and each of the two as itself), an EAGLE head runs as EAGLE or EAGLE3 only, and
//! STANDALONE takes whole models. A DSPARK head without a Markov head (`markov_rank` 0) runs as
//! neither: SGLang's DSPARK requires one, and DFLASH would shift every position (SD194). If nothing
//! of the draft is known but its name, `DFlash`, `DSpark` and `EAGLE` in it count, and the finding
//! is a warning.
//!
//! ## Why is this bad?
//!
//! The class that is loaded lacks what the algorithm's worker calls, which shows only after the
//! target's weights have been loaded. If the class happens to load, no draft is accepted.
//!
//! ## What SGLang does
//!
//! It stops with an `AttributeError` about `set_embed`, `hot_token_id` or the layers to capture, or
//! with `ValueError: DSPARK requires markov_rank > 0 in the draft config, got markov_rank=0.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path Qwen/Qwen9-8B --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path z-lab/Qwen9-8B-DFlash-b16 --speculative-num-steps 3 \
//!   --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path org/target --speculative-algorithm STANDALONE --max-running-requests 16 \
//!   --speculative-draft-model-path org/head --speculative-num-steps 3 \
//!   --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096, "vocab_size": 128256, "draft_vocab_size": 32000}
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path org/target --speculative-algorithm DFLASH --max-running-requests 16 \
//!   --speculative-draft-model-path org/head
//! ```
//! ```draft
//! {"architectures": ["Qwen3DSparkModel"], "hidden_size": 4096, "block_size": 7}
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path org/target --speculative-algorithm DSPARK --max-running-requests 16 \
//!   --speculative-draft-model-path org/head
//! ```
//! ```draft
//! {"architectures": ["Qwen3DSparkModel"], "hidden_size": 4096, "block_size": 7, "markov_rank": 0,
//!  "mask_token_id": 151669}
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path Qwen/Qwen3-0.6B --speculative-num-steps 3 \
//!   --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --attention-backend fa3
//! ```
//! ```draft
//! {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 28}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path Qwen/Qwen9-8B --speculative-algorithm DFLASH --max-running-requests 16 \
//!   --speculative-draft-model-path z-lab/Qwen9-8B-DFlash-b16
//! ```
//!
//! ## Versions
//!
//! All versions with these algorithms.
//!
//! ## Source
//!
//! sglang `speculative/`, `models/dflash.py` and `models/llama_eagle3.py`; issue #36528 for a whole
//! model under EAGLE3.

use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    flags::Key,
    model::{DraftHead, DraftKind},
    text::Span,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD019",
    name: "algorithm-of-another-draft",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Parts of a draft's name, in lower case, with what it is and the algorithm that runs it.
const NAMES: [(&str, &str, &str); 4] = [
    ("dflash", "a DFLASH head", "DFLASH"),
    ("dspark", "a DSPARK head", "DSPARK"),
    ("eagle3", "an EAGLE-3 head", "EAGLE3"),
    ("eagle", "an EAGLE head", "EAGLE"),
];

fn check(context: &Context<'_>) -> Option<Finding> {
    let algorithm = context.resolved.algorithm.as_ref()?.value;
    let path = context.draft_name()?;
    if context.drafts_with_plain_dspark() {
        return plain_dspark(context, algorithm, path.span);
    }
    let by_facts = by_kind(context, algorithm);
    let is_known = context.draft_kind().is_some();
    // A known kind decides even if it agrees with the algorithm: its name may be wrong.
    let (what, runs_as) = by_facts.or_else(|| by_name(algorithm, path.value).filter(|_| !is_known))?;
    let name = context.launch.text(Key::SpeculativeAlgorithm)?.value;
    let message = format!("the draft is {what}, which {name} cannot run");
    let finding = Finding::new(path.span, message, what)
        .related(context.span(Key::SpeculativeAlgorithm), "drafts with another kind")
        .on_facts("draft", context.draft.filter(|_| is_known))
        .help(format!("write `{}`", context.line(Key::SpeculativeAlgorithm, runs_as)));
    Some(match by_facts {
        Some(_) => finding,
        None => finding.note("only its name was compared").at_most(Severity::Warning),
    })
}

/// A DSPARK head without a Markov head, which no algorithm runs. As DFLASH it starts, and drafts
/// badly: a known fault, which has a rule of its own.
fn plain_dspark(context: &Context<'_>, algorithm: Algorithm, place: Span) -> Option<Finding> {
    let reads = matches!(algorithm, Algorithm::Dspark | Algorithm::Standalone | Algorithm::Eagle | Algorithm::Eagle3);
    if !reads {
        return None;
    }
    let name = context.launch.text(Key::SpeculativeAlgorithm)?.value;
    let what = "a DSPARK head without a Markov head";
    let finding = Finding::new(place, format!("the draft is {what}, which {name} cannot run"), what)
        .related(context.span(Key::SpeculativeAlgorithm), "drafts with another kind")
        .on_facts("draft", context.draft)
        .help(match context.drafts_anchor_first() {
            true => "use a head with a Markov head (`markov_rank` above 0), or a DFLASH head: as DFLASH this one would draft \
                     every position one place off"
                .to_owned(),
            // Without its correction it is a DFLASH head.
            false => format!("write `{}`", context.line(Key::SpeculativeAlgorithm, "DFLASH")),
        });
    Some(match algorithm {
        Algorithm::Dspark => {
            finding.sglang_says("ValueError: DSPARK requires markov_rank > 0 in the draft config, got markov_rank=0.")
        }
        _ => finding,
    })
}

/// What the draft is and how it runs, if its files say that the algorithm cannot run it.
fn by_kind(context: &Context<'_>, algorithm: Algorithm) -> Option<(&'static str, &'static str)> {
    let draft = context.draft?;
    let right = match (algorithm, context.draft_kind()?) {
        (Algorithm::Eagle | Algorithm::Eagle3 | Algorithm::Standalone, DraftKind::Block) => {
            let is_dspark = draft.drafts_with() == Some("DSPARK");
            if is_dspark { ("a DSPARK head", "DSPARK") } else { ("a DFLASH head", "DFLASH") }
        }
        (Algorithm::Dflash | Algorithm::Dspark | Algorithm::Standalone, DraftKind::Eagle3) => {
            ("an EAGLE-3 head", "EAGLE3")
        }
        (Algorithm::Dflash | Algorithm::Dspark | Algorithm::Standalone, DraftKind::Eagle) => ("an EAGLE head", "EAGLE"),
        (Algorithm::Dflash, DraftKind::Block) if draft.drafts_with() == Some("DSPARK") => ("a DSPARK head", "DSPARK"),
        (Algorithm::Dspark, DraftKind::Block) if draft.drafts_with() == Some("DFLASH") => ("a DFLASH head", "DFLASH"),
        // Classes of heads are often those of whole models: tensors decide, or many layers.
        (Algorithm::Eagle3, _) if matches!(draft.draft_head(), Some(DraftHead::Model)) => {
            ("a whole model", "STANDALONE")
        }
        (Algorithm::Eagle | Algorithm::Eagle3 | Algorithm::Dflash | Algorithm::Dspark, _)
            if context.drafts_with_whole_model() =>
        {
            ("a whole model", "STANDALONE")
        }
        _ => return None,
    };
    Some(right)
}

/// What the draft is and how it runs, if its name says that the algorithm cannot run it.
fn by_name(algorithm: Algorithm, path: &str) -> Option<(&'static str, &'static str)> {
    let name = path.trim_end_matches('/').rsplit('/').next()?.to_ascii_lowercase();
    // "eagle3" comes before "eagle" in the list, which every such name contains too.
    let (_, what, runs_as) = NAMES.into_iter().find(|(part, ..)| name.contains(part))?;
    let is_block = matches!(runs_as, "DFLASH" | "DSPARK");
    let is_wrong = match algorithm {
        Algorithm::Eagle | Algorithm::Eagle3 => is_block,
        Algorithm::Dflash | Algorithm::Dspark => !is_block,
        Algorithm::Standalone => true,
        _ => false,
    };
    is_wrong.then_some((what, runs_as))
}
