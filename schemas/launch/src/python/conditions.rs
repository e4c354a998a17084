//! What the conditions of a program say of the values of names.

use tree_sitter::Node;

use super::{
    super::condition::{Fact, LaunchCondition, Test, TestedVariable},
    nodes::{identifier, named_children},
};

/// Maximum nesting of a condition.
const DEEPEST: usize = 8;

/// Maximum number of nodes around a place that are searched for conditions.
const MOST_AROUND: usize = 64;

/// Maximum number of statements before a place, in one block, that are searched for an early end.
const MOST_BEFORE: usize = 32;

/// What is certain of names at a place: conditions of the branches around it, and of earlier
/// branches that end the function. The search ends where `may_go_on` says so.
pub fn facts_at<'t>(text: &'t str, node: Node<'t>, may_go_on: &dyn Fn() -> bool) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut inner = node;
    for _ in 0..MOST_AROUND {
        let Some(outer) = inner.parent().filter(|_| may_go_on()) else { break };
        facts.extend(within(text, outer, inner));
        if matches!(outer.kind(), "block" | "module") {
            facts.extend(after_ends(text, inner));
        }
        inner = outer;
    }
    facts
}

/// What is certain inside a child of a node.
fn within<'t>(text: &'t str, outer: Node<'t>, inner: Node<'t>) -> Vec<Fact> {
    let field = |name: &str| outer.child_by_field_name(name);
    let is = |name: &str| field(name) == Some(inner);
    let of = |node: Option<Node<'t>>, holds: bool| {
        node.map(|node| condition(text, node, 0).facts(holds)).unwrap_or_default()
    };
    match outer.kind() {
        "if_statement" | "elif_clause" if is("consequence") => of(field("condition"), true),
        "while_statement" if is("body") => of(field("condition"), true),
        "if_statement" if matches!(inner.kind(), "elif_clause" | "else_clause") => {
            let mut facts = of(field("condition"), false);
            let mut cursor = outer.walk();
            let others = outer.children_by_field_name("alternative", &mut cursor);
            for earlier in others.take_while(|other| *other != inner).take(MOST_BEFORE) {
                facts.extend(of(earlier.child_by_field_name("condition"), false));
            }
            facts
        }
        "conditional_expression" => match named_children(outer).as_slice() {
            [then, tested, _] if *then == inner => condition(text, *tested, 0).facts(true),
            [_, tested, other] if *other == inner => condition(text, *tested, 0).facts(false),
            _ => Vec::new(),
        },
        "boolean_operator" if is("right") => of(field("left"), operator(text, outer) == Some("and")),
        _ => Vec::new(),
    }
}

/// What is certain after the statements before one: a branch that ends the function did not run.
fn after_ends<'t>(text: &'t str, statement: Node<'t>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut before = statement.prev_named_sibling();
    for _ in 0..MOST_BEFORE {
        let Some(earlier) = before else { break };
        let tested = match earlier.kind() {
            "if_statement" if ends(text, earlier.child_by_field_name("consequence")) => {
                earlier.child_by_field_name("condition").map(|node| (node, false))
            }
            "assert_statement" => earlier.named_child(0).map(|node| (node, true)),
            _ => None,
        };
        facts.extend(tested.into_iter().flat_map(|(node, holds)| condition(text, node, 0).facts(holds)));
        before = earlier.prev_named_sibling();
    }
    facts
}

/// Whether the last statement of a block ends the function, the program or the round of a loop.
pub fn ends(text: &str, block: Option<Node<'_>>) -> bool {
    let count = block.map_or(0, |block| block.named_child_count());
    let last = block.and_then(|block| block.named_child(u32::try_from(count.checked_sub(1)?).ok()?));
    last.is_some_and(|last| match last.kind() {
        "return_statement" | "raise_statement" | "continue_statement" | "break_statement" => true,
        "expression_statement" => {
            let call = last.named_child(0).and_then(|call| call.child_by_field_name("function"));
            call.and_then(|function| text.get(function.byte_range()))
                .is_some_and(|name| matches!(name, "sys.exit" | "exit" | "os._exit"))
        }
        _ => false,
    })
}

