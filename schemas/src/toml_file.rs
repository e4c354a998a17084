//! Strict TOML files, with errors that point into the user's text and use its vocabulary.

mod collect;

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use toml_edit::{Document, Item, TableLike};

use self::collect::Collected;
use crate::{
    diagnostic::Diagnostic,
    problems::TOML_SYNTAX,
    text::{Source, Span, nearest},
    words::{self, FileSyntax},
};

/// An invalid value, located by its path of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    path: &'static [&'static str],
    element: Option<usize>,
    /// The key of the element that is wrong, if the element is a table.
    inner: Option<&'static str>,
    message: String,
    help: Option<String>,
}

/// Reads a file into its type and checks its values.
///
/// # Errors
/// If it is not TOML, a key or value does not fit the type, or a value is invalid: as many errors
/// as can be told, in the order of the file, at least one.
pub fn read_checked<T: DeserializeOwned>(
    source: &Source,
    check: impl FnOnce(&T) -> Vec<FieldError>,
) -> Result<T, Vec<Diagnostic>> {
    let Collected { file, mut findings, spoiled } = collect::read::<T>(source);
    if let Some(file) = &file {
        let wrong = check(file).into_iter();
        // What is wrong in a table with other errors may only follow from them.
        let certain = wrong.filter(|wrong| !wrong.path.first().is_some_and(|table| spoiled.contains(*table)));
        findings.extend(certain.map(|wrong| wrong.locate(source)));
    }
    findings.sort_by_key(|finding| finding.span.start);
    match file {
        Some(file) if findings.is_empty() => Ok(file),
        _ => Err(findings),
    }
}

/// The first of the errors of a file.
pub fn first(findings: Vec<Diagnostic>) -> Box<Diagnostic> {
    let none = || TOML_SYNTAX.at(Span::default(), "it cannot be read", "").certain();
    Box::new(findings.into_iter().next().unwrap_or_else(none))
}

/// An error of the TOML parser or of serde, at a range of the user's text.
fn finding(source: &Source, range: std::ops::Range<usize>, message: &str) -> Diagnostic {
    let span = source.clamp(Span::new(range.start, range.end));
    let mut lines = message.lines();
    let words = words::quoted_words(lines.next().unwrap_or("it cannot be read"), source.slice(span), FileSyntax::Toml);
    let mut diagnostic = TOML_SYNTAX.at(span, words.message, words.label).certain();
    let more = lines.filter(|line| !line.trim().is_empty()).map(str::to_owned);
    diagnostic.notes = words.notes.into_iter().chain(more).collect();
    diagnostic.help = words.help;
    diagnostic
}

/// Digits of a whole number that any reader of TOML can hold.
const MOST_DIGITS: usize = 18;

/// A text of the same length whose places can be looked up: the document has only numbers of 64
/// bits, and the file's types have larger ones too.
fn readable(text: &str) -> Cow<'_, str> {
    if Document::parse(text).is_ok() {
        return Cow::Borrowed(text);
    }
    let mut shown = text.to_owned();
    let mut from = 0;
    while let Some(start) = shown[from..].find(|letter: char| letter.is_ascii_digit()).map(|at| from + at) {
        let rest = &shown[start..];
        let end = start + rest.find(|letter: char| !letter.is_ascii_digit() && letter != '_').unwrap_or(rest.len());
        if end - start > MOST_DIGITS {
            shown.replace_range(start..end, &format!("1.{}", "0".repeat(end - start - 2)));
        }
        from = end;
    }
    Cow::Owned(shown)
}

impl FieldError {
    /// An error about the value at a path of keys.
    pub fn at(path: &'static [&'static str], message: impl Into<String>) -> Self {
        Self { path, element: None, inner: None, message: message.into(), help: None }
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Narrows the error to one element of the list, or one of the tables, at the path.
    pub fn element(self, at: usize) -> Self {
        Self { element: Some(at), ..self }
    }

    /// Narrows the error to a key of the [element](Self::element), which is a table.
    pub fn key(self, key: &'static str) -> Self {
        Self { inner: Some(key), ..self }
    }

    /// An error about an unknown word at a path, with the nearest known word as help.
    pub fn word(path: &'static [&'static str], word: &str, known: &[&'static str]) -> Self {
        let wrong = Self::at(path, format!("{word:?} is not one of {}", known.join(", ")));
        Self { help: nearest(word, known).map(|near| format!("did you mean \"{near}\"?")), ..wrong }
    }

    /// Adds what to do about the error.
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Converts it into a finding at the value, or at the innermost table of its path that the file
    /// has.
    pub fn locate(self, source: &Source) -> Diagnostic {
        let shown = readable(source.text());
        let document = Document::parse(shown.as_ref()).ok();
        let mut span = Span::default();
        let mut item: Option<&Item> = document.as_ref().map(Document::as_item);
        for key in self.path {
            item = item.and_then(|item| item.get(key));
            match item.and_then(Item::span) {
                Some(range) => span = Span::new(range.start, range.end),
                None => break,
            }
        }
        let inner = |table: &dyn TableLike| table.get(self.inner?)?.span();
        let element = self.element.zip(item).and_then(|(at, item)| match item {
            Item::ArrayOfTables(tables) => tables.get(at).and_then(|table| inner(table).or(table.span())),
            item => item
                .as_array()?
                .get(at)
                .and_then(|value| value.as_inline_table().and_then(|table| inner(table)).or(value.span())),
        });
        span = element.map_or(span, |range| Span::new(range.start, range.end));
        let key = self.path.iter().copied().chain(self.inner).collect::<Vec<_>>().join(".");
        let found = TOML_SYNTAX.at(source.clamp(span), self.message, key).certain();
        Diagnostic { help: self.help, ..found }
    }
}
