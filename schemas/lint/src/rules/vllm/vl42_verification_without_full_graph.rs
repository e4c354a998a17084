//! # VL42: verification-without-full-graph
//!
//! FlashInfer verifies drafts without a full graph on this GPU.
//!
//! ## What it does
//!
//! Looks at launches that name FlashInfer, draft, and run on a GPU where its decode kernel takes
//! one token of a request at a time.
//!
//! ## Why is this bad?
//!
//! A round costs more: attention runs between pieces of graphs, and each piece is started by the
//! host. 16% of the throughput of one request were measured on a GB10.
//!
//! ## What vLLM does
//!
//! It goes on with smaller graphs, and logs `CUDAGraphMode.FULL_AND_PIECEWISE is not supported with
//! spec-decode for attention backend FlashInferBackend (support:
//! AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE); setting cudagraph_mode=PIECEWISE`.
//!
//! ## Example
//!
//! ```launch bad version:0.26.0 memory:81559
//! vllm serve target --attention-backend FLASHINFER \
//!   --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.26.0 memory:81559
//! vllm serve target --attention-backend FLASH_ATTN \
//!   --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
//! ```
//!
//! ## Versions
//!
//! From 0.11.0 on: below SM 9.0 up to 0.32.0, on SM 9.0 up to 0.29.0, on SM 12 up to 0.27.1. On
//! SM 10 a kernel verifies several tokens in one graph.
//!
//! ## Source
//!
//! vLLM issue #49547; `v1/attention/backends/flashinfer.py`, `config/compilation.py`.

use schemas::{diagnostic::Severity, gpu::Architecture, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL42",
    name: "verification-without-full-graph",
    severity: Severity::Warning,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// From here on graphs are full by default.
const FULL: EngineVersion = EngineVersion::new(0, 11, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    let launch = context.launch;
    let config = launch.vllm_speculation()?;
    let backend = launch.argument("attention-backend").filter(|flag| !flag.in_branch)?;
    let name = backend.values.first()?.value.known()?;
    let architecture = context.architecture()?;
    let is_affected = (FULL..first_without(architecture)?).contains(&context.version());
    if !name.eq_ignore_ascii_case("flashinfer") || !is_affected || has_other_graphs(context) {
        return None;
    }
    Some(
        Finding::new(backend.span, "FlashInfer verifies drafts without a full graph on this GPU", "with drafts")
            .related(Some(config.span), "several tokens of a request at a time")
            .vllm_says(
                "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with spec-decode for attention backend \
                 FlashInferBackend (support: AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE); setting \
                 cudagraph_mode=PIECEWISE",
            )
            .note(format!("on {architecture}, until {}", first_without(architecture)?))
            .by_version()
            .help("write `--attention-backend FLASH_ATTN`, and compare the times of rounds"),
    )
}

/// The first version whose FlashInfer verifies in a full graph; `None` if all that have full graphs
/// do.
fn first_without(architecture: Architecture) -> Option<EngineVersion> {
    match architecture {
        Architecture::Sm(7 | 8, _) => Some(EngineVersion::new(0, 33, 0)),
        Architecture::Sm(9, _) => Some(EngineVersion::new(0, 30, 0)),
        Architecture::Sm(12, _) => Some(EngineVersion::new(0, 28, 0)),
        _ => None,
    }
}

/// Whether graphs are off, or their kind is set.
fn has_other_graphs(context: &Context<'_>) -> bool {
    let names = ["enforce-eager", "compilation-config", "optimization-level"];
    names.iter().any(|name| context.launch.argument(name).is_some())
        || context.launch.arguments.iter().any(|argument| argument.flag.value == "-O")
}
