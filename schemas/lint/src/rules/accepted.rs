//! Words after flags, held against what the version's parser takes.

use launch::{
    Argument, Syntax, Value,
    placeholder::{may_replace_number, may_replace_value},
};
use schemas::{
    diagnostic::{Edit, Safety, Severity},
    flags::{AcceptedValues, Lookup, Registered, ValueKind, Word, is_size},
    text::{Located, distance, shortened},
    version::EngineVersion,
};

use super::{Context, Finding};

/// Farthest that a slip of the pen is taken for the word that was meant.
const SLIP: usize = 2;

/// The flag whose word is compared after the parser, with those of another flag.
const LATE: &str = "speculative-draft-attention-backend";
const SAME_AS_LATE: &str = "attention-backend";

/// Most words that a message lists.
const LISTED: usize = 12;

/// What the parser of the version would refuse of a flag's words; `name` is the flag's own name,
/// without dashes.
pub(super) fn refused(
    context: &Context<'_>,
    registered: &'static Registered,
    argument: &Argument,
    name: &str,
) -> Option<Finding> {
    let version = context.version();
    let spelling = match registered.lookup(name, Some(version)) {
        Lookup::Exact(spelling) | Lookup::Abbreviation(spelling) => spelling,
        Lookup::Ambiguous(_) | Lookup::Unknown => return None,
    };
    let is_late = spelling.canonical == LATE;
    let accepted = registered.accepted(if is_late { SAME_AS_LATE } else { spelling.canonical })?;
    // Of a flag that spectune knows, numbers are looked at where the launch is read.
    let judges_numbers = argument.key.is_none();
    argument.values.iter().find_map(|word| {
        let text = word.value.known().filter(|text| !may_replace_value(text))?;
        if accepted.has_list_in(version) {
            let read = registered.versions();
            let mut own = accepted.words.iter().filter(|known| is_same(accepted.kind, known.text, text));
            return (!own.any(|known| may_have(known, version, read)))
                .then(|| not_listed(context, accepted, argument, word, (text, is_late)));
        }
        (judges_numbers && !is_of(accepted.kind, text) && !may_replace_number(&argument.flag.value, text))
            .then(|| not_of_kind(context, accepted.kind, argument, word, text))
    })
}

/// Whether a version's list has a word, or may: between two versions that were read, a word may
/// have come in either.
fn may_have(word: &Word, version: EngineVersion, read: &[EngineVersion]) -> bool {
    let comes =
        word.since.is_some_and(|since| version < since && !read.iter().any(|read| (version..since).contains(read)));
    word.exists_in(version) || comes
}

fn is_same(kind: ValueKind, known: &str, text: &str) -> bool {
    if kind == ValueKind::Text { known == text } else { known.parse::<i64>().ok() == text.trim().parse().ok() }
}

/// Whether argparse's type reads a word.
fn is_of(kind: ValueKind, text: &str) -> bool {
    let plain = text.trim().replace('_', "");
    match kind {
        // JSON is looked at where the launch is read.
        ValueKind::Text | ValueKind::Json(_) => true,
        ValueKind::Size => is_size(text),
        ValueKind::Integer => plain.parse::<i128>().is_ok(),
        ValueKind::Number => plain.parse::<f64>().is_ok(),
    }
}

