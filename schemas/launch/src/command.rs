//! Commands of a shell after expansion: words, and what is known of where they run.

use std::borrow::Cow;

use schemas::text::{Located, Span};

use super::{
    Value,
    document::{Surroundings, UNKNOWN},
    evidence::StatedVersion,
};

/// A word of a command line after expansion.
pub type Field<'a> = Located<CommandText<'a>>;

/// The text of a word, borrowed where it occurs verbatim in the user's text.
pub type CommandText<'a> = Value<Cow<'a, str>>;

impl CommandText<'_> {
    /// Whether its text is known and contains blanks.
    pub fn has_blanks(&self) -> bool {
        self.known().is_some_and(|text| text.contains(char::is_whitespace))
    }

    /// The value that a launch keeps.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Known(text) => Value::Known(text.to_string()),
            Self::Unknown(text) => Value::Unknown(text.to_string()),
        }
    }
}

/// A command line, or a list of words in a variable that no command of the script uses.
#[derive(Clone, Debug, Default)]
pub struct ShellCommand<'a> {
    /// Its words.
    pub words: Vec<Field<'a>>,
    /// Words that may also be present: from branches that may or may not run together with this
    /// path.
    pub perhaps: Vec<Field<'a>>,
    /// Spans of the words that are present in one branch only.
    pub branches: Vec<Span>,
    /// Whether a condition excludes it with the values that the text gives.
    pub is_untaken: bool,
    /// Whether it is flags that an option passes on to a program that is not known.
    pub is_forwarded: bool,
    /// Whether the words are held by a variable that no command uses.
    pub is_variable: bool,
    /// Where flags follow that are not part of it because its line is not continued.
    pub broken_at: Option<Span>,
    /// The arrays that it uses.
    pub arrays: Vec<ArrayPlace>,
    /// The environment it runs in, as far as the text sets it.
    pub surroundings: Surroundings,
    /// The engine's version, if an image or a requirement names it.
    pub version: Option<StatedVersion>,
    /// If it is the script that a command passes to an image: the image, whose own entry point
    /// runs, and the first word after it.
    pub passed_to: Option<(String, Field<'a>)>,
}

impl ShellCommand<'_> {
    /// Whether the words are only a part of a command that is assembled elsewhere: a text that no
    /// command here uses. An array of flags counts as whole, since launches are published in this
    /// form.
    pub fn is_part(&self, in_array: bool) -> bool {
        self.is_variable && !in_array && self.arrays.is_empty()
    }

    /// Marks words that an enclosing script fills in as unknown, quoted or not.
    pub fn leave_open(&mut self) {
        for word in self.words.iter_mut().chain(&mut self.perhaps) {
            if let Some(text) = word.value.known().filter(|text| text.contains(UNKNOWN)) {
                word.value = CommandText::Unknown(text.to_owned().into());
            }
        }
    }
}

/// The span of an array.
#[derive(Clone, Debug)]
pub struct ArrayPlace {
    /// Its name.
    pub name: Span,
    /// The whole assignment.
    pub span: Span,
}
