//! Scalars assembled into a text for the shell reader, with a map back to the YAML.

use schemas::text::Span;

use super::{
    align::{Aligned, Scalar},
    node::Id,
};
use crate::{
    quoting::is_plain,
    span_map::{MappedPart, SpanMap},
    writing::Quotes,
};

/// A text made of scalars and of the shell syntax around them.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    pub text: String,
    /// The pieces that come from the YAML.
    pieces: SpanMap<Quotes>,
    /// The words of lists.
    pub items: Vec<ExcerptWord>,
    /// The start of the command, after the variables that it runs with.
    pub command: usize,
}

/// An item of a list of words.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExcerptWord {
    /// In the excerpt.
    pub text: Span,
    /// In the YAML, quotes included.
    pub outer: Span,
    pub quotes: Quotes,
    /// The list that contains it.
    pub list: Id,
    /// Whether the list contains it as an alias.
    pub alias: bool,
}

impl Excerpt {
    /// Marks the current end as the start of the command.
    pub fn begin_command(&mut self) {
        self.command = self.text.len();
    }

    /// Adds text that does not occur in the YAML.
    pub fn write(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds a part of a scalar.
    pub fn copy(&mut self, scalar: &Scalar, aligned: &Aligned, range: Span) {
        for part in &aligned.parts {
            let (start, end) = (part.text.start.max(range.start), part.text.end.min(range.end));
            let Some(text) = scalar.text.get(start..end).filter(|text| !text.is_empty()) else { continue };
            let verbatim = part.text.end - part.text.start == part.place.end - part.place.start;
            let place = if verbatim {
                let offset = part.place.start;
                Span::new(offset + (start - part.text.start), offset + (end - part.text.start))
            } else {
                part.place
            };
            self.put(text, place, aligned);
        }
    }

    /// Adds a part of a scalar, quoted for a shell. A flag before its value is outside the quotes,
    /// so that both have separate spans.
    pub fn quote(&mut self, scalar: &Scalar, aligned: &Aligned, range: Span) {
        let text = scalar.text.get(range.range()).unwrap_or_default();
        if is_plain(text) {
            self.copy(scalar, aligned, range);
            return;
        }
        let flag = text.split_once('=').filter(|(flag, _)| flag.starts_with("--") && is_plain(flag));
        let mut at = range.start + flag.map_or(0, |(flag, _)| flag.len() + 1);
        self.copy(scalar, aligned, Span::new(range.start, at));
        self.write("'");
        for part in scalar.text.get(at..range.end).unwrap_or_default().split_inclusive('\'') {
            let end = at + part.trim_end_matches('\'').len();
            self.copy(scalar, aligned, Span::new(at, end));
            at += part.len();
            if end < at {
                self.write("'\\");
                self.copy(scalar, aligned, Span::new(end, at));
                self.write("'");
            }
        }
        self.write("'");
    }

    /// Adds a text that replaces something at a span.
    pub fn put(&mut self, text: &str, place: Span, aligned: &Aligned) {
        let start = self.text.len();
        self.text.push_str(text);
        let text = Span::new(start, self.text.len());
        self.pieces.push(MappedPart { text, place, whole: aligned.outer.start, with: aligned.quotes });
    }

    /// Replaces line ends by blanks, except after a backslash. A backslash in double quotes before
    /// a blank, where folded lines met, goes: what splits the text removes it, so no shell sees it.
    pub fn join_lines(&mut self, from: usize) {
        let lines = self.text.split_off(from.min(self.text.len()));
        let mut quote = None;
        let mut letters = lines.chars().peekable();
        while let Some(letter) = letters.next() {
            let continued = self.text.ends_with('\\');
            match letter {
                '\'' | '"' if quote.is_none() && !continued => quote = Some(letter),
                _ if quote == Some(letter) && !continued => quote = None,
                _ => {}
            }
            let is_left_over = letter == '\\' && quote == Some('"') && letters.peek() == Some(&' ');
            self.text.push(if is_left_over || (letter == '\n' && !continued) { ' ' } else { letter });
        }
    }

    /// The place of a part of the text.
    pub fn place(&self, span: Span) -> Span {
        self.pieces.place(span)
    }

    /// Whether a part of the text comes from one scalar.
    pub fn is_of_one_scalar(&self, span: Span) -> bool {
        self.pieces.is_of_one_whole(span)
    }

    /// The YAML quotes around the text at an offset.
    pub fn quotes(&self, at: usize) -> Option<Quotes> {
        self.pieces.at(at).map(|piece| piece.with)
    }

    /// Indices of the first and last item that a part of the text touches.
    pub fn items_of(&self, span: Span) -> Option<(usize, usize)> {
        let first = self.items.partition_point(|item| item.text.end <= span.start);
        let last = self.items.partition_point(|item| item.text.start < span.end).checked_sub(1)?;
        (first <= last).then_some((first, last))
    }
}
