//! # SD087: disable-draft-cuda-graph
//!
//! `--disable-draft-cuda-graph` is a flag of patched versions only.
//!
//! ## What it does
//!
//! Looks for the flag in a launch of SGLang.
//!
//! ## Why is this bad?
//!
//! Published versions of SGLang do not have the flag and do not start. The images of slime and
//! miles contain a patch that adds it.
//!
//! ## What SGLang does
//!
//! argparse: `unrecognized arguments`. The closest equivalent in SGLang itself is an environment
//! variable that turns off the graphs of one of the draft's two passes.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --disable-draft-cuda-graph
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH=1 sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! In no version of SGLang read.
//!
//! ## Source
//!
//! slime's patch for 0.5.7; sglang pull request #18647.

use schemas::{diagnostic::Severity, engines::Engine};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD087",
    name: "disable-draft-cuda-graph",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const FLAG: &str = "--disable-draft-cuda-graph";

fn check(context: &Context<'_>) -> Option<Finding> {
    // slime runs its own build, which has the patch.
    if context.launch.engine != Engine::Sglang {
        return None;
    }
    let argument = context.launch.arguments.iter().find(|argument| argument.flag.value == FLAG)?;
    Some(
        Finding::new(
            argument.flag.span,
            format!("`{FLAG}` is there in the builds of slime and miles only"),
            "of a patch",
        )
        .help(format!("take `{FLAG}` out, or set SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH=1 in the environment")),
    )
}
