//! Python that starts an engine: command lines in strings and lists, and calls of an engine's classes. These are
//! assembled into a command line for the shell reader, with a map back for each word. Computed values are unknown. No
//! edits are made: a command that Python assembles has no place for another word.

mod call;
mod names;
mod strings;
mod walk;

use schemas::{finding::Doubt, text::Source};

use super::{
    Launch, Options, Parsed, Syntax, arguments, compose::Composed, detect::names_engine, documents, kind::Kind,
    problems,
};

/// Maximum length of a program, in bytes.
const LONGEST: usize = 512 << 10;

/// Maximum number of commands per program.
const MOST_COMMANDS: usize = 256;

/// A command found in a program.
struct Found {
    command: Composed,
    /// Whether other parts of the program may add to it.
    is_part: bool,
}

/// Parses the launches of a program.
pub(super) fn parse(source: &Source, options: &Options, depth: usize) -> Parsed {
    let text = source.text();
    if !names_engine(text) || depth >= documents::DEEPEST {
        return Parsed { launches: Vec::new(), findings: vec![arguments::no_launch(source)] };
    }
    if text.len() > LONGEST {
        return arguments::unread(source, "Python of more than 512 KiB");
    }
    let Some(tree) = tree(text) else { return arguments::unread(source, "Python") };
    let mut parsed = Parsed::default();
    for found in walk::commands(text, &tree) {
        read(source, found, options, depth, &mut parsed);
    }
    if parsed.launches.is_empty() {
        parsed.findings = vec![arguments::no_launch(source)];
    }
    parsed
}

fn tree(text: &str) -> Option<tree_sitter::Tree> {
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_python::LANGUAGE.into()).ok()?;
    parser.parse(text, None)
}

fn read(source: &Source, found: Found, options: &Options, depth: usize, parsed: &mut Parsed) {
    let Found { command, is_part } = found;
    let document = command.into_document(Kind::Script);
    let mut read = documents::read(&document, source, options, depth);
    for launch in &mut read.launches {
        launch.is_part |= is_part;
        close(launch);
    }
    // A name that resembles no flag may be the program's own argument.
    read.findings.retain(|found| !found.depends.unknown_name);
    // How its quotes are read depends on what other parts of the program put around the text.
    read.findings.retain(|one| one.code != problems::JSON_SYNTAX.code || !is_part);
    // It is unknown whether a shell reads a multi-line text or the program splits it into words.
    for found in read.findings.iter_mut().filter(|found| found.depends.lines) {
        found.doubts.insert(Doubt::OtherSplitter);
    }
    read.findings.iter_mut().for_each(|found| found.fix = None);
    parsed.launches.extend(read.launches);
    parsed.findings.extend(read.findings);
}

/// A command assembled by Python is not edited.
fn close(launch: &mut Launch) {
    launch.syntax = Syntax::Composed;
}
