//! # SD086: flag-renamed
//!
//! A flag does not exist in this version of the engine, or is ambiguous there.
//!
//! ## What it does
//!
//! Looks up every flag in the version's parser, as argparse does: exact names first, then prefixes.
//! Keywords of a Python call (`sgl.Engine(…)`) are looked up among the fields of the version's
//! `ServerArgs`, which has neither aliases nor prefixes.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! argparse stops: `error: ambiguous option: --cuda-graph-max-bs could match
//! --cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill`, or `error: unrecognized arguments: …`.
//! `--cuda-graph-bs` and `--cuda-graph-max-bs` are aliases of the names with `-decode` from 0.5.14
//! on, and were removed in 0.5.20. Abbreviations such as `--speculative-draft` used to be unique. A
//! call ends with a `TypeError`; the fields of the old names were removed in 0.5.14.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --max-running-requests 8 --cuda-graph-max-bs 8
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft head --max-running-requests 8
//! ```
//!
//! ```launch bad version:0.5.2
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 8 \
//!   --speculative-draft-attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --max-running-requests 8 --cuda-graph-max-bs-decode 8
//! ```
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --max-running-requests 8 --cuda-graph-max-bs 8
//! ```
//!
//! ## Versions
//!
//! The flags were read from {sglang versions}. In a version between two of them, a flag that the
//! next one lacks is a warning, and one that it adds is not checked. If the version is not stated,
//! a launch that an older version accepts as a whole is information: it was probably written for
//! that version.
//!
//! ## Source
//!
//! sglang `server_args.py`, `arg_groups/fields/`.

use launch::{Argument, Syntax};
use schemas::{
    diagnostic::{Edit, Safety, Severity},
    engines::Engine,
    flags::{self, Lookup, Spelling},
    version::EngineVersion,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, keywords::refused, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD086",
    name: "flag-renamed",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

/// Slime's own flags that start like the ones that it passes on.
const SLIMES_OWN: &[&str] = &["config", "router-", "server-concurrency"];

fn check(context: &Context<'_>) -> Vec<Finding> {
    // Both have their own names, the same in every version of sglang.
    if context.launch.engine == Engine::Spectune || context.launch.syntax == Syntax::Toml {
        return Vec::new();
    }
    if let Some(callee) = context.launch.callee {
        return refused(context, callee, &|_| None);
    }
    context.launch.arguments.iter().filter_map(|argument| look(context, argument)).collect()
}

fn look(context: &Context<'_>, argument: &Argument) -> Option<Finding> {
    let written = argument.flag.value.as_str();
    let name: &str = &context.launch.engine.flag_name(written)?;
    if context.launch.engine == Engine::Slime && SLIMES_OWN.iter().any(|own| name.starts_with(own)) {
        return None;
    }
    let version = context.version();
    let now = now_called(argument, version).filter(|now| *now != name);
    let finding = match flags::lookup(name, Some(version)) {
        Lookup::Exact(spelling) | Lookup::Abbreviation(spelling) => going(context, argument, spelling, now)?,
        Lookup::Ambiguous(candidates) => {
            let names: Vec<String> =
                candidates.iter().map(|one| format!("{}{}", context.launch.engine.flag_prefix(), one.name)).collect();
            Finding::new(argument.flag.span, format!("`{written}` is ambiguous in sglang {version}"), "ambiguous")
                .by_abbreviation()
                .sglang_says(format!("error: ambiguous option: {written} could match {}", names.join(", ")))
        }
        Lookup::Unknown => {
            // Unknown in every version: a misspelling, or another program's flag; another rule
            // reports it.
            let (Lookup::Exact(spelling) | Lookup::Abbreviation(spelling)) = flags::lookup(name, None) else {
                return None;
            };
            unknown(context, argument, spelling)?
        }
    };
    // A fork has flags before, or after, the version that it is a copy of.
    let finding = match fits(context) {
        Some(version) => {
            let whole = format!("sglang {version} has every flag of this launch");
            finding.at_most(Severity::Info).note(whole)
        }
        None => finding,
    };
    let finding = finding.by_version().by_engine();
    Some(match now {
        Some(now) => {
            let now = context.launch.as_written(&format!("{}{now}", context.launch.engine.flag_prefix()));
            // With a guessed version, the new name may be the one that the engine does not have.
            let safety = if context.resolved.version_given { Safety::Safe } else { Safety::Unsafe };
            // Where one span is the flag and its value, replacing the flag would lose the value.
            let tied = argument.values.iter().any(|value| value.span == argument.flag.span);
            let edits =
                if tied { Vec::new() } else { vec![Edit { span: argument.flag.span, replacement: now.clone() }] };
            finding.help(format!("write `{now}`")).fix(safety, "use the name that this version has", edits)
        }
        None => finding.help(format!("remove `{written}`, or use a version that has it")),
    })
}

/// The newest version that has every flag of a launch, if the launch states no version.
fn fits(context: &Context<'_>) -> Option<EngineVersion> {
    let is_open = !context.resolved.version_given;
    let mut read = flags::sglang().versions().iter().rev().filter(|_| is_open);
    read.find(|version| context.launch.has_flags_of(**version)).copied()
}

/// The flag's name in the version, if spectune knows the flag and the version has it.
fn now_called(argument: &Argument, version: EngineVersion) -> Option<&'static str> {
    let name = argument.key?.name_in(version);
    flags::spelling(name).is_some_and(|spelling| spelling.exists_in(version)).then_some(name)
}

/// A flag that the last version read before this one has and the next one read no longer has, under
/// a name whose successor already exists.
fn going(context: &Context<'_>, argument: &Argument, spelling: &Spelling, now: Option<&str>) -> Option<Finding> {
    let gone = spelling.until?;
    let read = flags::sglang().versions();
    let edge = Edge::new(*read.iter().rev().find(|read| **read < gone)?, gone);
    let successor = flags::by_name(spelling.name)?.aliases().find_map(flags::spelling);
    let version = context.version();
    // Without a successor in this version there is nothing better to write yet.
    if edge.side(version) != Side::Between || now.is_some() || !successor?.exists_in(version) {
        return None;
    }
    let written = &argument.flag.value;
    let message = format!("sglang {gone} no longer has `{written}`, and {version} may not either");
    Some(
        Finding::new(argument.flag.span, message, "on its way out")
            .at_most(Severity::Warning)
            .maybe_note(edge.doubt(version)),
    )
}

/// A flag that only other versions have.
fn unknown(context: &Context<'_>, argument: &Argument, spelling: &Spelling) -> Option<Finding> {
    let (written, version) = (&argument.flag.value, context.version());
    let message = match (spelling.until, spelling.since) {
        (Some(gone), _) if gone <= version => format!("sglang {version} no longer has `{written}`"),
        (_, Some(since)) => {
            let before = *flags::sglang().versions().iter().rev().find(|read| **read < since)?;
            if Edge::new(before, since).side(version) != Side::Before {
                return None;
            }
            format!("sglang {version} does not have `{written}` yet")
        }
        _ => return None,
    };
    Some(
        Finding::new(argument.flag.span, message, "not in this version")
            .sglang_says(format!("error: unrecognized arguments: {written}")),
    )
}
