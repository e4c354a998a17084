//! # SD077: nvfp4-kv
//!
//! Speculation of this kind cannot read an NVFP4 KV cache.
//!
//! ## What it does
//!
//! Looks for `--kv-cache-dtype nvfp4` with another algorithm than EAGLE, EAGLE3 and NGRAM, and with
//! NGRAM whose breadth is above 1 (default: 10).
//!
//! ## Why is this bad?
//!
//! On a GPU with native NVFP4 (SM100) the server does not start. If the GPU is not known to be one,
//! the finding is a warning.
//!
//! ## What SGLang does
//!
//! It rejects the combination. With this cache the draft's attention runs on `trtllm_mha`, which
//! verifies chains only, and the attention mode `prefill` becomes `decode`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23 memory:183359
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --kv-cache-dtype nvfp4 --page-size 1
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23 memory:183359
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --kv-cache-dtype nvfp4 --speculative-ngram-max-bfs-breadth 1
//! ```
//!
//! ## Versions
//!
//! Since 0.5.21; read in 0.5.20 to 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/kv_cache_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD077",
    name: "nvfp4-kv",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Minimum memory, in MiB, of GPUs of the SM100 generation.
const SM100_MEMORY: u64 = 160 * 1024;

fn check(context: &Context<'_>) -> Option<Finding> {
    let key = Key::KvCacheDtype;
    let dtype = context.launch.text(key).filter(|dtype| dtype.value == "nvfp4" && context.version() >= V0_5_21)?;
    let algorithm = context.algorithm()?;
    let breadth = context.resolved.topk.as_ref().map(|breadth| breadth.value);
    let (message, help) = match algorithm {
        Algorithm::Dflash | Algorithm::Dspark | Algorithm::Standalone | Algorithm::FrozenKvMtp | Algorithm::Uno => (
            format!("{} cannot read an NVFP4 KV cache", algorithm.name()),
            format!("write `{}`, or use another algorithm", context.line(key, "fp8_e4m3")),
        ),
        Algorithm::Ngram if breadth? > 1 => (
            format!("NGRAM reads an NVFP4 KV cache with breadth 1 only, and its breadth is {}", breadth?),
            format!("add `{}`", context.line(Key::SpeculativeNgramMaxBfsBreadth, "1")),
        ),
        _ => return None,
    };
    let finding = Finding::new(dtype.span, message, "not with this algorithm")
        .related(context.span(Key::SpeculativeAlgorithm), "here")
        .by_version()
        .help(help);
    Some(if context.gpu_memory.is_some_and(|memory| memory >= SM100_MEMORY) {
        finding
    } else {
        finding.at_most(Severity::Warning).note("this holds on GPUs of SM100 (B200, GB200, B300)")
    })
}
