//! Comments of a launch text.

use schemas::text::{Source, Span};

use super::{Options, context::TextContext, document::Document, kind::TextKind, markdown, script, shell, yaml};

/// Maximum nesting of scripts whose comments are read.
const DEEPEST: usize = 3;

/// The comments of a text, each from its `#` to the end of the line, in order.
pub fn comments(source: &Source) -> Vec<Span> {
    let text = source.text();
    let (kind, context) = (TextKind::detect(source), TextContext::default());
    match kind {
        TextKind::Toml => return toml(text),
        // Their `#` starts a comment in the same places as YAML's.
        TextKind::Yaml | TextKind::Python | TextKind::Dockerfile | TextKind::Unit => return yaml(text),
        TextKind::Script if yaml::read_unnamed(source, &context, &Options::default()).is_some() => return yaml(text),
        TextKind::Script | TextKind::Markdown => {}
        TextKind::Unread(_) => return Vec::new(),
    }
    let whole = Document::part_of(source, Span::new(0, text.len()), kind, context);
    let mut comments = Vec::new();
    // Documents with those around them, from the outermost one.
    let mut work = vec![vec![whole]];
    while let Some(chain) = work.pop() {
        let Some(document) = chain.last() else { continue };
        let inner = document.source();
        let (found, documents) = match document.kind {
            TextKind::Markdown => (Vec::new(), markdown::read(&inner, &document.context).documents),
            TextKind::Script => {
                let found = shell::comments(inner.text(), Span::new(0, inner.text().len()));
                let documents =
                    if inner.text().contains("<<") { script::read(&inner, None).documents } else { Vec::new() };
                (found, documents)
            }
            TextKind::Toml | TextKind::Unread(_) => continue,
            TextKind::Yaml | TextKind::Python | TextKind::Dockerfile | TextKind::Unit => {
                (yaml(inner.text()), Vec::new())
            }
        };
        let place = |span: Span| chain.iter().rev().fold(span, |span, document| document.origin.place(span));
        comments.extend(found.into_iter().map(place));
        // As deep as launches are read, so that a comment can suppress whatever is found.
        if chain.len() <= DEEPEST {
            work.extend(documents.into_iter().map(|document| [chain.as_slice(), &[document]].concat()));
        }
    }
    comments.sort_unstable();
    comments.dedup();
    comments
}

/// A quoted TOML string.
#[derive(Clone, Copy)]
struct Quote {
    byte: u8,
    /// Three quotes; the string may contain line breaks.
    long: bool,
}

fn toml(text: &str) -> Vec<Span> {
    let bytes = text.as_bytes();
    let mut comments = Vec::new();
    let mut open: Option<Quote> = None;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let long = bytes.get(at..at + 3) == Some(&[byte; 3]);
        match open {
            None if byte == b'#' => {
                let end = line_end(bytes, at);
                comments.push(Span::new(at, end));
                at = end;
                continue;
            }
            None if matches!(byte, b'"' | b'\'') => {
                open = Some(Quote { byte, long });
                at += if long { 3 } else { 1 };
                continue;
            }
            None => {}
            Some(quote) if byte == quote.byte && (long || !quote.long) => {
                open = None;
                at += if quote.long { 3 } else { 1 };
                continue;
            }
            Some(quote) if byte == b'\\' && quote.byte == b'"' && bytes.get(at + 1) != Some(&b'\n') => at += 1,
            Some(quote) if byte == b'\n' && !quote.long => open = None,
            Some(_) => {}
        }
        at += 1;
    }
    comments
}

/// In YAML `#` starts a comment at the start of a line or after a blank, outside quotes. Quotes are
/// tracked within a line only.
fn yaml(text: &str) -> Vec<Span> {
    let bytes = text.as_bytes();
    let mut comments = Vec::new();
    let mut open: Option<u8> = None;
    let mut before = b'\n';
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match (open, byte) {
            (_, b'\n') => open = None,
            (None, b'#') if before.is_ascii_whitespace() => {
                let end = line_end(bytes, at);
                comments.push(Span::new(at, end));
                at = end;
                before = b'#';
                continue;
            }
            (None, b'"' | b'\'') if before.is_ascii_whitespace() || b"[{,:-".contains(&before) => open = Some(byte),
            (Some(b'"'), b'\\') if bytes.get(at + 1) != Some(&b'\n') => at += 1,
            (Some(quote), _) if byte == quote => open = None,
            _ => {}
        }
        before = byte;
        at += 1;
    }
    comments
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    at + length - usize::from(length > 0 && rest.get(length - 1) == Some(&b'\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: &[&str]) {
        let source = Source::new(name, text);
        let found: Vec<&str> = comments(&source).into_iter().map(|span| source.slice(span)).collect();
        assert_eq!(found, expected, "{name}: {text}");
    }

    #[test]
    fn comments_of_a_shell() {
        check("x.sh", "# a\nls '# b' \"# c\" x#d # e\r\nA=(\n  # f\n  --g # h\n)", &["# a", "# e", "# f", "# h"]);
        check("x.sh", "cat <<E\n# no\nE\n# yes", &["# yes"]);
        check("x.sh", "# a\ncat > b.sh <<-E\n\t# b\n\tsglang $X # c\n\tE\n# d", &["# a", "# b", "# c", "# d"]);
        check("x.sh", "sglang serve --model-path x \\\n  --tp 2 # last", &["# last"]);
        check("x.md", "# Title\n```sh\n# in\n```\n# out\n", &["# in"]);
    }

    #[test]
    fn comments_of_toml() {
        check("x.toml", "# a\nb = \"# c\\\" # d\" # e\nf = '# g' # h", &["# a", "# e", "# h"]);
        check("x.toml", "a = \"\"\"\n# b\n\"\"\" # c\nd = '''#'''#e\n", &["# c", "#e"]);
        check("x.toml", "a = \"open\n# b\n", &["# b"]);
    }

    #[test]
    fn comments_of_yaml() {
        check("x.yaml", "# a\nb: \"# c\" # d\ne: f#g\nh: don't # i\nj: '# k'\n", &["# a", "# d", "# i"]);
        check("x.yml", "args:\n  - --tp=2 # l\n", &["# l"]);
    }
}
