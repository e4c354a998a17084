//! Makefiles and justfiles, rewritten as the script that their recipes are: variables and
//! conditions are those of a shell.
//!
//! Both programs put the text of a variable into the command before a shell splits it. A value
//! without quotes is the same as that of a shell's variable; one with quotes is written where it is
//! used, if it has only one value.

use std::collections::BTreeMap;

use schemas::text::{Source, Span};

use super::{
    compose::Composed,
    context::TextContext,
    document::{Document, ReadDocument},
    kind::TextKind,
};

mod lines;

use lines::{AssignOperator, MakeDialect, MakeLine};

/// Maximum depth of variables in the values of variables.
const DEEPEST: usize = 4;

/// The script of a Makefile or justfile.
pub(super) fn read(source: &Source, context: &TextContext) -> ReadDocument {
    let dialect = MakeDialect::from_name(source.name());
    let lines = lines::read(source.text(), dialect);
    let mut writer =
        ScriptWriter { source, dialect, values: values(source, &lines), script: Composed::default(), is_moved: false };
    for line in &lines {
        writer.line(line);
    }
    let ScriptWriter { script, is_moved, .. } = writer;
    // Nothing can be edited where a value is written elsewhere.
    let document = Document { is_composed: is_moved, ..script.into_document(TextKind::Script, context.clone()) };
    ReadDocument { documents: vec![document], ..ReadDocument::default() }
}

/// A variable whose values have quotes.
#[derive(Clone, Copy)]
enum QuotedValue {
    /// Its only value.
    Only(Span),
    /// One of several, or of a branch.
    Open,
}

/// The variables with quotes in their values.
fn values<'a>(source: &'a Source, lines: &[MakeLine]) -> BTreeMap<&'a str, QuotedValue> {
    let mut quoted = BTreeMap::new();
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    let mut depth = 0_usize;
    for line in lines {
        match line {
            MakeLine::If { is_else: false, .. } | MakeLine::IfDefined { is_else: false, .. } => depth += 1,
            MakeLine::EndIf => depth = depth.saturating_sub(1),
            MakeLine::Assign { name, operator, value } => {
                let name = source.slice(*name);
                *count.entry(name).or_default() += 1;
                if source.slice(*value).contains(['"', '\'', '\\']) {
                    let is_only = depth == 0 && *operator != AssignOperator::Add;
                    quoted.insert(name, if is_only { QuotedValue::Only(*value) } else { QuotedValue::Open });
                }
            }
            _ => {}
        }
    }
    for (name, one) in &mut quoted {
        if count.get(name).is_some_and(|count| *count > 1) {
            *one = QuotedValue::Open;
        }
    }
    quoted
}

struct ScriptWriter<'a> {
    source: &'a Source,
    dialect: MakeDialect,
    values: BTreeMap<&'a str, QuotedValue>,
    script: Composed,
    /// Whether a value stands elsewhere than where it is used. Those of variables do: they can be
    /// set from outside (`make N=4`), and a recipe of `just` can have them as parameters.
    is_moved: bool,
}

impl<'a> ScriptWriter<'a> {
    fn line(&mut self, line: &MakeLine) {
        match line {
            MakeLine::Assign { name, operator, value } => self.assign(*name, *operator, *value),
            MakeLine::If { is_else, is_equal, left, right } => {
                self.script.write(if *is_else { "elif [ \"" } else { "if [ \"" });
                self.expand(*left, 0);
                self.script.write(if *is_equal { "\" = \"" } else { "\" != \"" });
                self.expand(*right, 0);
                self.script.write("\" ]; then :\n");
            }
            MakeLine::IfDefined { is_else, is_defined, name } => {
                let (word, test) = (if *is_else { "elif" } else { "if" }, if *is_defined { "-n" } else { "-z" });
                self.script.write(&format!("{word} [ {test} \"${{"));
                self.copy(name.start, name.end, name.start);
                self.script.write("}\" ]; then :\n");
            }
            MakeLine::Else => self.script.write("else :\n"),
            MakeLine::EndIf => self.script.write("fi\n"),
            MakeLine::Recipe(span) => {
                self.expand(*span, 0);
                self.script.write("\n");
            }
            MakeLine::Other => self.script.write("\n"),
        }
    }

    fn assign(&mut self, name: Span, operator: AssignOperator, value: Span) {
        let written = self.source.slice(name);
        if self.values.contains_key(written) {
            return;
        }
        let (before, after) = match operator {
            AssignOperator::Set => (format!("{written}=\""), "\"\n"),
            AssignOperator::Default => (format!("{written}=\"${{{written}:-"), "}\"\n"),
            AssignOperator::Add => (format!("{written}=\"${{{written}}} "), "\"\n"),
        };
        self.script.put_for(&before, name);
        self.expand(value, 0);
        self.script.write(after);
    }

    /// Writes a part of the text with its references to variables as a shell's.
    fn expand(&mut self, span: Span, depth: usize) {
        let (text, mut at, mut quote) = (self.source.slice(span), 0, None);
        while let Some(reference) = text.get(at..).and_then(|rest| lines::next_reference(rest, self.dialect)) {
            let (start, end) = (at + reference.start, at + reference.end);
            self.copy(span.start + at, span.start + start, span.start);
            let place = Span::new(span.start + start, span.start + end);
            let name = lines::name_in(text.get(start..end).unwrap_or_default(), self.dialect);
            quote = quote_after(text.get(at..start).unwrap_or_default(), quote);
            self.refer(name, place, quote == Some('\''), depth);
            at = end;
        }
        self.copy(span.start + at, span.end, span.start);
    }

    fn copy(&mut self, from: usize, to: usize, whole: usize) {
        let place = Span::new(from, to);
        self.script.copy_whole(self.source.slice(place), place, whole);
    }

    /// Writes a reference: to a variable, to a dollar sign, or to what only the program knows.
    /// `is_literal`: within single quotes.
    fn refer(&mut self, name: Option<&'a str>, place: Span, is_literal: bool, depth: usize) {
        match name {
            Some("$") => self.script.put_for("$", place),
            Some(name) => {
                self.is_moved = true;
                match self.values.get(name).copied() {
                    // A shell does not look into single quotes for a variable; make and just do.
                    None if is_literal => self.script.unknown(place),
                    None => self.script.put_for(&format!("${{{name}}}"), place),
                    Some(QuotedValue::Only(value)) if depth < DEEPEST => self.expand(value, depth + 1),
                    Some(_) => self.script.unknown(place),
                }
            }
            None => self.script.unknown(place),
        }
    }
}

/// The quote that is open after a part of a command, before which `open` was.
fn quote_after(text: &str, mut open: Option<char>) -> Option<char> {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, open) {
            ('\\', None | Some('"')) => _ = letters.next(),
            ('"' | '\'', None) => open = Some(letter),
            (letter, Some(quote)) if letter == quote => open = None,
            _ => {}
        }
    }
    open
}
