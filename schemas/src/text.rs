//! Spans and positions in the user's text.

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
    /// The range `start..end`; if the end is before the start, the empty range at `start`.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its position in the source.
    pub span: Span,
}

impl<T> Located<T> {
    /// Attaches a span to a value.
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

/// A named text, with an index of its lines.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    line_starts: Vec<usize>,
    /// Number of characters before each block of bytes, so that columns in long lines are found
    /// without counting from 0.
    characters: Vec<usize>,
    /// Whether someone can see its lines.
    has_lines: bool,
}

/// Size in bytes of the blocks of [`Source::characters`].
const BLOCK: usize = 1 << 12;

/// Number of characters that start in these bytes.
fn beginnings(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| (**byte & 0xC0) != 0x80).count()
}

impl Source {
    /// Wraps a text; `name` is what diagnostics print (a path, or `<stdin>`).
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let line_starts = std::iter::once(0)
            .chain(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1))
            .collect();
        // Characters are counted once a block, so that a column does not need the text from its
        // beginning.
        let blocks = text.as_bytes().chunks(BLOCK).scan(0, |before, block| {
            let here = *before;
            *before += beginnings(block);
            Some(here)
        });
        let characters = blocks.collect();
        Self { name: name.into(), text, line_starts, characters, has_lines: true }
    }

    /// As [`new`](Self::new), for a text that no one can see, such as a command made from a
    /// server's answer: findings name its flags, not its lines.
    pub fn unseen(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { has_lines: false, ..Self::new(name, text) }
    }

    /// Whether someone can see its lines.
    pub fn has_lines(&self) -> bool {
        self.has_lines
    }

    /// The flag at a place, with its values where it has a line of its own; `None` if there is
    /// none.
    pub fn flag_at(&self, span: Span) -> Option<&str> {
        let (_, line) = self.lines_around(Span::new(span.start, span.start), 0);
        let line = self.slice(line).trim().trim_end_matches('\\').trim_end();
        [line, self.slice(span).trim()].into_iter().find(|text| text.starts_with('-') && !text.contains('\n'))
    }

    /// The name that diagnostics print.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text of a span; empty if the span is not inside this source and on character boundaries.
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.range()).unwrap_or_default()
    }

    /// Moves the ends of a span into the text and onto character boundaries; a valid span stays
    /// unchanged.
    pub fn clamp(&self, span: Span) -> Span {
        let floor = |offset: usize| {
            let offset = offset.min(self.text.len());
            // A character has four bytes at most.
            (0..=offset).rev().take(4).find(|at| self.text.is_char_boundary(*at)).unwrap_or_default()
        };
        Span::new(floor(span.start), floor(span.end))
    }

    /// The lines that `span` touches and `around` more lines on both sides: the number of the first
    /// line, and the span of all of them without the last line end.
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
        let column = self.characters_before(offset) - self.characters_before(start) + 1;
        Position { line, column }
    }

    /// The byte offset at which the line of an offset starts.
    pub fn line_start(&self, offset: usize) -> usize {
        let after = self.line_starts.partition_point(|start| *start <= offset);
        self.line_starts.get(after.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// The byte offset at which the line of an offset ends, before its line end.
    pub fn line_end(&self, offset: usize) -> usize {
        let after = self.line_starts.partition_point(|start| *start <= offset);
        self.line_starts.get(after).map_or(self.text.len(), |next| next.saturating_sub(1))
    }

    /// Number of characters that start before a byte offset.
    fn characters_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        // An offset at the end of the text may be beyond the last block.
        let (block, before) = match self.characters.get(block) {
            Some(before) => (block, *before),
            None => (block.saturating_sub(1), self.characters.last().copied().unwrap_or_default()),
        };
        before + beginnings(self.text.as_bytes().get(block * BLOCK..offset).unwrap_or_default())
    }
}

/// Whether a text can be the name of a shell's variable.
pub fn is_variable_name(text: &str) -> bool {
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(in_name) && text.starts_with(|first: char| !first.is_ascii_digit())
}

/// The start of a value of the user's, for a message: the first 60 characters, and a sign that more
/// follow.
pub fn shortened(value: &str) -> String {
    const MOST: usize = 60;
    let start: String = value.chars().take(MOST).collect();
    if start.len() == value.len() { start } else { format!("{start}…") }
}

/// Edit distance of two names: insertions, removals and replacements of characters, and swaps of
/// neighbours. Only the first 80 characters count.
pub fn distance(one: &str, other: &str) -> usize {
    // The distance is quadratic in the lengths, and a "flag" of a hostile text may have megabytes.
    let start = |name: &str| name.chars().take(80).collect::<String>();
    strsim::osa_distance(&start(one), &start(other))
}

/// The name in a list that `word` probably means: at most a third of its letters differ.
pub fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    // Beyond a third of its letters, a word is more likely another word than a misspelling.
    let most = (word.chars().count() / 3).max(1);
    let lower = word.to_lowercase();
    let far = |name: &&&str| distance(&lower, &name.to_lowercase());
    names.iter().filter(|name| far(name) <= most).min_by_key(far).copied()
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
    fn columns_of_long_lines_are_counted_from_blocks() {
        for again in [BLOCK / 2 - 1, BLOCK / 2, BLOCK, 3 * BLOCK + 7] {
            let source = Source::new("x", format!("a\n{}b", "ä".repeat(again)));
            for (offset, column) in [(2, 1), (2 + 2 * (again / 2), again / 2 + 1), (2 + 2 * again, again + 1)] {
                assert_eq!(source.position(offset), Position { line: 2, column }, "{again}");
            }
            assert_eq!(source.position(usize::MAX).column, again + 2);
        }
        assert_eq!(Source::new("x", "").position(0), Position { line: 1, column: 1 });
    }

    #[test]
    fn lines_have_a_start_and_an_end() {
        let source = Source::new("x", "ab\n\ncd");
        let lines: Vec<_> = (0..=6).map(|at| (source.line_start(at), source.line_end(at))).collect();
        assert_eq!(lines, [(0, 2), (0, 2), (0, 2), (3, 3), (4, 6), (4, 6), (4, 6)]);
    }

    #[test]
    fn a_slice_off_a_character_boundary_is_empty() {
        assert_eq!(Source::new("x", "äb").slice(Span::new(1, 2)), "");
    }

    #[test]
    fn the_nearest_name_is_near() {
        let names = ["grid", "random", "anneal", "guided"];
        assert_eq!(nearest("gird", &names), Some("grid"));
        assert_eq!(nearest("Guied", &names), Some("guided"));
        assert_eq!(nearest("bayesian", &names), None);
        assert_eq!(nearest("", &names), None);
    }

    #[test]
    fn distances_count_edits() {
        assert_eq!(distance("dtype", "dtyp"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("eagel3", "eagle3"), 1);
        assert_eq!(distance("ba", "abc"), 2);
    }
}
