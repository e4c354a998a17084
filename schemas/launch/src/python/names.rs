//! Values of names in a program.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
};

use tree_sitter::Node;

use super::{
    super::condition::{Refined, TestedVariable},
    aliases::Aliases,
    conditions::{constant, facts_at},
    nodes::{identifier, named_children},
};

/// Assignments of a program, by name.
#[derive(Default)]
pub struct PythonNames<'t> {
    /// The value of each name that is assigned once.
    values: HashMap<&'t str, Option<Node<'t>>>,
    /// Names whose value is extended or changed after the assignment.
    changed: HashSet<&'t str>,
    /// Changes of a dictionary by its name: `settings["key"] = …`, `settings.update(…)`,
    /// `settings |= …`.
    updates: HashMap<&'t str, Vec<Node<'t>>>,
    /// Names that become a part of another text.
    joined: HashSet<&'t str>,
    /// Names whose words become one text with blanks between them: `" ".join(name)`.
    joined_with_blanks: HashSet<&'t str>,
    /// Names that are arguments of a function that starts processes.
    started: HashSet<&'t str>,
    /// Those that it is given as they are, and without a shell.
    started_as_words: HashSet<&'t str>,
    /// Names that the program defines as classes, or imports from other modules than those of the
    /// engines.
    foreign: HashSet<&'t str>,
    /// Names that the program imports from an engine's own package, with the module.
    own: HashMap<&'t str, &'t str>,
    /// Other names of modules and classes.
    aliases: Aliases<'t>,
    /// How often each name occurs.
    uses: HashMap<&'t str, usize>,
    /// Lists whose words are a part of a command that was found.
    taken: RefCell<HashSet<usize>>,
    /// Number of inspected expressions.
    steps: Cell<usize>,
}

/// The name of the dictionary of which an assignment sets a key.
fn subscripted<'t>(text: &'t str, assignment: Node<'t>) -> Option<&'t str> {
    let left = assignment.child_by_field_name("left").filter(|left| left.kind() == "subscript")?;
    identifier(text, left.child_by_field_name("value"))
}

/// Functions that start a process with the command that they are given, by their last names.
const STARTERS: [&str; 8] =
    ["call", "check_call", "check_output", "getoutput", "getstatusoutput", "popen", "run", "system"];

/// Parts of the names of functions that start a process, which programs define for themselves.
const PARTS_OF_STARTERS: [&str; 7] = ["exec", "launch", "popen", "run_", "spawn", "start_", "_run"];

/// Functions that write a text for a reader, by their last names.
const WRITERS: [&str; 9] = ["critical", "debug", "error", "exception", "info", "log", "print", "secho", "warning"];

/// Maximum number of expressions around a text that is written.
const MOST_AROUND_SHOWN: usize = 16;

/// Functions that make a list or another text of a command.
const CONVERSIONS: [&str; 8] = ["dedent", "format", "join", "list", "replace", "split", "str", "strip"];

/// Maximum number of inspected expressions per program: the value of a name is inspected at every
/// use.
const MOST_STEPS: usize = 1 << 20;

/// Maximum number of parentheses and sums around a text that are searched for the name it is
/// assigned to.
const MOST_AROUND: usize = 8;

/// Methods that add to a list.
const ADDS: [&str; 4] = ["append", "extend", "insert", "remove"];

