//! # VL19: vllm-flag-not-in-version
//!
//! A flag does not exist in this version of vLLM, or in none.
//!
//! ## What it does
//!
//! Looks up every flag in the version's parser, as argparse does: exact names first, then prefixes.
//! Keywords of a Python call (`LLM(…)`, `AsyncEngineArgs(…)`) are looked up among those of the
//! version's classes, which have neither aliases nor prefixes: a call ends with a `TypeError`.
//! A name that resembles none is information if there are several, or if the image is one without a
//! namespace, which someone built: the engine is a modified one.
//!
//! ## Why is this bad?
//!
//! The server does not start. The flags by which speculation was configured until 2025
//! (`--speculative-model`, `--num-speculative-tokens`, `--ngram-prompt-lookup-max` and others) were
//! removed; keys of `--speculative-config` replaced them.
//!
//! ## What vLLM does
//!
//! argparse stops: `error: unrecognized arguments: --num-speculative-tokens 3`.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-model draft --num-speculative-tokens 3 --use-v2-block-manager
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "draft_model", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! ## Versions
//!
//! The flags were read from {vllm versions}. In a version between two of them, a flag that only one
//! of them has may or may not exist. A flag that none of them has is a warning: a plugin, a
//! platform or a fork may have it. If the text names a plugin that adds flags (ArcticInference),
//! its flags are not reported.
//!
//! ## Source
//!
//! vLLM `engine/arg_utils.py`, `entrypoints/*/cli_args.py`.

use launch::{Argument, Launcher, Syntax};
use schemas::{
    diagnostic::{Edit, Safety, Severity},
    engines::Engine,
    flags::{self, Lookup, Spelling},
    text::distance,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, keywords::refused};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL19",
    name: "vllm-flag-not-in-version",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

/// Keys of the speculative configuration that used to be separate flags.
const NOW_KEYS: [(&str, &str); 11] = [
    ("speculative-model", "model"),
    ("num-speculative-tokens", "num_speculative_tokens"),
    ("ngram-prompt-lookup-max", "prompt_lookup_max"),
    ("ngram-prompt-lookup-min", "prompt_lookup_min"),
    ("speculative-draft-tensor-parallel-size", "draft_tensor_parallel_size"),
    ("speculative-max-model-len", "max_model_len"),
    ("speculative-disable-by-batch-size", "disable_by_batch_size"),
    ("speculative-model-quantization", "quantization"),
    ("spec-decoding-acceptance-method", "rejection_sample_method"),
    ("typical-acceptance-sampler-posterior-threshold", "posterior_threshold"),
    ("typical-acceptance-sampler-posterior-alpha", "posterior_alpha"),
];

/// Replacements of other flags, by the flag's name.
const NOW_FLAGS: [(&str, &str); 6] = [
    ("cuda-graph-sizes", "cudagraph-capture-sizes"),
    ("max-seq-len-to-capture", "max-cudagraph-capture-size"),
    ("guided-decoding-backend", "structured-outputs-config"),
    ("task", "runner"),
    ("swap-space", "kv-offloading-size"),
    ("disable-log-requests", "no-enable-log-requests"),
];

/// SGLang's names of flags, and others' that are alike, with vLLM's.
const OF_OTHERS: [(&str, &str); 13] = [
    ("attn-backend", "attention-backend"),
    ("context-length", "max-model-len"),
    ("dp", "data-parallel-size"),
    ("dp-size", "data-parallel-size"),
    ("max-model-length", "max-model-len"),
    ("max-running-requests", "max-num-seqs"),
    ("mem-fraction-static", "gpu-memory-utilization"),
    ("model-path", "model"),
    ("page-size", "block-size"),
    ("pp-size", "pipeline-parallel-size"),
    ("random-seed", "seed"),
    ("tp", "tensor-parallel-size"),
    ("tp-size", "tensor-parallel-size"),
];

/// Maximum edit distance at which a name counts as a typo of a flag.
const SLIP: usize = 2;

/// Number of flags that resemble none of the engine's from which on they are taken for those of a
/// modified engine.
const MOST_UNKNOWN: usize = 3;

/// Words that belong to other programs on the same line.
const OTHERS: [&str; 3] = ["dyn-", "sglang-", "ray-"];

fn check(context: &Context<'_>) -> Vec<Finding> {
    if context.launch.syntax == Syntax::YamlConfig {
        return Vec::new();
    }
    if let Some(callee) = context.launch.callee {
        return refused(context, callee, &|name| replacement(context, name, ["speculative_config", ""]));
    }
    let arguments = context.launch.arguments.iter().filter(|argument| !argument.is_positional());
    let mut found: Vec<Finding> =
        arguments.filter_map(|argument| look(context, argument)).map(Finding::by_engine).collect();
    // Several names of which none resembles a flag are those of a modified engine.
    let is_foreign = |one: &&Finding| one.depends.unknown_name;
    // So are those of an image that no project of the engine publishes.
    if context.launch.may_be_fork() || found.iter().filter(is_foreign).count() >= MOST_UNKNOWN {
        found.iter_mut().filter(|one| one.depends.unknown_name).for_each(|one| one.harm = Severity::Info);
    }
    found
}

