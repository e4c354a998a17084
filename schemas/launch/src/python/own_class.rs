//! Classes and functions of a program that stand between a call and an engine's class: subclasses
//! with a constructor or fields of their own, and functions that return a class.

use std::{collections::HashSet, rc::Rc};

use tree_sitter::Node;

use super::nodes::{descendants, identifier, named_children};

/// Maximum number of nodes of a constructor that is read.
const MOST_NODES: usize = 1 << 12;

/// Maximum number of `return` of a function that is read.
const MOST_RETURNS: usize = 8;

/// Maximum number of parameters of a constructor that is read.
const MOST_PARAMETERS: usize = 1 << 8;

/// A class with one base.
pub struct OwnClass<'t> {
    pub base: Node<'t>,
    /// `None` if it takes the arguments of its base.
    pub constructor: Option<Rc<Constructor<'t>>>,
}

/// What decides which arguments of a call reach the base.
pub enum Constructor<'t> {
    Method(Method<'t>),
    /// The fields that a dataclass adds to those of its base, with their defaults.
    Fields(Vec<(&'t str, Option<Node<'t>>)>),
}

/// `__init__` with one call of the base's.
pub struct Method<'t> {
    /// Without `self`.
    pub parameters: Vec<ClassParameter<'t>>,
    /// What it gives the base.
    pub passed: Vec<Node<'t>>,
    /// Parameters that it changes, and collections of arguments that it uses elsewhere.
    pub changed: HashSet<&'t str>,
}

#[derive(Clone, Copy)]
pub struct ClassParameter<'t> {
    pub name: &'t str,
    pub kind: ParameterKind,
    pub default: Option<Node<'t>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ParameterKind {
    Positional,
    /// After `*`.
    Keyword,
    /// `*args`
    Others,
    /// `**kwargs`
    OtherKeywords,
}

impl<'t> OwnClass<'t> {
    /// `None` if it cannot be said which arguments reach its base.
    pub fn from_class(text: &'t str, class: Node<'t>) -> Option<Self> {
        let bases = class.child_by_field_name("superclasses").map(named_children).unwrap_or_default();
        let [base] = bases.as_slice() else { return None };
        let body = named_children(class.child_by_field_name("body")?);
        let decorators = decorators(text, class);
        let constructor = match body.iter().find_map(|child| constructor_of(text, *child)) {
            Some(method) => Some(Constructor::Method(Method::from_function(text, method?)?)),
            None if decorators.iter().any(|decorator| decorator.contains("dataclass")) => {
                Some(Constructor::Fields(body.into_iter().filter_map(|child| field(text, child)).collect()))
            }
            None => None,
        };
        Some(Self { base: *base, constructor: constructor.map(Rc::new) })
    }
}

/// `__init__`, or nothing known for `__new__` and one that is decorated; `None` for what is no
/// constructor.
fn constructor_of<'t>(text: &'t str, child: Node<'t>) -> Option<Option<Node<'t>>> {
    let is_decorated = child.kind() == "decorated_definition";
    let function = if is_decorated { child.child_by_field_name("definition")? } else { child };
    match identifier(text, function.child_by_field_name("name"))? {
        "__init__" => Some((!is_decorated).then_some(function)),
        "__new__" => Some(None),
        _ => None,
    }
}

fn decorators<'t>(text: &'t str, definition: Node<'t>) -> Vec<&'t str> {
    let around = definition.parent().filter(|parent| parent.kind() == "decorated_definition");
    let children = around.map(named_children).unwrap_or_default();
    let own = children.into_iter().filter(|child| child.kind() == "decorator");
    own.filter_map(|decorator| text.get(decorator.byte_range())).collect()
}

/// `name: type = default`
fn field<'t>(text: &'t str, statement: Node<'t>) -> Option<(&'t str, Option<Node<'t>>)> {
    let assignment = statement.named_child(0).filter(|child| child.kind() == "assignment")?;
    assignment.child_by_field_name("type")?;
    Some((identifier(text, assignment.child_by_field_name("left"))?, assignment.child_by_field_name("right")))
}

