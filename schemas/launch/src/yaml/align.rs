//! Maps each byte of a scalar's text to the YAML, across quotes, escapes, folds and the indentation
//! of blocks.

use saphyr_parser::ScalarStyle;
use schemas::text::Span;

use crate::writing::Quotes;

/// A scalar as the parser returns it.
#[derive(Debug)]
pub(super) struct Scalar {
    /// Its text, with quotes, escapes and folds resolved, in an exact allocation (the parser
    /// overallocates).
    pub text: String,
    pub style: ScalarStyle,
    /// Its span, which may include comments and empty lines after it.
    pub span: Span,
}

/// A part of a scalar's text with its place. It is verbatim if both have the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AlignedPart {
    /// In the scalar's text.
    pub text: Span,
    /// In the YAML.
    pub place: Span,
}

/// A scalar aligned with the YAML.
#[derive(Clone, Debug)]
pub(super) struct Aligned {
    /// In the order of the text, without gaps.
    pub parts: Vec<AlignedPart>,
    /// The whole in the YAML, quotes included.
    pub outer: Span,
    pub quotes: Quotes,
}

/// Aligns a scalar; `None` if its text cannot be located in the YAML.
pub(super) fn align(yaml: &str, scalar: &Scalar) -> Option<Aligned> {
    let (parts, quotes, quote) = match scalar.style {
        ScalarStyle::Plain => (flow(yaml, scalar, scalar.span.start)?, Quotes::Plain, 0),
        ScalarStyle::SingleQuoted => (flow(yaml, scalar, opening(yaml, scalar, '\'')?)?, Quotes::Single, 1),
        ScalarStyle::DoubleQuoted => (flow(yaml, scalar, opening(yaml, scalar, '"')?)?, Quotes::Double, 1),
        ScalarStyle::Literal => (literal(yaml, scalar)?, Quotes::Block, 0),
        ScalarStyle::Folded => (folded(yaml, scalar)?, Quotes::Plain, 0),
    };
    let place = match (parts.first(), parts.last()) {
        (Some(first), Some(last)) => Span::new(first.place.start, last.place.end),
        _ => Span::new(scalar.span.start + quote, scalar.span.start + quote),
    };
    let outer = Span::new(place.start.saturating_sub(quote), place.end + quote);
    // To a reader, the trailing line ends of a block are not part of it.
    let end = outer.start + yaml.get(outer.range())?.trim_end().len();
    Some(Aligned { parts, outer: Span::new(outer.start, end), quotes })
}

/// The place after the opening quote, which a tag or an anchor may precede.
fn opening(yaml: &str, scalar: &Scalar, quote: char) -> Option<usize> {
    let at = yaml.get(scalar.span.range())?.find(quote)?;
    Some(scalar.span.start + at + 1)
}

/// Collects parts, merging neighbours that are adjacent in both texts.
#[derive(Default)]
struct AlignedParts(Vec<AlignedPart>);

impl AlignedParts {
    fn push(&mut self, text: Span, place: Span) {
        let verbatim = |part: &AlignedPart| part.text.end - part.text.start == part.place.end - part.place.start;
        let next = AlignedPart { text, place };
        if let Some(last) = self.0.last_mut()
            && verbatim(last)
            && verbatim(&next)
            && last.text.end == text.start
            && last.place.end == place.start
        {
            last.text.end = text.end;
            last.place.end = place.end;
            return;
        }
        self.0.push(next);
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn blanks(bytes: &[u8], from: usize) -> usize {
    bytes.iter().skip(from).take_while(|byte| is_blank(**byte)).count()
}

/// Plain and quoted scalars: escapes, and line ends that fold.
fn flow(yaml: &str, scalar: &Scalar, from: usize) -> Option<Vec<AlignedPart>> {
    let (text, source) = (scalar.text.as_bytes(), yaml.as_bytes());
    let mut parts = AlignedParts::default();
    let (mut at, mut place) = (0, from);
    while at < text.len() {
        let byte = *source.get(place)?;
        let run = if is_blank(byte) { blanks(source, place) } else { 0 };
        let ends = source.get(place..place + run)?.iter().filter(|byte| **byte == b'\n').count();
        let (length, width) = match (scalar.style, byte) {
            (ScalarStyle::DoubleQuoted, b'\\') => {
                let next = *source.get(place + 1)?;
                if matches!(next, b'\n' | b'\r') {
                    place += 1 + blanks(source, place + 1);
                    continue;
                }
                let width = match next {
                    b'x' => 4,
                    b'u' => 6,
                    b'U' => 10,
                    _ => 2,
                };
                (scalar.text.get(at..)?.chars().next()?.len_utf8(), width)
            }
            (ScalarStyle::SingleQuoted, b'\'') => (1, 2),
            _ if ends > 0 => (ends.saturating_sub(1).max(1), run),
            _ if text.get(at) == Some(&byte) => (1, 1),
            _ => return None,
        };
        parts.push(Span::new(at, at + length), Span::new(place, place + width));
        at += length;
        place += width;
    }
    Some(parts.0)
}

/// The start of the first line of a block's content: below the line of its `|` or `>`.
fn content(yaml: &str, scalar: &Scalar) -> Option<usize> {
    let header = yaml.get(..scalar.span.start)?.trim_end().len();
    Some(header + yaml.get(header..)?.find('\n')? + 1)
}

/// Each line of the text is the end of a line of the block.
fn literal(yaml: &str, scalar: &Scalar) -> Option<Vec<AlignedPart>> {
    if scalar.text.is_empty() {
        return Some(Vec::new());
    }
    let mut parts = AlignedParts::default();
    let mut place = content(yaml, scalar)?;
    let mut at = 0;
    for line in scalar.text.split_inclusive('\n') {
        let end = yaml.get(place..)?.find('\n').map_or(yaml.len(), |length| place + length + 1);
        let written = yaml.get(place..end)?;
        let (bare, bare_written) = (line.trim_end_matches('\n'), written.trim_end_matches(['\r', '\n']));
        let start = place + bare_written.strip_suffix(bare)?.len();
        parts.push(Span::new(at, at + bare.len()), Span::new(start, start + bare.len()));
        if line.len() > bare.len() {
            let newline = Span::new(at + bare.len(), at + line.len());
            parts.push(newline, Span::new(start + bare.len(), end));
        }
        at += line.len();
        place = end;
    }
    Some(parts.0)
}

/// Words are verbatim; blanks and line ends between them fold.
fn folded(yaml: &str, scalar: &Scalar) -> Option<Vec<AlignedPart>> {
    let (text, source) = (scalar.text.as_bytes(), yaml.as_bytes());
    let mut parts = AlignedParts::default();
    let (mut at, mut place) = (0, content(yaml, scalar)?);
    if text.first().is_some_and(|byte| !is_blank(*byte)) {
        place += blanks(source, place);
    }
    while at < text.len() {
        let (run, width) = (blanks(text, at), blanks(source, place));
        let (length, width) = match (run, width) {
            (0, 0) if text.get(at) == source.get(place) => (1, 1),
            (0, _) | (_, 0) => return None,
            // The last line end maps to its own line, regardless of the text below the block.
            _ if at + run == text.len() => {
                let end = source.get(place..)?.iter().position(|byte| *byte == b'\n');
                (run, end.map_or(source.len() - place, |length| length + 1))
            }
            runs => runs,
        };
        parts.push(Span::new(at, at + length), Span::new(place, place + width));
        at += length;
        place += width;
    }
    Some(parts.0)
}
