//! Strings of a program, with the place of each part.

use schemas::text::Span;
use serde_json::{Map, Value as Json};
use tree_sitter::Node;

use super::{super::compose::Composed, names::PythonNames, nodes::named_children, numbers::integer};

/// How deep expressions are followed.
pub const DEPTH: usize = 12;

/// A part of a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StringPart {
    Text(String, Span),
    /// What the program fills in at run time.
    Unknown(Span),
}

pub fn span(node: Node<'_>) -> Span {
    let range = node.byte_range();
    Span::new(range.start, range.end)
}

/// The parts of an expression that is a text; nothing where it is something else.
pub fn parts<'t>(text: &'t str, names: &PythonNames<'t>, node: Node<'t>, depth: usize) -> Option<Vec<StringPart>> {
    if depth > DEPTH || !names.spend() {
        return None;
    }
    let each = |nodes: Vec<Node<'t>>| -> Option<Vec<StringPart>> {
        let parts = nodes.into_iter().map(|node| parts(text, names, node, depth + 1)).collect::<Option<Vec<_>>>()?;
        Some(parts.concat())
    };
    if matches!(node.kind(), "unary_operator" | "binary_operator")
        && let Some(number) = integer(text, names, node, depth)
    {
        return Some(vec![StringPart::Text(number.to_string(), span(node))]);
    }
    match node.kind() {
        "string" => Some(string_parts(text, names, node, depth)),
        "concatenated_string" => each(named_children(node)),
        "parenthesized_expression" => parts(text, names, node.named_child(0)?, depth + 1),
        "integer" | "float" => Some(vec![StringPart::Text(text.get(node.byte_range())?.to_owned(), span(node))]),
        // The interpreter that runs the program: which one that is does not matter to the engine.
        "attribute" if text.get(node.byte_range()) == Some("sys.executable") => {
            Some(vec![StringPart::Text("python3".into(), span(node))])
        }
        "binary_operator" if text.get(node.child_by_field_name("operator")?.byte_range()) == Some("+") => {
            let (left, right) = (node.child_by_field_name("left")?, node.child_by_field_name("right")?);
            let is_text = |node: Node<'_>| {
                matches!(node.kind(), "string" | "concatenated_string" | "binary_operator" | "parenthesized_expression")
            };
            if !is_text(left) && !is_text(right) {
                return None;
            }
            let side = |node: Node<'t>| parts(text, names, node, depth + 1);
            let (left_parts, right_parts) = (side(left), side(right));
            if left_parts.is_none() && right_parts.is_none() {
                return None;
            }
            let or_unknown = |parts: Option<Vec<StringPart>>, node: Node<'_>| {
                parts.unwrap_or_else(|| vec![StringPart::Unknown(span(node))])
            };
            Some([or_unknown(left_parts, left), or_unknown(right_parts, right)].concat())
        }
        "identifier" => {
            let value = names.value(text, node)?;
            let inner = match value.kind() {
                "string" | "concatenated_string" | "integer" | "float" => parts(text, names, value, depth + 1)?,
                _ => vec![StringPart::Text(integer(text, names, value, depth + 1)?.to_string(), span(value))],
            };
            // Its text is where it is assigned.
            Some(inner)
        }
        // `str(8)`, and `"…".strip()`.
        "call" => {
            let function = node.child_by_field_name("function")?;
            let arguments = node.child_by_field_name("arguments")?;
            match function.kind() {
                "identifier"
                    if text.get(function.byte_range()) == Some("str") && arguments.named_child_count() == 1 =>
                {
                    parts(text, names, arguments.named_child(0)?, depth + 1)
                }
                "attribute" if text.get(function.byte_range()) == Some("json.dumps") => {
                    let object = arguments.named_child(0)?;
                    let json = json(text, names, object, depth + 1)?;
                    Some(vec![StringPart::Text(json.to_string(), span(object))])
                }
                "attribute"
                    if matches!(
                        text.get(function.child_by_field_name("attribute")?.byte_range()),
                        Some("strip" | "split")
                    ) =>
                {
                    parts(text, names, function.child_by_field_name("object")?, depth + 1)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// A constant value as JSON.
pub fn json<'t>(text: &'t str, names: &PythonNames<'t>, node: Node<'t>, depth: usize) -> Option<Json> {
    if depth > DEPTH || !names.spend() {
        return None;
    }
    let inner = |node: Node<'t>| json(text, names, node, depth + 1);
    match node.kind() {
        "true" => Some(Json::Bool(true)),
        "false" => Some(Json::Bool(false)),
        "none" => Some(Json::Null),
        "float" => serde_json::from_str(text.get(node.byte_range())?).ok(),
        "integer" | "unary_operator" => integer(text, names, node, depth).map(Json::from),
        "list" | "tuple" => named_children(node).into_iter().map(inner).collect(),
        "dictionary" => {
            let mut object = Map::new();
            for pair in named_children(node) {
                let key = parts(text, names, pair.child_by_field_name("key")?, depth + 1)?;
                object.insert(known(&key)?.0, inner(pair.child_by_field_name("value")?)?);
            }
            Some(Json::Object(object))
        }
        "call" if is_dict(text, node) => {
            let mut object = Map::new();
            for keyword in named_children(node.child_by_field_name("arguments")?) {
                let name = text.get(keyword.child_by_field_name("name")?.byte_range())?;
                object.insert(name.to_owned(), inner(keyword.child_by_field_name("value")?)?);
            }
            Some(Json::Object(object))
        }
        "identifier" => inner(names.value(text, node)?),
        _ => match integer(text, names, node, depth) {
            Some(number) => Some(Json::from(number)),
            None => Some(Json::from(known(&parts(text, names, node, depth + 1)?)?.0)),
        },
    }
}

/// Whether a call is `dict(…)`, or of vLLM's class for the same keys: `SpeculativeConfig(…)`.
pub fn is_dict(text: &str, call: Node<'_>) -> bool {
    let function = call.child_by_field_name("function").and_then(|name| text.get(name.byte_range()));
    let is_own = |name: &str| name == "dict" || name.rsplit('.').next() == Some("SpeculativeConfig");
    call.kind() == "call" && function.is_some_and(is_own)
}

fn string_parts<'t>(text: &'t str, names: &PythonNames<'t>, node: Node<'t>, depth: usize) -> Vec<StringPart> {
    let mut found = Vec::new();
    let is_raw =
        node.child(0).and_then(|start| text.get(start.byte_range())).is_some_and(|start| start.contains(['r', 'R']));
    for child in named_children(node) {
        match child.kind() {
            "string_content" => content(text, child, is_raw, &mut found),
            "interpolation" => {
                let inner =
                    child.child_by_field_name("expression").and_then(|inner| parts(text, names, inner, depth + 1));
                match inner {
                    Some(inner) if child.named_child_count() == 1 => found.extend(inner),
                    _ => found.push(StringPart::Unknown(span(child))),
                }
            }
            _ => {}
        }
    }
    found
}

fn content(text: &str, node: Node<'_>, is_raw: bool, found: &mut Vec<StringPart>) {
    let verbatim = |from: usize, to: usize| {
        let part = text.get(from..to).filter(|part| !part.is_empty())?;
        Some(StringPart::Text(part.to_owned(), Span::new(from, to)))
    };
    let mut at = node.start_byte();
    for child in named_children(node) {
        found.extend(verbatim(at, child.start_byte()));
        at = child.end_byte();
        let written = text.get(child.byte_range()).unwrap_or_default();
        let meant = match written {
            _ if is_raw && written.starts_with('\\') => written,
            "\\n" => "\n",
            "\\t" => "\t",
            "\\r" => "\r",
            "\\\"" => "\"",
            "\\'" => "'",
            "\\\\" => "\\",
            "\\\n" | "\\\r\n" => "",
            "{{" => "{",
            "}}" => "}",
            other => other,
        };
        if !meant.is_empty() {
            found.push(StringPart::Text(meant.to_owned(), span(child)));
        }
    }
    found.extend(verbatim(at, node.end_byte()));
}

/// The text of parts that are all known, and its place.
pub fn known(parts: &[StringPart]) -> Option<(String, Span)> {
    let mut whole = String::new();
    let mut place: Option<Span> = None;
    for part in parts {
        let StringPart::Text(text, span) = part else { return None };
        whole.push_str(text);
        place = Some(place.map_or(*span, |place| place.join(*span)));
    }
    Some((whole, place?))
}

/// Adds a text verbatim.
pub fn copy(composed: &mut Composed, parts: &[StringPart]) {
    let mut before: Option<&StringPart> = None;
    for part in parts {
        // What the program decides to add ends before a flag.
        if let (Some(StringPart::Unknown(_)), StringPart::Text(text, _)) = (before.replace(part), part)
            && text.starts_with("--")
        {
            composed.space();
        }
        match part {
            StringPart::Text(text, span) => composed.copy(text, *span),
            StringPart::Unknown(span) => composed.unknown(*span),
        }
    }
}
