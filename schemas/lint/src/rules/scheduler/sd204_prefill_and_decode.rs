//! # SD204: prefill-and-decode
//!
//! The prefill and the decode engine of a text disagree on what one hands to the other.
//!
//! ## What it does
//!
//! Compares each launch with `--disaggregation-mode decode` with the launches with `prefill` in the
//! same text that serve the same target: speculation, page size, format of the cache, format of
//! recurrent states, and ranks of attention. It reports a difference that every one of them has.
//!
//! ## Why is this bad?
//!
//! Pages are copied as they are. With another page size or format the engines refuse each other.
//! If only the decode engine drafts, its draft attends to a prompt whose cache it never got, and
//! few tokens are accepted; in 0.5.3 to 0.5.7 the values of the target arrive in the wrong layers
//! too, unless attention is latent. If only the prefill engine drafts, it sends more than the other
//! one has room for. Up to 0.5.21 windows of sliding attention are not divided over another number
//! of ranks: the request fails on the prefill engine, and the client waits. Up to 0.5.20 states of
//! another width are copied into the wrong slots.
//!
//! ## What SGLang does
//!
//! `RuntimeError: Page size mismatch: prefill server has page_size=…, but decode server has
//! page_size=…`, or the same of the KV cache dtype; over NIXL `decode registered fewer KV regions`;
//! `RuntimeError: PD Disaggregation does NOT support PD different TP sizes for non-MLA SWA hybrid
//! models yet.`; `RuntimeError: Prefill/Decode Mamba slot size mismatch`. Otherwise no message.
//!
//! ## Example
//!
//! ```launch bad pair version:0.5.16
//! sglang serve --model-path org/m --disaggregation-mode prefill --page-size 64 --max-running-requests 64
//! sglang serve --model-path org/m --disaggregation-mode decode --page-size 32 --max-running-requests 64
//! ```
//! ```launch bad pair version:0.5.7
//! sglang serve --model-path org/m --disaggregation-mode prefill --attention-backend fa3
//! sglang serve --model-path org/m --disaggregation-mode decode --attention-backend fa3 --speculative-algorithm EAGLE \
//!   --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 --max-running-requests 16
//! ```
//! ```target partial
//! {"architectures": ["Glm4MoeForCausalLM"], "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Use instead
//!
//! ```launch good pair version:0.5.16
//! sglang serve --model-path org/m --disaggregation-mode prefill --page-size 64 --max-running-requests 64
//! sglang serve --model-path org/m --disaggregation-mode decode --page-size 64 --max-running-requests 64
//! ```
//!
//! ## Versions
//!
//! The page size is compared from 0.5.8 on, the format from 0.5.10 on; before that nothing checks
//! them. Wrong layers: 0.5.3 to 0.5.7. Fewer ranks on the decode side without latent attention are
//! refused up to 0.5.2. Read in all versions from 0.4.7 to 0.5.23. Windows: read from 0.5.13 on,
//! and divided from 0.5.22 on. The width of states is compared from 0.5.21 on.
//!
//! ## Source
//!
//! sglang `disaggregation/common/conn.py`, `disaggregation/prefill.py`,
//! `disaggregation/nixl/conn.py`, `disaggregation/mooncake/conn.py`; PR #17212, issue #36371,
//! llm-d#2433.

use launch::Launch;
use schemas::{
    diagnostic::Severity,
    engines::Engine,
    flags::Key,
    text::{Located, Span},
};

use crate::rules::{
    Applies, Context, Definition, Finding, RuleCheck,
    known::is_named_latent,
    peers::{if_all_differ, lacks, peers_of},
    versions::*,
};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD204",
    name: "prefill-and-decode",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

/// Prefixes of classes with latent attention, whose cache has one buffer a layer.
const LATENT: [&str; 9] = [
    "DeepseekV2",
    "DeepseekV3",
    "DeepseekV4",
    "Glm4MoeLite",
    "GlmMoeDsa",
    "Kimi",
    "LongcatFlash",
    "MiniCPM3",
    "MistralLarge3",
];

