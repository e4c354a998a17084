//! A command assembled from words of another text, with a map back to the source of each.

use std::rc::Rc;

use schemas::text::Span;

use super::{
    context::TextContext,
    document::{Document, UNKNOWN},
    kind::TextKind,
    origin::Pieces,
    quoting::{is_plain, quoted},
    span_map::{MappedPart, SpanMap},
};

/// A command that is being assembled.
#[derive(Clone, Debug, Default)]
pub(super) struct Composed {
    pub text: String,
    pieces: SpanMap<()>,
}

impl Composed {
    /// Adds text verbatim from a span of the source.
    pub fn copy(&mut self, text: &str, place: Span) {
        if text.is_empty() {
            return;
        }
        self.copy_whole(text, place, place.start);
    }

    /// Adds a part of a larger whole that starts at offset `whole`.
    pub fn copy_whole(&mut self, text: &str, place: Span, whole: usize) {
        let start = self.text.len();
        self.text.push_str(text);
        self.pieces.push(MappedPart { text: Span::new(start, self.text.len()), place, whole, with: () });
    }

    /// Adds text that replaces the text at `place`, even if both have the same length and would map
    /// byte for byte: any part of it stands at the whole place.
    pub fn put_for(&mut self, text: &str, place: Span) {
        let first = text.chars().next().map_or(0, char::len_utf8);
        // In two pieces, so that a span of a part of the text does not widen to the whole.
        if place.end - place.start == text.len() && first < text.len() {
            let (one, rest) = text.split_at(first);
            self.copy(one, place);
            self.copy(rest, place);
        } else {
            self.copy(text, place);
        }
    }

    /// Adds text that does not occur in the source.
    pub fn write(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Starts a new word.
    pub fn space(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with(char::is_whitespace) {
            self.text.push(' ');
        }
    }

    /// Adds a word, quoted for the shell. A flag before `=` is outside the quotes, so that flag and
    /// value have separate spans.
    pub fn word(&mut self, text: &str, place: Span) {
        self.space();
        let is_verbatim = place.end - place.start == text.len();
        // The flag stays outside of the quotes, where rules look for it.
        let flag = text.split_once('=').filter(|(flag, _)| flag.starts_with("--") && is_plain(flag) && is_verbatim);
        if is_plain(text) {
            return self.copy(text, place);
        }
        let width = flag.map_or(0, |(flag, _)| flag.len() + 1);
        let (flag, rest) = text.split_at_checked(width).unwrap_or(("", text));
        let rest_place = Span::new(place.start + width, place.end);
        self.copy(flag, Span::new(place.start, place.start + width));
        if rest.contains('\'') {
            return self.copy(&quoted(rest), rest_place);
        }
        self.write("'");
        self.copy(rest, rest_place);
        self.write("'");
    }

    /// Adds an unknown part of a word.
    pub fn unknown(&mut self, place: Span) {
        self.put_for(UNKNOWN, place);
    }

    /// Adds another command after this one.
    pub fn append(&mut self, other: &Self) {
        let start = self.text.len();
        self.text.push_str(&other.text);
        for piece in other.pieces.iter() {
            let text = Span::new(piece.text.start + start, piece.text.end + start);
            self.pieces.push(MappedPart { text, ..*piece });
        }
    }

    /// The command as a separate text to parse.
    pub fn into_document(self, kind: TextKind, context: TextContext) -> Document {
        Document::new(kind, self.text, Rc::new(Pieces(self.pieces)), context)
    }
}