impl<'t> PythonNames<'t> {
    /// Records what a node says about a name.
    pub fn note(&mut self, text: &'t str, node: Node<'t>) {
        self.aliases.note(text, node);
        match node.kind() {
            "identifier" => {
                identifier(text, Some(node)).into_iter().for_each(|name| *self.uses.entry(name).or_default() += 1);
            }
            "assignment" if subscripted(text, node).is_some() => {
                let name = subscripted(text, node);
                name.into_iter().for_each(|name| self.updates.entry(name).or_default().push(node));
            }
            "assignment" => {
                let Some(name) = identifier(text, node.child_by_field_name("left")) else { return };
                let value = node.child_by_field_name("right");
                if value.is_none() {
                    return;
                }
                // The value of a name that is assigned again is unknown.
                self.values.entry(name).and_modify(|known| *known = None).or_insert(value);
            }
            // An argument hides what the name is outside.
            "parameters" | "lambda_parameters" => {
                for parameter in named_children(node) {
                    let name = match parameter.kind() {
                        "identifier" => Some(parameter),
                        "typed_parameter" | "list_splat_pattern" | "dictionary_splat_pattern" => {
                            parameter.named_child(0)
                        }
                        _ => parameter.child_by_field_name("name"),
                    };
                    self.values.extend(identifier(text, name).map(|name| (name, None)));
                }
            }
            "augmented_assignment" => {
                let Some(name) = identifier(text, node.child_by_field_name("left")) else { return };
                if is_union(text, node) {
                    self.updates.entry(name).or_default().push(node);
                } else {
                    self.changed.insert(name);
                }
            }
            "class_definition" => {
                self.foreign.extend(identifier(text, node.child_by_field_name("name")));
            }
            "import_from_statement" => self.note_import(text, node),
            "interpolation" => {
                self.joined.extend(identifier(text, node.child_by_field_name("expression")));
            }
            "call" => {
                if is_starter(text, node)
                    && let Some(arguments) = node.child_by_field_name("arguments")
                {
                    let arguments = named_children(arguments);
                    self.started.extend(arguments.iter().filter_map(|one| command_name(text, *one)));
                    let is_shell = |one: &Node<'t>| text.get(one.byte_range()).is_some_and(|one| one == "shell=True");
                    if !arguments.iter().any(is_shell) {
                        self.started_as_words.extend(arguments.iter().filter_map(|one| identifier(text, Some(*one))));
                    }
                }
                let Some(function) = node.child_by_field_name("function").filter(|it| it.kind() == "attribute") else {
                    return;
                };
                let method = identifier(text, function.child_by_field_name("attribute"));
                if is_joined_with_blanks(text, node) && !is_shown(text, node) {
                    let arguments = node.child_by_field_name("arguments").map(named_children).unwrap_or_default();
                    self.joined_with_blanks.extend(arguments.into_iter().filter_map(|one| identifier(text, Some(one))));
                }
                if method == Some("update") {
                    let object = identifier(text, function.child_by_field_name("object"));
                    object.into_iter().for_each(|name| self.updates.entry(name).or_default().push(node));
                }
                if method.is_some_and(|method| ADDS.contains(&method)) {
                    self.changed.extend(identifier(text, function.child_by_field_name("object")));
                }
            }
            _ => {}
        }
    }

