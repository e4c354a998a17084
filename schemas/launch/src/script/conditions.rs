//! What the tests of a script say of variables: `[ … ]`, `[[ … ]]`, `(( … ))`, `test`, patterns of
//! `case`.

use crate::{
    condition::{LaunchCondition, Relation, Test, TestedVariable},
    shell::{Operator, ShellWord, SimpleCommand, WordPart},
};

use super::Interpreter;

/// Maximum nesting of parentheses and negations in one test.
const DEEPEST: usize = 8;

/// Maximum number of words of one test.
const MOST_WORDS: usize = 64;

/// An operand of a test.
#[derive(Clone, Debug)]
enum Operand {
    Variable(TestedVariable),
    /// A variable after a letter: `x$NAME`.
    Lettered(TestedVariable),
    Text(String),
    Unknown,
}

impl<'a> Interpreter<'a> {
    /// The condition under which a command succeeds.
    pub(super) fn condition_of(&self, command: &SimpleCommand<'a>) -> LaunchCondition {
        let words = command.words.get(..MOST_WORDS).unwrap_or(&command.words);
        let condition = self.tested(words);
        if command.is_negated { condition.negated() } else { condition }
    }

    fn tested(&self, words: &[ShellWord<'a>]) -> LaunchCondition {
        let Some((first, rest)) = words.split_first() else { return LaunchCondition::Unknown };
        match (first.text(), rest) {
            (Some("[" | "[["), [inner @ .., last]) if matches!(last.text(), Some("]" | "]]")) => {
                self.expression(inner, first.text() == Some("[["), 0)
            }
            (Some("test"), inner) => self.expression(inner, false, 0),
            (Some("(("), [inside]) => arithmetic(self.source.slice(inside.span), 0),
            (Some("true" | ":"), _) => LaunchCondition::Constant(true),
            (Some("false"), []) => LaunchCondition::Constant(false),
            // A variable as a command: `if $ENABLE; then`.
            (None, []) => match operand(first) {
                Operand::Variable(variable) => LaunchCondition::Test(variable, Test::Equals("true".to_owned())),
                _ => LaunchCondition::Unknown,
            },
            _ => LaunchCondition::Unknown,
        }
    }

    /// The words of a test, `||` before `&&`.
    fn expression(&self, words: &[ShellWord<'a>], is_double: bool, depth: usize) -> LaunchCondition {
        if depth > DEEPEST {
            return LaunchCondition::Unknown;
        }
        let (or, and) = if is_double { ("||", "&&") } else { ("-o", "-a") };
        for (sign, is_or) in [(or, true), (and, false)] {
            if let Some(at) = outside_parentheses(words, sign).filter(|at| *at > 0) {
                let (left, right) = words.split_at(at);
                let right = self.expression(right.get(1..).unwrap_or_default(), is_double, depth + 1);
                let left = self.expression(left, is_double, depth + 1);
                return if is_or { left.or(right) } else { left.and(right) };
            }
        }
        match words {
            [not, rest @ ..] if not.text() == Some("!") => self.expression(rest, is_double, depth + 1).negated(),
            [open, inner @ .., close] if open.text() == Some("(") && close.text() == Some(")") => {
                self.expression(inner, is_double, depth + 1)
            }
            [word] => is_empty(operand(word)).negated(),
            [sign, word] => match sign.text() {
                Some("-n") => is_empty(operand(word)).negated(),
                Some("-z") => is_empty(operand(word)),
                _ => LaunchCondition::Unknown,
            },
            [left, sign, right] => self.comparison(left, sign, right, is_double),
            _ => LaunchCondition::Unknown,
        }
    }

    fn comparison(
        &self,
        left: &ShellWord<'a>,
        sign: &ShellWord<'a>,
        right: &ShellWord<'a>,
        is_double: bool,
    ) -> LaunchCondition {
        let Some(sign) = sign.text() else { return LaunchCondition::Unknown };
        let (variable, text, is_swapped) = match (operand(left), self.resolved(operand(right))) {
            (Operand::Variable(variable), Operand::Text(text)) => (variable, text, false),
            (Operand::Text(text), Operand::Variable(variable)) => (variable, text, true),
            // `"x$NAME" = "x0"` is `"$NAME" = "0"`.
            (Operand::Lettered(variable), Operand::Text(text)) => match text.strip_prefix(['x', 'X', '_']) {
                Some(rest) => (variable, rest.to_owned(), false),
                None => return LaunchCondition::Unknown,
            },
            // Which values a test of something unknown allows is unknown.
            (Operand::Variable(variable), _) => return LaunchCondition::Test(variable, Test::Other),
            _ => return LaunchCondition::Unknown,
        };
        let is_pattern = is_double && text.contains(['*', '?', '[', '(', '|']);
        let equals = match is_pattern {
            true => Test::Matches(text.clone()),
            false => Test::Equals(text.clone()),
        };
        match sign {
            "=" | "==" => LaunchCondition::Test(variable, equals),
            "!=" => LaunchCondition::Test(variable, equals).negated(),
            "=~" => LaunchCondition::Test(variable, expression_test(&text)),
            "-eq" | "-ne" | "-gt" | "-ge" | "-lt" | "-le" => {
                let sign = match sign {
                    "-eq" => "==",
                    "-ne" => "!=",
                    "-gt" => ">",
                    "-ge" => ">=",
                    "-lt" => "<",
                    _ => "<=",
                };
                LaunchCondition::comparison(variable, sign, text.trim(), is_swapped)
            }
            _ => LaunchCondition::Test(variable, Test::Other),
        }
    }

    /// A variable whose value is known is that text.
    fn resolved(&self, operand: Operand) -> Operand {
        match operand {
            Operand::Variable(variable) => match self.value_of(&variable) {
                Some(text) => Operand::Text(text),
                None => Operand::Variable(variable),
            },
            other => other,
        }
    }

    /// The value of a tested variable, as far as it is known.
    pub(super) fn value_of(&self, variable: &TestedVariable) -> Option<String> {
        match self.scalars.get(variable.name.as_str()) {
            Some(scalar) => match scalar.value.known() {
                Some("") => variable.default.clone().or_else(|| Some(String::new())),
                value => value.map(str::to_owned),
            },
            None => variable.default.clone(),
        }
    }

    /// The condition of a branch of a `case`.
    pub(super) fn pattern_condition(subject: &ShellWord<'a>, patterns: &[ShellWord<'a>]) -> LaunchCondition {
        let Operand::Variable(variable) = operand(subject) else { return LaunchCondition::Unknown };
        let tests = patterns.iter().map(|pattern| match pattern.text() {
            Some("*") => LaunchCondition::Constant(true),
            Some(text) if text.contains(['*', '?', '[', '(']) => {
                LaunchCondition::Test(variable.clone(), Test::Matches(text.to_owned()))
            }
            Some(text) => LaunchCondition::Test(variable.clone(), Test::Equals(text.to_owned())),
            None => LaunchCondition::Test(variable.clone(), Test::Other),
        });
        tests.reduce(LaunchCondition::or).unwrap_or_default()
    }
}

/// The place of a sign that is in no parentheses.
fn outside_parentheses(words: &[ShellWord<'_>], sign: &str) -> Option<usize> {
    let mut depth = 0_usize;
    words.iter().position(|word| {
        match word.text() {
            Some("(") => depth += 1,
            Some(")") => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && word.text() == Some(sign)
    })
}

fn is_empty(operand: Operand) -> LaunchCondition {
    match operand {
        Operand::Variable(variable) => LaunchCondition::Test(variable, Test::IsEmpty),
        Operand::Text(text) => LaunchCondition::Constant(text.is_empty()),
        _ => LaunchCondition::Unknown,
    }
}

fn operand(word: &ShellWord<'_>) -> Operand {
    let (is_after_letter, part) = match word.parts.as_slice() {
        [] => return Operand::Text(String::new()),
        [WordPart::Text(text)] => return Operand::Text(text.to_string()),
        [part] => (false, part),
        [WordPart::Text(letter), part] if matches!(letter.as_ref(), "x" | "X" | "_") => (true, part),
        _ => return Operand::Unknown,
    };
    let WordPart::Variable { name, operator, argument, .. } = part else { return Operand::Unknown };
    let default = match (operator, argument.as_slice()) {
        (Operator::Value, _) => None,
        (Operator::Default, []) => Some(String::new()),
        (Operator::Default, [WordPart::Text(text)]) => Some(text.to_string()),
        _ => return Operand::Unknown,
    };
    let variable = TestedVariable { name: (*name).to_owned(), default };
    if is_after_letter { Operand::Lettered(variable) } else { Operand::Variable(variable) }
}

/// A regular expression that is an alternative of plain texts; any other is not checked.
fn expression_test(text: &str) -> Test {
    match text.strip_prefix('^').and_then(|text| text.strip_suffix('$')) {
        Some(inner) if inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) => {
            Test::Equals(inner.to_owned())
        }
        _ => Test::Other,
    }
}

/// The inside of `(( … ))`.
fn arithmetic(text: &str, depth: usize) -> LaunchCondition {
    let text = text.trim();
    if depth > DEEPEST {
        return LaunchCondition::Unknown;
    }
    for (sign, is_or) in [("||", true), ("&&", false)] {
        if let Some((left, right)) = split_outside(text, sign) {
            let (left, right) = (arithmetic(left, depth + 1), arithmetic(right, depth + 1));
            return if is_or { left.or(right) } else { left.and(right) };
        }
    }
    if let Some(inner) = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
        return arithmetic(inner, depth + 1);
    }
    for sign in ["==", "!=", ">=", "<=", ">", "<"] {
        let Some((left, right)) = text.split_once(sign) else { continue };
        let (left, right) = (left.trim(), right.trim());
        return match (arithmetic_variable(left), arithmetic_variable(right)) {
            (Some(variable), None) => LaunchCondition::comparison(variable, sign, right, false),
            (None, Some(variable)) => LaunchCondition::comparison(variable, sign, left, true),
            (Some(variable), Some(_)) => LaunchCondition::Test(variable, Test::Other),
            (None, None) => LaunchCondition::Unknown,
        };
    }
    if let Some(inner) = text.strip_prefix('!') {
        return arithmetic(inner, depth + 1).negated();
    }
    match arithmetic_variable(text) {
        Some(variable) => LaunchCondition::Test(variable, Test::Number(Relation::Equal, 0)).negated(),
        None => text.parse::<i64>().map_or(LaunchCondition::Unknown, |number| LaunchCondition::Constant(number != 0)),
    }
}

/// The parts before and after a sign that is in no parentheses.
fn split_outside<'t>(text: &'t str, sign: &str) -> Option<(&'t str, &'t str)> {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ if depth == 0 && text.get(at..).is_some_and(|rest| rest.starts_with(sign)) => {
                return Some((text.get(..at)?, text.get(at + sign.len()..)?));
            }
            _ => {}
        }
    }
    None
}