impl<'t> Method<'t> {
    fn from_function(text: &'t str, function: Node<'t>) -> Option<Self> {
        let parameters = parameters(text, function.child_by_field_name("parameters")?)?;
        let body = function.child_by_field_name("body")?;
        let nodes = descendants(body, MOST_NODES, |_| true)?;
        let calls: Vec<Node<'t>> = nodes.iter().copied().filter(|node| is_call_of_base(text, *node)).collect();
        let [call] = calls.as_slice() else { return None };
        // A branch may give other arguments, or none.
        let is_unconditional =
            call.parent().and_then(|statement| statement.parent()).is_some_and(|block| block == body);
        if !is_unconditional {
            return None;
        }
        let passed = named_children(call.child_by_field_name("arguments")?);
        let mut changed: HashSet<&'t str> = nodes.iter().filter_map(|node| assigned(text, *node)).flatten().collect();
        for parameter in &parameters {
            let is_collection = matches!(parameter.kind, ParameterKind::Others | ParameterKind::OtherKeywords);
            let uses = || nodes.iter().filter(|node| identifier(text, Some(**node)) == Some(parameter.name)).count();
            if is_collection && uses() > 1 {
                changed.insert(parameter.name);
            }
        }
        Some(Self { parameters, passed, changed })
    }
}

/// `super().__init__(…)`
pub fn is_call_of_base(text: &str, call: Node<'_>) -> bool {
    let is_super = |function: Node<'_>| {
        let object = function.child_by_field_name("object").filter(|object| object.kind() == "call")?;
        let of = identifier(text, object.child_by_field_name("function"))?;
        Some(of == "super" && identifier(text, function.child_by_field_name("attribute"))? == "__init__")
    };
    call.kind() == "call" && call.child_by_field_name("function").and_then(is_super) == Some(true)
}

/// The names that a statement gives a value.
fn assigned<'t>(text: &'t str, node: Node<'t>) -> Option<Vec<&'t str>> {
    let left = match node.kind() {
        "assignment" | "augmented_assignment" | "for_statement" => node.child_by_field_name("left"),
        "named_expression" => node.child_by_field_name("name"),
        "as_pattern" => node.child_by_field_name("alias"),
        "delete_statement" => Some(node),
        _ => None,
    }?;
    // `values["key"] = …` changes the name too.
    let names = descendants(left, MOST_NODES, |_| true)?;
    Some(names.into_iter().chain([left]).filter_map(|name| identifier(text, Some(name))).collect())
}

/// The parameters of a method after its first; `None` if one is not understood.
fn parameters<'t>(text: &'t str, list: Node<'t>) -> Option<Vec<ClassParameter<'t>>> {
    let mut kind = ParameterKind::Positional;
    let mut found = Vec::new();
    let nodes = named_children(list);
    if nodes.len() > MOST_PARAMETERS {
        return None;
    }
    for node in nodes.into_iter().skip(1) {
        let inner = if node.kind() == "typed_parameter" { node.named_child(0)? } else { node };
        let own = match inner.kind() {
            "identifier" | "default_parameter" | "typed_default_parameter" => kind,
            "list_splat_pattern" => ParameterKind::Others,
            "dictionary_splat_pattern" => ParameterKind::OtherKeywords,
            "keyword_separator" => {
                kind = ParameterKind::Keyword;
                continue;
            }
            "positional_separator" => continue,
            _ => return None,
        };
        if own == ParameterKind::Others {
            kind = ParameterKind::Keyword;
        }
        let name = match inner.kind() {
            "identifier" => Some(inner),
            "list_splat_pattern" | "dictionary_splat_pattern" => inner.named_child(0),
            _ => inner.child_by_field_name("name"),
        };
        let default = inner.child_by_field_name("value");
        found.push(ClassParameter { name: identifier(text, name)?, kind: own, default });
    }
    Some(found)
}

/// What a function may return, one expression for each `return`; `None` if that is not known.
pub fn returned<'t>(text: &'t str, function: Node<'t>) -> Option<Vec<Node<'t>>> {
    let is_async = text.get(function.byte_range())?.starts_with("async");
    let is_method =
        function.parent().and_then(|block| block.parent()).is_some_and(|it| it.kind() == "class_definition");
    if is_async || is_method || !decorators(text, function).iter().all(|decorator| decorator.contains("cache")) {
        return None;
    }
    let is_own = |node: Node<'_>| !matches!(node.kind(), "function_definition" | "lambda" | "class_definition");
    let nodes = descendants(function.child_by_field_name("body")?, MOST_NODES, is_own)?;
    let ends: Vec<Node<'t>> =
        nodes.into_iter().filter(|node| matches!(node.kind(), "return_statement" | "yield")).collect();
    if ends.len() > MOST_RETURNS || ends.iter().any(|end| end.kind() == "yield") {
        return None;
    }
    // A `return` of nothing gives nothing that can be called.
    Some(ends.into_iter().filter_map(|end| end.named_child(0)).collect())
}
