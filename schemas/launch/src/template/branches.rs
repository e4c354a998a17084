//! What a template leaves of its text: statements that leave nothing are taken away, and of the
//! branches of a block one is read, or none.

use std::ops::Range;

use schemas::text::Span;

use super::{
    choices::{BranchChoice, TestedCondition},
    statements::{BlockEffect, TemplateStatement, statements},
};

/// Longest block within a line that is replaced by the braces of one expression.
const LONGEST_EXPRESSION: usize = 100;

/// A text of which each byte has its place in the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    pub text: String,
    /// The blocks that may be missing.
    pub blocks: Vec<Span>,
    /// Those of which another branch than the first one is read.
    pub others: Vec<Span>,
    /// Where more may be written than is visible: loops, and lines that are one expression.
    pub unseen: Vec<Span>,
}

/// A block that is open.
struct OpenBlock {
    start: usize,
    /// What it tests, if it is a condition.
    tested: Option<TestedCondition>,
    /// The end of the statement that opened it.
    inner: usize,
    /// The statements between its branches.
    dividers: Vec<Span>,
}

/// Reads a template with the branches of a choice; `None` where there is no statement that decides
/// what exists, or where blocks do not close. `joins_lines` says whether a line end may become a
/// blank, as it may in YAML.
pub fn rendered(text: &str, joins_lines: bool, choice: &BranchChoice) -> Option<Rendered> {
    let all = statements(text);
    if all.iter().all(|one| one.effect == BlockEffect::Output) {
        return None;
    }
    let (filled, void) = (text.as_bytes().to_vec(), vec![false; text.len()]);
    let (blocks, others, unseen) = Default::default();
    let mut reader = BranchReader { text, filled, void, choice, blocks, others, unseen };
    let mut open: Vec<OpenBlock> = Vec::new();
    for TemplateStatement { span, effect, trims } in &all {
        match effect {
            BlockEffect::Output => reader.unseen.extend(is_alone(text, *span).then_some(*span)),
            BlockEffect::Silent => reader.remove(span.range(), *trims),
            BlockEffect::Opens => {
                reader.remove(span.range(), *trims);
                let tested = TestedCondition::by(text.get(span.range()).unwrap_or_default());
                open.push(OpenBlock { start: span.start, tested, inner: span.end, dividers: Vec::new() });
            }
            BlockEffect::Divides => {
                open.last_mut()?.dividers.push(*span);
                reader.remove(span.range(), *trims);
            }
            BlockEffect::Closes => reader.close(&open.pop()?, *span, *trims),
        }
    }
    if !open.is_empty() {
        return None;
    }
    reader.take_lines_away(joins_lines);
    let BranchReader { filled, blocks, others, mut unseen, .. } = reader;
    // What is in a branch that is not read leaves nothing.
    unseen.retain(|span| filled.get(span.range()).is_some_and(|left| !left.trim_ascii().is_empty()));
    Some(Rendered { text: String::from_utf8(filled).ok()?, blocks, others, unseen })
}

/// Whether an expression is all that its line has.
pub fn is_alone(text: &str, span: Span) -> bool {
    let before = text.get(..span.start).unwrap_or_default().rsplit('\n').next().unwrap_or_default();
    let after = text.get(span.end..).unwrap_or_default();
    before.trim().is_empty() && after.bytes().find(|byte| !b" \t\r".contains(byte)).is_none_or(|byte| byte == b'\n')
}

struct BranchReader<'a> {
    text: &'a str,
    filled: Vec<u8>,
    /// Which bytes leave nothing.
    void: Vec<bool>,
    choice: &'a BranchChoice,
    blocks: Vec<Span>,
    others: Vec<Span>,
    unseen: Vec<Span>,
}