/// `NAME`, `$NAME`, `${NAME}` or `${NAME:-0}`.
fn arithmetic_variable(text: &str) -> Option<TestedVariable> {
    let name = text.strip_prefix('$').unwrap_or(text);
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    let (name, default) = match name.split_once(":-") {
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (name, None),
    };
    let is_plain = default.as_ref().is_none_or(|default| !default.contains('$'));
    (schemas::text::is_variable_name(name) && is_plain).then(|| TestedVariable { name: name.to_owned(), default })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(test: Test) -> LaunchCondition {
        LaunchCondition::Test(TestedVariable { name: "N".into(), default: None }, test)
    }

    #[test]
    fn arithmetic_compares_numbers() {
        let less_or_equal = n(Test::Number(Relation::LessOrEqual, 0));
        for text in ["N > 0", "$N>0", "${N} > 0", "0 < N", "(N > 0)"] {
            assert_eq!(arithmetic(text, 0), less_or_equal.clone().negated(), "{text}");
        }
        assert_eq!(arithmetic("N", 0), n(Test::Number(Relation::Equal, 0)).negated());
        assert_eq!(arithmetic("!N", 0), n(Test::Number(Relation::Equal, 0)));
        let both = n(Test::Number(Relation::Equal, 1)).and(n(Test::Number(Relation::Less, 4)));
        assert_eq!(arithmetic("N == 1 && N < 4", 0), both);
        assert_eq!(arithmetic("N + 1 > 0", 0), LaunchCondition::Unknown);
        assert_eq!(arithmetic("N > M", 0), n(Test::Other));
    }
}
