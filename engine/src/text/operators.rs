//! Operators of Jinja2 that Jinja in Rust has in another form and does not let one replace: `%` of
//! a text formats, and `~` joins what values print as in Python. A template is compiled with
//! filters in their places.

use std::ops::Range;

/// The filter that is what `%` is in Python.
pub const REMAINDER: &str = "python_remainder";

/// Words that no operand goes beyond.
const WORDS: [&str; 20] = [
    "and",
    "as",
    "call",
    "do",
    "elif",
    "else",
    "filter",
    "for",
    "from",
    "if",
    "import",
    "in",
    "include",
    "is",
    "not",
    "or",
    "print",
    "recursive",
    "set",
    "with",
];
/// Signs that no operand of `~` goes beyond.
const BEYOND_JOIN: [&str; 12] = ["~", "+", "-", "=", "==", "!=", "<", ">", "<=", ">=", ",", ":"];
/// Operators that bind operands of `~`.
const PRODUCTS: [&str; 5] = ["*", "/", "//", "%", "**"];
/// Signs of two characters.
const DOUBLE: [&str; 6] = ["==", "!=", "<=", ">=", "//", "**"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JinjaTokenKind {
    Open,
    Close,
    Text,
    Number,
    Word,
    Sign,
}

#[derive(Clone, Debug)]
struct JinjaToken {
    kind: JinjaTokenKind,
    range: Range<usize>,
    /// The index of the bracket that belongs to this one.
    partner: Option<usize>,
}

/// The template with filters in place of the operators, and with the newline after `{% raw %}`,
/// which Jinja2 keeps.
pub fn replaced(source: &str) -> String {
    let source = edited(source, |source, tag| {
        let is_raw = source.get(tag.clone()).is_some_and(|tag| tag.trim() == "raw");
        if is_raw { vec![(tag.end..tag.end, "+".to_owned())] } else { Vec::new() }
    });
    let source = edited(&source, remainders);
    edited(&source, joins)
}

/// The source with the edits of each expression and statement.
fn edited(source: &str, edits: impl Fn(&str, Range<usize>) -> Vec<(Range<usize>, String)>) -> String {
    let mut all: Vec<(Range<usize>, String)> = tags(source).into_iter().flat_map(|tag| edits(source, tag)).collect();
    all.sort_by_key(|(range, _)| range.start);
    let (mut result, mut at) = (String::with_capacity(source.len()), 0);
    for (range, text) in all {
        result.push_str(source.get(at..range.start).unwrap_or_default());
        result.push_str(&text);
        at = range.end;
    }
    result + source.get(at..).unwrap_or_default()
}

/// What stands within the braces of expressions and statements, without signs that trim blanks.
fn tags(source: &str) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some((start, opening)) = opening(source, at) {
        let inside = start + 2;
        let closing = match opening {
            "{{" => "}}",
            "{%" => "%}",
            _ => {
                at = source.get(inside..).and_then(|rest| rest.find("#}")).map_or(source.len(), |end| inside + end + 2);
                continue;
            }
        };
        let Some(end) = closing_at(source, inside, closing) else { break };
        let is_sign = |byte: Option<&u8>| matches!(byte, Some(b'-' | b'+'));
        let bytes = source.as_bytes();
        let first = inside + usize::from(is_sign(bytes.get(inside)));
        let last = end - usize::from(end > first && is_sign(bytes.get(end - 1)));
        let is_raw = closing == "%}" && source.get(first..last).is_some_and(|tag| tag.trim() == "raw");
        // A sign that trims after `raw` stays as it is.
        if !is_raw || last == end {
            found.push(first..last);
        }
        at = end + 2;
        if is_raw {
            at = source.get(at..).and_then(|rest| rest.find("endraw")).map_or(source.len(), |length| at + length);
        }
    }
    found
}

fn opening(source: &str, from: usize) -> Option<(usize, &'static str)> {
    let rest = source.get(from..)?;
    let place = |opening: &'static str| rest.find(opening).map(|at| (from + at, opening));
    ["{{", "{%", "{#"].into_iter().filter_map(place).min()
}

