//! Python that starts an engine: command lines in strings and lists, and calls of an engine's
//! classes. These are assembled into a command line for the shell reader, with a map back for each
//! word. Computed values are unknown. No edits are made: a command that Python assembles has no
//! place for another word.

mod aliases;
mod assembly;
mod call;
mod class;
mod conditions;
mod dictionary;
mod given;
mod lists;
mod names;
mod nodes;
mod numbers;
mod own_class;
mod strings;
mod walk;

use schemas::{finding::Doubt, keywords::Callee, text::Source};

use super::{
    compose::Composed,
    context::{TextContext, TextForm},
    detect::names_engine,
    document::{Document, ReadDocument},
    kind::TextKind,
    problems,
};

/// Maximum length of a program, in bytes.
const LONGEST: usize = 512 << 10;

/// Maximum number of commands per program.
const MOST_COMMANDS: usize = 256;

/// A command found in a program.
struct PythonCommand {
    command: Composed,
    /// Whether other parts of the program may add to it.
    is_part: bool,
    /// Whether the program starts it: a call of an engine's class, or a command that is passed to a
    /// function that starts processes.
    is_started: bool,
    /// Whether it is a call of an engine's class.
    is_call: bool,
    /// The class, if it is certainly the engine's own.
    callee: Option<Callee>,
}

/// Finds the commands of a program.
pub(super) fn read(source: &Source, context: &TextContext) -> ReadDocument {
    let text = source.text();
    if !names_engine(text) {
        return ReadDocument::default();
    }
    let unread = |what: &str| ReadDocument { reason: Some(problems::unread(source, what)), ..ReadDocument::default() };
    if text.len() > LONGEST {
        return unread("Python of more than 512 KiB");
    }
    let Some(tree) = tree(text) else { return unread("Python") };
    let documents = walk::commands(text, &tree).into_iter().map(|found| document(found, context)).collect();
    ReadDocument { documents, ..ReadDocument::default() }
}

fn tree(text: &str) -> Option<tree_sitter::Tree> {
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_python::LANGUAGE.into()).ok()?;
    parser.parse(text, None)
}

fn document(found: PythonCommand, context: &TextContext) -> Document {
    let PythonCommand { command, is_part, is_started, is_call, callee } = found;
    let form = if is_started { TextForm::PythonCall } else { TextForm::PythonText };
    // Whether a shell reads a text of several lines is unknown.
    let mut context = TextContext { callee, ..context.inner(form).with(Doubt::OtherSplitter) };
    if !is_call {
        // A name that resembles no flag may be the program's own argument.
        context = context.with(Doubt::OwnFlags);
    }
    if is_part {
        // How its quotes are read depends on what other parts of the program put around it.
        context = context.with(Doubt::OtherQuoting);
    }
    Document { is_part, is_composed: true, ..command.into_document(TextKind::Script, context) }
}
