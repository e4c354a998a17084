//! Conditions of several parts: `a and not b` of Jinja, `and .a (not .b)` of Go.

use crate::condition::{LaunchCondition, Test, TestedVariable};

/// How deep parentheses are followed.
const DEEPEST: usize = 8;

/// A word of a condition, or what it is enclosed in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ConditionToken<'t> {
    Open,
    Close,
    Word(&'t str),
}

/// A condition of which each part is a variable with the part's text as its name; `None` for one
/// that has no parts, or that is not understood.
pub fn parts(text: &str) -> Option<LaunchCondition> {
    let tokens = tokens(text);
    let mut parser = PartsParser { tokens: &tokens, at: 0, depth: 0 };
    let condition = parser.any()?;
    let is_several = match &condition {
        LaunchCondition::Not(inner) => !matches!(**inner, LaunchCondition::Test(..)),
        LaunchCondition::Test(..) => false,
        _ => true,
    };
    (is_several && parser.at == tokens.len()).then_some(condition)
}

/// Calls a function with the text of each part, and whether it is negated.
pub fn each_part(condition: &LaunchCondition, is_negated: bool, found: &mut impl FnMut(&str, bool)) {
    match condition {
        LaunchCondition::Test(variable, _) => found(&variable.name, is_negated),
        LaunchCondition::Not(inner) => each_part(inner, !is_negated, found),
        LaunchCondition::All(parts) | LaunchCondition::Any(parts) => {
            for part in parts {
                each_part(part, is_negated, &mut *found);
            }
        }
        LaunchCondition::Unknown | LaunchCondition::Constant(_) => {}
    }
}

/// Whether a condition holds where `holds` says it of its parts.
pub fn outcome(condition: &LaunchCondition, holds: impl Fn(&str) -> Option<bool>) -> Option<bool> {
    let value = |variable: &TestedVariable| holds(&variable.name).map(|holds| if holds { "1" } else { "" }.to_owned());
    condition.outcome(&value)
}

/// Two operands that are compared, in one form for all languages, and whether they are to differ:
/// `a == "b"`, `ne .a "b"`.
pub fn comparison(text: &str) -> Option<(String, bool)> {
    let words: Vec<&str> = text.split(' ').collect();
    let (left, sign, right) = match words.as_slice() {
        [sign @ ("eq" | "ne"), left, right] => (left, *sign, right),
        [left, sign @ ("==" | "!="), right] => (left, *sign, right),
        _ => return None,
    };
    Some((format!("{left} == {right}"), matches!(sign, "ne" | "!=")))
}

fn tokens(text: &str) -> Vec<ConditionToken<'_>> {
    let (mut found, mut start, mut quote) = (Vec::new(), None::<usize>, None);
    for (at, letter) in text.char_indices() {
        let ends = quote.is_none() && (letter.is_whitespace() || matches!(letter, '(' | ')'));
        if ends && let Some(start) = start.take() {
            found.extend(text.get(start..at).map(ConditionToken::Word));
        }
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => quote = Some(letter),
            (None, '(') => found.push(ConditionToken::Open),
            (None, ')') => found.push(ConditionToken::Close),
            _ => {}
        }
        if !ends {
            start.get_or_insert(at);
        }
    }
    found.extend(start.and_then(|start| text.get(start..)).map(ConditionToken::Word));
    found
}

struct PartsParser<'t, 'p> {
    tokens: &'p [ConditionToken<'t>],
    at: usize,
    depth: usize,
}

