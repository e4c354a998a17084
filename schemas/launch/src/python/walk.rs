//! Finds commands in a program.

use tree_sitter::{Node, Tree, TreeCursor};

use super::{
    super::{compose::Composed, detect::names_engine, programs},
    MOST_COMMANDS, PythonCommand,
    assembly::{Assembled, assembled},
    call::{self, Started},
    names::{PythonNames, is_conversion, is_starter},
    nodes::{identifier, named_children},
    strings::{StringPart, copy, known, parts, span},
};

/// Maximum number of expressions around a command that are searched for what starts it.
const MOST_AROUND: usize = 8;

/// Every command of a program.
pub fn commands(text: &str, tree: &Tree) -> Vec<PythonCommand> {
    let mut names = PythonNames::default();
    each(tree.walk(), |node| {
        names.note(text, node);
        true
    });
    let mut found = Vec::new();
    each(tree.walk(), |node| {
        if found.len() >= MOST_COMMANDS {
            return false;
        }
        match look(text, &names, node) {
            NodeContent::Deeper => true,
            NodeContent::Nothing => false,
            NodeContent::PythonCommand(command) => {
                found.push(command);
                false
            }
            NodeContent::Ways(commands) => {
                found.extend(commands);
                false
            }
        }
    });
    found
}

/// Goes through all nodes, those below one only where `visit` says so.
fn each<'t>(mut cursor: TreeCursor<'t>, mut visit: impl FnMut(Node<'t>) -> bool) {
    loop {
        if visit(cursor.node()) && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
        }
    }
}

/// What a node holds.
enum NodeContent {
    /// What is below it is looked at.
    Deeper,
    /// It holds no command, and neither does what is below it.
    Nothing,
    PythonCommand(PythonCommand),
    /// One of several commands.
    Ways(Vec<PythonCommand>),
}

fn look<'t>(text: &'t str, names: &PythonNames<'t>, node: Node<'t>) -> NodeContent {
    match node.kind() {
        "comment" | "raise_statement" | "assert_statement" | "import_statement" | "comparison_operator" => {
            NodeContent::Nothing
        }
        // A text that nothing takes is a docstring.
        "expression_statement" if node.named_child(0).is_some_and(|child| child.kind() == "string") => {
            NodeContent::Nothing
        }
        "call" => {
            let found = call::started(text, names, node).into_iter().filter_map(|started| {
                let command = call::command(text, names, &started, node)?;
                let Started { callee, is_tried, .. } = started;
                Some(PythonCommand { command, is_part: is_tried, is_started: true, is_call: !is_tried, callee })
            });
            let found: Vec<PythonCommand> = found.collect();
            if found.is_empty() { NodeContent::Deeper } else { NodeContent::Ways(found) }
        }
        "list" | "tuple" if names.is_taken(node) => NodeContent::Nothing,
        "assignment" => steps(text, names, node).map_or(NodeContent::Deeper, NodeContent::PythonCommand),
        "list" | "tuple" => list(text, names, node),
        "string" | "concatenated_string" if is_message(text, node) => NodeContent::Nothing,
        "string" | "concatenated_string" => string(text, names, node),
        "binary_operator" => match string(text, names, node) {
            NodeContent::PythonCommand(found) => NodeContent::PythonCommand(found),
            NodeContent::Deeper | NodeContent::Nothing | NodeContent::Ways(_) => NodeContent::Deeper,
        },
        _ => NodeContent::Deeper,
    }
}

/// Whether a text is an argument of a function that neither starts processes nor makes another text
/// or list of it: most such texts are for a reader.
fn is_message(text: &str, node: Node<'_>) -> bool {
    let Some(arguments) = node.parent() else { return false };
    let arguments = if arguments.kind() == "keyword_argument" { arguments.parent() } else { Some(arguments) };
    let call = arguments.filter(|node| node.kind() == "argument_list").and_then(|node| node.parent());
    call.is_some_and(|call| !is_starter(text, call) && !is_conversion(text, call))
}

/// Whether the program starts a command: the expression, or the name that it is assigned to, is an
/// argument of a function that starts processes.
fn is_started<'t>(text: &'t str, names: &PythonNames<'t>, node: Node<'t>) -> bool {
    let mut outer = node.parent();
    for _ in 0..MOST_AROUND {
        let Some(node) = outer else { return false };
        match node.kind() {
            "call" if is_starter(text, node) => return true,
            "call" if !is_conversion(text, node) => return false,
            "call" | "attribute" => {}
            "assignment" => {
                return identifier(text, node.child_by_field_name("left")).is_some_and(|name| names.is_started(name));
            }
            "argument_list" | "keyword_argument" | "parenthesized_expression" | "binary_operator" => {}
            _ => return false,
        }
        outer = node.parent();
    }
    false
}

