//! A small reader of shell text: commands, assignments and arrays, with the byte span of every word.
//!
//! It knows what launch scripts use (comments, quotes, continued lines, arrays, parameter and command substitution,
//! redirections, here-documents) and what people paste around them. It never fails: what does not close is reported and
//! read as plain text. Every construct that did not close once is not looked for again, so the work stays linear in the
//! length of the text whatever it holds.

mod balance;
mod lexer;

pub(super) use lexer::{comments, read};

use crate::text::Span;

/// One thing that a script does, in order.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    /// A simple command, or assignments alone (then without words).
    Command(Command),
    /// `NAME=( … )` or `NAME+=( … )`.
    Array(Array),
    /// The beginning of something that may not run, or runs several times: `if`, `for`, `case`, a function, a subshell.
    BlockOpens,
    /// Its end.
    BlockCloses,
}

/// A simple command.
#[derive(Clone, Debug, Default)]
pub(super) struct Command {
    /// `NAME=value` in front of it, or the operands of `export` and its kind.
    pub assignments: Vec<Assignment>,
    /// Its words.
    pub words: Vec<Word>,
}

/// `NAME=value`.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub name: String,
    /// `+=`.
    pub append: bool,
    pub value: Word,
}

/// `NAME=( … )`.
#[derive(Clone, Debug)]
pub(super) struct Array {
    pub name: String,
    pub name_span: Span,
    /// `+=`.
    pub append: bool,
    pub words: Vec<Word>,
    pub span: Span,
}

/// A word before expansion.
#[derive(Clone, Debug, Default)]
pub(super) struct Word {
    pub parts: Vec<Part>,
    pub span: Span,
}

/// A piece of a word.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// Plain text, quotes and escapes resolved.
    Text(String),
    /// `$NAME`, `${NAME}` or `${NAME:-argument}`.
    Variable { name: String, operator: Operator, argument: Vec<Part>, quoted: bool },
    /// `${NAME[@]}` or `${NAME[*]}`.
    Elements(String),
    /// `$(seq …)` with constant bounds.
    Sequence { first: i64, step: i64, last: i64 },
    /// Anything whose text only a shell can tell.
    Opaque,
}

/// What `${NAME…}` does with its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    /// Nothing: the value.
    Value,
    /// `:-`, `-`, `:=` and `=`: the argument where the variable has no value.
    Default,
    /// `:+` and `+`: the argument where the variable has a value.
    Alternative,
}

/// Something that does not close, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A quote or a substitution.
    Unclosed(Span),
    /// An array.
    UnclosedArray(Span),
    /// A backslash with blanks after it, which does not continue the line.
    BlankAfterBackslash(Span),
}

impl Word {
    /// The text of a word that is nothing but text.
    pub fn text(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }
}
