//! Comments of a launch text.

use schemas::text::{Source, Span};

use super::{documents, kind::Kind, script, shell};

/// The comments of a text, each from its `#` to the end of the line, in order.
pub fn comments(source: &Source) -> Vec<Span> {
    within(source, 0)
}

/// The comments of a text that is nested in `depth` here-documents.
pub(super) fn within(source: &Source, depth: usize) -> Vec<Span> {
    let text = source.text();
    match Kind::of(source) {
        Kind::Toml => return toml(text),
        // Their `#` starts a comment in the same places as YAML's.
        Kind::Yaml | Kind::Python | Kind::Dockerfile | Kind::Unit => return yaml(text),
        Kind::Script if super::yaml::is_yaml(source) => return yaml(text),
        Kind::Script => {}
        Kind::Unread(_) => return Vec::new(),
    }
    let regions = script::regions(source).into_iter().filter(|region| region.kind == Kind::Script);
    let mut comments: Vec<Span> = regions.flat_map(|region| shell::comments(text, region.span)).collect();
    comments.extend(documents::comments_in(source, depth));
    comments.sort_unstable();
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

/// In YAML `#` starts a comment at the start of a line or after a blank, outside quotes. Quotes are tracked within a
/// line only.
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
