//! A small shell parser: commands, assignments and arrays, with the byte span of every word.
//!
//! It supports what launch scripts use (comments, quotes, continued lines, arrays, parameter and
//! command substitution, redirections, here-documents) and what people paste around them. It never
//! fails: an unclosed construct is reported and read as plain text. After a construct was found
//! unclosed once, its end is not searched again, so the work is always linear in the length of the
//! text.

//!
//! Statements borrow from the text and are produced one at a time, so a long script is never in
//! memory as a whole tree.

mod balance;
mod body;
mod brackets;
mod cases;
mod documents;
mod lexer;
mod names;
mod printed;
mod quote_gaps;
mod value;
mod word;

pub(super) use body::{Chunk, chunks};
pub(super) use lexer::{ShellReader, comments, name_length};
pub use names::unset_names;
pub(super) use printed::document as printed_document;
pub(super) use value::chunks_of_word;

use std::borrow::Cow;

use schemas::text::Span;

/// Maximum number of words kept per command or array. No launch has a hundredth of them.
pub(super) const MOST_WORDS: usize = 1 << 15;

/// Maximum number of patterns kept of a branch of a `case`.
const MOST_PATTERNS: usize = 64;

/// One statement of a script, in order.
#[derive(Clone, Debug)]
pub(super) enum ShellStatement<'a> {
    /// A simple command, or assignments alone (then without words).
    Command(SimpleCommand<'a>),
    /// `NAME=( … )` or `NAME+=( … )`.
    Array(Array<'a>),
    /// A here-document; it follows the commands that it is piped through.
    HereDocument(HereDocument<'a>),
    /// The start of code that may not run, or runs several times: `if`, `for`, `case`, a function,
    /// a subshell, commands after `&&` and `||`.
    BlockOpens(ShellBlock),
    /// The end of one branch of a block and the start of the next one: `else`, `;;`.
    BlockTurns,
    /// The end of a block.
    BlockCloses,
    /// `then`, and `do` of `while` and `until`: what was read since the branch began is its
    /// condition.
    Then,
    /// `&&` or `||`, after the block of the list was opened or turned.
    AndOr { or: bool },
    /// The word of a `case`.
    Subject(ShellWord<'a>),
    /// The patterns of the branch of a `case` that begins.
    Patterns(Vec<ShellWord<'a>>),
}

/// A here-document: text in a script that is the input of commands.
#[derive(Clone, Debug)]
pub(super) struct HereDocument<'a> {
    /// Its lines, without the terminating one.
    pub body: Span,
    /// Whether its delimiter is quoted, so that the shell does not expand it.
    pub is_quoted: bool,
    /// `<<-`: leading tabs of its lines are not part of it.
    pub strips_tabs: bool,
    /// The command that reads it, and the later commands of the pipeline.
    pub stages: Vec<SimpleCommand<'a>>,
}

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShellBlock {
    /// The body of a function, which may run after the code below it.
    Function,
    /// A subshell, which only `)` closes.
    Subshell,
    /// `case`, with patterns before each branch.
    Case,
    /// Commands after `&&` and `||`, up to the end of the list.
    List,
    If,
    While,
    Until,
    /// `{ … }`, which runs if its place is reached.
    Group,
    /// Any other.
    Other,
}

/// A simple command.
#[derive(Clone, Debug, Default)]
pub(super) struct SimpleCommand<'a> {
    /// `NAME=value` before it, or the operands of `export` and similar commands.
    pub assignments: Vec<Assignment<'a>>,
    /// Its words.
    pub words: Vec<ShellWord<'a>>,
    /// The file that its output goes to.
    pub writes: Option<ShellWord<'a>>,
    /// Whether `!` is before it.
    pub is_negated: bool,
}

/// `NAME=value`.
#[derive(Clone, Debug)]
pub(super) struct Assignment<'a> {
    pub name: &'a str,
    /// `+=`.
    pub append: bool,
    pub value: ShellWord<'a>,
}

/// `NAME=( … )`.
#[derive(Clone, Debug)]
pub(super) struct Array<'a> {
    pub name: &'a str,
    pub name_span: Span,
    /// `+=`.
    pub append: bool,
    pub words: Vec<ShellWord<'a>>,
    pub span: Span,
}

/// A word before expansion.
#[derive(Clone, Debug, Default)]
pub(super) struct ShellWord<'a> {
    pub parts: WordParts<'a>,
    pub span: Span,
}

/// The parts of a word. Nearly every word is a single text, which needs no allocation.
#[derive(Clone, Debug)]
pub(super) enum WordParts<'a> {
    One(WordPart<'a>),
    Several(Vec<WordPart<'a>>),
}

/// A piece of a word.
#[derive(Clone, Debug)]
pub(super) enum WordPart<'a> {
    /// Plain text, with quotes and escapes resolved.
    Text(Cow<'a, str>),
    /// `$NAME`, `${NAME}` or `${NAME:-argument}`.
    Variable { name: &'a str, operator: Operator, argument: Vec<WordPart<'a>>, quoted: bool },
    /// `${NAME[@]}` or `${NAME[*]}`.
    Elements(&'a str),
    /// `$(cat <<EOF … EOF)`: the body of a here-document, `is_verbatim` if the shell expands
    /// nothing in it.
    Printed { body: Span, is_verbatim: bool, strips_tabs: bool, quoted: bool },
    /// `$(seq …)` with constant bounds.
    Sequence { first: i64, step: i64, last: i64 },
    /// The inside of `$((…))`.
    Arithmetic(&'a str),
    /// Anything whose text is known only at run time.
    Opaque,
}

/// What `${NAME…}` does with its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    /// Nothing: the value.
    Value,
    /// `:-`, `-`, `:=` and `=`: the argument if the variable has no value.
    Default,
    /// `:+` and `+`: the argument if the variable has a value.
    Alternative,
}

/// A syntax problem, with its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A quote or a substitution.
    Unclosed(Span),
    /// An array.
    UnclosedArray(Span),
    /// A backslash followed by blanks, which does not continue the line.
    BlankAfterBackslash { span: Span, is_odd: bool },
    /// A backslash followed by a comment, which does not continue the line either; the span is that
    /// of the comment.
    CommentAfterBackslash(Span),
}

impl Default for WordParts<'_> {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl<'a> WordParts<'a> {
    pub fn as_slice(&self) -> &[WordPart<'a>] {
        match self {
            Self::One(part) => std::slice::from_ref(part),
            Self::Several(parts) => parts,
        }
    }
}

impl<'a> ShellWord<'a> {
    /// The text of a word that consists of plain text only.
    pub fn text(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [WordPart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The word as the name of a variable, if it consists of plain text only.
    pub fn name(&self) -> Option<Cow<'a, str>> {
        match self.parts.as_slice() {
            [WordPart::Text(text)] => Some(text.clone()),
            _ => None,
        }
    }
}
