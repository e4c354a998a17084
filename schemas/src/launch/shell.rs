//! A small reader of shell text: commands, assignments and arrays, with the byte span of every word.
//!
//! It knows what launch scripts use (comments, quotes, continued lines, arrays, parameter and command substitution,
//! redirections, here-documents) and what people paste around them. It never fails: what does not close is reported and
//! read as plain text. Every construct that did not close once is not looked for again, so the work stays linear in the
//! length of the text whatever it holds.

//!
//! What is read borrows from the text, and one statement at a time is held: a long script costs its reading, not the
//! memory that all of it would take.

mod balance;
mod body;
mod cases;
mod documents;
mod lexer;
mod quote_gaps;
mod value;
mod word;

pub(super) use body::{Chunk, chunks};
pub(super) use lexer::{Reader, comments, name_length};
pub(super) use value::chunks_of_word;

use std::borrow::Cow;

use crate::text::Span;

/// Most words of one command or array that are kept. No launch has a hundredth of them.
pub(super) const MOST_WORDS: usize = 1 << 15;

/// One thing that a script does, in order.
#[derive(Clone, Debug)]
pub(super) enum Statement<'a> {
    /// A simple command, or assignments alone (then without words).
    Command(Command<'a>),
    /// `NAME=( … )` or `NAME+=( … )`.
    Array(Array<'a>),
    /// A here-document, after the commands that it goes through.
    Document(Document<'a>),
    /// The beginning of something that may not run, or runs several times: `if`, `for`, `case`, a function, a subshell,
    /// what follows `&&` and `||`.
    BlockOpens(Block),
    /// The end of one branch of a block and the start of the next one: `else`, `;;`.
    BlockTurns,
    /// The end of a block.
    BlockCloses,
}

/// A here-document: a text in a script that commands read.
#[derive(Clone, Debug)]
pub(super) struct Document<'a> {
    /// Its lines, without the terminating one.
    pub body: Span,
    /// Whether its delimiter is quoted, so that the shell does not expand it.
    pub is_quoted: bool,
    /// `<<-`: the tabs that its lines begin with are not part of it.
    pub strips_tabs: bool,
    /// The command that reads it, and those after that one in the pipeline.
    pub stages: Vec<Command<'a>>,
}

/// What kind of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// The body of a function, which may run after what is written below it.
    Function,
    /// A subshell, which alone `)` closes.
    Subshell,
    /// `case`, with patterns in front of each way.
    Case,
    /// Commands after `&&` and `||`, up to the end of the list.
    List,
    /// Any other.
    Other,
}

/// A simple command.
#[derive(Clone, Debug, Default)]
pub(super) struct Command<'a> {
    /// `NAME=value` in front of it, or the operands of `export` and its kind.
    pub assignments: Vec<Assignment<'a>>,
    /// Its words.
    pub words: Vec<Word<'a>>,
    /// The file that its output goes to.
    pub writes: Option<Word<'a>>,
}

/// `NAME=value`.
#[derive(Clone, Debug)]
pub(super) struct Assignment<'a> {
    pub name: &'a str,
    /// `+=`.
    pub append: bool,
    pub value: Word<'a>,
}

/// `NAME=( … )`.
#[derive(Clone, Debug)]
pub(super) struct Array<'a> {
    pub name: &'a str,
    pub name_span: Span,
    /// `+=`.
    pub append: bool,
    pub words: Vec<Word<'a>>,
    pub span: Span,
}

/// A word before expansion.
#[derive(Clone, Debug, Default)]
pub(super) struct Word<'a> {
    pub parts: Parts<'a>,
    pub span: Span,
}

/// The parts of a word. Nearly every word is one text, which needs no allocation.
#[derive(Clone, Debug)]
pub(super) enum Parts<'a> {
    One(Part<'a>),
    Several(Vec<Part<'a>>),
}

/// A piece of a word.
#[derive(Clone, Debug)]
pub(super) enum Part<'a> {
    /// Plain text, quotes and escapes resolved.
    Text(Cow<'a, str>),
    /// `$NAME`, `${NAME}` or `${NAME:-argument}`.
    Variable { name: &'a str, operator: Operator, argument: Vec<Part<'a>>, quoted: bool },
    /// `${NAME[@]}` or `${NAME[*]}`.
    Elements(&'a str),
    /// `$(seq …)` with constant bounds.
    Sequence { first: i64, step: i64, last: i64 },
    /// Anything whose text is known only at run time.
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
    BlankAfterBackslash { span: Span, is_odd: bool },
    /// A backslash with a comment after it, which does not continue the line either; of the comment alone.
    CommentAfterBackslash(Span),
}

impl Default for Parts<'_> {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl<'a> Parts<'a> {
    pub fn as_slice(&self) -> &[Part<'a>] {
        match self {
            Self::One(part) => std::slice::from_ref(part),
            Self::Several(parts) => parts,
        }
    }
}

impl<'a> Word<'a> {
    /// The text of a word that is nothing but text.
    pub fn text(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The word as the name of a variable, where it is nothing but text.
    pub fn name(&self) -> Option<Cow<'a, str>> {
        match self.parts.as_slice() {
            [Part::Text(text)] => Some(text.clone()),
            _ => None,
        }
    }
}
