//! Strict TOML files, with errors that point into the user's own text.

use serde::de::DeserializeOwned;
use toml_edit::{Document, Item};

use crate::{
    diagnostic::Diagnostic,
    launch::TOML_SYNTAX,
    text::{Source, Span},
};

/// A value without sense, by its place in the tree of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    path: &'static [&'static str],
    element: Option<usize>,
    message: String,
}

/// Reads a file into its type.
///
/// # Errors
/// When it is no TOML, or a key or value does not fit the type.
pub fn read<T: DeserializeOwned>(source: &Source) -> Result<T, Box<Diagnostic>> {
    toml::from_str(source.text()).map_err(|error| {
        let span = error.span().map_or(Span::default(), |range| Span::new(range.start, range.end));
        let mut lines = error.message().lines();
        let mut diagnostic = TOML_SYNTAX.at(source.clamp(span), lines.next().unwrap_or("not valid TOML"), "here");
        diagnostic.notes = lines.filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
        Box::new(diagnostic)
    })
}

impl Wrong {
    /// The value at a path of keys.
    pub fn at(path: &'static [&'static str], message: impl Into<String>) -> Self {
        Self { path, element: None, message: message.into() }
    }

    /// One element of the list, or one of the tables, at the path.
    pub fn element(self, at: usize) -> Self {
        Self { element: Some(at), ..self }
    }

    /// The finding, at the value, or at the innermost table of its path that the file has.
    pub fn locate(self, source: &Source) -> Diagnostic {
        let document = Document::parse(source.text()).ok();
        let mut span = Span::default();
        let mut item: Option<&Item> = document.as_ref().map(Document::as_item);
        for key in self.path {
            item = item.and_then(|item| item.get(key));
            match item.and_then(Item::span) {
                Some(range) => span = Span::new(range.start, range.end),
                None => break,
            }
        }
        let element = self.element.zip(item).and_then(|(at, item)| match item {
            Item::ArrayOfTables(tables) => tables.get(at)?.span(),
            item => item.as_array()?.get(at)?.span(),
        });
        span = element.map_or(span, |range| Span::new(range.start, range.end));
        TOML_SYNTAX.at(source.clamp(span), self.message, self.path.join("."))
    }
}