    /// The changes of a dictionary in the order of the text, if nothing else in the program uses it
    /// before its keys are given away at `at`.
    pub fn updates(&self, text: &str, name: &str, at: usize) -> Option<Vec<Node<'t>>> {
        let found = self.updates.get(name).map_or(&[][..], Vec::as_slice);
        let uses = |sign: char| {
            let use_ = format!("{name}{sign}");
            let is_whole = |start: usize| {
                let before = text.get(..start).and_then(|before| before.chars().next_back());
                !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == '.')
            };
            text.match_indices(use_.as_str()).filter(|(start, _)| is_whole(*start)).count()
        };
        let elsewhere = found.iter().filter(|update| update.kind() != "augmented_assignment").count();
        let is_known = !self.changed.contains(name) && uses('[') + uses('.') == elsewhere;
        is_known.then(|| found.iter().filter(|update| update.end_byte() <= at).copied().collect())
    }

    /// Records names that are imported from a module that does not belong to an engine.
    fn note_import(&mut self, text: &'t str, node: Node<'t>) {
        let module = node.child_by_field_name("module_name").and_then(|module| text.get(module.byte_range()));
        let Some(module) = module else { return };
        let mut cursor = node.walk();
        let imported = node.children_by_field_name("name", &mut cursor);
        let names = imported.filter_map(|name| text.get(name.byte_range()));
        if is_package(module) {
            self.own.extend(names.map(|name| (name, module)));
        } else if !module.split('.').any(is_engines) || module.split('.').any(|part| part == "third_party") {
            // A copy of an engine in another package has classes of its own.
            self.foreign.extend(names);
        }
    }

    /// Whether a name is imported from an engine's own package, and from nowhere else.
    pub fn is_own(&self, name: &str) -> bool {
        self.own.contains_key(name) && !self.foreign.contains(name)
    }

    /// The engine's module that a name is imported from; empty if it is none.
    pub fn module_of(&self, name: &str) -> &'t str {
        self.own.get(name).copied().unwrap_or_default()
    }

    /// How often a name occurs.
    pub fn uses(&self, name: &str) -> usize {
        self.uses.get(name).copied().unwrap_or_default()
    }

    /// Other names of modules and classes.
    pub fn aliases(&self) -> &Aliases<'t> {
        &self.aliases
    }

    /// Whether a name is that of a class of the program, or is imported from a module that does not
    /// belong to an engine.
    pub fn is_foreign(&self, name: &str) -> bool {
        self.foreign.contains(name)
    }

    /// Whether the program starts the command of this name.
    pub fn is_started(&self, name: &str) -> bool {
        self.started.contains(name)
    }

    /// Whether the words of a list become one text with blanks between them, which a shell splits
    /// again.
    pub fn is_joined_with_blanks(&self, text: &'t str, list: Node<'t>) -> bool {
        let Some(parent) = list.parent() else { return false };
        match parent.kind() {
            "argument_list" => parent.parent().is_some_and(|call| is_joined_with_blanks(text, call)),
            "assignment" | "augmented_assignment" => {
                identifier(text, parent.child_by_field_name("left")).is_some_and(|name| self.is_named_joined(name))
            }
            _ => false,
        }
    }

    /// Whether the words of the list of this name become one text with blanks between them. Where
    /// the list itself is started, that text is one for a reader.
    pub fn is_named_joined(&self, name: &str) -> bool {
        self.joined_with_blanks.contains(name) && !self.started_as_words.contains(name)
    }

    /// Whether a name becomes a part of another text.
    pub fn is_joined(&self, name: &str) -> bool {
        self.joined.contains(name)
    }

    /// Notes that lists are parts of a command that was found.
    pub fn take(&self, lists: Vec<usize>) {
        self.taken.borrow_mut().extend(lists);
    }

    /// Whether a list is a part of a command that was found.
    pub fn is_taken(&self, list: Node<'_>) -> bool {
        self.taken.borrow().contains(&list.id())
    }

    /// Counts an inspected expression; false once the limit is reached.
    pub fn spend(&self) -> bool {
        self.steps.set(self.steps.get() + 1);
        self.steps.get() <= MOST_STEPS
    }

    /// The value of a name that is the same at every use, unless a condition excludes it where `at`
    /// is.
    pub fn value(&self, text: &'t str, at: Node<'t>) -> Option<Node<'t>> {
        let name = text.get(at.byte_range())?;
        let value = self.values.get(name).copied().flatten().filter(|_| !self.changed.contains(name))?;
        let Some(constant) = constant(text, value) else { return Some(value) };
        let facts = facts_at(text, at, &|| self.spend());
        let mut of_it = facts.iter().filter(|fact| fact.variable.name == name);
        of_it.all(|fact| fact.refine(Some(&constant)) == Refined::Same).then_some(value)
    }

    /// The constant that a tested name has.
    pub fn constant(&self, text: &'t str, variable: &TestedVariable) -> Option<String> {
        let name = variable.name.as_str();
        constant(text, self.values.get(name).copied().flatten().filter(|_| !self.changed.contains(name))?)
    }

    /// Whether the name that a node is assigned to is extended, or is added to something else.
    pub fn grows(&self, text: &'t str, node: Node<'t>) -> bool {
        let is_part = |parent: &Node<'_>| matches!(parent.kind(), "parenthesized_expression" | "binary_operator");
        let mut around = node.parent();
        // Each step up costs the depth of the tree.
        for _ in 0..MOST_AROUND {
            let Some(parent) = around.filter(is_part) else { break };
            around = parent.parent();
        }
        let Some(parent) = around else { return false };
        match parent.kind() {
            "assignment" => {
                let name = identifier(text, parent.child_by_field_name("left"));
                name.is_some_and(|name| self.changed.contains(name) || self.joined.contains(name))
            }
            "augmented_assignment" => true,
            _ => false,
        }
    }
}