fn not_listed(
    context: &Context<'_>,
    accepted: &AcceptedValues,
    argument: &Argument,
    word: &Located<Value>,
    (text, is_late): (&str, bool),
) -> Finding {
    let (version, engine) = (context.version(), context.launch.engine.reference());
    let (parsed, shown) = (argument.named(context.launch.callee), shortened(text));
    let flag = &context.launch.as_written(&parsed);
    let is_call = context.launch.callee.is_some();
    let is_file = matches!(context.launch.syntax, Syntax::YamlConfig | Syntax::YamlOverrides);
    let words: Vec<&str> = accepted.words_in(version).collect();
    let elsewhere = accepted.words.iter().find(|known| known.text == text);
    let finding =
        Finding::new(word.span, format!("{engine} {version} does not take `{shown}` for `{flag}`"), "not taken")
            .maybe_note(
                (!is_call && !is_late)
                    .then(|| format!("{engine} says: `error: argument {parsed}: invalid choice: '{shown}'`")),
            )
            .maybe_note(is_late.then(|| format!("{engine} says: `ValueError: Invalid attention backend: {shown}`")))
            .maybe_note(elsewhere.and_then(|known| match (known.since, known.until) {
                (Some(since), _) if since > version => Some(format!("`{shown}` was added in {engine} {since}")),
                (_, Some(until)) => Some(format!("`{shown}` was removed in {engine} {until}")),
                _ => None,
            }))
            .maybe_note(accepted.is_open.then(|| "plug-ins can add to this list".to_owned()))
            .by_version();
    let meant = meant(&words, text);
    // A word that no version has may belong to a fork, as an unknown flag may, unless the version
    // is certain or the word is a typo. Typos in the first letter are rare.
    let is_slip = meant.is_some_and(|known| known.chars().next() == text.to_ascii_lowercase().chars().next());
    let may_be_of_fork = elsewhere.is_none() && !is_slip && !context.version_is_certain();
    let finding = finding.maybe_note(may_be_of_fork.then(|| "a plug-in, a platform or a fork may take it".to_owned()));
    let finding = match meant {
        Some(known) => {
            let whole = word.span.end - word.span.start == text.len();
            let edits = if whole { vec![Edit { span: word.span, replacement: known.to_owned() }] } else { Vec::new() };
            let line = match (is_call, is_file) {
                (true, _) => format!("{flag}=\"{known}\""),
                (false, true) => format!("{flag}: {known}"),
                (false, false) => format!("{flag} {known}"),
            };
            finding.help(format!("write `{line}`")).fix(Safety::Unsafe, "write the intended word", edits)
        }
        None if words.len() <= LISTED => finding.help(format!("write one of {}", words.join(", "))),
        None => finding.help(format!("write one of {} and others", words.get(..LISTED).unwrap_or(&words).join(", "))),
    };
    // A call is not compared with the list: it fails where the word is used, if it does.
    let is_open = accepted.is_open || may_be_of_fork || context.launch.may_be_fork() || is_call;
    let finding = if is_open { finding.at_most(Severity::Warning) } else { finding };
    let is_of_fork = elsewhere.is_none() && meant.is_none() && context.launch.may_be_fork();
    let finding = if is_of_fork { finding.at_most(Severity::Info) } else { finding };
    // A launch without a version that an older one accepts as a whole was probably written for that
    // one.
    let takes = |known: &Word, version: EngineVersion| known.exists_in(version) && context.launch.has_flags_of(version);
    let read = context.launch.engine.registered().versions();
    let is_old = elsewhere.is_some_and(|known| read.iter().any(|older| takes(known, *older)));
    if is_old && !context.resolved.version_given { finding.at_most(Severity::Info) } else { finding }
}

/// The word that another one stands for.
fn meant<'a>(words: &[&'a str], text: &str) -> Option<&'a str> {
    let folded = text.to_ascii_lowercase().replace('-', "_");
    let synonym = SYNONYMS.iter().find(|(other, known)| *other == folded && words.contains(known));
    let near = || {
        let near = words.iter().map(|known| (distance(known, &folded), *known)).min();
        near.filter(|(far, known)| *far <= SLIP && far * 2 < known.len()).map(|(_, known)| known)
    };
    // A name that is used elsewhere is no slip of the pen.
    synonym.map(|(_, known)| *known).or_else(near)
}

/// What users write for other words.
const SYNONYMS: [(&str, &str); 6] = [
    ("fp16", "float16"),
    ("bf16", "bfloat16"),
    ("fp32", "float32"),
    ("fp8", "fp8_e4m3"),
    ("flash_attn", "fa3"),
    ("flash_attention", "fa3"),
];

fn not_of_kind(
    context: &Context<'_>,
    kind: ValueKind,
    argument: &Argument,
    word: &Located<Value>,
    text: &str,
) -> Finding {
    let (flag, shown) = (&argument.named(context.launch.callee), shortened(text));
    let (what, python) = if kind == ValueKind::Number { ("a number", "float") } else { ("an integer", "int") };
    let engine = context.launch.engine.reference();
    let of_parser = format!("{engine} says: `error: argument {flag}: invalid {python} value: '{shown}'`");
    Finding::new(word.span, format!("`{flag}` takes {what}, but got `{shown}`"), format!("not {what}"))
        .maybe_note(context.launch.callee.is_none().then_some(of_parser))
        .help(format!("write {what}"))
}
