//! Maps spans of an assembled text back to the text that its parts were taken from.

use schemas::text::Span;

/// A part of an assembled text; verbatim if it has the length of its source span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MappedPart<T> {
    /// In the assembled text.
    pub text: Span,
    /// In the text that it was taken from.
    pub place: Span,
    /// Start of the whole that it is a part of: the text between two pieces of one whole belongs to
    /// it too.
    pub whole: usize,
    /// Additional data.
    pub with: T,
}

/// All pieces of a text, in order.
#[derive(Clone, Debug)]
pub(super) struct SpanMap<T>(Vec<MappedPart<T>>);

impl<T> Default for SpanMap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> SpanMap<T> {
    /// Adds the next piece.
    pub fn push(&mut self, piece: MappedPart<T>) {
        self.0.push(piece);
    }

    /// All pieces, in order.
    pub fn iter(&self) -> impl Iterator<Item = &MappedPart<T>> {
        self.0.iter()
    }

    /// The source span of a part of the text.
    pub fn place(&self, span: Span) -> Span {
        let touched = self.touched(span);
        let Some((first, last)) = touched.first().zip(touched.last()) else {
            let next = self.0.get(self.0.partition_point(|piece| piece.text.end <= span.start));
            let at = match (next, self.0.last()) {
                (Some(next), _) => next.place.start,
                (None, Some(last)) => last.place.end,
                (None, None) => 0,
            };
            return Span::new(at, at);
        };
        let start = match span.start.checked_sub(first.text.start) {
            Some(offset) if first.is_verbatim() => first.place.start + offset,
            _ => first.place.start,
        };
        let end = match last.text.end.checked_sub(span.end) {
            Some(offset) if last.is_verbatim() => last.place.end - offset,
            _ => last.place.end,
        };
        // Pieces of several wholes need not be in source order.
        if end < start && touched.len() > 1 {
            return touched.iter().map(|piece| piece.place).reduce(Span::join).unwrap_or_default();
        }
        Span::new(start, end)
    }

    /// Whether a part of the text comes from one whole.
    pub fn is_of_one_whole(&self, span: Span) -> bool {
        let mut wholes = self.touched(span).iter().map(|piece| piece.whole);
        let first = wholes.next();
        wholes.all(|whole| Some(whole) == first)
    }

    /// The piece at an offset of the text, or the next one.
    pub fn at(&self, offset: usize) -> Option<MappedPart<T>> {
        self.0.get(self.0.partition_point(|piece| piece.text.end <= offset)).copied()
    }

    fn touched(&self, span: Span) -> &[MappedPart<T>] {
        let first = self.0.partition_point(|piece| piece.text.end <= span.start);
        let last = self.0.partition_point(|piece| piece.text.start < span.end);
        self.0.get(first..last).unwrap_or_default()
    }
}

impl<T> MappedPart<T> {
    fn is_verbatim(&self) -> bool {
        self.text.end - self.text.start == self.place.end - self.place.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For `ab$X-ef`, where `$X` is the text at 0..5.
    fn pieces() -> SpanMap<()> {
        let mut pieces = SpanMap::default();
        for (text, place, whole) in [((0, 2), (10, 12), 10), ((2, 7), (0, 5), 0), ((8, 10), (15, 17), 10)] {
            let (text, place) = (Span::new(text.0, text.1), Span::new(place.0, place.1));
            pieces.push(MappedPart { text, place, whole, with: () });
        }
        pieces
    }

    fn check(text: (usize, usize), place: (usize, usize), is_of_one_whole: bool) {
        let (text, place) = (Span::new(text.0, text.1), Span::new(place.0, place.1));
        assert_eq!((pieces().place(text), pieces().is_of_one_whole(text)), (place, is_of_one_whole), "{text:?}");
    }

    #[test]
    fn a_part_stands_where_its_pieces_stand() {
        check((0, 1), (10, 11), true);
        check((3, 6), (1, 4), true);
        check((8, 10), (15, 17), true);
        check((7, 8), (15, 15), true);
        check((1, 3), (0, 12), false);
        check((0, 10), (10, 17), false);
        check((12, 12), (17, 17), true);
    }
}
