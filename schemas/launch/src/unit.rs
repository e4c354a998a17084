//! Units of systemd, and podman's units in the same format: the commands of `ExecStart=`.

use std::sync::Arc;

use schemas::text::{Located, Source, Span};

use super::{
    Value,
    compose::Composed,
    context::TextContext,
    document::{Document, Read, Surroundings},
    evidence::version_in_image,
    images::engine_of_image,
    kind::Kind,
};

/// Maximum number of variables per unit.
const MOST_VARIABLES: usize = 128;

/// A key with its value, including continued lines.
struct UnitEntry<'a> {
    key: &'a str,
    value: &'a str,
    place: Span,
}

/// Finds the commands that a unit starts.
pub(super) fn read(source: &Source, context: &TextContext) -> Read {
    let entries = entries(source);
    let image = entries.iter().find(|entry| entry.key == "Image");
    let mut surroundings = surroundings(&entries);
    surroundings.image = image.map(|image| image.value.to_owned());
    let command = |entry: &UnitEntry<'_>| {
        // `Exec=` contains flags only: its leading dash is not a prefix of systemd.
        let is_flags = entry.key == "Exec";
        let prefixes: &[char] = if is_flags { &[] } else { &['-', '@', '+', '!', ':', '|'] };
        let command = entry.value.trim_start_matches(prefixes);
        let mut composed = Composed::default();
        composed.copy(command, Span::new(entry.place.end - command.len(), entry.place.end));
        Document {
            surroundings: surroundings.clone(),
            version: image.and_then(|image| version_in_image(image.value, image.place)),
            engine: image.and_then(|image| engine_of_image(image.value)).filter(|_| command.starts_with("--")),
            ..composed.into_document(Kind::Script, context.clone())
        }
    };
    let starts = entries.iter().filter(|entry| matches!(entry.key, "ExecStart" | "Exec" | "ExecStartPre"));
    Read { documents: starts.map(command).collect(), ..Read::default() }
}

fn entries(source: &Source) -> Vec<UnitEntry<'_>> {
    let text = source.text();
    let mut entries = Vec::new();
    let mut lines = text.split_inclusive('\n').peekable();
    let mut at = 0;
    while let Some(line) = lines.next() {
        let start = at;
        at += line.len();
        let (mut end, mut last) = (start + line.trim_end().len(), line);
        while last.trim_end().ends_with('\\') {
            let Some(next) = lines.next() else { break };
            at += next.len();
            end = at - (next.len() - next.trim_end().len());
            last = next;
        }
        let Some((key, value)) = text.get(start..end).and_then(|entry| entry.split_once('=')) else { continue };
        if key.trim_start().starts_with(['#', ';', '[']) {
            continue;
        }
        let value = value.trim_start();
        entries.push(UnitEntry { key: key.trim(), value, place: Span::new(end - value.len(), end) });
    }
    entries
}

/// The words of a value, which may be quoted as a whole or in part (systemd.syntax, "Quoting").
fn unquoted_words(value: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in value.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

fn surroundings(entries: &[UnitEntry<'_>]) -> Surroundings {
    let mut surroundings = Surroundings::default();
    for entry in entries {
        match entry.key {
            "EnvironmentFile" | "PassEnvironment" => surroundings.is_open = true,
            "Environment" => {
                let environment = Arc::make_mut(&mut surroundings.environment);
                let pairs = unquoted_words(entry.value);
                let room = MOST_VARIABLES.saturating_sub(environment.len());
                for (name, value) in pairs.iter().filter_map(|pair| pair.split_once('=')).take(room) {
                    environment.insert(name.to_owned(), Located::new(Value::Known(value.to_owned()), entry.place));
                }
            }
            _ => {}
        }
    }
    surroundings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_of_a_unit_may_be_quoted_as_a_whole_or_in_part() {
        let words = unquoted_words("\"API_KEY=a b\" FOO=\"c d\" 'X=1' BAR=e");
        assert_eq!(words, ["API_KEY=a b", "FOO=c d", "X=1", "BAR=e"]);
        assert_eq!(unquoted_words("MODEL=x \"T=y\""), ["MODEL=x", "T=y"]);
        assert_eq!(unquoted_words("\"A=\"").len(), 1);
    }
}
