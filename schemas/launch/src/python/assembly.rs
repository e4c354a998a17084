//! Lists of words that a program assembles in steps: `command = […]`, `command += […]`,
//! `command.append(…)`, in branches too. The steps of a function become a script of a shell that
//! assembles arrays, so that the paths through them are those through a script.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use super::{
    super::compose::Composed,
    conditions::{condition, ends},
    lists::{ListNames, ListWord, array_name, words, write},
    names::{PythonNames, is_conversion, is_starter},
    nodes::{identifier, named_children},
    strings::{DEPTH, parts},
};

/// Maximum number of statements of one function that are searched for steps.
const MOST_STATEMENTS: usize = 4096;

/// Maximum number of lists that are assembled together.
const MOST_LISTS: usize = 32;

/// The steps of the lists that belong together.
pub struct Assembled<'t> {
    /// The script.
    pub script: Composed,
    /// The names of the lists.
    pub lists: ListNames<'t>,
    /// The nodes of lists whose words are in the script.
    pub taken: Vec<usize>,
    /// Whether something that is not followed may add to them.
    pub is_open: bool,
}

struct Assembly<'t, 'n> {
    text: &'t str,
    names: &'n PythonNames<'t>,
    statements: usize,
    out: Assembled<'t>,
}

/// The script that assembles the list of an assignment, with the lists that are added to it or that
/// it is added to. `None` if it does not grow.
pub fn assembled<'t>(text: &'t str, names: &PythonNames<'t>, assignment: Node<'t>) -> Option<Assembled<'t>> {
    let name = identifier(text, assignment.child_by_field_name("left"))?;
    let body = body_around(assignment);
    let mut steps = Steps { text, names, found: BTreeMap::new(), lists: BTreeSet::new(), seen: 0 };
    steps.collect(body, 0);
    let lists = steps.connected(name)?;
    let parts: Vec<(&str, BTreeSet<&'t str>)> = lists.iter().map(|list| (*list, steps.parts_of(list))).collect();
    let is_added = |name: &str| parts.iter().any(|(other, inner)| *other != name && inner.contains(name));
    let roots: Vec<&'t str> = lists.iter().filter(|list| !is_added(list)).copied().collect();
    let out = Assembled { script: Composed::default(), lists, taken: Vec::new(), is_open: false };
    let mut assembly = Assembly { text, names, statements: 0, out };
    assembly.block(Some(body), 0);
    for root in roots {
        assembly.out.script.write(&format!("\n\"${{{}[@]}}\"", array_name(root)));
    }
    assembly.out.script.write("\n");
    Some(assembly.out)
}