/// Prefixes of classes whose windows lie in a pool of their own, without latent attention.
const WINDOWED: [&str; 3] = ["GptOss", "MiMoV2", "Step3p5"];

fn check(context: &Context<'_>) -> Vec<Finding> {
    let is_mode = |launch: &Launch, own: &str| launch.text(Key::DisaggregationMode).is_some_and(|one| one.value == own);
    if context.launch.engine != Engine::Sglang || !is_mode(context.launch, "decode") {
        return Vec::new();
    }
    let prefills = peers_of(context, |other| is_mode(other, "prefill"));
    let found = [drafts(context, &prefills), pages(context, &prefills), cache(context, &prefills)];
    let divided = ranks(context, &prefills).or_else(|| windows(context, &prefills));
    found.into_iter().chain([states(context, &prefills), divided]).flatten().collect()
}

/// What an engine drafts with, as far as its cache is concerned; `None` if it is not known.
fn algorithm_of(launch: &Launch) -> Option<Option<&'static str>> {
    if lacks(launch, Key::SpeculativeAlgorithm) {
        return Some(None);
    }
    let written = launch.text(Key::SpeculativeAlgorithm)?.value.to_ascii_uppercase();
    Some(match written.as_str() {
        "NEXTN" | "EAGLE" => Some("EAGLE"),
        "EAGLE3" => Some("EAGLE3"),
        "STANDALONE" => Some("STANDALONE"),
        "DFLASH" => Some("DFLASH"),
        "DSPARK" => Some("DSPARK"),
        // A draft of n-grams has no cache.
        "NGRAM" => None,
        _ => return None,
    })
}

fn drafts(context: &Context<'_>, prefills: &[&Launch]) -> Option<Finding> {
    let own = algorithm_of(context.launch)?;
    let draft = |launch: &Launch| launch.text(Key::SpeculativeDraftModelPath).map(|path| path.value.to_owned());
    let own_draft = draft(context.launch);
    let has_another_draft =
        |other: &Launch| own_draft.is_some() && draft(other).is_some_and(|path| Some(path) != own_draft);
    let differs = |other: &Launch| {
        algorithm_of(other).is_some_and(|theirs| theirs != own || (own.is_some() && has_another_draft(other)))
    };
    let prefill = if_all_differ(prefills, differs)?;
    let place = context.span(Key::SpeculativeAlgorithm).unwrap_or(context.launch.anchor);
    let finding = match (own, algorithm_of(prefill)?) {
        (Some(_), None) if (V0_5_3..V0_5_8).contains(&context.version()) && is_latent(context) != Some(true) => {
            let finding = Finding::new(
                place,
                "only this engine drafts, and the values of its cache arrive in the wrong layers in this version",
                "not on the prefill engine",
            );
            let is_sure = is_latent(context) == Some(false);
            let finding = if is_sure { finding } else { finding.at_most(Severity::Warning) };
            finding.by_version().help("give both engines the same speculative flags, or use sglang 0.5.8 or later")
        }
        (Some(_), None) => Finding::new(
            place,
            "only this engine drafts, so the draft starts without the cache of the prompt: few tokens are accepted",
            "not on the prefill engine",
        )
        .help("give both engines the same speculative flags")
        .at_most(Severity::Warning),
        (None, Some(_)) => Finding::new(
            place,
            "only the prefill engine drafts, and it hands over a cache that this engine has no room for",
            "no draft here",
        )
        .help("give both engines the same speculative flags")
        .at_most(Severity::Warning),
        _ => Finding::new(place, "the prefill engine drafts with another head", "another one there")
            .help("give both engines the same speculative flags")
            .at_most(Severity::Warning),
    };
    Some(finding.related(Some(prefill.anchor), "the prefill engine"))
}