/// Where braces close, outside of quotes and other brackets.
fn closing_at(source: &str, from: usize, closing: &str) -> Option<usize> {
    let (mut quote, mut depth, mut is_escaped) = (None, 0_usize, false);
    for (at, letter) in source.get(from..)?.char_indices() {
        let is_end =
            depth == 0 && quote.is_none() && source.get(from + at..).is_some_and(|rest| rest.starts_with(closing));
        match (quote, letter) {
            _ if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => {}
            _ if is_end => return Some(from + at),
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn tokens(source: &str, tag: Range<usize>) -> Vec<JinjaToken> {
    let text = source.get(tag.clone()).unwrap_or_default();
    let (mut found, mut open, mut at): (Vec<JinjaToken>, Vec<usize>, usize) = (Vec::new(), Vec::new(), 0);
    while let Some(first) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = text.get(at..).unwrap_or_default();
        let while_some = |is: fn(char) -> bool| rest.find(|letter: char| !is(letter)).unwrap_or(rest.len());
        let (kind, length) = match first {
            _ if first.is_whitespace() => {
                at += first.len_utf8();
                continue;
            }
            '"' | '\'' => (JinjaTokenKind::Text, text_length(rest, first)),
            '0'..='9' => {
                (JinjaTokenKind::Number, while_some(|letter| letter.is_alphanumeric() || "._".contains(letter)))
            }
            _ if first.is_alphabetic() || first == '_' => {
                (JinjaTokenKind::Word, while_some(|letter| letter.is_alphanumeric() || letter == '_'))
            }
            '(' | '[' | '{' => (JinjaTokenKind::Open, 1),
            ')' | ']' | '}' => (JinjaTokenKind::Close, 1),
            _ if DOUBLE.iter().any(|sign| rest.starts_with(sign)) => (JinjaTokenKind::Sign, 2),
            _ => (JinjaTokenKind::Sign, first.len_utf8()),
        };
        let mut partner = None;
        match kind {
            JinjaTokenKind::Open => open.push(found.len()),
            JinjaTokenKind::Close => {
                partner = open.pop();
                let own = found.len();
                if let Some(opening) = found.get_mut(partner.unwrap_or(own)) {
                    opening.partner = Some(own);
                }
            }
            _ => {}
        }
        let start = tag.start + at;
        found.push(JinjaToken { kind, range: start..start + length, partner });
        at += length;
    }
    found
}

fn text_length(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if letter == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The tokens of an expression or a statement, with their texts.
struct JinjaTokens<'s> {
    source: &'s str,
    tokens: Vec<JinjaToken>,
}

impl JinjaTokens<'_> {
    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).and_then(|token| self.source.get(token.range.clone())).unwrap_or_default()
    }

    fn kind(&self, at: usize) -> Option<JinjaTokenKind> {
        self.tokens.get(at).map(|token| token.kind)
    }

    /// Whether a sign stands between two operands, and so does not belong to a number.
    fn is_between(&self, at: usize) -> bool {
        at.checked_sub(1)
            .is_some_and(|before| !self.ends_operand(before, &[]) && self.kind(before) != Some(JinjaTokenKind::Open))
    }

    /// Whether an operand does not go beyond a token.
    fn ends_operand(&self, at: usize, products: &[&str]) -> bool {
        let is_name = || at.checked_sub(1).is_some_and(|before| matches!(self.text(before), "." | "|"));
        match self.kind(at) {
            Some(JinjaTokenKind::Sign) => BEYOND_JOIN.contains(&self.text(at)) || products.contains(&self.text(at)),
            Some(JinjaTokenKind::Word) => WORDS.contains(&self.text(at)) && !is_name(),
            _ => false,
        }
    }

    /// The first token of the operand that ends before a token.
    fn before(&self, operator: usize, products: &[&str]) -> Option<usize> {
        let mut first = None;
        let mut at = operator;
        while let Some(before) = at.checked_sub(1) {
            let is_sign_of_number = matches!(self.text(before), "-" | "+") && !self.is_between(before);
            let token = self.tokens.get(before)?;
            if token.kind == JinjaTokenKind::Open || (self.ends_operand(before, products) && !is_sign_of_number) {
                break;
            }
            at = if token.kind == JinjaTokenKind::Close { token.partner? } else { before };
            first = Some(at);
        }
        first
    }

    /// The last token of the operand that begins after a token.
    fn behind(&self, operator: usize, products: &[&str]) -> Option<usize> {
        let (mut at, mut last) = (operator + 1, None);
        while let Some(token) = self.tokens.get(at) {
            let is_first = last.is_none() && matches!(self.text(at), "-" | "+");
            if token.kind == JinjaTokenKind::Close || (self.ends_operand(at, products) && !is_first) {
                break;
            }
            last = Some(if token.kind == JinjaTokenKind::Open { token.partner? } else { at });
            at = last? + 1;
        }
        last
    }

    /// Whether an operand is written as a tuple: in parentheses, with a comma.
    fn is_tuple(&self, first: usize, last: usize) -> bool {
        let is_enclosed =
            self.text(first) == "(" && self.tokens.get(first).is_some_and(|token| token.partner == Some(last));
        let mut at = first + 1;
        while is_enclosed && at < last {
            if self.text(at) == "," {
                return true;
            }
            let token = self.tokens.get(at).filter(|token| token.kind == JinjaTokenKind::Open);
            at = token.and_then(|token| token.partner).unwrap_or(at) + 1;
        }
        // `()` has no values.
        is_enclosed && last == first + 1
    }

    fn range(&self, first: usize, last: usize) -> Option<Range<usize>> {
        Some(self.tokens.get(first)?.range.start..self.tokens.get(last)?.range.end)
    }
}

