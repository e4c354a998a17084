//! What a script comes to: command lines of words.

use std::{borrow::Cow, sync::Arc};

use super::super::{Environment, Value, shell::Trouble};
use crate::text::{Located, Span};

/// A word of a command line after expansion.
pub type Field<'a> = Located<Text<'a>>;

/// The text of a word, borrowed where the user's text holds it as it stands.
pub type Text<'a> = Value<Cow<'a, str>>;

impl Text<'_> {
    /// The value that a launch keeps.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Known(text) => Value::Known(text.to_string()),
            Self::Unknown(text) => Value::Unknown(text.to_string()),
        }
    }
}

/// A command line, or a list of words that a script names and that no command in it uses.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// Its words.
    pub words: Vec<Field<'a>>,
    /// Whether the words are held by a variable that no command uses.
    pub is_variable: bool,
    /// The arrays that went into it.
    pub arrays: Vec<ArrayPlace>,
    /// The environment it runs in, as far as the text sets it.
    pub environment: Arc<Environment>,
}

/// Where an array stands.
#[derive(Clone, Debug)]
pub struct ArrayPlace {
    /// Its name.
    pub name: Span,
    /// The whole assignment.
    pub span: Span,
}

/// What a script says.
#[derive(Clone, Debug, Default)]
pub struct Script<'a> {
    /// Commands in order, then the variables that no command uses.
    pub lines: Vec<Line<'a>>,
    /// What did not close.
    pub troubles: Vec<Trouble>,
}
