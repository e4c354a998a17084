//! The lines of Makefiles and justfiles.

use schemas::text::Span;

use crate::kind::base_of;

/// Whose syntax a text has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeDialect {
    Make,
    Just,
}

/// How a value is assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignOperator {
    Set,
    /// Only if the variable has no value.
    Default,
    /// After the value that it has.
    Add,
}

/// What a line does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeLine {
    Assign {
        name: Span,
        operator: AssignOperator,
        value: Span,
    },
    If {
        is_else: bool,
        is_equal: bool,
        left: Span,
        right: Span,
    },
    IfDefined {
        is_else: bool,
        is_defined: bool,
        name: Span,
    },
    Else,
    EndIf,
    /// A command of a recipe, without its indentation and signs such as `@`.
    Recipe(Span),
    Other,
}

impl MakeDialect {
    pub fn from_name(name: &str) -> Self {
        let base = base_of(name).to_ascii_lowercase();
        if base.contains("justfile") || base.ends_with(".just") { Self::Just } else { Self::Make }
    }
}

/// The lines of a text; continued assignments are one.
pub fn read(text: &str, dialect: MakeDialect) -> Vec<MakeLine> {
    let mut found = Vec::new();
    let (mut at, mut goes_on) = (0, false);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let mut end = at + rest.find('\n').unwrap_or(rest.len());
        let line = text.get(at..end).unwrap_or_default();
        let is_recipe = match dialect {
            MakeDialect::Make => line.starts_with('\t'),
            MakeDialect::Just => line.starts_with([' ', '\t']) && !line.trim().is_empty(),
        };
        if goes_on || is_recipe {
            found.push(MakeLine::Recipe(recipe(line, at, goes_on)));
            goes_on = line.trim_end_matches('\r').ends_with('\\');
        } else {
            while text.get(at..end).is_some_and(|line| line.ends_with('\\')) && end < text.len() {
                let next = text.get(end + 1..).unwrap_or_default();
                end += 1 + next.find('\n').unwrap_or(next.len());
            }
            let line = text.get(at..end).unwrap_or_default();
            found.push(outside(line, at, dialect));
        }
        at = end + 1;
    }
    found
}

/// A line of a recipe without what the shell does not see.
fn recipe(line: &str, at: usize, goes_on: bool) -> Span {
    let text = line.trim_end_matches('\r');
    let bare = if goes_on { text } else { text.trim_start().trim_start_matches(['@', '-', '+']) };
    Span::new(at + text.len() - bare.len(), at + text.len())
}

/// A line that is not in a recipe.
fn outside(line: &str, at: usize, dialect: MakeDialect) -> MakeLine {
    if dialect == MakeDialect::Make {
        let mut words =
            line.split(|letter: char| letter.is_whitespace() || letter == '(').filter(|word| !word.is_empty());
        let first = words.next().unwrap_or_default();
        let second = words.next().filter(|word| first == "else" && word.starts_with("if"));
        match second.unwrap_or(first) {
            "else" => return MakeLine::Else,
            "endif" => return MakeLine::EndIf,
            word @ ("ifeq" | "ifneq") => {
                return condition(line, at, word).map_or(MakeLine::Other, |(is_equal, left, right)| MakeLine::If {
                    is_else: second.is_some(),
                    is_equal,
                    left,
                    right,
                });
            }
            word @ ("ifdef" | "ifndef") => {
                return name_after(line, at, word).map_or(MakeLine::Other, |name| MakeLine::IfDefined {
                    is_else: second.is_some(),
                    is_defined: word == "ifdef",
                    name,
                });
            }
            _ => {}
        }
    }
    assignment(line, at, dialect).unwrap_or(MakeLine::Other)
}

/// The sides of a condition: `ifneq ($(A),0)`, `ifeq "$(A)" "0"`.
fn condition(line: &str, at: usize, word: &str) -> Option<(bool, Span, Span)> {
    let from = line.find(word)? + word.len();
    let inside = line.get(from..)?;
    let middle = match inside.trim_start().starts_with('(') {
        true => outer_comma(inside)?,
        false => inside.find("\" \"").or_else(|| inside.find("' '"))? + 1,
    };
    let side = |start: usize, end: usize| {
        let text = inside.get(start..end)?;
        let is_sign = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'');
        let lead = text.len() - text.trim_start_matches(is_sign).len();
        let length = text.trim_matches(is_sign).len();
        Some(Span::new(at + from + start + lead, at + from + start + lead + length))
    };
    let is_call = inside.trim_start().starts_with('(');
    let start = if is_call { inside.find('(')? + 1 } else { 0 };
    let end = if is_call { inside.rfind(')')? } else { inside.len() };
    Some((word == "ifeq", side(start, middle)?, side(middle + 1, end)?))
}

