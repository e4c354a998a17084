//! # SD049: token-map-file
//!
//! `--speculative-token-map` names something that cannot be read as a token map.
//!
//! ## What it does
//!
//! Looks at the value, not at the file: a URL, a file that PyTorch does not write (`.json`, `.txt`,
//! `.npy`, `.safetensors`), or a repository without a file in it.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! If the file does not exist, everything before the last `/` is treated as a hub repository to
//! download, and the rest as a file in it. The file is read with `torch.load(weights_only=True)`.
//! Its ids must be smaller than the target's `vocab_size`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft \
//!   --speculative-token-map https://huggingface.co/thunlp/LLaMA3-Instruct-8B-FR-Spec/resolve/main/freq_32768.pt --max-running-requests 16
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft \
//!   --speculative-token-map maps/freq_32768.json --max-running-requests 16
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft \
//!   --speculative-token-map thunlp/LLaMA3-Instruct-8B-FR-Spec --max-running-requests 16
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft \
//!   --speculative-token-map thunlp/LLaMA3-Instruct-8B-FR-Spec/freq_32768.pt --max-running-requests 16
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `speculative/spec_utils.py`, issue #4153.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD049",
    name: "token-map-file",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Extensions of files that cannot contain a pickled tensor.
const UNREADABLE: [&str; 4] = [".json", ".txt", ".npy", ".safetensors"];

/// Extensions of files that may.
const PICKLED: [&str; 4] = [".pt", ".pth", ".bin", ".pkl"];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    let key = Key::SpeculativeTokenMap;
    let map = context.launch.text(key)?;
    let lower = map.value.to_ascii_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| lower.ends_with(ending));
    let example = context.line(key, "thunlp/LLaMA3-Instruct-8B-FR-Spec/freq_32768.pt");
    let finding = |message: &str, label: &str| {
        Finding::new(map.span, message, label)
            .help(format!("name a file of `torch.save`, here or in a repository of the hub: `{example}`"))
    };
    if lower.contains("://") {
        return Some(finding("a token map is a file or a path on the hub, not a URL", "a URL"));
    }
    if ends(&UNREADABLE) {
        return Some(finding(
            "the token map is read with torch.load, which cannot read this kind of file",
            "not a .pt",
        ));
    }
    let relative = !map.value.starts_with(['/', '.', '~']);
    let repository = relative && map.value.split('/').count() == 2 && !ends(&PICKLED);
    // A file with that name may exist anyway.
    repository.then(|| {
        finding("the token map names a repository and no file in it", "which file?").at_most(Severity::Warning)
    })
}