/// Whether attention is latent, if anything tells.
fn is_latent(context: &Context<'_>) -> Option<bool> {
    let config = context.target_config();
    let has_class = |class: &str| LATENT.iter().any(|own| class.starts_with(own));
    if is_named_latent(context) || config.is_some_and(|config| config.is_mla()) {
        return Some(true);
    }
    config?.architecture().map(has_class)
}

fn pages(context: &Context<'_>, prefills: &[&Launch]) -> Option<Finding> {
    let own = context.launch.count(Key::PageSize)?;
    let page = |other: &Launch| other.count(Key::PageSize).map(|size| size.value);
    let prefill = if_all_differ(prefills, |other| page(other).is_some_and(|size| size != own.value))?;
    let theirs = page(prefill)?;
    let message = format!("pages have {} tokens here and {theirs} on the prefill engine", own.value);
    let says = format!(
        "RuntimeError: Page size mismatch: prefill server has page_size={theirs}, but decode server has page_size={}.",
        own.value
    );
    let finding = Finding::new(own.span, message, format!("{theirs} there"))
        .related(prefill.setting(Key::PageSize).map(|setting| setting.span), "the prefill engine")
        .help("write the same `--page-size` for both engines");
    Some(refused(finding, context.version() >= V0_5_8, &says))
}

fn cache(context: &Context<'_>, prefills: &[&Launch]) -> Option<Finding> {
    let own = format_of(context.launch)?;
    let differs = |other: &Launch| format_of(other).is_some_and(|theirs| is_other(own.value, theirs.value));
    let prefill = if_all_differ(prefills, differs)?;
    let theirs = format_of(prefill)?;
    let message = format!("the cache is {} here and {} on the prefill engine", own.value, theirs.value);
    let says = format!(
        "RuntimeError: KV cache dtype mismatch: prefill server has kv_cache_dtype={}, but decode server has kv_cache_dtype={}.",
        theirs.value, own.value
    );
    let finding = Finding::new(own.span, message, format!("{} there", theirs.value))
        .related(Some(theirs.span), "the prefill engine")
        .help("write the same `--kv-cache-dtype` for both engines");
    let finding = refused(finding, context.version() >= V0_5_10, &says);
    // A checkpoint may name the format itself.
    let is_open = [own.value, theirs.value].contains(&"auto");
    Some(if is_open { finding.at_most(Severity::Warning) } else { finding })
}

/// The format of the cache as it is written; `None` if it is not known.
fn format_of(launch: &Launch) -> Option<Located<&str>> {
    let absent = lacks(launch, Key::KvCacheDtype).then_some(Located { value: "auto", span: launch.anchor });
    launch.text(Key::KvCacheDtype).or(absent)
}

/// Whether two names of formats are of different widths.
fn is_other(own: &str, theirs: &str) -> bool {
    let plain = |name: &str| matches!(name, "auto" | "bf16" | "bfloat16" | "float16" | "fp16");
    own != theirs && !(plain(own) && plain(theirs))
}

fn ranks(context: &Context<'_>, prefills: &[&Launch]) -> Option<Finding> {
    let own = ranks_of(context.launch)?;
    let is_old = context.version() <= V0_5_2;
    let is_refused = is_old && is_latent(context) == Some(false);
    let divides = |theirs: usize| theirs.is_multiple_of(own) || own.is_multiple_of(theirs);
    let differs = |theirs: usize| (is_refused && own < theirs) || !divides(theirs);
    let prefill = if_all_differ(prefills, |other| ranks_of(other).is_some_and(differs))?;
    let theirs = ranks_of(prefill)?;
    let place: Span = context.span(Key::TpSize).unwrap_or(context.launch.anchor);
    let message = format!("a cache over {theirs} ranks cannot be handed to {own}");
    let finding = Finding::new(place, message, format!("{theirs} there"))
        .related(Some(prefill.anchor), "the prefill engine")
        .help("divide attention over as many ranks on both engines");
    let says = "PD with different TP sizes per DP rank is not yet supported for non-MLA models";
    Some(refused(finding, is_refused, says))
}

