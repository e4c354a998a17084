//! How a shell expands the body of a here-document.

use schemas::text::Span;

use super::{HereDocument, ShellReader, WordPart};

/// A part of a body.
#[derive(Clone, Debug)]
pub(crate) enum Chunk<'a> {
    /// Verbatim text.
    Text(Span),
    /// A backslash before the end of a line, which continues it.
    Continuation(Span),
    /// An expansion by the shell.
    Expansion(WordPart<'a>, Span),
}

/// Splits a body into its parts, in order. They omit what the shell removes: the backslash before
/// an escaped `$`, and leading tabs with `<<-`.
pub(crate) fn chunks<'a>(text: &'a str, document: &HereDocument<'_>) -> Vec<Chunk<'a>> {
    let mut reader = ShellReader::new(text, document.body);
    let mut chunks = Vec::new();
    let mut line_begins = true;
    loop {
        if std::mem::take(&mut line_begins) && document.strips_tabs {
            reader.at += reader.bytes().iter().skip(reader.at).take_while(|byte| **byte == b'\t').count();
        }
        let start = reader.at;
        let Some(byte) = reader.peek(0) else { return chunks };
        match (byte, reader.peek(1)) {
            (b'\\', Some(b'\n')) if !document.is_quoted => {
                reader.at += 2;
                line_begins = true;
                chunks.push(Chunk::Continuation(Span::new(start, reader.at)));
            }
            (b'\\', Some(b'$' | b'`' | b'\\')) if !document.is_quoted => {
                reader.at += 2;
                chunks.push(Chunk::Text(Span::new(start + 1, reader.at)));
            }
            (b'$' | b'`', _) if !document.is_quoted => {
                let part = reader.expansion();
                let span = Span::new(start, reader.at);
                chunks.push(part.map_or(Chunk::Text(span), |part| Chunk::Expansion(part, span)));
            }
            _ => {
                let means = |byte: &u8| !document.is_quoted && matches!(byte, b'\\' | b'$' | b'`');
                let rest = reader.bytes().get(start + 1..).unwrap_or_default();
                let stop = rest.iter().position(|byte| means(byte) || *byte == b'\n').unwrap_or(rest.len());
                line_begins = byte == b'\n';
                // The end of a line closes its part.
                let ends = usize::from(!line_begins && rest.get(stop) == Some(&b'\n'));
                line_begins |= ends > 0;
                reader.at = if byte == b'\n' { start + 1 } else { start + 1 + stop + ends };
                chunks.push(Chunk::Text(Span::new(start, reader.at)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, is_quoted: bool, strips_tabs: bool, expected: &str) {
        let document = HereDocument { body: Span::new(0, body.len()), is_quoted, strips_tabs, stages: Vec::new() };
        let shown = chunks(body, &document).into_iter().map(|chunk| match chunk {
            Chunk::Text(span) => body[span.range()].to_owned(),
            Chunk::Continuation(_) => "…".to_owned(),
            Chunk::Expansion(_, span) => format!("<{}>", &body[span.range()]),
        });
        assert_eq!(shown.collect::<String>(), expected, "{body}");
    }

    #[test]
    fn a_body_is_cut_where_the_shell_does_something() {
        check("a $X '$Y' \"${Z:-z}\"\n", false, false, "a <$X> '<$Y>' \"<${Z:-z}>\"\n");
        check("a \\$X \\\\ \\n `c` $(d (e)) $ x", false, false, "a $X \\ \\n <`c`> <$(d (e))> $ x");
        check("a \\\n\tb\n\t\tc", false, true, "a …b\nc");
        check("\ta\n\n\t\n\tb $X \\\n", true, true, "a\n\n\nb $X \\\n");
        check("\ta $(b", true, false, "\ta $(b");
        check("ä $(b ü", false, false, "ä $(b ü");
    }
}