/// The body of the function, or of the program, that a node is in.
fn body_around(node: Node<'_>) -> Node<'_> {
    let mut around = node;
    while let Some(parent) = around.parent() {
        if parent.kind() == "function_definition" && around.kind() == "block" {
            return around;
        }
        around = parent;
    }
    around
}

/// What the statements of a function add to lists.
struct Steps<'t, 'n> {
    text: &'t str,
    names: &'n PythonNames<'t>,
    /// The expressions that each name is assigned or extended by, and how many there are.
    found: BTreeMap<&'t str, Vec<Node<'t>>>,
    lists: BTreeSet<&'t str>,
    seen: usize,
}

impl<'t> Steps<'t, '_> {
    fn collect(&mut self, node: Node<'t>, depth: usize) {
        for child in named_children(node) {
            self.seen += 1;
            if self.seen > MOST_STATEMENTS || depth > DEPTH || !self.names.spend() {
                return;
            }
            match child.kind() {
                "function_definition" | "class_definition" | "decorated_definition" | "lambda" => {}
                "expression_statement" => named_children(child).into_iter().for_each(|inner| self.note(inner)),
                _ => self.collect(child, depth + 1),
            }
        }
    }

    fn note(&mut self, node: Node<'t>) {
        let (name, value) = match node.kind() {
            "assignment" | "augmented_assignment" => {
                let right = node.child_by_field_name("right");
                let name = identifier(self.text, node.child_by_field_name("left"));
                let is_list =
                    right.is_some_and(|right| words(self.text, self.names, &ListNames::new(), right, 0).is_some());
                self.lists.extend(name.filter(|_| is_list));
                (name, right)
            }
            "call" => {
                let function = node.child_by_field_name("function");
                let object = function.and_then(|function| function.child_by_field_name("object"));
                let name = identifier(self.text, object);
                (name, node.child_by_field_name("arguments"))
            }
            _ => return,
        };
        if let (Some(name), Some(value)) = (name, value) {
            self.found.entry(name).or_default().push(value);
        }
    }

    /// The lists among the names in the steps of a list.
    fn parts_of(&self, name: &str) -> BTreeSet<&'t str> {
        let mut inner = BTreeSet::new();
        for value in self.found.get(name).into_iter().flatten() {
            identifiers(self.text, self.names, *value, 0, &mut |found| {
                inner.extend(self.lists.get(found).filter(|list| **list != name));
            });
        }
        inner
    }

    /// The lists that belong together with one; `None` if it is assigned once and belongs to no
    /// other.
    fn connected(&self, name: &'t str) -> Option<ListNames<'t>> {
        let parts: BTreeMap<&str, BTreeSet<&'t str>> =
            self.lists.iter().take(MOST_LISTS).map(|list| (*list, self.parts_of(list))).collect();
        let mut all = BTreeSet::from([*self.lists.get(name)?]);
        loop {
            let before = all.len();
            for (list, inner) in &parts {
                if inner.iter().any(|part| all.contains(part)) {
                    all.extend(self.lists.get(list));
                }
                if all.contains(list) {
                    all.extend(inner);
                }
            }
            if all.len() == before {
                break;
            }
        }
        let grows = self.found.get(name).is_some_and(|steps| steps.len() > 1);
        let is_plain = |name: &&str| schemas::text::is_variable_name(name);
        ((grows || all.len() > 1) && all.iter().all(is_plain)).then_some(all)
    }
}

fn identifiers<'t>(
    text: &'t str,
    names: &PythonNames<'t>,
    node: Node<'t>,
    depth: usize,
    found: &mut impl FnMut(&'t str),
) {
    if let Some(name) = identifier(text, Some(node)) {
        found(name);
    }
    if depth <= DEPTH && names.spend() {
        named_children(node).into_iter().for_each(|child| identifiers(text, names, child, depth + 1, found));
    }
}

