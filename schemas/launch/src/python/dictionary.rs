//! Keys of a dictionary that a program assembles in steps, and gives to an engine's class.

use schemas::text::Span;
use tree_sitter::Node;

use super::{
    names::Names,
    nodes::named_children,
    strings::{is_dict, known, parts, span},
};

/// The keys of a dictionary with their places and values, as far as they are known.
#[derive(Default)]
pub struct DictionaryPairs<'t> {
    pub known: Vec<(String, Span, Node<'t>)>,
    /// What may give others.
    pub others: Vec<Node<'t>>,
}

impl<'t> DictionaryPairs<'t> {
    /// Adds the pairs of `{…}` or `dict(…)`; `None` where a key is no text.
    pub fn add_all(&mut self, text: &'t str, names: &Names<'t>, dictionary: Node<'t>) -> Option<()> {
        if dictionary.kind() == "dictionary" {
            for pair in named_children(dictionary) {
                match (pair.child_by_field_name("key"), pair.child_by_field_name("value")) {
                    (Some(key), Some(given)) => {
                        let (name, place) = known(&parts(text, names, key, 0)?)?;
                        self.set(name, place, given);
                    }
                    _ => self.others.push(pair),
                }
            }
            return Some(());
        }
        self.add_keywords(text, dictionary)
    }

    /// Adds the keywords of a call.
    fn add_keywords(&mut self, text: &'t str, call: Node<'t>) -> Option<()> {
        for argument in named_children(call.child_by_field_name("arguments")?) {
            match (argument.child_by_field_name("name"), argument.child_by_field_name("value")) {
                (Some(name), Some(given)) => {
                    self.set(text.get(name.byte_range())?.to_owned(), span(name), given);
                }
                _ => self.others.push(argument),
            }
        }
        Some(())
    }

    /// Applies `name["key"] = value` or `name.update(…)`. One that may not happen before `used`
    /// makes its keys unknown.
    pub fn change(&mut self, text: &'t str, names: &Names<'t>, update: Node<'t>, used: Node<'t>) -> Option<()> {
        let mut own = Self::default();
        if update.kind() == "assignment" {
            let key = update.child_by_field_name("left")?.child_by_field_name("subscript")?;
            let (name, place) = known(&parts(text, names, key, 0)?)?;
            own.set(name, place, update.child_by_field_name("right")?);
        } else {
            let arguments = named_children(update.child_by_field_name("arguments")?);
            match arguments.as_slice() {
                [dictionary] if dictionary.kind() == "dictionary" || is_dict(text, *dictionary) => {
                    own.add_all(text, names, *dictionary)?;
                }
                _ => own.add_keywords(text, update)?,
            }
        }
        self.others.extend(own.others);
        let is_certain = happens_before(update, used);
        for (name, place, given) in own.known {
            match is_certain {
                true => self.set(name, place, given),
                false => {
                    self.known.retain(|(other, ..)| *other != name);
                    self.others.push(given);
                }
            }
        }
        Some(())
    }

    fn set(&mut self, name: String, place: Span, given: Node<'t>) {
        self.known.retain(|(other, ..)| *other != name);
        self.known.push((name, place, given));
    }
}

/// Whether a statement is executed whenever the expression after it is.
fn happens_before(statement: Node<'_>, used: Node<'_>) -> bool {
    let branches = ["elif_clause", "else_clause", "except_clause", "for_statement", "if_statement", "while_statement"];
    let mut around = statement.parent();
    while let Some(node) = around {
        if branches.contains(&node.kind()) || node.kind() == "function_definition" {
            let contains_both = node.start_byte() <= used.start_byte() && used.end_byte() <= node.end_byte();
            // Statements of one branch are one after the other.
            return contains_both && node.kind() == "function_definition";
        }
        around = node.parent();
    }
    true
}
