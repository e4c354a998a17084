//! spectune's TOML launch files, with the place of every key and value.

use std::{collections::BTreeMap, ops::Range};

use schemas::{
    finding::Finding,
    flags,
    launch_file::{EngineName, LaunchFile},
    text::{Located, Source, Span, distance},
    version::EngineVersion,
};
use serde::Deserialize;
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue, Deserializer},
};

use super::{
    Argument, Engine, Insertion, Launch, Options, Setting, Syntax, Value, context::TextContext, document::ReadDocument,
    listings, problems, writing::Writing,
};

/// Shortest key that is taken for a slip of the pen; a shorter one is near to everything.
const SHORTEST_SLIP: usize = 8;

/// Most keys of a file that are compared with the whole table of flags.
const MOST_GUESSES: usize = 64;

/// A key with its value.
type FileEntry<'a> = (&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>);

/// The text is parsed once: the tree that gives the places is the one that the file's type is read
/// from.
pub(super) fn read(source: &Source, context: &TextContext, options: &Options) -> ReadDocument {
    let document = match DeTable::parse(source.text()) {
        Ok(document) => document,
        Err(error) => {
            return ReadDocument {
                reason: Some(invalid(error.message(), error.span(), source)),
                ..ReadDocument::default()
            };
        }
    };
    let mut findings = Vec::new();
    let entries = in_order(document.get_ref());
    let mut launch = build(source, &entries, &mut findings);
    let holds_launch = holds_launch(&entries);
    match LaunchFile::deserialize(Deserializer::from(document)) {
        Ok(file) => launch.engine = file.engine.map_or(launch.engine, engine),
        Err(_) if !holds_launch => {
            // Some other program's file.
            let documents = DeTable::parse(source.text())
                .map(|table| listings::in_toml(source, table.get_ref(), context))
                .unwrap_or_default();
            return ReadDocument { documents, ..ReadDocument::default() };
        }
        // With a wrong key or value the rest of the file is still looked at.
        Err(error) => findings.insert(0, invalid(error.message(), error.span(), source)),
    }
    launch.engine = options.engine.unwrap_or(launch.engine);
    let mut launches = vec![launch];
    context.mark(&mut launches, &mut findings);
    ReadDocument { launches, findings, ..ReadDocument::default() }
}

/// The entries of a table with their spans.
fn in_order<'a>(table: &'a DeTable<'a>) -> Vec<FileEntry<'a>> {
    let mut entries: Vec<FileEntry<'a>> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// Whether a file has a key of launch files, or one much like it.
fn holds_launch(entries: &[FileEntry<'_>]) -> bool {
    // No flag is a table.
    let is_table = |value: &Spanned<DeValue<'_>>| matches!(value.get_ref(), DeValue::Table(_));
    let plain = || entries.iter().filter(|(_, value)| !is_table(value));
    let names = || plain().map(|(key, _)| key.get_ref().replace('_', "-"));
    let is_key = |name: String| {
        ["engine", "engine-version", "environment"].contains(&name.as_str()) || flags::by_name(&name).is_some()
    };
    let is_slip = |name: String| name.len() >= SHORTEST_SLIP && nearest(&name).is_some();
    let is_telling = |name: String| {
        ["engine", "engine-version", "model-path"].contains(&name.as_str()) || name.starts_with("speculative-")
    };
    if names().any(is_telling) {
        return true;
    }
    // Other programs have a `model` and a `revision` too, among much else.
    let is_own = |(key, value): &&FileEntry<'_>| {
        let name = key.get_ref().replace('_', "-");
        (name == "environment" || !is_table(value)) && (is_key(name.clone()) || is_slip(name))
    };
    let own = entries.iter().take(MOST_GUESSES).filter(is_own).count();
    own > 0 && own * 2 > entries.len().min(MOST_GUESSES)
}

fn invalid(message: &str, span: Option<Range<usize>>, source: &Source) -> Finding {
    let span = span.map_or(Span::default(), |range| Span::new(range.start, range.end.min(source.text().len())));
    // There are too many keys to list; the nearest one is the help.
    let mut lines = message.lines().map(|line| line.split(", expected one of").next().unwrap_or(line));
    let mut finding = problems::TOML_SYNTAX.at(span, lines.next().unwrap_or("not valid TOML"), "here");
    finding.notes = lines.map(str::to_owned).filter(|line| !line.trim().is_empty()).collect();
    finding.help = suggestion(message);
    finding
}

/// The key that was probably meant, for an unknown one.
fn suggestion(message: &str) -> Option<String> {
    let unknown = message.strip_prefix("unknown field `")?.split('`').next()?;
    let nearest = nearest(&unknown.replace('_', "-"));
    Some(match nearest {
        Some(known) => format!("write `{}`", known.replace('-', "_")),
        None => "`spectune schema launch` prints the keys".into(),
    })
}

fn nearest(name: &str) -> Option<&'static str> {
    let known = match flags::lookup(name, None) {
        flags::Lookup::Exact(spelling) | flags::Lookup::Abbreviation(spelling) => flags::by_name(spelling.canonical),
        _ => flags::FLAGS
            .iter()
            .min_by_key(|flag| distance(flag.name, name))
            .filter(|flag| distance(flag.name, name) <= 3),
    };
    known.map(|flag| flag.name)
}

