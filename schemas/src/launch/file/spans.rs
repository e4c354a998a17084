//! The launch file with the place of every key and value.

use std::{collections::BTreeMap, ops::Range};

use toml_edit::{Document, Item, Table, Value as TomlValue};

use super::super::{
    Argument, Engine, Insertion, Launch, Options, Parsed, Setting, Syntax, Value, problems, writing::Writing,
};
use super::{EngineName, LaunchFile};
use crate::{
    diagnostic::Diagnostic,
    flags,
    text::{Located, Source, Span, distance},
    version::EngineVersion,
};

/// Shortest key that is taken for a slip of the pen; a shorter one is near to everything.
const SHORTEST_SLIP: usize = 8;

pub(in crate::launch) fn parse(source: &Source, options: &Options) -> Parsed {
    let mut diagnostics = Vec::new();
    let file = match toml::from_str::<LaunchFile>(source.text()) {
        Ok(file) => Some(file),
        Err(error) => {
            diagnostics.push(invalid(error.message(), error.span(), source));
            None
        }
    };
    // With a wrong key or value the rest of the file is still looked at; with wrong syntax there is nothing to look at.
    let document = match Document::parse(source.text()) {
        Ok(document) => document,
        Err(error) => {
            if diagnostics.is_empty() {
                diagnostics.push(invalid(error.message(), error.span(), source));
            }
            return Parsed { launches: Vec::new(), diagnostics };
        }
    };
    if file.is_none() && !document.iter().any(|(name, _)| is_key(name)) {
        // Some other program's file.
        return Parsed { launches: Vec::new(), diagnostics: vec![super::super::arguments::no_launch(source)] };
    }
    let launch = build(source, document.as_table(), file.as_ref(), options, &mut diagnostics);
    Parsed { launches: vec![launch], diagnostics }
}

/// Whether a launch file has such a key, or one much like it.
fn is_key(name: &str) -> bool {
    let name = name.replace('_', "-");
    ["engine", "engine-version", "environment"].contains(&name.as_str())
        || flags::by_name(&name).is_some()
        || (name.len() >= SHORTEST_SLIP && nearest(&name).is_some())
}

fn invalid(message: &str, span: Option<Range<usize>>, source: &Source) -> Diagnostic {
    let span = span.map_or(Span::default(), |range| Span::new(range.start, range.end.min(source.text().len())));
    // There are too many keys to list; the nearest one is the help.
    let mut lines = message.lines().map(|line| line.split(", expected one of").next().unwrap_or(line));
    let mut diagnostic = problems::TOML_SYNTAX.at(span, lines.next().unwrap_or("not valid TOML"), "here");
    diagnostic.notes = lines.map(str::to_owned).filter(|line| !line.trim().is_empty()).collect();
    diagnostic.help = suggestion(message);
    diagnostic
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

fn build(
    source: &Source,
    table: &Table,
    file: Option<&LaunchFile>,
    options: &Options,
    diagnostics: &mut Vec<Diagnostic>,
) -> Launch {
    let mut arguments = Vec::new();
    let mut settings = BTreeMap::new();
    let mut environment = BTreeMap::new();
    let mut engine_version = None;
    let mut first_key = None;
    let mut last_end = 0;
    for (name, item) in table.iter() {
        let key_span = table.key(name).and_then(toml_edit::Key::span).map_or(Span::default(), of_range);
        if let Some(variables) = item.as_table_like().filter(|_| name == "environment") {
            for (name, value) in variables.iter() {
                let Some(text) = value.as_str() else { continue };
                let span = value.span().map_or(key_span, of_range);
                environment.insert(name.to_owned(), Located::new(Value::Known(text.to_owned()), span));
            }
            continue;
        }
        let value_span = item.span().map_or(key_span, of_range);
        first_key.get_or_insert(key_span);
        last_end = last_end.max(value_span.end);
        if name == "engine_version" {
            engine_version = version(item, value_span, diagnostics);
        }
        let Some(flag) = flags::by_name(&name.replace('_', "-")) else { continue };
        if item.as_bool() == Some(false) {
            continue;
        }
        let argument = Argument {
            flag: Located::new(name.to_owned(), key_span),
            key: Some(flag.key),
            values: values(item, value_span),
            span: key_span.join(value_span),
        };
        settings.insert(flag.key, setting(source, &argument, value_span));
        arguments.push(argument);
    }
    let engine = options.engine.unwrap_or(match file.and_then(|file| file.engine) {
        Some(EngineName::Sglang) => Engine::Sglang,
        Some(EngineName::Slime) => Engine::Slime,
        Some(EngineName::Spectune) | None => Engine::Spectune,
    });
    let anchor = first_key.unwrap_or_default();
    Launch {
        engine,
        syntax: Syntax::Toml,
        span: Span::new(anchor.start, last_end),
        anchor,
        settings,
        arguments,
        environment,
        engine_version,
        insertion: insertion(source, last_end),
    }
}

fn version(item: &Item, span: Span, diagnostics: &mut Vec<Diagnostic>) -> Option<Located<EngineVersion>> {
    match item.as_str()?.parse::<EngineVersion>() {
        Ok(version) => Some(Located::new(version, span)),
        Err(error) => {
            diagnostics.push(problems::TOML_SYNTAX.at(span, error.to_string(), "not a version"));
            None
        }
    }
}

fn values(item: &Item, span: Span) -> Vec<Located<Value>> {
    match item.as_value() {
        Some(TomlValue::Array(array)) => {
            array.iter().map(|value| Located::new(scalar(value), value.span().map_or(span, of_range))).collect()
        }
        Some(TomlValue::Boolean(_)) | None => Vec::new(),
        Some(value) => vec![Located::new(scalar(value), span)],
    }
}

fn scalar(value: &TomlValue) -> Value {
    Value::Known(match value {
        TomlValue::String(text) => text.value().clone(),
        TomlValue::Integer(number) => number.value().to_string(),
        TomlValue::Float(number) => number.value().to_string(),
        other => other.to_string().trim().to_owned(),
    })
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

/// Behind the last key that stands outside of a table.
fn insertion(source: &Source, last_end: usize) -> Insertion {
    let text = source.text();
    if last_end == 0 {
        return Insertion { at: 0, before: String::new(), after: "\n".into(), writing: Writing::toml() };
    }
    let at = text.get(last_end..).and_then(|after| after.find('\n')).map_or(text.len(), |newline| last_end + newline);
    Insertion { at, before: "\n".into(), after: String::new(), writing: Writing::toml() }
}

fn of_range(range: Range<usize>) -> Span {
    Span::new(range.start, range.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Key;

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