/// A filter for each `%`; one with a number on its right is a remainder, unless a text stands on
/// its left.
fn remainders(source: &str, tag: Range<usize>) -> Vec<(Range<usize>, String)> {
    let all = JinjaTokens { source, tokens: tokens(source, tag) };
    let mut edits = Vec::new();
    for at in 0..all.tokens.len() {
        if all.text(at) != "%" || all.kind(at) != Some(JinjaTokenKind::Sign) {
            continue;
        }
        let (Some(first), Some(last)) = (all.before(at, &PRODUCTS), all.behind(at, &PRODUCTS)) else { continue };
        // Of several in a row the second one's left side is the first one's value.
        let is_product = |at: Option<usize>| at.is_some_and(|at| PRODUCTS.contains(&all.text(at)));
        if is_product(first.checked_sub(1)) || is_product(last.checked_add(1)) {
            continue;
        }
        let is_number = all.kind(at + 1) == Some(JinjaTokenKind::Number) && last == at + 1;
        if is_number && all.kind(first) != Some(JinjaTokenKind::Text) {
            continue;
        }
        let (Some(left), Some(right)) = (all.range(first, at - 1), all.range(at + 1, last)) else { continue };
        edits.push((left.start..left.start, "(".to_owned()));
        edits.push((left.end..right.start, format!(")|{REMAINDER}(")));
        let end = if all.is_tuple(at + 1, last) { ", true)" } else { ")" };
        edits.push((right.end..right.end, end.to_owned()));
    }
    edits
}

/// A filter for each operand of `~`.
fn joins(source: &str, tag: Range<usize>) -> Vec<(Range<usize>, String)> {
    let all = JinjaTokens { source, tokens: tokens(source, tag) };
    let mut operands: Vec<(usize, usize)> = Vec::new();
    for at in 0..all.tokens.len() {
        if all.text(at) != "~" || all.kind(at) != Some(JinjaTokenKind::Sign) {
            continue;
        }
        operands.extend(at.checked_sub(1).and_then(|last| Some((all.before(at, &[])?, last))));
        operands.extend(all.behind(at, &[]).map(|last| (at + 1, last)));
    }
    operands.sort_unstable();
    operands.dedup();
    let mut edits = Vec::new();
    for (first, last) in operands {
        let is_text = first == last && all.kind(first) == Some(JinjaTokenKind::Text);
        let Some(range) = all.range(first, last).filter(|_| !is_text) else { continue };
        edits.push((range.start..range.start, "(".to_owned()));
        edits.push((range.end..range.end, ")|string".to_owned()));
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        assert_eq!(replaced(source), expected, "{source}");
    }

    #[test]
    fn operands_of_joins_are_made_texts() {
        check("{{ a ~ 'x' ~ b.c[0] }}", "{{ (a)|string ~ 'x' ~ (b.c[0])|string }}");
        check("{{ 1 + a * 2 ~ f(b ~ c) }}", "{{ 1 + (a * 2)|string ~ (f((b)|string ~ (c)|string))|string }}");
        check("{%- set x = a | trim ~ -1 -%}", "{%- set x = (a | trim)|string ~ (-1)|string -%}");
        check("{% if a ~ b == c and d %}", "{% if (a)|string ~ (b)|string == c and d %}");
        check("{{ x if (a ~ '}}') else y }}", "{{ x if ((a)|string ~ '}}') else y }}");
        check("{{ {'a': b ~ c} }}", "{{ {'a': (b)|string ~ (c)|string} }}");
    }

    #[test]
    fn remainders_of_texts_become_filters() {
        check("{{ '%s' % x }}", "{{ ('%s')|python_remainder(x) }}");
        check("{{ f % (a, b) ~ c }}", "{{ ((f)|python_remainder((a, b), true))|string ~ (c)|string }}");
        check("{{ '%d' % 3 + y }}", "{{ ('%d')|python_remainder(3) + y }}");
        check("{{ a % b % c }}", "{{ a % b % c }}");
        check("{% if loop.index0 % 2 == 0 %}", "{% if loop.index0 % 2 == 0 %}");
    }

    #[test]
    fn what_is_no_expression_stays() {
        for source in ["a ~ b % c", "{# a ~ b #}", "{{ 'a ~ b' }}", "{{ \"a \\\" ~ b\" }}", "{{ open ~", "{% x", ""] {
            check(source, source);
        }
        check("{% raw %}{{ a ~ b }}{% endraw %}{{ a }}", "{% raw +%}{{ a ~ b }}{% endraw %}{{ a }}");
        check("{%- raw -%}\n{% endraw %}", "{%- raw -%}\n{% endraw %}");
    }
}
