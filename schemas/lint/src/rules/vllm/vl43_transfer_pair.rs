//! # VL43: transfer-pair
//!
//! Two engines of a text that hand their cache over a connector disagree on it.
//!
//! ## What it does
//!
//! Compares a launch whose `--kv-transfer-config` names `NixlConnector` or `MooncakeConnector` and
//! the role `kv_consumer` with the launches with the role `kv_producer` in the same text that serve
//! the same target: the draft, the format of the cache, the attention backend, the block size, and
//! tensor parallelism. It reports a difference that every one of them has.
//!
//! ## Why is this bad?
//!
//! The handshake refuses the other engine, or blocks are copied into the wrong layers. A draft on
//! one side only adds layers, and sometimes a group of blocks, that the other side does not have.
//!
//! ## What vLLM does
//!
//! `NIXL compatibility hash mismatch.` with the first request, an assertion, or no message: prompts
//! that are long enough end in illegal memory accesses.
//!
//! ## Example
//!
//! ```launch bad pair version:0.29.0
//! vllm serve org/m --port 8100 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'
//! vllm serve org/m --port 8200 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}' \
//!   --speculative-config '{"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}'
//! ```
//! ```launch bad pair version:0.25.1
//! vllm serve org/m --port 8100 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}' --kv-cache-dtype fp8
//! vllm serve org/m --port 8200 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}' --kv-cache-dtype bfloat16
//! ```
//!
//! ## Use instead
//!
//! ```launch good pair version:0.29.0
//! vllm serve org/m --port 8100 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}' \
//!   --speculative-config '{"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}'
//! vllm serve org/m --port 8200 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}' \
//!   --speculative-config '{"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}'
//! ```
//!
//! ## Versions
//!
//! NIXL compares formats and backends from 0.13.0 on, drafts that read the target's states from
//! 0.28.0 on; `enforce_handshake_compat` false turns that off. Fewer ranks on the consumer are
//! refused up to 0.13.0; from 0.11.2 on a block of the consumer may be a multiple of the
//! producer's, before that they must be the same. Read in 0.9.2 to 0.33.0.
//!
//! ## Source
//!
//! vLLM `distributed/kv_transfer/kv_connector/v1/nixl`, `mooncake/mooncake_connector.py`; PR
//! #49230.

use launch::{Argument, Launch, VllmSpeculation};
use schemas::{diagnostic::Severity, version::EngineVersion};
use serde_json::Value;

use crate::rules::{
    Applies, Context, Definition, Finding, RuleCheck,
    peers::{if_all_differ, peers_of},
};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL43",
    name: "transfer-pair",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

const V0_11_2: EngineVersion = EngineVersion::new(0, 11, 2);
const V0_13_0: EngineVersion = EngineVersion::new(0, 13, 0);
const V0_28_0: EngineVersion = EngineVersion::new(0, 28, 0);

/// What a launch says of its connector.
#[derive(PartialEq, Eq)]
struct Transfer {
    is_nixl: bool,
    is_producer: bool,
    /// Whether engines that differ are refused.
    is_strict: bool,
}

impl Transfer {
    fn from_launch(launch: &Launch) -> Option<Self> {
        let config: Value = serde_json::from_str(known(launch, "kv-transfer-config")?).ok()?;
        let is_nixl = match config.get("kv_connector")?.as_str()? {
            "NixlConnector" => true,
            "MooncakeConnector" => false,
            _ => return None,
        };
        let is_producer = match config.get("kv_role")?.as_str()? {
            "kv_producer" => true,
            "kv_consumer" => false,
            _ => return None,
        };
        let enforced = config.get("kv_connector_extra_config").and_then(|extra| extra.get("enforce_handshake_compat"));
        Some(Self { is_nixl, is_producer, is_strict: enforced != Some(&Value::Bool(false)) })
    }
}

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(own) = Transfer::from_launch(context.launch).filter(|own| !own.is_producer) else { return Vec::new() };
    let is_peer =
        |other: &Launch| Transfer::from_launch(other).is_some_and(|one| one.is_producer && one.is_nixl == own.is_nixl);
    let producers = peers_of(context, is_peer);
    let mut found = vec![drafts(context, &own, &producers)];
    if own.is_nixl {
        found.extend([ranks(context, &producers), blocks(context, &producers)]);
        found.extend(["kv-cache-dtype", "attention-backend"].map(|flag| values(context, &own, &producers, flag)));
    }
    found.into_iter().flatten().collect()
}

/// The last argument of a flag, if no branch adds it.
fn argument<'a>(launch: &'a Launch, flag: &str) -> Option<&'a Argument> {
    launch.argument(flag).filter(|one| !one.in_branch)
}

/// The known value of a flag.
fn known<'a>(launch: &'a Launch, flag: &str) -> Option<&'a str> {
    argument(launch, flag)?.values.first()?.value.known()
}

