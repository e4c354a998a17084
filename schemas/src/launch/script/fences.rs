//! Markdown: the blocks of it that hold commands.

use crate::{
    launch::kind::Kind,
    text::{Source, Span},
};

/// A part of a text that is read by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub span: Span,
    pub kind: Kind,
    /// Whether it is a fenced block.
    pub is_fenced: bool,
}

/// A fence that opened: its letter, how many of it, and what it holds.
struct Fence<'a> {
    letter: char,
    count: usize,
    info: &'a str,
    from: usize,
}

/// The fenced blocks of a text that has any, otherwise all of it. A script that begins with `#!` is read as a whole:
/// a fence in it is part of a text that it prints. Without that line nothing is known, and launches are pasted from Markdown
/// under any name.
pub fn regions(source: &Source) -> Vec<Region> {
    let text = source.text();
    let whole = || vec![Region { span: Span::new(0, text.len()), kind: Kind::Script, is_fenced: false }];
    if text.starts_with("#!") || !(text.contains("```") || text.contains("~~~")) {
        return whole();
    }
    let (mut regions, mut seen) = (Vec::new(), false);
    let mut opened: Option<Fence<'_>> = None;
    let mut close = |fence: &Fence<'_>, end: usize| {
        let span = Span::new(fence.from, end);
        let kind = Kind::of_fence(fence.info, source.slice(span));
        regions.extend(kind.map(|kind| Region { span, kind, is_fenced: true }));
    };
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let next = at + line.len();
        if let Some((letter, count, info)) = fence(line) {
            seen = true;
            match &opened {
                Some(fence) if letter == fence.letter && count >= fence.count && info.is_empty() => {
                    close(fence, at);
                    opened = None;
                }
                Some(_) => {}
                None => opened = Some(Fence { letter, count, info, from: next }),
            }
        }
        at = next;
    }
    if let Some(fence) = &opened {
        close(fence, text.len());
    }
    if seen { regions } else { whole() }
}

/// What a line that is a fence is made of, and what stands behind it. In a quotation or in a list it is indented or marked.
fn fence(line: &str) -> Option<(char, usize, &str)> {
    let line = line.trim_start_matches([' ', '\t', '>']).trim_end();
    let letter = line.chars().next().filter(|letter| matches!(letter, '`' | '~'))?;
    let info = line.trim_start_matches(letter);
    let count = line.len() - info.len();
    // A backtick behind it closes code within a line.
    (count >= 3 && !info.contains('`')).then(|| (letter, count, info.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, Kind)]) {
        let source = Source::new("x.md", text);
        let regions = regions(&source);
        let found: Vec<(&str, Kind)> = regions.iter().map(|region| (source.slice(region.span), region.kind)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn each_block_is_read_by_what_its_fence_says() {
        check("a\n```bash\nb\n```\n```yaml\nc: d\n```\n", &[("b\n", Kind::Script), ("c: d\n", Kind::Yaml)]);
        check("````md\n```sh\na\n```\n````\n", &[("```sh\na\n```\n", Kind::Script)]);
        check("- x\n  ```\n  a\n  ```\n", &[("  a\n", Kind::Script)]);
        check("~~~\na\n", &[("a\n", Kind::Script)]);
        check("```diff\n+ a\n```\n", &[]);
        check("a\n", &[("a\n", Kind::Script)]);
    }
}
