//! Algorithm, tree shape and running requests.

use schemas::{
    algorithm::{ANY_CASE_SINCE, Algorithm, parse_algorithm},
    defaults::{auto_triple, stated_number},
    flags::Key,
    version::EngineVersion,
};

use super::{Decided, Given, Origin, Resolved};

const HOOK: &str = "sglang arg_groups/speculative_hook.py";

const V0_4_3: EngineVersion = EngineVersion::new(0, 4, 3);
const V0_4_10: EngineVersion = EngineVersion::new(0, 4, 10);
const V0_5_2: EngineVersion = EngineVersion::new(0, 5, 2);
const V0_5_12: EngineVersion = EngineVersion::new(0, 5, 12);

/// Why nothing drafts, if so.
pub(super) fn off(given: &Given<'_>) -> Option<&'static str> {
    let launch = given.launch;
    let name = launch.text(Key::SpeculativeAlgorithm);
    if !launch.has(Key::SpeculativeAlgorithm) {
        Some("no --speculative-algorithm")
    } else if launch.captures_without_draft() {
        Some("--enable-return-aux-hidden-states captures states without a draft")
    } else if name.is_some_and(|name| turns_off(name.value, given.version)) {
        Some("the algorithm is NONE")
    } else {
        None
    }
}

/// Whether an algorithm's name turns speculation off in a version.
pub(crate) fn turns_off(name: &str, version: EngineVersion) -> bool {
    name.eq_ignore_ascii_case("NONE") && version >= ANY_CASE_SINCE
}

pub(super) fn algorithm(given: &Given<'_>) -> Option<Decided<Algorithm>> {
    let name = given.launch.text(Key::SpeculativeAlgorithm).filter(|_| off(given).is_none())?;
    let (algorithm, alias) = parse_algorithm(name.value, given.version)?;
    let assistant = given
        .draft
        .and_then(|draft| draft.config.architecture())
        .is_some_and(|class| matches!(class, "Gemma4AssistantForCausalLM" | "Gemma4UnifiedAssistantForCausalLM"));
    if algorithm == Algorithm::Eagle && assistant && given.version >= V0_5_12 {
        let reason = "the draft is a Gemma 4 assistant";
        return Some(Decided::forced(Algorithm::FrozenKvMtp, Some(name.span), reason, HOOK));
    }
    if alias {
        return Some(Decided::forced(algorithm, Some(name.span), "NEXTN is an alias of EAGLE", HOOK));
    }
    Some(Decided { value: algorithm, origin: Origin::Written(name.span) })
}

/// Resolves the tree shape into `resolved`.
pub(super) fn fill(given: &Given<'_>, resolved: &mut Resolved) {
    let Some(algorithm) = resolved.algorithm.as_ref().map(|algorithm| algorithm.value) else { return };
    resolved.num_steps = given.written(Key::SpeculativeNumSteps);
    resolved.topk = given.written(Key::SpeculativeEagleTopk);
    resolved.num_draft_tokens = given.written(Key::SpeculativeNumDraftTokens);
    match algorithm {
        Algorithm::Eagle | Algorithm::Eagle3 | Algorithm::Standalone => tree(given, resolved, algorithm),
        Algorithm::Ngram => ngram(given, resolved),
        Algorithm::Dflash => block(given, resolved, Key::SpeculativeDflashBlockSize, 16, 0),
        Algorithm::Dspark => block(given, resolved, Key::SpeculativeDsparkBlockSize, 7, 1),
        Algorithm::Uno => {
            if !given.launch.has(Key::SpeculativeEagleTopk) {
                resolved.topk = Some(Decided::default(1, "UNO drafts a chain by default", HOOK));
            }
        }
        Algorithm::FrozenKvMtp => {}
    }
}

fn tree(given: &Given<'_>, resolved: &mut Resolved, algorithm: Algorithm) {
    let launch = given.launch;
    let has_steps = launch.has(Key::SpeculativeNumSteps);
    if launch.has(Key::SpeculativeAdaptive) && given.version >= V0_5_12 && algorithm != Algorithm::Standalone {
        adaptive(given, resolved);
    } else if !has_steps && !launch.has(Key::SpeculativeEagleTopk) && !launch.has(Key::SpeculativeNumDraftTokens) {
        let architecture = given.target.and_then(|target| target.config.architecture());
        let standalone = algorithm == Algorithm::Standalone;
        let Some((steps, topk, tokens)) = auto_triple(standalone, architecture, given.version) else { return };
        let reason = match architecture {
            _ if standalone && given.version >= V0_5_2 => format!("chosen for STANDALONE in {}", given.version),
            Some(architecture) => format!("chosen for {architecture} in {}", given.version),
            None => format!("chosen in {}", given.version),
        };
        let source = "sglang auto_choose_speculative_params";
        resolved.num_steps = Some(Decided::default(steps, reason.clone(), source));
        resolved.topk = Some(Decided::default(topk, reason.clone(), source));
        resolved.num_draft_tokens = Some(Decided::default(tokens, reason, source));
    } else {
        chain_tokens(given, resolved);
    }
}

/// With topk 1 the number of draft tokens is always steps + 1, regardless of what the user gives.
fn chain_tokens(given: &Given<'_>, resolved: &mut Resolved) {
    let one = resolved.topk.as_ref().is_some_and(|topk| topk.value == 1);
    let Some(steps) = resolved.num_steps.as_ref().filter(|_| one).map(|steps| steps.value) else { return };
    let expected = steps.saturating_add(1);
    let already = resolved.num_draft_tokens.as_ref().is_some_and(|tokens| tokens.value == expected);
    if !already {
        let written = given.launch.setting(Key::SpeculativeNumDraftTokens).map(|setting| setting.span);
        let reason = "with topk 1 the tree is a chain of num_steps + 1 tokens";
        resolved.num_draft_tokens = Some(Decided::forced(expected, written, reason, HOOK));
    }
}

/// Adaptive speculation starts with the middle one of the candidate steps, which are 0, 1, 3, 5 and
/// 7 by default.
fn adaptive(given: &Given<'_>, resolved: &mut Resolved) {
    let source = "sglang speculative/adaptive_spec_params.py";
    if resolved.topk.is_none() && !given.launch.has(Key::SpeculativeEagleTopk) {
        resolved.topk = Some(Decided::default(1, "adaptive speculation drafts a chain", source));
    }
    if !given.launch.has(Key::SpeculativeNumSteps) && !given.launch.has(Key::SpeculativeAdaptiveConfig) {
        resolved.num_steps = Some(Decided::default(3, "the middle of the default candidate steps", source));
    }
    chain_tokens(given, resolved);
}

fn ngram(given: &Given<'_>, resolved: &mut Resolved) {
    let written_topk = given.launch.setting(Key::SpeculativeEagleTopk).map(|setting| setting.span);
    let breadth = match (given.written(Key::SpeculativeNgramMaxBfsBreadth), written_topk) {
        (Some(breadth), None) => Some(breadth),
        (Some(breadth), Some(written)) => {
            Some(Decided::forced(breadth.value, Some(written), "NGRAM takes its breadth for topk", HOOK))
        }
        (None, written) if !given.launch.has(Key::SpeculativeNgramMaxBfsBreadth) => {
            Some(Decided::forced(10, written, "NGRAM takes its breadth for topk, 10 unless given", HOOK))
        }
        (None, _) => None,
    };
    resolved.topk = breadth;
    if !given.launch.has(Key::SpeculativeNumDraftTokens) {
        let window = given.written(Key::SpeculativeNgramMaxMatchWindowSize).filter(|_| given.version < V0_5_12);
        resolved.num_draft_tokens = match window {
            Some(window) => Some(window),
            None if given.version < V0_5_12 => {
                Some(Decided::default(12, "the longest match window of NGRAM", "sglang server_args.py"))
            }
            None => Some(Decided::default(12, "NGRAM proposes 12 tokens by default", HOOK)),
        };
    }
    if !given.launch.has(Key::SpeculativeNumSteps)
        && let (Some(tokens), Some(topk)) = (&resolved.num_draft_tokens, &resolved.topk)
        && topk.value > 0
    {
        let steps = tokens.value / topk.value;
        resolved.num_steps = Some(Decided::default(steps, "NGRAM: draft tokens over breadth", HOOK));
    }
}

/// Block drafts run one step. The draft tokens are the block plus `root`, which is 1 if the block
/// does not count the root.
fn block(given: &Given<'_>, resolved: &mut Resolved, flag: Key, fallback: usize, root: usize) {
    let reason = "block drafts propose a block in one step";
    let place = |key| given.launch.setting(key).map(|setting| setting.span);
    let keep = |written: Option<Decided<usize>>, key| match written {
        Some(written) if written.value == 1 => Some(written),
        _ => Some(Decided::forced(1, place(key), reason, HOOK)),
    };
    resolved.num_steps = keep(resolved.num_steps.take(), Key::SpeculativeNumSteps);
    resolved.topk = keep(resolved.topk.take(), Key::SpeculativeEagleTopk);
    if given.launch.has(Key::SpeculativeNumDraftTokens) {
        return;
    }
    if let Some(block) = given.written(flag) {
        let value = block.value.saturating_add(root);
        resolved.num_draft_tokens = Some(Decided { value, origin: block.origin });
        return;
    }
    let Some(draft) = given.draft.filter(|_| !given.launch.has(flag)) else { return };
    resolved.num_draft_tokens = match draft.config.block_size {
        Some(block) => Some(Decided::default(block.saturating_add(root), "the draft's block_size", HOOK)),
        None if !draft.partial => {
            Some(Decided::default(fallback + root, "the draft's config gives no block_size", HOOK))
        }
        None => None,
    };
}

/// 0.4.7 sets topk to 1 if a page is larger than one token; later versions refuse or support a
/// larger topk.
pub(super) fn apply_paging(given: &Given<'_>, resolved: &mut Resolved) {
    let paged = resolved.page_size.as_ref().is_some_and(|page| page.value > 1);
    let tree = resolved.topk.as_ref().is_some_and(|topk| topk.value > 1);
    let drafts_trees = resolved.algorithm.as_ref().is_some_and(|algorithm| algorithm.value.drafts_trees());
    if given.version < V0_4_10 && paged && tree && drafts_trees {
        let written = given.launch.setting(Key::SpeculativeEagleTopk).map(|setting| setting.span);
        let reason = "this version sets topk to 1 where page_size is larger than 1";
        resolved.topk = Some(Decided::forced(1, written, reason, "sglang 0.4.7 server_args.py"));
        chain_tokens(given, resolved);
    }
}

/// The limit of running requests; `None` without speculation, where it depends on the remaining
/// memory.
pub(super) fn max_running_requests(given: &Given<'_>, resolved: &Resolved) -> Option<Decided<usize>> {
    if given.launch.has(Key::MaxRunningRequests) {
        return given.written(Key::MaxRunningRequests);
    }
    let algorithm = resolved.algorithm.as_ref()?.value;
    let architecture = given.target.and_then(|target| target.config.architecture());
    // If nothing else is known of the checkpoint, its name decides.
    let named = || {
        let name = given.launch.text(Key::ModelPath);
        name.is_some_and(|name| name.value.to_ascii_lowercase().contains("deepseek-v4"))
    };
    if architecture.map_or_else(named, |class| class.starts_with("DeepseekV4")) {
        let source = "sglang arg_groups/deepseek_v4_hook.py";
        return Some(Decided::default(256, "DeepSeek V4 sets its own default before speculation does", source));
    }
    // The first versions with EAGLE had no separate limit; it was added by PR #3986 (March 2025) at
    // the latest.
    if algorithm == Algorithm::Uno || given.version < V0_4_3 {
        return None;
    }
    let limit = stated_number("max-running-requests", given.version)?;
    Some(Decided::default(limit, format!("reset to {limit} for speculative decoding"), HOOK))
}
