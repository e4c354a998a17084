//! Files of variables that no shell reads: `.env` of docker and of compose. A value is the rest of
//! its line, and quotes inside it stay.

use schemas::text::{Located, Source, Span};

use super::{Interpreter, ShellVariable, control_flow::Elements};
use crate::{
    command::{CommandText, Field},
    kind::base_of,
    shell::name_length,
};

/// Whether a text is such a file: by its name, and by what each of its lines is.
pub fn is_env_file(source: &Source) -> bool {
    let base = base_of(source.name());
    let is_named = base.ends_with(".env") || base.starts_with(".env") || base.contains(".env.");
    is_named
        && source.text().lines().all(|line| is_silent(line) || assignment(line).is_some_and(|at| is_whole(line, at)))
}

/// Whether a line holds nothing.
fn is_silent(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// Whether nothing in a value is a shell's: another command, or a value that goes on.
fn is_whole(line: &str, value: usize) -> bool {
    let value = line.get(value..).unwrap_or_default().trim_end();
    let quotes = value.bytes().filter(|byte| *byte == b'"').count();
    !value.ends_with('\\') && !value.contains("$(") && (quotes % 2 == 0 || !value.starts_with('"'))
}

/// Where the value of `NAME=value` begins in a line.
fn assignment(line: &str) -> Option<usize> {
    let indent = line.len() - line.trim_start().len();
    let name = name_length(line.as_bytes().get(indent..)?);
    (name > 0 && line.as_bytes().get(indent + name) == Some(&b'=')).then_some(indent + name + 1)
}

impl<'a> Interpreter<'a> {
    /// Keeps the variables of such a file, each with the words that a bare use of it comes to.
    pub(super) fn read_env_file(&mut self) {
        let source = self.source;
        let mut start = 0;
        for line in source.text().split_inclusive('\n') {
            if let Some(from) = assignment(line).filter(|_| !is_silent(line)) {
                let name = line.get(..from - 1).unwrap_or_default().trim_start();
                self.keep(name, value_of(line, start, from));
            }
            start += line.len();
        }
    }

    fn keep(&mut self, name: &'a str, place: Span) {
        self.order += 1;
        let value = CommandText::Known(self.source.slice(place).into());
        let mut words = Elements::default();
        words.begin(words_at(self.source, place), &[], &[], false);
        let scalar = ShellVariable { value, words, literal: None, used: false, order: self.order };
        self.scalars.insert(name.into(), scalar);
    }
}

/// The place of a value, without quotes around all of it and without a comment after it.
fn value_of(line: &str, start: usize, from: usize) -> Span {
    let value = line.get(from..).unwrap_or_default();
    let at = from + value.len() - value.trim_start().len();
    let value = value.trim();
    for quote in ['"', '\''] {
        if let Some(inside) = value.strip_prefix(quote)
            && let Some(end) = inside.rfind(quote)
            && (is_silent(inside.get(end + 1..).unwrap_or_default()))
        {
            return Span::new(start + at + 1, start + at + 1 + end);
        }
    }
    let end = value.find(" #").unwrap_or(value.len());
    Span::new(start + at, start + at + value.get(..end).unwrap_or(value).trim_end().len())
}

/// The words of a value. One that other variables go into is not known.
fn words_at(source: &Source, place: Span) -> Vec<Field<'_>> {
    let mut at = place.start;
    let mut words = Vec::new();
    for part in source.slice(place).split_inclusive([' ', '\t']) {
        let word = part.trim_ascii_end();
        let value =
            if word.contains('$') { CommandText::Unknown(word.into()) } else { CommandText::Known(word.into()) };
        if !word.is_empty() {
            words.push(Located::new(value, Span::new(at, at + word.len())));
        }
        at += part.len();
    }
    words
}