/// Lists that are assembled in steps, at the first of them.
fn steps<'t>(text: &'t str, names: &PythonNames<'t>, assignment: Node<'t>) -> Option<PythonCommand> {
    let right = assignment.child_by_field_name("right")?;
    if !matches!(right.kind(), "list" | "binary_operator" | "call" | "parenthesized_expression")
        || names.is_taken(right)
    {
        return None;
    }
    let Assembled { script, lists, taken, is_open } = assembled(text, names, assignment)?;
    let words = || script.text.split_whitespace();
    if !names_engine(&script.text) || !words().any(|word| word.starts_with("--")) {
        return None;
    }
    let is_command = words().any(begins_command) || words().any(|word| word.ends_with(".sh"));
    let is_joined = lists.iter().any(|name| names.is_joined(name));
    let is_started = lists.iter().any(|name| names.is_started(name));
    names.take(taken);
    Some(PythonCommand {
        command: script,
        is_part: !is_command || is_open || is_joined,
        is_started,
        is_call: false,
        callee: None,
    })
}

/// A list of words.
fn list<'t>(text: &'t str, names: &PythonNames<'t>, node: Node<'t>) -> NodeContent {
    let items = named_children(node);
    let words: Vec<Option<Vec<StringPart>>> = items.iter().map(|item| parts(text, names, *item, 0)).collect();
    let texts: Vec<&str> = words.iter().map(|word| first_text(word.as_deref())).collect();
    let flags = texts.iter().filter(|text| text.starts_with("--")).count();
    let is_joined = names.is_joined_with_blanks(text, node);
    // Words that are separate commands are inspected individually.
    let single = |text: &&str| !text.contains(' ') || text.starts_with(['{', '[']);
    if flags == 0 || !texts.iter().any(|text| names_engine(text)) || !(is_joined || texts.iter().all(single)) {
        return NodeContent::Deeper;
    }
    // A list of names, as of those that are looked for, has no values between them.
    if flags == items.len() && !texts.iter().any(|text| text.contains('=')) {
        return NodeContent::Nothing;
    }
    // A flag with what belongs to it is a row of a table.
    let is_row = node.parent().is_some_and(|parent| matches!(parent.kind(), "list" | "tuple"));
    if is_row && !texts.first().is_some_and(|first| begins_command(first)) {
        return NodeContent::Nothing;
    }
    let mut command = Composed::default();
    for (item, word) in items.iter().zip(&words) {
        match word.as_deref() {
            // A shell splits it again.
            Some(parts) if is_joined => {
                command.space();
                copy(&mut command, parts);
            }
            Some(parts) => match known(parts) {
                Some((text, place)) => command.word(&text, place),
                None => {
                    command.space();
                    copy(&mut command, parts);
                }
            },
            None => {
                command.space();
                command.unknown(span(*item));
            }
        }
    }
    let is_whole = texts.first().is_some_and(|first| !first.starts_with("--"));
    let is_added = node.parent().is_some_and(|parent| parent.kind() == "binary_operator");
    // A flag at the end gets its value where the list is used.
    let last = words.last().and_then(|last| known(last.as_deref()?));
    let is_open = last.is_some_and(|(last, _)| last.starts_with("--") && !last.contains(['=', ' ']));
    let grows = names.grows(text, node) || (is_open && is_whole);
    if grows || is_added {
        command.space();
        command.unknown(span(node));
    }
    let is_started = is_started(text, names, node);
    NodeContent::PythonCommand(PythonCommand {
        command,
        is_part: !is_whole || grows,
        is_started,
        is_call: false,
        callee: None,
    })
}

/// Whether a node is in a list within a list.
fn is_cell(node: Node<'_>) -> bool {
    let is_list = |node: &Node<'_>| matches!(node.kind(), "list" | "tuple");
    node.parent().filter(is_list).and_then(|list| list.parent()).is_some_and(|outer| is_list(&outer))
}

/// Whether the first word of a list begins a command.
fn begins_command(first: &str) -> bool {
    programs::starts_command(first) || first.ends_with(".sh") || first.is_empty()
}

fn first_text(parts: Option<&[StringPart]>) -> &str {
    match parts.and_then(|parts| parts.first()) {
        Some(StringPart::Text(text, _)) => text,
        _ => "",
    }
}

/// A command, a script or flags in one text.
fn string<'t>(text: &'t str, names: &PythonNames<'t>, node: Node<'t>) -> NodeContent {
    let Some(parts) = parts(text, names, node, 0) else { return NodeContent::Deeper };
    let mut command = Composed::default();
    copy(&mut command, &parts);
    let whole = command.text.trim_start();
    let first = whole.split_whitespace().next().unwrap_or_default();
    let is_flags = first.starts_with("--");
    let is_command = programs::starts_command(first) || first.starts_with("#!") || first.contains("=");
    let has_values = whole.split_whitespace().nth(1).is_some();
    if !names_engine(whole) || !has_values || !(is_flags || is_command) || !whole.contains("-") {
        return NodeContent::Nothing;
    }
    // Flags without a program in a row of a table, as of cases of a test.
    if is_flags && is_cell(node) {
        return NodeContent::Nothing;
    }
    let of_trainer = whole.contains("--sglang-");
    let grows = names.grows(text, node);
    if grows {
        command.space();
        command.unknown(span(node));
    }
    let is_started = is_started(text, names, node);
    NodeContent::PythonCommand(PythonCommand {
        command,
        is_part: grows || (is_flags && !of_trainer),
        is_started,
        is_call: false,
        callee: None,
    })
}