fn engine(name: EngineName) -> Engine {
    match name {
        EngineName::Sglang => Engine::Sglang,
        EngineName::Slime => Engine::Slime,
        EngineName::Spectune => Engine::Spectune,
    }
}

fn build(source: &Source, entries: &[FileEntry<'_>], findings: &mut Vec<Finding>) -> Launch {
    let mut arguments = Vec::new();
    let mut settings = BTreeMap::new();
    let mut environment = BTreeMap::new();
    let mut engine_version = None;
    let mut first_key = None;
    let mut last_end = 0;
    for (key, value) in entries {
        let name = key.get_ref().as_ref();
        let key_span = span_from(key.span());
        let value_span = span_from(value.span());
        let value = value.get_ref();
        if let Some(variables) = value.as_table().filter(|_| name == "environment") {
            for (name, value) in variables {
                let Some(text) = value.get_ref().as_str() else { continue };
                let value = Located::new(Value::Known(text.to_owned()), span_from(value.span()));
                environment.insert(name.get_ref().to_string(), value);
            }
            continue;
        }
        first_key.get_or_insert(key_span);
        last_end = last_end.max(value_span.end);
        if name == "engine_version" {
            engine_version = version(value, value_span, findings);
        }
        let Some(flag) = flags::by_name(&name.replace('_', "-")) else { continue };
        if value.as_bool() == Some(false) {
            continue;
        }
        let argument = Argument {
            flag: Located::new(name.to_owned(), key_span),
            key: Some(flag.key),
            values: values(source, value, value_span),
            span: key_span.join(value_span),
            in_branch: false,
        };
        settings.insert(flag.key, setting(source, &argument, value_span));
        arguments.push(argument);
    }
    let anchor = first_key.unwrap_or_default();
    Launch {
        span: Span::new(anchor.start, last_end),
        settings,
        arguments,
        environment: environment.into(),
        engine_version,
        ..Launch::empty(Engine::Spectune, Syntax::Toml, anchor, insertion(source, last_end))
    }
}

fn version(value: &DeValue<'_>, span: Span, findings: &mut Vec<Finding>) -> Option<Located<EngineVersion>> {
    match value.as_str()?.parse::<EngineVersion>() {
        Ok(version) => Some(Located::new(version, span)),
        Err(error) => {
            findings.push(problems::TOML_SYNTAX.at(span, error.to_string(), "not a version"));
            None
        }
    }
}

fn values(source: &Source, value: &DeValue<'_>, span: Span) -> Vec<Located<Value>> {
    match value {
        DeValue::Array(array) => {
            let element = |value: &Spanned<DeValue<'_>>| scalar(source, value.get_ref(), span_from(value.span()));
            array.iter().map(element).collect()
        }
        DeValue::Boolean(_) | DeValue::Table(_) => Vec::new(),
        value => vec![scalar(source, value, span)],
    }
}

fn scalar(source: &Source, value: &DeValue<'_>, span: Span) -> Located<Value> {
    let written = || source.slice(span).to_owned();
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or_else(|_| written(), |number| number.to_string())
        }
        DeValue::Float(number) => {
            number.as_str().parse::<f64>().map_or_else(|_| written(), |number| number.to_string())
        }
        _ => written(),
    };
    Located::new(Value::Known(text), span)
}

fn setting(source: &Source, argument: &Argument, value: Span) -> Setting {
    let text = source.text();
    let start = text.get(..argument.span.start).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
    let end = text.get(argument.span.end..).and_then(|after| after.find('\n'));
    Setting {
        values: argument.values.clone(),
        flag: argument.flag.span,
        span: argument.span,
        value: Some(value),
        spelling: argument.flag.value.clone(),
        removal: Span::new(start, end.map_or(text.len(), |newline| argument.span.end + newline + 1)),
        writing: Writing::toml(),
    }
}

/// After the last key outside a table.
fn insertion(source: &Source, last_end: usize) -> Insertion {
    let text = source.text();
    if last_end == 0 {
        return Insertion { at: 0, before: String::new(), after: "\n".into(), writing: Writing::toml() };
    }
    let at = text.get(last_end..).and_then(|after| after.find('\n')).map_or(text.len(), |newline| last_end + newline);
    Insertion { at, before: "\n".into(), after: String::new(), writing: Writing::toml() }
}

fn span_from(range: Range<usize>) -> Span {
    Span::new(range.start, range.end)
}

#[cfg(test)]
mod tests {
    use schemas::flags::Key;

    use super::*;

    /// Keys that a launch file cannot give: it is such a file itself.
    const NOT_IN_FILES: &[Key] = &[Key::Config];

    #[test]
    fn every_flag_of_the_table_is_a_key_of_the_file() {
        let schema = schemars::schema_for!(LaunchFile);
        let properties = schema.as_value().pointer("/properties").and_then(|value| value.as_object());
        let names: Vec<&str> = properties.map(|map| map.keys().map(String::as_str).collect()).unwrap_or_default();
        for flag in flags::FLAGS.iter().filter(|flag| !flag.of_slime && !NOT_IN_FILES.contains(&flag.key)) {
            assert!(names.contains(&flag.name.replace('-', "_").as_str()), "{}", flag.name);
        }
        for name in names {
            let known = flags::by_name(&name.replace('_', "-")).is_some();
            assert!(known || ["engine", "engine_version", "environment"].contains(&name), "{name}");
        }
    }
}
