//! Lists of words as expressions.

use std::collections::BTreeSet;

use tree_sitter::Node;

use super::{
    super::compose::Composed,
    names::PythonNames,
    nodes::{identifier, named_children},
    strings::{DEPTH, StringPart, copy, known, parts, span},
};

/// Names of lists that are assembled in steps.
pub type ListNames<'t> = BTreeSet<&'t str>;

/// A word of a list.
pub enum ListWord<'t> {
    Parts(Node<'t>, Vec<StringPart>),
    /// The words of a list that is assembled in steps.
    List(&'t str),
    /// Any number of words that are not known.
    Unknown(Node<'t>),
}

/// The name of the array that holds a list.
pub fn array_name(name: &str) -> String {
    format!("list_{name}")
}

/// The words of an expression that is a list: a list, a sum of lists, the name of a list, what a
/// function returns. `None` for anything else.
pub fn words<'t>(
    text: &'t str,
    names: &PythonNames<'t>,
    lists: &ListNames<'t>,
    node: Node<'t>,
    depth: usize,
) -> Option<Vec<ListWord<'t>>> {
    if depth > DEPTH || !names.spend() {
        return None;
    }
    match node.kind() {
        "list" | "tuple" => {
            let each = named_children(node).into_iter().flat_map(|item| match item.kind() {
                "list_splat" => or_unknown(text, names, lists, item.named_child(0), item, depth),
                _ => vec![match parts(text, names, item, 0) {
                    Some(parts) => ListWord::Parts(item, parts),
                    None => ListWord::Unknown(item),
                }],
            });
            Some(each.collect())
        }
        "parenthesized_expression" => words(text, names, lists, node.named_child(0)?, depth + 1),
        "binary_operator" if text.get(node.child_by_field_name("operator")?.byte_range()) == Some("+") => {
            let (left, right) = (node.child_by_field_name("left")?, node.child_by_field_name("right")?);
            let is_list = |side: Node<'t>| words(text, names, lists, side, depth + 1);
            let (one, other) = (is_list(left), is_list(right));
            if one.is_none() && other.is_none() {
                return None;
            }
            // One side is a list, so the other one is too, with unknown words.
            let mut all = one.unwrap_or_else(|| vec![ListWord::Unknown(left)]);
            all.extend(other.unwrap_or_else(|| vec![ListWord::Unknown(right)]));
            Some(all)
        }
        "identifier" => {
            if let Some(list) = text.get(node.byte_range()).and_then(|name| lists.get(name)) {
                return Some(vec![ListWord::List(list)]);
            }
            let value = names.value(text, node)?;
            matches!(value.kind(), "list" | "tuple" | "binary_operator")
                .then(|| words(text, names, lists, value, depth + 1))?
        }
        "call" if is_list_of(text, node) => {
            words(text, names, lists, node.child_by_field_name("arguments")?.named_child(0)?, depth + 1)
        }
        "call" => words(text, names, lists, names.aliases().returned_by(text, node)?, depth + 1),
        _ => None,
    }
}

fn or_unknown<'t>(
    text: &'t str,
    names: &PythonNames<'t>,
    lists: &ListNames<'t>,
    node: Option<Node<'t>>,
    whole: Node<'t>,
    depth: usize,
) -> Vec<ListWord<'t>> {
    let found = node.and_then(|node| words(text, names, lists, node, depth + 1));
    found.unwrap_or_else(|| vec![ListWord::Unknown(whole)])
}

/// `list(…)` and `tuple(…)`.
fn is_list_of(text: &str, call: Node<'_>) -> bool {
    matches!(identifier(text, call.child_by_field_name("function")), Some("list" | "tuple"))
}

/// Writes words as those of a command. `is_joined` if a shell splits them again.
pub fn write(command: &mut Composed, words: &[ListWord<'_>], is_joined: bool) {
    for word in words {
        match word {
            ListWord::Parts(_, parts) => match known(parts).filter(|_| !is_joined) {
                Some((text, place)) => command.word(&text, place),
                None => {
                    command.space();
                    copy(command, parts);
                }
            },
            ListWord::List(name) => {
                command.space();
                command.write(&format!("\"${{{}[@]}}\"", array_name(name)));
            }
            ListWord::Unknown(node) => {
                command.space();
                command.unknown(span(*node));
            }
        }
    }
}