fn look(context: &Context<'_>, argument: &Argument) -> Option<Finding> {
    let written = argument.flag.value.as_str();
    let name = written.strip_prefix("--").filter(|name| !name.starts_with('-'))?;
    // A key of the flag's JSON follows a dot.
    let name = name.split('.').next().unwrap_or(name).trim_end_matches('+').replace('_', "-");
    if name.is_empty() || OTHERS.iter().any(|other| name.starts_with(other)) || !is_name(&name) {
        return None;
    }
    let version = context.version();
    match flags::vllm().lookup(&name, Some(version)) {
        Lookup::Exact(_) | Lookup::Abbreviation(_) => None,
        Lookup::Ambiguous(candidates) => {
            let names: Vec<String> = candidates.iter().map(|one| format!("--{}", one.name)).collect();
            Some(
                Finding::new(argument.flag.span, format!("`{written}` is ambiguous in vllm {version}"), "ambiguous")
                    .by_abbreviation()
                    .vllm_says(format!("error: ambiguous option: {written} could match {}", names.join(", ")))
                    .by_version()
                    .help(format!("write one of {}", names.join(", "))),
            )
        }
        Lookup::Unknown => match flags::vllm().lookup(&name, None) {
            Lookup::Exact(spelling) | Lookup::Abbreviation(spelling) => elsewhere(context, argument, spelling),
            Lookup::Ambiguous(_) => None,
            // Benchmarks and unknown programs have additional flags.
            Lookup::Unknown if matches!(context.launch.launcher, Launcher::Benchmark | Launcher::Wrapper) => None,
            Lookup::Unknown => {
                let near = nearest(&name);
                // So do Dynamo's workers.
                if context.launch.launcher == Launcher::Dynamo && near.is_none() {
                    return None;
                }
                if context.launch.forks.may_have(Engine::Vllm, &name, near.is_some()) {
                    return None;
                }
                // So may a program that passes its flags on.
                if context.launch.is_part && near.is_none() {
                    return None;
                }
                let mut finding = nowhere(argument, near);
                finding.depends.unknown_name = near.is_none();
                Some(if context.launch.is_part { finding.at_most(Severity::Warning) } else { finding })
            }
        },
    }
}

/// Whether a text can be a flag's name.
fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// A flag that only other versions have.
fn elsewhere(context: &Context<'_>, argument: &Argument, spelling: &Spelling) -> Option<Finding> {
    let (written, version, name) = (&argument.flag.value, context.version(), spelling.name);
    let read = flags::vllm().versions();
    let message = match (spelling.until, spelling.since) {
        (Some(gone), _) if gone <= version => format!("vllm {version} no longer has `{written}`"),
        (_, Some(since)) => {
            let before = read.iter().rev().find(|read| **read < since)?;
            if version > *before {
                return None;
            }
            format!("vllm {version} does not have `{written}` yet")
        }
        _ => return None,
    };
    let finding = Finding::new(argument.flag.span, message, "not in this version")
        .vllm_says(format!("error: unrecognized arguments: {written}"))
        .by_version();
    let help = replacement(context, name, ["--speculative-config", "--"]);
    Some(finding.help(help.unwrap_or_else(|| format!("take `{written}` out, or use a version that has it"))))
}

/// What replaced a flag in the version, written as a flag or as a keyword: the name of the
/// speculative configuration, and what other names start with.
fn replacement(context: &Context<'_>, name: &str, [configuration, dashes]: [&str; 2]) -> Option<String> {
    if let Some((_, key)) = NOW_KEYS.iter().find(|(flag, _)| *flag == name) {
        return Some(format!("write it as a key of `{configuration}`: `{{\"{key}\": …}}`"));
    }
    let (_, flag) = NOW_FLAGS.iter().find(|(flag, _)| *flag == name)?;
    let exists = flags::vllm().spelling(flag).is_some_and(|spelling| spelling.exists_in(context.version()));
    let shown = if dashes.is_empty() { flag.replace('-', "_") } else { (*flag).to_owned() };
    exists.then(|| format!("use `{dashes}{shown}`"))
}

/// The flag of which a name is a typo.
fn nearest(name: &str) -> Option<&'static str> {
    let near = flags::vllm().spellings().iter().filter(|known| known.name.len().abs_diff(name.len()) <= SLIP);
    let near = near.map(|known| (distance(known.name, name), known.name)).min();
    near.filter(|(far, known)| *far <= SLIP && far * 4 < known.len()).map(|(_, known)| known)
}

/// A flag that no known version has.
fn nowhere(argument: &Argument, near: Option<&'static str>) -> Finding {
    let written = &argument.flag.value;
    let finding =
        Finding::new(argument.flag.span, format!("no version of vllm that was read has `{written}`"), "unknown flag");
    match near {
        Some(known) => finding.help(format!("write `--{known}`")).fix(
            Safety::Unsafe,
            "write the intended flag",
            vec![Edit { span: argument.flag.span, replacement: format!("--{known}") }],
        ),
        None => {
            finding.at_most(Severity::Warning).note("a plug-in, a platform or a fork may have it").help(match OF_OTHERS
                .iter()
                .find(|(other, _)| *other == written.trim_start_matches('-').replace('_', "-"))
            {
                Some((_, own)) => format!("vllm's name for it is `--{own}`"),
                None => format!("remove `{written}` unless one of your plug-ins adds it"),
            })
        }
    }
}
