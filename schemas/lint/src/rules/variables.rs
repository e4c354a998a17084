//! Environment variables that the engine does not read: typos, and variables of older versions.

use launch::Value;
use schemas::{
    diagnostic::Severity,
    engines::Engine,
    flags,
    text::Located,
    variables::{Variable, nearest, variable},
    version::EngineVersion,
};

use super::{Context, Finding};

/// Flags that replaced variables where the engine's files do not name them.
const NOW_FLAGS: [(&str, &str); 3] = [
    ("VLLM_ALL2ALL_BACKEND", "--all2all-backend"),
    ("VLLM_ATTENTION_BACKEND", "--attention-backend"),
    ("VLLM_TORCH_PROFILER_DIR", "--profiler-config"),
];

/// Values that ask for what every version does that no longer reads the variable.
const ALWAYS_SO: [(&str, &str); 1] = [("VLLM_USE_V1", "1")];

/// The findings on the variables of a launch that start with one of the prefixes. Those in `except`
/// have other rules, or other readers.
pub(super) fn not_read(context: &Context<'_>, prefix: &str, except: &[&str]) -> Vec<Finding> {
    let is_excepted = |name: &str| except.iter().any(|start| name.starts_with(start));
    let own = context.launch.environment.iter().filter(|(name, _)| name.starts_with(prefix) && !is_excepted(name));
    own.filter_map(|(name, value)| look(context, name, value)).collect()
}

fn look(context: &Context<'_>, name: &str, value: &Located<Value>) -> Option<Finding> {
    let (engine, version) = (context.launch.engine, context.version());
    match variable(engine, name) {
        Some(known) => gone(context, known, value).filter(|_| known.until.is_some_and(|until| until <= version)),
        None => nearest(engine, name).map(|known| {
            let message = format!("no version of {} that was read has the variable `{name}`", engine.reference());
            Finding::new(value.span, message, "unknown variable").help(format!("write `{}`", known.name))
        }),
    }
}

/// A variable that the version no longer reads. Without a version the launch may be for an older
/// one.
fn gone(context: &Context<'_>, known: &Variable, value: &Located<Value>) -> Option<Finding> {
    let (engine, until) = (context.launch.engine, known.until?);
    let message = format!("{} {} does not read `{}`", engine.reference(), context.version(), known.name);
    let finding = Finding::new(value.span, message, "no effect")
        .note(format!("gone since {} {until}", engine.reference()))
        .by_version();
    let flag = NOW_FLAGS.iter().find(|(name, _)| *name == known.name).map(|(_, flag)| *flag);
    let now = known.now.or(flag).filter(|now| exists(engine, now, context.version()));
    let finding = finding.help(match now {
        Some(now) => format!("use `{now}` instead"),
        None => format!("take `{}` out", known.name),
    });
    let is_so = ALWAYS_SO.iter().any(|(name, own)| *name == known.name && value.value.known() == Some(own));
    let is_harmless = is_so || !context.resolved.version_given;
    Some(if is_harmless { finding.at_most(Severity::Info) } else { finding })
}

/// Whether a replacement is a variable, or a flag that the version has.
fn exists(engine: Engine, now: &str, version: EngineVersion) -> bool {
    let known = if engine == Engine::Vllm { flags::vllm() } else { flags::sglang() };
    now.strip_prefix("--").is_none_or(|name| known.spelling(name).is_some_and(|flag| flag.exists_in(version)))
}
