//! Scalars put together into a text for the shell reader, with the way back into the YAML.

use super::{
    align::Aligned,
    node::{Id, Scalar},
};
use crate::{
    launch::{edit::is_plain, writing::Quotes},
    text::Span,
};

/// A text made of scalars and of what a shell needs around them.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    pub text: String,
    /// What comes from the YAML, in the order of the text.
    pieces: Vec<Piece>,
    /// The words of lists.
    pub items: Vec<Item>,
    /// Where the command begins: before it stand the variables that it is run with.
    pub command: usize,
}

/// A part of the text that comes from the YAML; as long as its place where it stands there byte for byte.
#[derive(Clone, Copy, Debug)]
struct Piece {
    text: Span,
    place: Span,
    quotes: Quotes,
    /// Where the scalar begins that it is a part of.
    scalar: usize,
}

/// An item of a list of words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// In the excerpt.
    pub text: Span,
    /// In the YAML, quotes included.
    pub outer: Span,
    pub quotes: Quotes,
    /// The list that it stands in.
    pub list: Id,
    /// Whether it stands elsewhere, and the list has an alias of it.
    pub alias: bool,
}

impl Excerpt {
    /// What is added from here on is the command.
    pub fn begin_command(&mut self) {
        self.command = self.text.len();
    }

    /// Adds text that the YAML does not have.
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

    /// Adds a part of a scalar so that a shell takes it as it is. A flag in front of its value stands outside of the
    /// quotes, so that the two have places of their own.
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

    /// Adds a text that stands for something else at a place.
    pub fn put(&mut self, text: &str, place: Span, aligned: &Aligned) {
        let start = self.text.len();
        self.text.push_str(text);
        let (quotes, scalar) = (aligned.quotes, aligned.outer.start);
        self.pieces.push(Piece { text: Span::new(start, self.text.len()), place, quotes, scalar });
    }

    /// Makes the ends of lines blanks, those behind a backslash not taken.
    pub fn join_lines(&mut self, from: usize) {
        let lines = self.text.split_off(from.min(self.text.len()));
        for character in lines.chars() {
            let continued = self.text.ends_with('\\');
            self.text.push(if character == '\n' && !continued { ' ' } else { character });
        }
    }

    /// The place of a part of the text.
    pub fn place(&self, span: Span) -> Span {
        let first = self.pieces.partition_point(|piece| piece.text.end <= span.start);
        let last = self.pieces.partition_point(|piece| piece.text.start < span.end);
        let verbatim = |piece: &Piece| piece.text.end - piece.text.start == piece.place.end - piece.place.start;
        let start = self.pieces.get(first).map(|piece| match span.start.checked_sub(piece.text.start) {
            Some(offset) if verbatim(piece) => piece.place.start + offset,
            _ => piece.place.start,
        });
        let end = last.checked_sub(1).and_then(|last| self.pieces.get(last)).map(|piece| {
            match piece.text.end.checked_sub(span.end) {
                Some(offset) if verbatim(piece) => piece.place.end - offset,
                _ => piece.place.end,
            }
        });
        match (start, end) {
            // Parts of several scalars, which need not stand in the order of the words.
            (Some(start), Some(end)) if end < start && first + 1 < last => {
                let touched = self.pieces.get(first..last).unwrap_or_default();
                touched.iter().map(|piece| piece.place).reduce(Span::join).unwrap_or_default()
            }
            (Some(start), Some(end)) => Span::new(start, end),
            (Some(at), None) | (None, Some(at)) => Span::new(at, at),
            (None, None) => Span::default(),
        }
    }

    /// Whether a part of the text comes from one scalar.
    pub fn is_of_one_scalar(&self, span: Span) -> bool {
        let first = self.pieces.partition_point(|piece| piece.text.end <= span.start);
        let last = self.pieces.partition_point(|piece| piece.text.start < span.end);
        let mut touched = self.pieces.get(first..last).unwrap_or_default().iter();
        let scalar = touched.next().map(|piece| piece.scalar);
        touched.all(|piece| Some(piece.scalar) == scalar)
    }

    /// What surrounds the text at an offset in the YAML.
    pub fn quotes(&self, at: usize) -> Option<Quotes> {
        let first = self.pieces.partition_point(|piece| piece.text.end <= at);
        Some(self.pieces.get(first)?.quotes)
    }

    /// The first and last item that a part of the text touches.
    pub fn items_of(&self, span: Span) -> Option<(usize, usize)> {
        let first = self.items.partition_point(|item| item.text.end <= span.start);
        let last = self.items.partition_point(|item| item.text.start < span.end).checked_sub(1)?;
        (first <= last).then_some((first, last))
    }
}
