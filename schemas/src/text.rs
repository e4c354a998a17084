//! Places in the user's own text.

use std::ops::Range;

/// A half-open byte range in a [`Source`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// The range `start..end`; an end before the start gives the empty range at `start`.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end: end.max(start) }
    }

    /// The smallest span that covers both.
    pub fn join(self, other: Self) -> Self {
        Self::new(self.start.min(other.start), self.end.max(other.end))
    }

    /// As a standard range, for slicing.
    pub fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

/// A value together with the place where the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it stands in the source.
    pub span: Span,
}

impl<T> Located<T> {
    /// A value at a place.
    pub fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }
}

/// A line and a column, both counted from one; the column counts characters, not bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line, from one.
    pub line: usize,
    /// Column in characters, from one.
    pub column: usize,
}

/// A text with a name, as the user knows it.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    line_starts: Vec<usize>,
}

impl Source {
    /// Wraps a text; `name` is what diagnostics print (a path, or `<stdin>`).
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let line_starts = std::iter::once(0)
            .chain(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1))
            .collect();
        Self { name: name.into(), text, line_starts }
    }

    /// The name that diagnostics print.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text of a span; empty where the span does not fall on character boundaries of this source.
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.range()).unwrap_or_default()
    }

    /// A span of this source that is surely one: inside the text and on character boundaries, the given one where it is
    /// so already.
    pub fn clamp(&self, span: Span) -> Span {
        let floor = |offset: usize| {
            let offset = offset.min(self.text.len());
            (0..=offset).rev().take(4).find(|at| self.text.is_char_boundary(*at)).unwrap_or_default()
        };
        Span::new(floor(span.start), floor(span.end))
    }

    /// The bytes of the lines from that of `span`'s start to that of its end and `around` lines more on both sides,
    /// without the last line's end; and the number of the first of them.
    pub fn lines_around(&self, span: Span, around: usize) -> (usize, Span) {
        let first = self.position(span.start).line.saturating_sub(around).max(1);
        let last = self.position(span.end).line.saturating_add(around);
        let start = self.line_starts.get(first - 1).copied().unwrap_or_default();
        let end = self.line_starts.get(last).map_or(self.text.len(), |next| next.saturating_sub(1));
        (first, Span::new(start, end))
    }

    /// Line and column of a byte offset; offsets past the end count as the end.
    pub fn position(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let column = self.text.bytes().take(offset).skip(start).filter(|byte| (byte & 0xC0) != 0x80).count() + 1;
        Position { line, column }
    }
}

/// The edits (insertions, removals and replacements of characters) that turn one short name into another; of longer
/// ones only the first 80 characters count.
pub fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(80).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, left) in one.chars().take(80).enumerate() {
        let mut diagonal = line;
        if let Some(first) = row.first_mut() {
            *first = line + 1;
        }
        for (column, right) in other.iter().enumerate() {
            let above = row.get(column + 1).copied().unwrap_or(usize::MAX);
            let before = row.get(column).copied().unwrap_or(usize::MAX);
            let value = (diagonal + usize::from(left != *right)).min(above + 1).min(before + 1);
            diagonal = above;
            if let Some(slot) = row.get_mut(column + 1) {
                *slot = value;
            }
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        let source = Source::new("x", "äb\ncd");
        assert_eq!(source.position(0), Position { line: 1, column: 1 });
        assert_eq!(source.position(2), Position { line: 1, column: 2 });
        assert_eq!(source.position(4), Position { line: 2, column: 1 });
        assert_eq!(source.position(99), Position { line: 2, column: 3 });
    }

    #[test]
    fn a_slice_off_a_character_boundary_is_empty() {
        assert_eq!(Source::new("x", "äb").slice(Span::new(1, 2)), "");
    }

    #[test]
    fn distances_count_edits() {
        assert_eq!(distance("dtype", "dtyp"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