impl<'t> Assembly<'t, '_> {
    fn words(&self, node: Node<'t>) -> Option<Vec<ListWord<'t>>> {
        words(self.text, self.names, &self.out.lists, node, 0)
    }

    fn array(&mut self, name: &str, sign: &str, words: &[ListWord<'t>]) {
        self.out.script.write(&format!("\n{}{sign}(", array_name(name)));
        self.out.taken.extend(words.iter().filter_map(|word| match word {
            ListWord::Parts(node, _) | ListWord::Unknown(node) => node.parent().map(|list| list.id()),
            ListWord::List(_) => None,
        }));
        write(&mut self.out.script, words, self.names.is_named_joined(name));
        self.out.script.write(" )");
    }

    fn block(&mut self, block: Option<Node<'t>>, depth: usize) {
        for statement in block.map(named_children).unwrap_or_default() {
            self.statement(statement, depth + 1);
        }
        if depth > 0 && ends(self.text, block) {
            self.out.script.write("\nreturn");
        }
    }

    fn statement(&mut self, node: Node<'t>, depth: usize) {
        self.statements += 1;
        if self.statements > MOST_STATEMENTS || depth > DEPTH {
            self.out.is_open = true;
            return;
        }
        match node.kind() {
            "expression_statement" => named_children(node).into_iter().for_each(|child| self.expression(child)),
            "if_statement" => self.branches(node, depth),
            "with_statement" => self.block(node.child_by_field_name("body"), depth),
            "for_statement" | "while_statement" | "try_statement" | "match_statement" if self.mentions(node) => {
                self.out.script.write("\nif maybe; then :");
                self.inner_blocks(node, depth);
                self.out.script.write("\nfi");
            }
            _ => {}
        }
    }

    /// All blocks of a statement, of which each may run.
    fn inner_blocks(&mut self, node: Node<'t>, depth: usize) {
        for child in named_children(node) {
            match child.kind() {
                "block" => named_children(child).into_iter().for_each(|statement| self.statement(statement, depth + 1)),
                "except_clause" | "finally_clause" | "else_clause" | "case_clause" if depth <= DEPTH => {
                    self.inner_blocks(child, depth + 1);
                }
                _ => {}
            }
        }
    }

    fn branches(&mut self, node: Node<'t>, depth: usize) {
        if !self.mentions(node) {
            return;
        }
        self.branch("if", node, depth);
        let mut cursor = node.walk();
        let others: Vec<Node<'t>> = node.children_by_field_name("alternative", &mut cursor).collect();
        for other in others {
            match other.kind() {
                "elif_clause" => self.branch("elif", other, depth),
                _ => {
                    self.out.script.write("\nelse :");
                    self.block(other.child_by_field_name("body"), depth);
                }
            }
        }
        self.out.script.write("\nfi");
    }

    fn branch(&mut self, word: &str, node: Node<'t>, depth: usize) {
        let (text, names) = (self.text, self.names);
        let tested = node.child_by_field_name("condition").map(|node| condition(text, node, 0));
        let outcome = tested.and_then(|tested| tested.outcome(&|variable| names.constant(text, variable)));
        let outcome = outcome.map_or("maybe".to_owned(), |outcome| outcome.to_string());
        self.out.script.write(&format!("\n{word} {outcome}; then :"));
        self.block(node.child_by_field_name("consequence"), depth);
    }

    /// Whether a statement names one of the lists.
    fn mentions(&self, node: Node<'t>) -> bool {
        let mut is_named = false;
        identifiers(self.text, self.names, node, 0, &mut |name| is_named |= self.out.lists.contains(name));
        is_named
    }

    /// The list that a node names.
    fn list(&self, node: Option<Node<'t>>) -> Option<&'t str> {
        self.out.lists.get(identifier(self.text, node)?).copied()
    }

    fn expression(&mut self, node: Node<'t>) {
        let left = self.list(node.child_by_field_name("left"));
        match (node.kind(), left, node.child_by_field_name("right")) {
            ("assignment", Some(name), Some(right)) => match self.words(right) {
                Some(words) => match words.split_first() {
                    // `name = name + […]`.
                    Some((ListWord::List(first), rest)) if *first == name => self.array(name, "+=", rest),
                    _ => self.array(name, "=", &words),
                },
                None => self.array(name, "=", &[ListWord::Unknown(right)]),
            },
            ("augmented_assignment", Some(name), Some(right)) => match self.words(right) {
                Some(words) => self.array(name, "+=", &words),
                None => self.array(name, "+=", &[ListWord::Unknown(right)]),
            },
            ("call", ..) => self.call(node),
            // What a function returns may be another list.
            ("assignment", None, Some(right)) if right.kind() == "call" => self.call(right),
            _ => {}
        }
    }

    fn call(&mut self, node: Node<'t>) {
        let (function, arguments) = (node.child_by_field_name("function"), node.child_by_field_name("arguments"));
        let (Some(function), Some(arguments)) = (function, arguments.map(named_children)) else { return };
        let Some(name) = self.list(function.child_by_field_name("object")) else {
            // A function that is given a list may add to it.
            let is_given = arguments.iter().any(|one| self.list(Some(*one)).is_some());
            let is_known = is_starter(self.text, node) || is_conversion(self.text, node) || self.prints(function);
            self.out.is_open |= is_given && !is_known;
            return;
        };
        let method = identifier(self.text, function.child_by_field_name("attribute"));
        let added = match (method, arguments.first()) {
            (Some("append"), Some(item)) => Some(vec![match parts(self.text, self.names, *item, 0) {
                Some(parts) => ListWord::Parts(*item, parts),
                None => ListWord::Unknown(*item),
            }]),
            (Some("extend"), Some(list)) => self.words(*list),
            (Some("append" | "extend" | "insert" | "remove" | "pop" | "clear"), _) => None,
            _ => return,
        };
        self.array(name, "+=", &added.unwrap_or_else(|| vec![ListWord::Unknown(node)]));
    }

    fn prints(&self, function: Node<'t>) -> bool {
        let name = self.text.get(function.byte_range()).unwrap_or_default();
        name == "print"
            || name.starts_with("log")
            || [".info", ".debug", ".warning"].iter().any(|end| name.ends_with(end))
    }
}