/// The method and the draft of an engine whose draft has layers of its own; `None` if it is not
/// known, and `Some(None)` if there is none.
fn draft_of(launch: &Launch) -> Option<Option<(String, Option<String>)>> {
    let Some(config) = launch.vllm_speculation() else {
        return (launch.is_complete() && !launch.has_vllm_speculation()).then_some(None);
    };
    if config.is_open {
        return None;
    }
    let method = config.method_in_use()?;
    let is_mtp = method == "mtp" || method.ends_with("_mtp");
    if ["ngram", "[ngram]", "ngram_gpu", "suffix"].contains(&method) {
        return Some(None);
    }
    // Layers of the target are the same, whatever names them.
    let model = |config: &VllmSpeculation| config.model.clone().filter(|_| !is_mtp);
    Some(Some((if is_mtp { "mtp".to_owned() } else { method.to_owned() }, model(&config))))
}

fn drafts(context: &Context<'_>, own: &Transfer, producers: &[&Launch]) -> Option<Finding> {
    let ours = draft_of(context.launch)?;
    let producer = if_all_differ(producers, |other| draft_of(other).is_some_and(|theirs| theirs != ours))?;
    let theirs = draft_of(producer)?;
    let message = match (&ours, &theirs) {
        (Some(_), None) => "only the consumer drafts, and the producer sends no cache for its draft",
        (None, _) => "only the producer drafts, and the consumer has no layers for that draft's cache",
        _ => "the producer drafts with another head than the consumer",
    };
    let is_state = |draft: &Option<(String, _)>| {
        draft.as_ref().is_some_and(|(method, _)| method != "draft_model" && method != "medusa")
    };
    let is_refused = own.is_nixl && own.is_strict && (is_state(&ours) || is_state(&theirs));
    let place = context.launch.vllm_speculation().map_or(context.launch.anchor, |config| config.span);
    let finding = Finding::new(place, message, "not the same on the producer")
        .related(Some(producer.anchor), "the producer")
        .help("give both engines the same `--speculative-config`");
    Some(refused(finding, is_refused && context.version() >= V0_28_0))
}

fn values(context: &Context<'_>, own: &Transfer, producers: &[&Launch], flag: &str) -> Option<Finding> {
    let ours = known(context.launch, flag)?;
    let plain = |value: &str| matches!(value, "auto" | "bfloat16" | "float16" | "half");
    let is_same = |theirs: &str| theirs.eq_ignore_ascii_case(ours) || (plain(ours) && plain(theirs));
    let producer = if_all_differ(producers, |other| known(other, flag).is_some_and(|theirs| !is_same(theirs)))?;
    let theirs = known(producer, flag)?;
    let finding = Finding::new(
        argument(context.launch, flag)?.span,
        format!("`--{flag}` is {ours} on the consumer and {theirs} on the producer"),
        format!("{theirs} there"),
    )
    .related(argument(producer, flag).map(|one| one.span), "the producer")
    .help(format!("write the same `--{flag}` for both engines"));
    let is_open = [ours, theirs].iter().any(|value| value.eq_ignore_ascii_case("auto"));
    Some(refused(finding, own.is_strict && !is_open && context.version() >= V0_13_0))
}

fn number(launch: &Launch, flag: &str) -> Option<i64> {
    known(launch, flag)?.trim().parse().ok().filter(|number| *number > 0)
}

fn ranks(context: &Context<'_>, producers: &[&Launch]) -> Option<Finding> {
    const FLAG: &str = "tensor-parallel-size";
    let size = |launch: &Launch| match argument(launch, FLAG) {
        None => launch.is_complete().then_some(1),
        Some(_) => number(launch, FLAG),
    };
    let ours = size(context.launch)?;
    let is_old = context.version() <= V0_13_0;
    let differs = |theirs: i64| (is_old && theirs > ours) || (theirs % ours != 0 && ours % theirs != 0);
    let producer = if_all_differ(producers, |other| size(other).is_some_and(differs))?;
    let theirs = size(producer)?;
    let place = argument(context.launch, FLAG).map_or(context.launch.anchor, |one| one.span);
    let message = format!("a cache over {theirs} ranks cannot be handed to {ours}");
    let finding = Finding::new(place, message, format!("{theirs} on the producer"))
        .related(Some(producer.anchor), "the producer")
        .help("use as many ranks on both engines, or a multiple on the consumer");
    let finding = if is_old && theirs > ours {
        finding.vllm_says("AssertionError: Decode TP cannot be smaller than prefill TP")
    } else {
        finding
    };
    Some(refused(finding, true))
}

fn blocks(context: &Context<'_>, producers: &[&Launch]) -> Option<Finding> {
    const FLAG: &str = "block-size";
    let ours = number(context.launch, FLAG)?;
    let is_old = context.version() < V0_11_2;
    let differs = |theirs: i64| if is_old { theirs != ours } else { ours % theirs != 0 };
    let producer = if_all_differ(producers, |other| number(other, FLAG).is_some_and(differs))?;
    let theirs = number(producer, FLAG)?;
    let finding = Finding::new(
        argument(context.launch, FLAG)?.span,
        format!("blocks have {ours} tokens on the consumer and {theirs} on the producer"),
        format!("{theirs} there"),
    )
    .related(argument(producer, FLAG).map(|one| one.span), "the producer")
    .help("write the same `--block-size` for both engines");
    Some(refused(finding, true))
}

/// An error where the engine refuses, and else a warning.
fn refused(finding: Finding, is_refused: bool) -> Finding {
    if is_refused { finding.by_version() } else { finding.by_version().at_most(Severity::Warning) }
}