/// The name after a word of a line.
fn name_after(line: &str, at: usize, word: &str) -> Option<Span> {
    let from = line.find(word)? + word.len();
    let rest = line.get(from..)?;
    let start = from + rest.len() - rest.trim_start().len();
    let name = rest.split_whitespace().next()?;
    Some(Span::new(at + start, at + start + name.len()))
}

/// The place of the comma between two sides in brackets: one within a call of a function is not it.
fn outer_comma(text: &str) -> Option<usize> {
    let mut depth = 0_i32;
    text.char_indices().find_map(|(place, letter)| {
        match letter {
            '(' | '{' => depth += 1,
            ')' | '}' => depth -= 1,
            _ => {}
        }
        (letter == ',' && depth == 1).then_some(place)
    })
}

/// `NAME := value`, `export NAME ?= value`; in a justfile the value is a text in quotes.
fn assignment(line: &str, at: usize, dialect: MakeDialect) -> Option<MakeLine> {
    let skipped = line.len() - line.trim_start().len();
    let bare = line.trim_start();
    let bare_at = at + skipped;
    let prefix = ["export ", "override "].iter().find(|word| bare.starts_with(**word)).map_or(0, |word| word.len());
    let rest = bare.get(prefix..)?;
    let width = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let starts_name = rest.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    let after = rest.get(width..)?;
    let blanks = after.len() - after.trim_start_matches([' ', '\t']).len();
    let after = after.trim_start_matches([' ', '\t']);
    let signs = [
        ("::=", AssignOperator::Set),
        (":=", AssignOperator::Set),
        ("?=", AssignOperator::Default),
        ("+=", AssignOperator::Add),
        ("=", AssignOperator::Set),
    ];
    let (sign, operator) = signs.into_iter().find(|(sign, _)| after.starts_with(sign)).filter(|_| starts_name)?;
    let name = Span::new(bare_at + prefix, bare_at + prefix + width);
    let start = name.end + blanks + sign.len();
    let value = line.get(start - at..)?;
    let lead = value.len() - value.trim_start().len();
    let (start, value) = (start + lead, value.trim());
    let value = match dialect {
        MakeDialect::Make => {
            let text = value.split(" #").next().unwrap_or_default().trim_end();
            Span::new(start, start + text.len())
        }
        // What an expression gives is not known.
        MakeDialect::Just => {
            let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
            let inside = value.get(1..)?.strip_suffix(quote).filter(|inside| !inside.contains(quote))?;
            Span::new(start + 1, start + 1 + inside.len())
        }
    };
    Some(MakeLine::Assign { name, operator, value })
}

/// The next reference in a text: `$(NAME)`, `${NAME}`, `$$`, `$@`; `{{ NAME }}` in a justfile.
pub fn next_reference(text: &str, dialect: MakeDialect) -> Option<Span> {
    if dialect == MakeDialect::Just {
        let start = text.find("{{")?;
        let end = text.get(start..)?.find("}}")?;
        return Some(Span::new(start, start + end + 2));
    }
    let start = text.find('$')?;
    let after = text.get(start + 1..)?;
    let end = match after.chars().next()? {
        open @ ('(' | '{') => closing(after, open)? + 1,
        letter => letter.len_utf8(),
    };
    Some(Span::new(start, start + 1 + end))
}

/// The place of the sign that closes the first one.
fn closing(text: &str, open: char) -> Option<usize> {
    let close = if open == '(' { ')' } else { '}' };
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        if letter == open {
            depth += 1;
        } else if letter == close {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// The variable that a reference names, or `$` for a dollar sign; `None` for a function and for
/// what the program sets.
pub fn name_in(reference: &str, dialect: MakeDialect) -> Option<&str> {
    if dialect == MakeDialect::Make && reference == "$$" {
        return Some("$");
    }
    let inside = match dialect {
        MakeDialect::Make => reference.get(2..reference.len().checked_sub(1)?)?,
        MakeDialect::Just => reference.get(2..reference.len().checked_sub(2)?)?.trim(),
    };
    let is_name = inside.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_name && inside.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')).then_some(inside)
}
