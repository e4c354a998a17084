//! The text of a word before expansion, split wherever the shell interprets something.

use schemas::text::Span;

use super::{Chunk, ShellReader};

/// Splits a word into its parts, in order: its text without quotes, and the shell's expansions.
pub(crate) fn chunks_of_word(text: &str, span: Span) -> Vec<Chunk<'_>> {
    let mut reader = ShellReader::new(text, span);
    let mut chunks = Vec::new();
    let mut in_double = false;
    while let Some(byte) = reader.peek(0) {
        let start = reader.at;
        match (byte, reader.peek(1)) {
            (b'"', _) => {
                in_double = !in_double;
                reader.at += 1;
            }
            (b'\'', _) if !in_double => {
                let end = reader.hopeless.end_of_single(reader.bytes(), start + 1);
                let end = end.filter(|end| *end < span.end).unwrap_or(span.end);
                chunks.push(Chunk::Text(Span::new(start + 1, end)));
                reader.at = end + 1;
            }
            (b'\\', Some(b'\n')) => reader.at += 2,
            (b'\\', Some(next)) if !in_double || matches!(next, b'$' | b'`' | b'"' | b'\\') => {
                let width = text.get(start + 1..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
                reader.at += 1 + width;
                chunks.push(Chunk::Text(Span::new(start + 1, reader.at)));
            }
            (b'$', Some(b'"')) if !in_double => reader.at += 1,
            (b'$' | b'`', _) => {
                let part = reader.expansion();
                // No byte may be skipped or taken twice.
                reader.at = reader.at.max(start + 1);
                let place = Span::new(start, reader.at);
                chunks.push(part.map_or(Chunk::Text(place), |part| Chunk::Expansion(part, place)));
            }
            _ => {
                let means = |byte: &u8| matches!(byte, b'"' | b'\'' | b'\\' | b'$' | b'`');
                let rest = reader.bytes().get(start + 1..).unwrap_or_default();
                reader.at = start + 1 + rest.iter().position(means).unwrap_or(rest.len());
                chunks.push(Chunk::Text(Span::new(start, reader.at)));
            }
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(word: &str, expected: &str) {
        let shown = chunks_of_word(word, Span::new(0, word.len())).into_iter().map(|chunk| match chunk {
            Chunk::Text(span) => word[span.range()].to_owned(),
            Chunk::Continuation(_) => "…".to_owned(),
            Chunk::Expansion(_, span) => format!("<{}>", &word[span.range()]),
        });
        assert_eq!(shown.collect::<String>(), expected, "{word}");
    }

    #[test]
    fn quotes_are_taken_away_once() {
        check("'--a {\"b\": 1}'", "--a {\"b\": 1}");
        check("\"--a {\\\"b\\\": '1'} $X\"", "--a {\"b\": '1'} <$X>");
        check("--x='a b'\"$(c \"d\") \"e", "--x=a b<$(c \"d\")> e");
        check("a\\ b\\\nc", "a bc");
        check("'ä$x", "ä$x");
        check("\"a $", "a $");
    }
}
