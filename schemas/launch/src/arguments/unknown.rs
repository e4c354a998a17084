//! Flags that no version of the engine has: usually typos.

use schemas::{
    diagnostic::{Edit, Fix, Safety, Severity},
    finding::{Doubt, Finding},
    flags::{self, Lookup},
    text::distance,
};

use super::super::{Argument, Engine, Forks, forks::has_prefix, problems};

/// Maximum edit distance at which an unknown flag counts as a typo of a known one.
const SLIP: usize = 2;

/// Maximum number of unknown flags per launch for which the intended flag is searched: each is
/// compared with the whole table.
const MOST_GUESSES: usize = 64;

/// Slime's own flags that start like the ones it forwards.
const SLIMES_OWN: &[&str] = &["--sglang-config", "--sglang-router-", "--sglang-server-concurrency"];

/// Number of flags that resemble none of the engine's from which on they are taken for those of a
/// modified engine.
const MOST_UNKNOWN: usize = 3;

/// Reports flags that are unknown to the engine. `forks` are the plugins and forks that the text
/// names, which may have the flag.
pub(crate) fn report(arguments: &[Argument], engine: Engine, forks: &Forks, findings: &mut Vec<Finding>) {
    // Each guess compares with all names; a text may have thousands of unknown flags.
    let mut guesses = 0..MOST_GUESSES;
    let before = findings.len();
    // Two flags in one word have a rule of their own.
    let judged = |argument: &&Argument| !argument.is_positional() && argument.second_flag(engine).is_none();
    for argument in arguments.iter().filter(judged) {
        let written = argument.flag.value.as_str();
        let Some(name) = own_name(written, engine) else { continue };
        let two_dashes = written.starts_with("--") && !written.starts_with("---");
        if has_prefix(engine, name) {
            continue;
        }
        let known = two_dashes && !matches!(flags::lookup(name, None), Lookup::Unknown);
        let finding = match engine {
            Engine::Spectune => match flags::by_name(name) {
                Some(flag) if flag.ours => continue,
                _ if flags::arity_in_serve(name).is_some() => continue,
                _ if known => unsupported(argument),
                _ => unknown(argument, guesses.next().and_then(|_| nearest(name)), engine),
            },
            Engine::Sglang | Engine::Slime if !known => {
                unknown(argument, guesses.next().and_then(|_| nearest(name)), engine)
            }
            Engine::Sglang | Engine::Slime | Engine::Vllm => continue,
        };
        findings.push(doubt_forks(finding, engine, forks, name));
    }
    // Several names of which none resembles a flag are those of a modified engine.
    let own = findings.get_mut(before..).unwrap_or_default();
    if own.iter().filter(|one| one.depends.unknown_name).count() >= MOST_UNKNOWN && engine != Engine::Spectune {
        own.iter_mut().filter(|one| one.depends.unknown_name).for_each(|one| one.harm = Severity::Info);
    }
}

fn doubt_forks(mut finding: Finding, engine: Engine, forks: &Forks, name: &str) -> Finding {
    if forks.any_of(engine) {
        finding = finding.doubt(Doubt::Fork);
    }
    let is_slip = finding.fix.is_some();
    if forks.may_have(engine, name, is_slip) { finding.doubt(Doubt::FlagOfFork) } else { finding }
}

/// The name by which the engine would know a flag; `None` if the flag belongs to another program.
fn own_name(written: &str, engine: Engine) -> Option<&str> {
    match engine {
        Engine::Vllm => None,
        // It has no short names: one dash before a flag's name is one too few.
        Engine::Sglang if !written.starts_with("--") => {
            written.strip_prefix('-').filter(|name| name.len() > 1 && of_sglang(name).is_some())
        }
        Engine::Sglang | Engine::Spectune => written.strip_prefix("--"),
        Engine::Slime => {
            let ours = SLIMES_OWN.iter().any(|own| written.starts_with(own));
            written.trim_start_matches('-').strip_prefix("sglang-").filter(|_| !ours)
        }
    }
}

fn unsupported(argument: &Argument) -> Finding {
    let message = format!("spectune's engine has no `{}`, and stops", argument.flag.value);
    problems::UNKNOWN_FLAG.at(argument.flag.span, message, "a flag of sglang only").by_engine()
}

/// The flag that a name is, or is short for.
fn of_sglang(name: &str) -> Option<&'static str> {
    match flags::lookup(name, None) {
        Lookup::Exact(spelling) | Lookup::Abbreviation(spelling) => Some(spelling.name),
        Lookup::Ambiguous(_) | Lookup::Unknown => None,
    }
}

/// vLLM's names of flags, with SGLang's.
const OF_VLLM: [(&str, &str); 8] = [
    ("block-size", "page-size"),
    ("enforce-eager", "disable-cuda-graph"),
    ("gpu-memory-utilization", "mem-fraction-static"),
    ("max-model-len", "context-length"),
    ("max-model-length", "context-length"),
    ("max-num-batched-tokens", "max-prefill-tokens"),
    ("max-num-seqs", "max-running-requests"),
    ("seed", "random-seed"),
];

/// The flag of which a name is a typo.
fn nearest(name: &str) -> Option<&'static str> {
    // Only the dashes are wrong.
    if let Some(known) = of_sglang(name) {
        return Some(known);
    }
    let known =
        flags::spellings().iter().map(|spelling| spelling.name).chain(flags::FLAGS.iter().map(|flag| flag.name));
    let near = known
        .filter(|known| known.len().abs_diff(name.len()) <= SLIP)
        .map(|known| (distance(known, name), known))
        .filter(|(far, known)| *far <= SLIP && ends_alike(known, name))
        .min();
    near.map(|(_, known)| known)
}

/// Whether the last words of two names with equal word counts are more similar than different:
/// `mtp` is not a typo of `mis`.
fn ends_alike(known: &str, name: &str) -> bool {
    let (known_last, last) = (last_word(known), last_word(name));
    // Flags differ in their last word (`--tp-size`, `--dp-size`): another word there is no slip of
    // the hand.
    known.matches('-').count() != name.matches('-').count() || distance(known_last, last) * 2 <= last.len()
}

fn last_word(name: &str) -> &str {
    name.rsplit('-').next().unwrap_or_default()
}

fn unknown(argument: &Argument, meant: Option<&str>, engine: Engine) -> Finding {
    let who = match engine {
        Engine::Spectune => "spectune",
        _ => "no version of sglang from 0.4.7 to 0.5.23",
    };
    let verb = if engine == Engine::Spectune { "does not know" } else { "knows" };
    let message = format!("{who} {verb} `{}`", argument.flag.value);
    let mut finding = problems::UNKNOWN_FLAG.at(argument.flag.span, message, "unknown flag").by_engine();
    // A slip is a mistake in any version; another name may be of a later one.
    finding.depends.unknown_name = meant.is_none();
    match meant {
        Some(known) => {
            let meant = format!("{}{known}", engine.flag_prefix());
            finding.help = Some(format!("write `{meant}`"));
            let edits = vec![Edit { span: argument.flag.span, replacement: meant }];
            let description = "write the intended flag".into();
            finding.fix = Some(Fix { description, safety: Safety::Unsafe, edits });
        }
        None if engine != Engine::Spectune => {
            let name = own_name(&argument.flag.value, engine).unwrap_or_default();
            if let Some((_, own)) = OF_VLLM.iter().find(|(other, _)| *other == name) {
                finding.help = Some(format!("that is vLLM's name; sglang has `{}{own}`", engine.flag_prefix()));
            }
            return finding.doubt(Doubt::OtherRelease);
        }
        None => {}
    }
    finding
}