impl<'t> PartsParser<'t, '_> {
    fn word(&self) -> Option<&'t str> {
        match self.tokens.get(self.at) {
            Some(ConditionToken::Word(word)) => Some(*word),
            _ => None,
        }
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.word() == Some(word);
        self.at += usize::from(is_next);
        is_next
    }

    /// Parts with `or` between them, or a call of Go's functions.
    fn any(&mut self) -> Option<LaunchCondition> {
        if let Some(sign @ ("and" | "or")) = self.word() {
            self.at += 1;
            return self.call(sign == "and");
        }
        let mut condition = self.all()?;
        while self.takes("or") {
            condition = condition.or(self.all()?);
        }
        Some(condition)
    }

    fn all(&mut self) -> Option<LaunchCondition> {
        let mut condition = self.negatable()?;
        while self.takes("and") {
            condition = condition.and(self.negatable()?);
        }
        Some(condition)
    }

    fn negatable(&mut self) -> Option<LaunchCondition> {
        let is_negated = self.takes("not");
        let condition =
            if self.tokens.get(self.at) == Some(&ConditionToken::Open) { self.group()? } else { self.one()? };
        Some(if is_negated { condition.negated() } else { condition })
    }

    /// What parentheses enclose, where nothing but another part follows.
    fn group(&mut self) -> Option<LaunchCondition> {
        self.depth += 1;
        self.at += 1;
        let condition = self.any().filter(|_| self.depth <= DEEPEST)?;
        let closes = self.tokens.get(self.at) == Some(&ConditionToken::Close);
        self.at += 1;
        self.depth -= 1;
        closes.then_some(condition)
    }

    /// The arguments of `and` or `or`: a word each, or what parentheses enclose.
    fn call(&mut self, is_and: bool) -> Option<LaunchCondition> {
        let mut condition: Option<LaunchCondition> = None;
        loop {
            let one = match self.tokens.get(self.at) {
                Some(ConditionToken::Open) => self.group()?,
                Some(ConditionToken::Word(word)) => {
                    self.at += 1;
                    part(word)
                }
                Some(ConditionToken::Close) | None => return condition,
            };
            condition = Some(match condition {
                None => one,
                Some(condition) if is_and => condition.and(one),
                Some(condition) => condition.or(one),
            });
        }
    }

    /// The words up to the next part, with what parentheses among them enclose.
    fn one(&mut self) -> Option<LaunchCondition> {
        let (mut words, mut depth) = (Vec::new(), 0_usize);
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                ConditionToken::Word("and" | "or") if depth == 0 => break,
                ConditionToken::Close if depth == 0 => break,
                ConditionToken::Word(word) => words.push(*word),
                ConditionToken::Open => {
                    depth += 1;
                    words.push("(");
                }
                ConditionToken::Close => {
                    depth -= 1;
                    words.push(")");
                }
            }
            self.at += 1;
        }
        (!words.is_empty()).then(|| part(&words.join(" ")))
    }
}

/// A part by itself; a comparison is one in the same form in all languages.
fn part(text: &str) -> LaunchCondition {
    let (name, is_unequal) = comparison(text).unwrap_or_else(|| (text.to_owned(), false));
    let test = LaunchCondition::Test(TestedVariable { name, default: None }, Test::IsTruthy);
    if is_unequal { test.negated() } else { test }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts that hold are those in capitals.
    fn check(text: &str, expected: Option<bool>) {
        let holds = |part: &str| Some(part.chars().any(|letter| letter.is_ascii_uppercase()));
        assert_eq!(parts(text).and_then(|condition| outcome(&condition, holds)), expected, "{text}");
    }

    #[test]
    fn parts_are_joined_as_in_jinja_and_go() {
        for (text, expected) in [
            ("A and B", Some(true)),
            ("A and b", Some(false)),
            ("a or B and C", Some(true)),
            ("A or b and c", Some(true)),
            ("(A or b) and c", Some(false)),
            ("not a and B", Some(true)),
            ("not (A and b)", Some(true)),
            ("A == 1 and b != 2", Some(true)),
            ("x in (\"and\", \"b\") or B", Some(true)),
            ("and .A .b", Some(false)),
            ("and .A (not .b)", Some(true)),
            ("or (eq .A \"x\") .b", Some(true)),
            ("not (and .A .B)", Some(false)),
            ("and (or .a .B) (ne .c 1)", Some(true)),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn what_has_no_parts_or_is_not_understood_has_none() {
        for text in ["A", "not A", "(A)", "A == B", "eq .A .B", "(A | x) == 1 and B", "and", "A and", "(A and B", ""] {
            assert_eq!(parts(text), None, "{text}");
        }
    }
}
