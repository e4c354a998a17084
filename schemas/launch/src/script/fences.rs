//! Markdown blocks that contain commands.

use schemas::text::{Source, Span};

use crate::kind::Kind;

/// A part of a text that is parsed separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region<'a> {
    pub span: Span,
    pub kind: Kind,
    /// The info string of the block, which names its language; `None` if the whole text is one region.
    pub info: Option<&'a str>,
}

/// An open fence: its character, their number, and its content.
struct Fence<'a> {
    letter: char,
    count: usize,
    info: &'a str,
    from: usize,
}

/// The fenced blocks of a text, or the whole text if it has none. A script that starts with `#!` is parsed as a whole:
/// a fence in it is part of a text that it prints. The file name is no evidence otherwise, since launches are pasted
/// from Markdown into files of any name.
pub fn regions<'a>(source: &'a Source) -> Vec<Region<'a>> {
    let text = source.text();
    if source.name().ends_with(".rst") {
        let directives = directives(source);
        if !directives.is_empty() {
            return directives;
        }
    }
    let whole = || vec![Region { span: Span::new(0, text.len()), kind: Kind::Script, info: None }];
    if text.starts_with("#!") || !(text.contains("```") || text.contains("~~~")) {
        return whole();
    }
    let (mut regions, mut seen) = (Vec::new(), false);
    let mut opened: Option<Fence<'a>> = None;
    let mut close = |fence: &Fence<'a>, end: usize| {
        let span = Span::new(fence.from, end);
        let kind = Kind::of_fence(fence.info, source.slice(span));
        regions.extend(kind.map(|kind| Region { span, kind, info: Some(fence.info) }));
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

/// The blocks of reStructuredText: indented text below a `code-block` or similar directive, or below a paragraph that
/// ends in `::`.
fn directives<'a>(source: &'a Source) -> Vec<Region<'a>> {
    const NAMES: [&str; 6] = ["code::", "code-block::", "parsed-literal::", "prompt::", "sourcecode::", "code-cell::"];
    let mut regions = Vec::new();
    // The current block: its language, the indentation of its opener, and its span.
    let mut opened: Option<(&'a str, usize, Option<Span>)> = None;
    let mut close = |block: (&'a str, usize, Option<Span>)| {
        let Some(span) = block.2 else { return };
        let kind = Kind::of_fence(block.0, source.slice(span));
        regions.extend(kind.map(|kind| Region { span, kind, info: Some(block.0) }));
    };
    let mut at = 0;
    for line in source.text().split_inclusive('\n') {
        let start = at;
        at += line.len();
        let said = line.trim();
        let indent = line.len() - line.trim_start().len();
        if let Some((info, outer, span)) = &mut opened {
            if said.is_empty() {
                continue;
            }
            if indent > *outer {
                // Options of the directive directly follow it.
                if span.is_some() || !said.starts_with(':') {
                    *span = Some(span.map_or(Span::new(start, at), |span| Span::new(span.start, at)));
                }
                continue;
            }
            close((*info, *outer, *span));
            opened = None;
        }
        let directive =
            said.strip_prefix(".. ").and_then(|rest| rest.split_once(char::is_whitespace).or(Some((rest, ""))));
        match directive {
            Some((name, info)) if NAMES.contains(&name) => opened = Some((info.trim(), indent, None)),
            None if said.ends_with("::") && !said.starts_with("..") => opened = Some(("", indent, None)),
            _ => {}
        }
    }
    if let Some(block) = opened {
        close(block);
    }
    regions
}

/// The character and length of a fence, and the text after it. In a quotation or in a list the line is indented or
/// marked.
fn fence(line: &str) -> Option<(char, usize, &str)> {
    let line = line.trim_start_matches([' ', '\t', '>']).trim_end();
    let letter = line.chars().next().filter(|letter| matches!(letter, '`' | '~'))?;
    let info = line.trim_start_matches(letter);
    let count = line.len() - info.len();
    // A later backtick makes it inline code.
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
    fn blocks_of_restructured_text_are_what_is_indented_below_them() {
        let text = "Run::\n\n   a b\n\nand\n\n.. code:: yaml\n   :linenos:\n\n   c:\n     d\n\n   e: f\n\nnot g\n\n.. note:: h\n   i\n";
        let source = Source::new("x.rst", text);
        let found: Vec<(&str, Kind)> =
            regions(&source).iter().map(|region| (source.slice(region.span), region.kind)).collect();
        assert_eq!(found, [("   a b\n", Kind::Script), ("   c:\n     d\n\n   e: f\n", Kind::Yaml)]);
        assert_eq!(regions(&Source::new("x.rst", "a\n")).len(), 1);
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