/// A condition, as far as it is about names and constants.
pub fn condition<'t>(text: &'t str, node: Node<'t>, depth: usize) -> LaunchCondition {
    if depth > DEEPEST {
        return LaunchCondition::Unknown;
    }
    let inner = |node: Option<Node<'t>>| node.map_or(LaunchCondition::Unknown, |node| condition(text, node, depth + 1));
    match node.kind() {
        "parenthesized_expression" => inner(node.named_child(0)),
        "not_operator" => inner(node.child_by_field_name("argument")).negated(),
        "boolean_operator" => {
            let (left, right) = (inner(node.child_by_field_name("left")), inner(node.child_by_field_name("right")));
            if operator(text, node) == Some("and") { left.and(right) } else { left.or(right) }
        }
        "true" => LaunchCondition::Constant(true),
        "false" | "none" => LaunchCondition::Constant(false),
        "comparison_operator" => comparison(text, node),
        _ => tested(text, node).map_or(LaunchCondition::Unknown, |name| LaunchCondition::Test(name, Test::IsTruthy)),
    }
}

fn operator<'t>(text: &'t str, node: Node<'t>) -> Option<&'t str> {
    text.get(node.child_by_field_name("operator")?.byte_range())
}

fn comparison<'t>(text: &'t str, node: Node<'t>) -> LaunchCondition {
    let [left, right] = named_children(node).try_into().unwrap_or([node, node]);
    let between =
        text.get(left.end_byte()..right.start_byte()).map(|sign| sign.split_whitespace().collect::<Vec<_>>().join(" "));
    let Some(sign) = between.filter(|_| left != right) else { return LaunchCondition::Unknown };
    let (variable, other, is_swapped) = match (tested(text, left), tested(text, right)) {
        (Some(variable), _) => (variable, right, false),
        (None, Some(variable)) => (variable, left, true),
        (None, None) => return LaunchCondition::Unknown,
    };
    let equals = |text: String| LaunchCondition::Test(variable.clone(), Test::Equals(text));
    match (sign.as_str(), constant(text, other)) {
        ("==" | "is", Some(value)) => equals(value),
        ("!=" | "is not", Some(value)) => equals(value).negated(),
        ("in" | "not in", _) if !is_swapped => {
            let items: Option<Vec<String>> = match other.kind() {
                "list" | "tuple" | "set" => {
                    named_children(other).into_iter().map(|item| constant(text, item)).collect()
                }
                _ => None,
            };
            let any = items.and_then(|items| items.into_iter().map(equals).reduce(LaunchCondition::or));
            let any = any.unwrap_or(LaunchCondition::Test(variable, Test::Other));
            if sign == "in" { any } else { any.negated() }
        }
        (sign @ ("<" | ">" | "<=" | ">="), Some(value)) => {
            LaunchCondition::comparison(variable, sign, &value, is_swapped)
        }
        _ => LaunchCondition::Test(variable, Test::Other),
    }
}

/// The name that an expression is about: `n`, `int(n)`, `n.lower()`.
fn tested<'t>(text: &'t str, node: Node<'t>) -> Option<TestedVariable> {
    let name = match node.kind() {
        "call" => {
            let function = node.child_by_field_name("function")?;
            let name = identifier(text, Some(function));
            if !matches!(name, Some("int" | "str" | "bool" | "float" | "len")) {
                return None;
            }
            return tested(text, node.child_by_field_name("arguments")?.named_child(0)?);
        }
        "attribute" => text.get(node.byte_range())?,
        _ => identifier(text, Some(node))?,
    };
    Some(TestedVariable { name: name.to_owned(), default: None })
}

/// The text of a constant.
pub fn constant(text: &str, node: Node<'_>) -> Option<String> {
    let written = text.get(node.byte_range())?;
    match node.kind() {
        "integer" | "float" => Some(written.to_owned()),
        "unary_operator" if written.starts_with('-') => Some(written.to_owned()),
        "true" => Some("True".to_owned()),
        "false" => Some("False".to_owned()),
        "none" => Some("None".to_owned()),
        "string" => {
            let inner = named_children(node);
            match inner.iter().find(|child| child.kind() == "string_content") {
                Some(content) if inner.len() <= 3 && content.named_child_count() == 0 => {
                    text.get(content.byte_range()).map(str::to_owned)
                }
                Some(_) => None,
                None => Some(String::new()),
            }
        }
        _ => None,
    }
}
