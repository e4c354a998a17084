//! Finds commands in a program.

use tree_sitter::{Node, Tree, TreeCursor};

use super::{
    super::{compose::Composed, detect::names_engine},
    Found, MOST_COMMANDS, call,
    names::Names,
    strings::{Part, copy, known, named_children, parts, span},
};

/// Functions that say what they are given, define a flag, or take flags of other programs too, by their last names.
const TALKERS: [&str; 26] = [
    "Markdown",
    "Panel",
    "Text",
    "add_argument",
    "caption",
    "code",
    "confirm",
    "critical",
    "debug",
    "echo",
    "error",
    "exception",
    "fail",
    "info",
    "log",
    "markdown",
    "option",
    "parse_known_args",
    "print",
    "prompt",
    "secho",
    "skip",
    "success",
    "warn",
    "warning",
    "write",
];

/// What the names of exceptions end with.
const COMPLAINTS: [&str; 5] = ["BadParameter", "Error", "Exception", "Exit", "Warning"];

/// Arguments that hold words for a reader.
const PROSE: [&str; 21] = [
    "aliases",
    "answer",
    "caption",
    "completion",
    "description",
    "doc",
    "epilog",
    "example",
    "help",
    "hint",
    "instruction",
    "label",
    "message",
    "note",
    "notes",
    "placeholder",
    "prompt",
    "question",
    "reason",
    "response",
    "usage",
];

/// What a test calls around what has to fail.
const REFUSALS: [&str; 3] = ["assertRaises", "pytest.raises", "with raises("];

/// What a test calls that starts an engine.
const STARTERS: [&str; 10] = [
    "Engine(",
    "LLM(",
    "Popen",
    "Runner(",
    "Server(",
    "launch_server",
    "popen",
    "run_command",
    "subprocess",
    "system(",
];

/// What a text that is a command begins with.
const BEGINNINGS: [&str; 14] = [
    "apptainer",
    "cd",
    "docker",
    "env",
    "exec",
    "export",
    "nohup",
    "numactl",
    "podman",
    "python",
    "sglang",
    "srun",
    "torchrun",
    "vllm",
];

