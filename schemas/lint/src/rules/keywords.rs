//! Keywords of a call, held against those that the engine's class takes.

use launch::Argument;
use schemas::{
    diagnostic::Severity,
    finding::Doubt,
    flags::Lookup,
    keywords::{Callee, Keyword},
    version::EngineVersion,
};

use super::{Context, Finding};

/// Number of names that resemble none of the class's from which on they are taken for those of a
/// modified engine.
const MOST_UNKNOWN: usize = 3;

/// What Python refuses of the keywords of a launch that is a call. `advice` says what replaced a
/// keyword.
pub(super) fn refused(context: &Context<'_>, callee: Callee, advice: &dyn Fn(&str) -> Option<String>) -> Vec<Finding> {
    let given = context.launch.arguments.iter().filter(|argument| !argument.is_positional());
    let found = given.filter_map(|argument| look(context, callee, argument, advice));
    let mut found: Vec<Finding> = found.map(|one| one.by_version().by_engine()).collect();
    let is_foreign = |one: &&Finding| one.depends.unknown_name;
    if context.launch.may_be_fork() || found.iter().filter(is_foreign).count() >= MOST_UNKNOWN {
        found.iter_mut().filter(|one| one.depends.unknown_name).for_each(|one| one.harm = Severity::Info);
    }
    found
}

fn look(
    context: &Context<'_>,
    callee: Callee,
    argument: &Argument,
    advice: &dyn Fn(&str) -> Option<String>,
) -> Option<Finding> {
    let flag = argument.flag.value.trim_start_matches('-');
    let version = context.version();
    let Some(known) = callee.keyword_of_flag(flag) else { return nowhere(context, callee, argument) };
    if callee.keyword(known.name, Some(version)).is_some() {
        return None;
    }
    let engine = context.launch.engine.reference();
    let name = known.name;
    let message = match (known.until, known.since) {
        (Some(gone), _) if gone <= version => format!("`{name}` is no longer a keyword in {engine} {version}"),
        (_, Some(since)) if !may_have(context, since) => {
            format!("`{name}` is not a keyword in {engine} {version} yet")
        }
        _ => return None,
    };
    let now = argument.key.and_then(|key| callee.keyword_for(key, version));
    let help = match (now, advice(flag)) {
        (Some(now), _) => format!("write `{now}`"),
        (None, Some(advice)) => advice,
        (None, None) => format!("remove `{name}`, or use a version that has it"),
    };
    let finding = Finding::new(argument.flag.span, message, "not in this version")
        .engine_says(engine, callee.refusal(name, version))
        .help(help);
    // The launch may be for a version that is older than all that were read.
    let first = context.launch.engine.registered().versions().first();
    if known.until.as_ref() == first && !context.resolved.version_given {
        let older = first.map(|first| format!("a version before {first} has it"));
        return Some(finding.at_most(Severity::Info).maybe_note(older));
    }
    Some(match fits(context) {
        Some(version) => {
            finding.at_most(Severity::Info).note(format!("{engine} {version} has every keyword of this launch"))
        }
        None => finding,
    })
}

/// Whether the version is one between two that were read, of which only the later one has a
/// keyword.
fn may_have(context: &Context<'_>, since: EngineVersion) -> bool {
    let read = context.launch.engine.registered().versions();
    read.iter().rev().find(|read| **read < since).is_none_or(|before| context.version() > *before)
}

/// The newest version that has every keyword of a launch, if the launch states no version.
fn fits(context: &Context<'_>) -> Option<EngineVersion> {
    let is_open = !context.resolved.version_given;
    let mut read = context.launch.engine.registered().versions().iter().rev().filter(|_| is_open);
    read.find(|version| context.launch.has_flags_of(**version)).copied()
}

/// A keyword that no version has.
fn nowhere(context: &Context<'_>, callee: Callee, argument: &Argument) -> Option<Finding> {
    let (version, engine) = (context.version(), context.launch.engine);
    let flag = argument.flag.value.trim_start_matches('-');
    let name = flag.replace('-', "_");
    let of_flags = engine.registered().lookup(flag, None);
    let near: Option<&Keyword> = callee.nearest(&name, version);
    if context.launch.forks.may_have(engine, flag, near.is_some()) {
        return None;
    }
    let message = match of_flags {
        Lookup::Unknown => format!("no version of {} that was read has the keyword `{name}`", engine.reference()),
        _ => format!("`{name}` is a flag of the command line, and no keyword of the class"),
    };
    let mut finding = Finding::new(argument.flag.span, message, "unknown keyword")
        .engine_says(engine.reference(), callee.refusal(&name, version));
    let is_flag = !matches!(of_flags, Lookup::Unknown);
    finding.depends.unknown_name = near.is_none() && !is_flag;
    let is_read = engine.registered().versions().contains(&version) && context.version_is_certain();
    Some(match near {
        Some(near) => finding.help(format!("write `{}`", near.name)),
        None if is_flag || is_read => finding.help(format!("remove `{name}`")),
        None => finding.doubt(Doubt::OtherRelease).help(format!("remove `{name}`, unless a newer version has it")),
    })
}