/// Windows of sliding attention over other ranks than on the prefill engine.
fn windows(context: &Context<'_>, prefills: &[&Launch]) -> Option<Finding> {
    let class = context.target_config()?.architecture()?;
    let is_divided_apart = WINDOWED.iter().any(|own| class.starts_with(own))
        && context.launch.argument("disable-hybrid-swa-memory").is_none();
    if !(V0_5_13..V0_5_22).contains(&context.version()) || !is_divided_apart {
        return None;
    }
    let own = ranks_of(context.launch)?;
    let prefill = if_all_differ(prefills, |other| ranks_of(other).is_some_and(|theirs| theirs != own))?;
    let theirs = ranks_of(prefill)?;
    let place: Span = context.span(Key::TpSize).unwrap_or(context.launch.anchor);
    let message = format!("windows of sliding attention over {theirs} ranks cannot be handed to {own} in this version");
    let finding = Finding::new(place, message, format!("{theirs} there"))
        .related(Some(prefill.anchor), "the prefill engine")
        .help("divide attention over as many ranks on both engines, or use sglang 0.5.22 or later");
    let says =
        "RuntimeError: PD Disaggregation does NOT support PD different TP sizes for non-MLA SWA hybrid models yet.";
    Some(refused(finding, true, says))
}

/// Recurrent states in another format than on the prefill engine.
fn states(context: &Context<'_>, prefills: &[&Launch]) -> Option<Finding> {
    let own = format_of_states(context, context.launch)?;
    let differs = |other: &Launch| format_of_states(context, other).is_some_and(|theirs| is_other(&own, &theirs));
    let prefill = if_all_differ(prefills, differs)?;
    let theirs = format_of_states(context, prefill)?;
    let place = context.span(Key::MambaSsmDtype).unwrap_or(context.launch.anchor);
    let message = format!("states are in {own} here and in {theirs} on the prefill engine");
    let finding = Finding::new(place, message, format!("{theirs} there"))
        .related(
            prefill.setting(Key::MambaSsmDtype).map_or(Some(prefill.anchor), |one| Some(one.span)),
            "the prefill engine",
        )
        .help("write the same `--mamba-ssm-dtype` for both engines");
    Some(refused(finding, context.version() >= V0_5_21, "RuntimeError: Prefill/Decode Mamba slot size mismatch"))
}

/// The format of a launch's recurrent states: as it says, or as the target's config does.
fn format_of_states(context: &Context<'_>, launch: &Launch) -> Option<String> {
    if let Some(dtype) = launch.text(Key::MambaSsmDtype) {
        return Some(dtype.value.to_owned());
    }
    if !lacks(launch, Key::MambaSsmDtype) || !launch.lacks_variable("SGLANG_MAMBA_SSM_DTYPE") {
        return None;
    }
    let target = context.target?;
    match target.config.other.get("mamba_ssm_dtype") {
        Some(dtype) => dtype.as_str().map(str::to_owned),
        None => (!target.partial).then(|| "float32".to_owned()),
    }
}

/// Ranks over which attention is divided.
fn ranks_of(launch: &Launch) -> Option<usize> {
    let all = if lacks(launch, Key::TpSize) { 1 } else { launch.count(Key::TpSize)?.value };
    let groups = launch.attention_ranks()?;
    (groups > 0 && all.is_multiple_of(groups)).then(|| all / groups).filter(|ranks| *ranks > 0)
}

/// An error where the engine refuses, and else a warning.
fn refused(finding: Finding, is_refused: bool, says: &str) -> Finding {
    if is_refused { finding.by_version().sglang_says(says) } else { finding.by_version().at_most(Severity::Warning) }
}
