//! # VL06: mtp-pipeline-parallel
//!
//! Drafts do not run with pipeline stages in these versions.
//!
//! ## What it does
//!
//! Looks for `--pipeline-parallel-size` above 1 with speculation, up to 0.29. Flags that only old
//! versions have (`--num-speculative-tokens`) imply such a version if none is stated.
//!
//! ## Why is this bad?
//!
//! vLLM does not start, or fails in its first round.
//!
//! ## What vLLM does
//!
//! Old versions reject it: `NotImplementedError: Speculative decoding is currently incompatible
//! with pipeline parallelism`. Later ones load the draft on the last stage, and the other stages
//! fail at their first request: `AttributeError: 'GPUModelRunner' object has no attribute
//! 'drafter'`. A draft whose class does not declare support for stages is rejected:
//! `NotImplementedError: Pipeline parallelism is not supported for this model`.
//!
//! ## Example
//!
//! ```launch bad version:0.24.0
//! vllm serve target --pipeline-parallel-size 2 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//!
//! ```launch bad version:0.12.0
//! vllm serve target --pipeline-parallel-size 2 --speculative-config '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
//! ```
//!
//! ```launch bad version:0.7.3
//! vllm serve target --pipeline-parallel-size 2 --num-speculative-tokens 1
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.30.0
//! vllm serve target --pipeline-parallel-size 2 --speculative-config '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
//! ```
//!
//! ```launch good version:0.24.0
//! vllm serve target --tensor-parallel-size 2 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//!
//! ## Versions
//!
//! Every method up to 0.7 and from 0.11 to 0.24; in between MTP and DSpark as well, while other
//! methods are a warning. From 0.25 to 0.29 it is an error for DSpark, which was added in 0.25, and
//! a warning for the others: another model runner, which vLLM uses for some models, supports
//! stages. From 0.30 on vLLM drafts on the last stage. A text with a day and no version is checked
//! for the newest version of that day, which is a warning at most. Read in 0.7.3, 0.8.5 and 8
//! versions from 0.11.0 to 0.29.0.
//!
//! ## Source
//!
//! vLLM issues #14117, #30436, #44697, #49355, #52069, #52761, PRs #10975, #31266, #46994, #53408
//! and #53575; vllm-ascend PR #15747; `spec_decode/spec_decode_worker.py`,
//! `v1/worker/gpu_model_runner.py`, `config/speculative.py` of 0.33.0.

use schemas::{diagnostic::Severity, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL06",
    name: "mtp-pipeline-parallel",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The first version with a runner that may draft across stages, for prompt lookup and EAGLE heads.
const NEW_RUNNER: EngineVersion = EngineVersion::new(0, 8, 0);

/// The first version read in which stages other than the last fail at a request.
const NO_DRAFTER: EngineVersion = EngineVersion::new(0, 11, 0);

/// The first version in which some drafts support stages.
const SOME: EngineVersion = EngineVersion::new(0, 25, 0);

/// The first version that drafts on the last stage.
const ALL: EngineVersion = EngineVersion::new(0, 30, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let (version, is_stated) = (context.version(), context.resolved.version_given);
    let stages = context.launch.argument("pipeline-parallel-size")?;
    let count: usize = stages.values.first()?.value.known()?.parse().ok()?;
    if count < 2 {
        return None;
    }
    let found = |message: String| {
        Finding::new(stages.span, message, "one stage only")
            .related(Some(config.span), "drafts")
            .help(format!("write `--tensor-parallel-size {count}` instead, or use vllm 0.30 or later"))
    };
    let is_dated = context.launch.version_of_day == Some(version);
    if !is_stated && !is_dated {
        // Every version with these flags rejects stages.
        let is_old = config.is_legacy && config.gives_tokens;
        let message = "no version of vllm with these flags speculates over pipeline stages";
        return is_old.then(|| found(message.to_owned()).at_most(Severity::Warning));
    }
    if version >= ALL {
        return None;
    }
    let method = method_of(&config);
    let has_layers = method.is_some_and(|method| method.contains("mtp"));
    let is_sure = match method {
        Some("dspark") => true,
        _ if version >= SOME => false,
        _ => has_layers || version < NEW_RUNNER || version >= NO_DRAFTER,
    };
    let what = if config.is_legacy { "speculation" } else { method.unwrap_or("speculation") };
    let finding = found(format!("{what} of vllm {version} does not run over {count} pipeline stages"));
    Some(if is_sure && is_stated { finding } else { finding.at_most(Severity::Warning) })
}