impl BranchReader<'_> {
    /// Makes a part blank, but for its line ends. `is_void` says whether a line of which nothing is
    /// left is not in the output.
    fn remove(&mut self, range: Range<usize>, is_void: bool) {
        for at in range {
            if let (Some(byte), Some(void)) = (self.filled.get_mut(at), self.void.get_mut(at))
                && *byte != b'\n'
            {
                (*byte, *void) = (b' ', is_void);
            }
        }
    }

    fn close(&mut self, block: &OpenBlock, closing: Span, is_void: bool) {
        let whole = Span::new(block.start, closing.end);
        let text = self.text.get(whole.range()).unwrap_or_default();
        let inside = self.text.get(block.inner..closing.start).unwrap_or_default();
        if !text.contains('\n') && !inside.trim().is_empty() {
            self.write_unknown(whole);
            return;
        }
        self.remove(closing.range(), is_void);
        let read = self.choice.branch(block.tested.as_ref(), block.dividers.len());
        let mut start = block.inner;
        for (branch, end) in block.dividers.iter().map(|divider| divider.start).chain([closing.start]).enumerate() {
            if Some(branch) != read {
                self.remove(start..end, true);
            }
            let divider = block.dividers.get(branch).map_or(end, |divider| divider.end);
            self.remove(end..divider, true);
            start = divider;
        }
        self.blocks.push(whole);
        self.unseen.extend(block.tested.is_none().then_some(whole));
        self.others.extend((read != Some(0)).then_some(whole));
    }

    /// Replaces a block within a line by one expression whose value is not known.
    fn write_unknown(&mut self, span: Span) {
        let length = span.end - span.start;
        let expression = match length <= LONGEST_EXPRESSION {
            true => format!("{{{{{}}}}}", "x".repeat(length.saturating_sub(4))),
            false => format!("${}", "_".repeat(length - 1)),
        };
        for (at, byte) in span.range().zip(expression.bytes()) {
            if let (Some(place), Some(void)) = (self.filled.get_mut(at), self.void.get_mut(at)) {
                (*place, *void) = (byte, false);
            }
        }
    }

    /// Takes lines away of which nothing is left. Behind a continued line one continues it.
    fn take_lines_away(&mut self, joins_lines: bool) {
        let mut start = 0;
        // The end of the last line that is in the output, without its line end.
        let mut before: Option<Range<usize>> = None;
        while start < self.filled.len() {
            let rest = self.filled.get(start..).unwrap_or_default();
            let end = rest.iter().position(|byte| *byte == b'\n').map_or(self.filled.len(), |length| start + length);
            let line = start..end;
            if !self.leaves_nothing(&line) {
                if let Some(before) = before.as_ref().filter(|before| self.continues_command(before, &line)) {
                    for at in before.end..start {
                        self.blank(at);
                    }
                }
                before = Some(line);
            } else if let Some(backslash) = before.as_ref().and_then(|before| self.continued_at(before)) {
                // The next line continues the command as well.
                self.blank(backslash);
                self.blank(start.saturating_sub(1));
                if let Some(last) = self.filled.get_mut(end.saturating_sub(1)) {
                    *last = b'\\';
                }
                before = Some(line);
            } else if joins_lines && before.as_ref().is_some_and(|before| !self.ends_document(before)) {
                // The line end before it goes with it: a folded text would have a line end there.
                self.blank(start.saturating_sub(1));
            }
            start = end + 1;
        }
    }

    fn leaves_nothing(&self, line: &Range<usize>) -> bool {
        let is_void = self.void.get(line.clone()).is_some_and(|void| void.contains(&true));
        is_void && self.filled.get(line.clone()).is_some_and(|line| line.trim_ascii().is_empty())
    }

    /// Whether a statement took the line end before it away, and left a backslash only: `{%- if a
    /// %} \`, which continues the line before.
    fn continues_command(&self, before: &Range<usize>, line: &Range<usize>) -> bool {
        let left = self.filled.get(line.clone()).unwrap_or_default().trim_ascii();
        let written = self.text.get(line.clone()).unwrap_or_default().trim_start();
        left == b"\\"
            && ["{%-", "{{-"].iter().any(|open| written.starts_with(open))
            && self.continued_at(before).is_none()
    }

    /// The place of the backslash that continues a line.
    fn continued_at(&self, line: &Range<usize>) -> Option<usize> {
        let text = self.filled.get(line.clone())?.trim_ascii_end();
        text.ends_with(b"\\").then(|| line.start + text.len() - 1)
    }

    fn blank(&mut self, at: usize) {
        if let Some(byte) = self.filled.get_mut(at) {
            *byte = b' ';
        }
    }

    /// Whether a line may end a here-document, which no blank may follow.
    fn ends_document(&self, line: &Range<usize>) -> bool {
        let word = self.filled.get(line.clone()).unwrap_or_default().trim_ascii();
        word.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, joins_lines: bool, expected: &str) {
        let found = rendered(text, joins_lines, &BranchChoice::default()).expect(text);
        assert_eq!(found.text.len(), text.len(), "{text}");
        let lines: Vec<&str> = found.text.split('\n').map(str::trim_end).collect();
        assert_eq!(lines.join("\n"), expected, "{text}");
    }

    #[test]
    fn a_statement_behind_a_continued_line_continues_it() {
        let text = "a \\\n{{- if .x }}\n--b 1 \\\n{{- end }}\n--c\n";
        check(text, true, "a              \\\n--b 1            \\\n--c\n");
    }

    #[test]
    fn a_statement_that_takes_the_line_end_before_it_continues_the_line() {
        let text = "a\n{%- if x %} \\\n--b 1\n{%- endif %}\n{%- if y %} \\\n--c 2\n{%- endif %}\n";
        let found = rendered(text, false, &BranchChoice::default()).expect(text).text;
        assert_eq!(found.len(), text.len());
        assert_eq!(
            found
                .split('\n')
                .map(str::split_whitespace)
                .map(|words| words.collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>(),
            ["a \\", "--b 1 \\", "--c 2", "", ""]
        );
    }

    #[test]
    fn a_statement_that_keeps_its_line_ends_a_command() {
        check("a \\\n{{ if .x }}\n--b 1\n{{ end }}\n", false, "a \\\n\n--b 1\n\n");
    }

    #[test]
    fn lines_of_yaml_are_joined_over_statements() {
        check("a: >\n  b\n{{- if .x }}\n  c\n{{- end }}\nd: 1\n", true, "a: >\n  b\n  c\nd: 1\n");
        check("EOF\n{% if x %}\nc\n{% endif %}\n", true, "EOF\n\nc\n");
    }

    #[test]
    fn of_branches_the_first_is_read() {
        check("{% if a %}\nb\n{% else %}\nc\n{% endif %}\nd\n", false, "\nb\n\n\n\nd\n");
        check("{{ if a }}x{{ else }}y{{ end }} z", false, "{{xxxxxxxxxxxxxxxxxxxxxxxxxxx}} z");
    }

    #[test]
    fn of_branches_each_is_read_by_its_number() {
        let text = "{% if a %}\nb\n{% elif c %}\nd\n{% else %}\ne\n{% endif %}\nf\n";
        for (number, expected) in [(0, "b f"), (1, "d f"), (2, "e f"), (3, "b f")] {
            let found = rendered(text, false, &BranchChoice::from_number(number)).expect(text);
            assert_eq!(found.text.split_whitespace().collect::<Vec<_>>().join(" "), expected);
            assert_eq!((found.blocks.len(), found.others.len()), (1, usize::from(expected != "b f")));
        }
    }

    #[test]
    fn texts_without_closed_blocks_are_no_templates() {
        for text in ["{{ .x }}", "{{- if .x }}\na\n", "{{- end }}\n", "{{ else }}{{ end }}", ""] {
            assert_eq!(rendered(text, true, &BranchChoice::default()), None, "{text}");
        }
    }
}