/// Whether a module is of an engine's package, under its name or the usual one in a program.
pub fn is_package(module: &str) -> bool {
    matches!(module.split('.').next().unwrap_or_default(), "sgl" | "sglang" | "vllm")
}

/// Whether a part of a module's name is that of an engine, or of a plugin of one.
fn is_engines(part: &str) -> bool {
    is_package(part) || ["vllm_", "sglang_"].iter().any(|start| part.starts_with(start))
}

/// Whether an assignment adds the keys of another dictionary: `settings |= …`.
fn is_union(text: &str, assignment: Node<'_>) -> bool {
    let operator = assignment.child_by_field_name("operator");
    operator.is_some_and(|operator| text.get(operator.byte_range()) == Some("|="))
}

/// The name of a command in an argument: `command`, `args=command`, `shlex.split(command)`,
/// `" ".join(command)`.
fn command_name<'t>(text: &'t str, argument: Node<'_>) -> Option<&'t str> {
    match argument.kind() {
        "keyword_argument" => identifier(text, argument.child_by_field_name("value")),
        "call" => named_children(argument.child_by_field_name("arguments")?)
            .into_iter()
            .find_map(|inner| identifier(text, Some(inner))),
        _ => identifier(text, Some(argument)),
    }
}

/// `" ".join(…)`, or with a continued line.
fn is_joined_with_blanks(text: &str, call: Node<'_>) -> bool {
    let Some(function) = call.child_by_field_name("function").filter(|it| it.kind() == "attribute") else {
        return false;
    };
    let object = function.child_by_field_name("object").and_then(|object| text.get(object.byte_range()));
    identifier(text, function.child_by_field_name("attribute")) == Some("join")
        && object.is_some_and(|object| matches!(object.trim_matches(['"', '\'']), " " | " \\\n" | " \\\\\\n    "))
}

/// Whether a call only makes a text for a reader: `print(" ".join(command))`, also within a text
/// with other parts.
fn is_shown(text: &str, call: Node<'_>) -> bool {
    let mut inner = call;
    for _ in 0..MOST_AROUND_SHOWN {
        let Some(outer) = inner.parent() else { return false };
        match outer.kind() {
            "argument_list"
            | "binary_operator"
            | "concatenated_string"
            | "interpolation"
            | "keyword_argument"
            | "parenthesized_expression"
            | "string" => {}
            "call" if is_conversion(text, outer) => {}
            "call" => return function_name(text, outer).is_some_and(|name| WRITERS.contains(&name)),
            _ => return false,
        }
        inner = outer;
    }
    false
}

/// Whether a call starts a process.
pub fn is_starter(text: &str, call: Node<'_>) -> bool {
    function_name(text, call).is_some_and(|name| {
        let name = name.to_ascii_lowercase();
        STARTERS.contains(&name.as_str()) || PARTS_OF_STARTERS.iter().any(|part| name.contains(part))
    })
}

/// Whether a call makes a list or another text of a command.
pub fn is_conversion(text: &str, call: Node<'_>) -> bool {
    function_name(text, call).is_some_and(|name| CONVERSIONS.contains(&name))
}

/// The last name of the function of a call.
fn function_name<'t>(text: &'t str, call: Node<'_>) -> Option<&'t str> {
    let function = call.child_by_field_name("function")?;
    let name = function.child_by_field_name("attribute").unwrap_or(function);
    text.get(name.byte_range())
}