/// Every command of a program.
pub fn commands(text: &str, tree: &Tree) -> Vec<Found> {
    let mut names = Names::default();
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
            Look::Deeper => true,
            Look::Nothing => false,
            Look::Found(command) => {
                found.push(command);
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
enum Look {
    /// What is below it is looked at.
    Deeper,
    /// It holds no command, and neither does what is below it.
    Nothing,
    Found(Found),
}

fn look<'t>(text: &'t str, names: &Names<'t>, node: Node<'t>) -> Look {
    match node.kind() {
        "comment" | "raise_statement" | "assert_statement" | "import_statement" | "comparison_operator" => {
            Look::Nothing
        }
        // What it starts may be what has to be refused.
        "function_definition" if expects_refusal(text, node) || reads_only(text, node) => Look::Nothing,
        // Its cases are in the decorator.
        "decorated_definition" if is_reading_test(text, node) => Look::Nothing,
        // A text that nothing takes is a docstring.
        "expression_statement" if node.named_child(0).is_some_and(|child| child.kind() == "string") => Look::Nothing,
        "keyword_argument" if is_prose_argument(text, node) => Look::Nothing,
        "pair" if is_prose_pair(text, node) => Look::Nothing,
        "call" => {
            if is_talker(text, node) {
                return Look::Nothing;
            }
            let started = call::engine(text, names, node).and_then(|engine| call::command(text, names, engine, node));
            started.map_or(Look::Deeper, |command| Look::Found(Found { command, is_part: false }))
        }
        "list" | "tuple" => list(text, names, node),
        "string" | "concatenated_string" => string(text, names, node),
        "binary_operator" => match string(text, names, node) {
            Look::Found(found) => Look::Found(found),
            Look::Deeper | Look::Nothing => Look::Deeper,
        },
        _ => Look::Deeper,
    }
}

/// Whether a function is a test of something that fails.
fn expects_refusal(text: &str, function: Node<'_>) -> bool {
    let body = text.get(function.byte_range()).unwrap_or_default();
    REFUSALS.iter().any(|refusal| body.contains(refusal))
}

/// Whether a function is a test that asks what a program makes of a command, and starts nothing.
fn reads_only(text: &str, function: Node<'_>) -> bool {
    let name = function.child_by_field_name("name").and_then(|name| text.get(name.byte_range())).unwrap_or_default();
    let body = text.get(function.byte_range()).unwrap_or_default();
    let asks = body.contains("assert ") || body.contains("self.assert");
    name.starts_with("test_") && asks && !STARTERS.iter().any(|starter| body.contains(starter))
}

/// Whether a function below decorators is such a test, or one of something that fails.
fn is_reading_test(text: &str, decorated: Node<'_>) -> bool {
    let function = decorated.child_by_field_name("definition").filter(|node| node.kind() == "function_definition");
    function.is_some_and(|function| expects_refusal(text, function) || reads_only(text, function))
}

fn is_talker(text: &str, call: Node<'_>) -> bool {
    let function = call.child_by_field_name("function").and_then(|function| text.get(function.byte_range()));
    function.and_then(|function| function.rsplit('.').next()).is_some_and(|name| {
        // An exception's text is for a reader too.
        TALKERS.contains(&name) || name.starts_with("assert") || COMPLAINTS.iter().any(|ending| name.ends_with(ending))
    })
}

fn is_prose_argument(text: &str, argument: Node<'_>) -> bool {
    let name = argument.child_by_field_name("name").and_then(|name| text.get(name.byte_range()));
    name.is_some_and(|name| PROSE.contains(&name))
}

/// Whether an entry of a dictionary holds words for a reader.
fn is_prose_pair(text: &str, pair: Node<'_>) -> bool {
    let key = pair.child_by_field_name("key").and_then(|key| text.get(key.byte_range()));
    key.is_some_and(|key| PROSE.contains(&key.trim_matches(['"', '\''])))
}

/// A list of words.
fn list<'t>(text: &'t str, names: &Names<'t>, node: Node<'t>) -> Look {
    let items = named_children(node);
    let words: Vec<Option<Vec<Part>>> = items.iter().map(|item| parts(text, names, *item, 0)).collect();
    let texts: Vec<&str> = words.iter().map(|word| first_text(word.as_deref())).collect();
    let flags = texts.iter().filter(|text| text.starts_with("--")).count();
    // Words that are separate commands are inspected individually.
    let single = |text: &&str| !text.contains(' ') || text.starts_with(['{', '[']);
    if flags == 0 || !texts.iter().any(|text| names_engine(text)) || !texts.iter().all(single) {
        return Look::Deeper;
    }
    // A list of names, as of those that are looked for, has no values between them.
    if flags == items.len() && !texts.iter().any(|text| text.contains('=')) {
        return Look::Nothing;
    }
    // A flag with what belongs to it is a row of a table.
    let is_row = node.parent().is_some_and(|parent| matches!(parent.kind(), "list" | "tuple"));
    if is_row && !texts.first().is_some_and(|first| begins_command(first)) {
        return Look::Nothing;
    }
    let mut command = Composed::default();
    for (item, word) in items.iter().zip(&words) {
        match word.as_deref() {
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
    let is_joined = node.parent().is_some_and(|parent| parent.kind() == "binary_operator");
    // A flag at the end gets its value where the list is used.
    let is_open = texts.last().is_some_and(|last| last.starts_with("--") && !last.contains('='));
    let grows = names.grows(text, node) || (is_open && is_whole);
    if grows || is_joined {
        command.space();
        command.unknown(span(node));
    }
    Look::Found(Found { command, is_part: !is_whole || grows })
}

/// Whether a node is in a list within a list.
fn is_cell(node: Node<'_>) -> bool {
    let is_list = |node: &Node<'_>| matches!(node.kind(), "list" | "tuple");
    node.parent().filter(is_list).and_then(|list| list.parent()).is_some_and(|outer| is_list(&outer))
}

/// Whether the first word of a list begins a command.
fn begins_command(first: &str) -> bool {
    let name = first.rsplit('/').next().unwrap_or_default();
    BEGINNINGS.contains(&name) || name.starts_with("python") || name.ends_with(".sh") || first.is_empty()
}

fn first_text(parts: Option<&[Part]>) -> &str {
    match parts.and_then(|parts| parts.first()) {
        Some(Part::Text(text, _)) => text,
        _ => "",
    }
}

/// A command, a script or flags in one text.
fn string<'t>(text: &'t str, names: &Names<'t>, node: Node<'t>) -> Look {
    let Some(parts) = parts(text, names, node, 0) else { return Look::Deeper };
    let mut command = Composed::default();
    copy(&mut command, &parts);
    let whole = command.text.trim_start();
    let first = whole.split_whitespace().next().unwrap_or_default();
    let name = first.rsplit('/').next().unwrap_or_default();
    let is_flags = first.starts_with("--");
    let is_command =
        BEGINNINGS.contains(&name) || name.starts_with("python") || first.starts_with("#!") || first.contains("=");
    let has_values = whole.split_whitespace().nth(1).is_some();
    if !names_engine(whole) || !has_values || !(is_flags || is_command) || !whole.contains("-") {
        return Look::Nothing;
    }
    // Flags without a program in a row of a table, as of cases of a test.
    if is_flags && is_cell(node) {
        return Look::Nothing;
    }
    let of_trainer = whole.contains("--sglang-");
    let grows = names.grows(text, node);
    if grows {
        command.space();
        command.unknown(span(node));
    }
    Look::Found(Found { command, is_part: grows || (is_flags && !of_trainer) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted() {
        assert!(TALKERS.is_sorted() && PROSE.is_sorted() && BEGINNINGS.is_sorted());
    }
}
