//! # SD109: parallelism-without-speculation
//!
//! A kind of parallelism that does not run with speculation.
//!
//! ## What it does
//!
//! Looks for `--dwdp-size` above 1, `--enable-layernorm-sp` and, on prefill engines,
//! `--enable-kv-cache-sharding` with speculation that they do not run with (elsewhere the sharding
//! is refused anyway: SD202). Elastic expert parallelism is restricted only while it grows, and is
//! not checked.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! An error at start: up to 0.5.22 `ValueError: --enable-kv-cache-sharding does not support
//! speculative decoding.`, and from 0.5.23 on, where a few run, `ValueError: KV sharding supports
//! speculative decoding only for GLM DSA single-layer NextN MTP with EAGLE and topk=1.` and
//! `ValueError: --enable-layernorm-sp supports speculative decoding only with Muse Spark DFLASH: …`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --tp 2 --dwdp-size 2
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --tp 2 --enable-layernorm-sp
//! ```
//!
//! ```launch bad version:0.5.22
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --tp 2 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --disaggregation-mode prefill --enable-kv-cache-sharding
//! ```
//! ```target
//! {"architectures": ["GlmMoeDsaForCausalLM"], "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --tp 2 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --disaggregation-mode prefill --enable-kv-cache-sharding
//! ```
//! ```target
//! {"architectures": ["GlmMoeDsaForCausalLM"], "num_nextn_predict_layers": 1}
//! ```
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --tp 2
//! ```
//!
//! ## Versions
//!
//! `--dwdp-size` since 0.5.17, `--enable-layernorm-sp` since 0.5.19, `--enable-kv-cache-sharding`
//! since 0.5.22. From 0.5.23 on GLM's sparse attention with its own layer and topk 1 runs with
//! sharding, and Muse Spark under DFLASH with sequence-parallel norms.
//!
//! ## Source
//!
//! sglang `arg_groups/parallel_hook.py`, `arg_groups/layernorm_sp_hook.py`,
//! `arg_groups/kv_shard_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD109",
    name: "parallelism-without-speculation",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

/// A flag, where it is given, and what sglang says of it beside speculation.
type RefusedFlag = (Key, &'static str);

fn check(context: &Context<'_>) -> Vec<Finding> {
    if !context.resolved.speculative {
        return Vec::new();
    }
    let found = [dwdp(context), layernorm(context), sharding(context)].into_iter().flatten().map(|(key, says)| {
        Finding::new(
            context.place(key),
            format!("`{}` does not run with this speculation", context.flag(key)),
            "refused at start",
        )
        .related(context.span(Key::SpeculativeAlgorithm), "beside speculation")
        .sglang_says(says)
        .by_version()
        .help(format!("take `{}` out", context.flag(key)))
    });
    found.collect()
}

fn dwdp(context: &Context<'_>) -> Option<RefusedFlag> {
    context.launch.count(Key::DwdpSize).filter(|ranks| ranks.value > 1)?;
    Some((Key::DwdpSize, "AssertionError: DWDP does not support speculative decoding (MTP/draft workers)"))
}

fn layernorm(context: &Context<'_>) -> Option<RefusedFlag> {
    let key = Key::EnableLayernormSp;
    context.span(key)?;
    if context.version() < V0_5_23 {
        let says = "ValueError: --enable-layernorm-sp is not compatible with speculative decoding (EAGLE/EAGLE3): …";
        return Some((key, says));
    }
    let class = context.target_config().and_then(|target| target.architecture());
    let may_be_muse = class.is_none_or(|class| class == "MuseSparkForConditionalGeneration");
    let runs = context.algorithm()? == Algorithm::Dflash && may_be_muse;
    let says = "ValueError: --enable-layernorm-sp supports speculative decoding only with Muse Spark DFLASH: other \
                models/algorithms do not gather the sequence-sharded auxiliary hidden states.";
    (!runs).then_some((key, says))
}

fn sharding(context: &Context<'_>) -> Option<RefusedFlag> {
    let key = Key::EnableKvCacheSharding;
    context.span(key)?;
    context.launch.text(Key::DisaggregationMode).filter(|mode| mode.value == "prefill")?;
    if context.version() < V0_5_23 {
        return Some((key, "ValueError: --enable-kv-cache-sharding does not support speculative decoding."));
    }
    let target = context.target_config();
    let class = target.and_then(|target| target.architecture());
    let may_be_glm = class.is_none_or(|class| class == "GlmMoeDsaForCausalLM");
    let may_have_one = target.and_then(|target| target.num_nextn_predict_layers).is_none_or(|layers| layers == 1);
    let is_chain = !context.launch.has(Key::SpeculativeEagleTopk)
        || context.launch.count(Key::SpeculativeEagleTopk).is_none_or(|topk| topk.value == 1);
    let is_single = !context.launch.has(Key::EnableMultiLayerEagle);
    let runs = context.algorithm()? == Algorithm::Eagle && may_be_glm && may_have_one && is_chain && is_single;
    let says = "ValueError: KV sharding supports speculative decoding only for GLM DSA single-layer NextN MTP with \
                EAGLE and topk=1.";
    (!runs).then_some((key, says))
}

#[cfg(test)]
mod tests {
    use crate::rules::examples::found_in;

    /// Whether SD109 reports a launch for a target of this class.
    fn is_refused(flags: &str, version: &str, class: &str) -> bool {
        let target = format!(r#"{{"architectures": ["{class}"], "num_nextn_predict_layers": 1}}"#);
        let text = format!("sglang serve --model-path target --tp 8 {flags}");
        found_in(&text, version, &target, "").iter().any(|found| found.code == "SD109")
    }

    #[test]
    fn what_0_5_23_runs_is_not_refused_in_it() {
        let chain = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";
        let sharded =
            format!("--speculative-algorithm EAGLE {chain} --enable-kv-cache-sharding --disaggregation-mode prefill");
        let glm = "GlmMoeDsaForCausalLM";
        assert!(is_refused(&sharded, "0.5.22", glm));
        assert!(!is_refused(&sharded, "0.5.23", glm));
        assert!(is_refused(&sharded, "0.5.23", "DeepseekV3ForCausalLM"));
        assert!(is_refused(&sharded.replace("topk 1", "topk 2"), "0.5.23", glm));
        let norms = "--speculative-algorithm DFLASH --speculative-draft-model-path d --enable-layernorm-sp";
        let muse = "MuseSparkForConditionalGeneration";
        assert!(is_refused(norms, "0.5.22", muse));
        assert!(!is_refused(norms, "0.5.23", muse));
        assert!(is_refused(norms, "0.5.23", "Qwen3ForCausalLM"));
    }
}
