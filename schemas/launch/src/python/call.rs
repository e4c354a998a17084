//! Calls of engine classes: `sgl.Engine(…)`, `LLM(…)`.

use schemas::flags::Lookup;
use serde_json::{Map, Value as Json};
use tree_sitter::Node;

use super::{
    super::{Engine, compose::Composed},
    names::Names,
    nodes::named_children,
    strings::{DEPTH, known, parts, span},
};

/// The engine that a call starts, if it calls an engine's class.
///
/// Other libraries have classes of the same names: a class of another module, or imported from one, is not an engine's.
pub fn engine(text: &str, names: &Names<'_>, call: Node<'_>) -> Option<Engine> {
    let function = text.get(call.child_by_field_name("function")?.byte_range())?;
    let name = function.rsplit('.').next()?;
    let module = function.rsplit_once('.').map_or("", |(module, _)| module);
    if names.is_foreign(name) || !(module.is_empty() || module.contains("vllm") || module.contains("sgl")) {
        return None;
    }
    let of_sglang = matches!(name, "Engine" | "ServerArgs") && !function.contains("create_engine");
    let of_vllm = matches!(name, "LLM" | "EngineArgs" | "AsyncEngineArgs");
    match () {
        () if of_sglang && (function.starts_with("sgl") || text.contains("sglang")) => Some(Engine::Sglang),
        () if of_vllm && text.contains("vllm") => Some(Engine::Vllm),
        () => None,
    }
}

/// A call as the command line that gives an engine the same arguments; `None` if it has none.
pub fn command<'t>(text: &'t str, names: &Names<'t>, engine: Engine, call: Node<'t>) -> Option<Composed> {
    let function = span(call.child_by_field_name("function")?);
    let arguments = call.child_by_field_name("arguments")?;
    let mut composed = Composed::default();
    composed.put_for(if engine == Engine::Vllm { "vllm serve" } else { "python3 -m sglang.launch_server" }, function);
    let (mut keywords, mut is_first) = (0, true);
    for argument in named_children(arguments) {
        match argument.kind() {
            "keyword_argument" => {
                keywords += 1;
                keyword(text, names, engine, argument, &mut composed)?;
            }
            "dictionary_splat" | "list_splat" => {
                composed.space();
                composed.unknown(span(argument));
            }
            _ if is_first && engine == Engine::Vllm => {
                composed.space();
                composed.put_for("--model", function);
                value(text, names, argument, &mut composed);
            }
            _ => {}
        }
        is_first = false;
    }
    (keywords > 0).then_some(composed)
}

fn keyword<'t>(
    text: &'t str,
    names: &Names<'t>,
    engine: Engine,
    argument: Node<'t>,
    composed: &mut Composed,
) -> Option<()> {
    let name = argument.child_by_field_name("name")?;
    let given = argument.child_by_field_name("value")?;
    if matches!(given.kind(), "false" | "none") {
        return Some(());
    }
    let flag = text.get(name.byte_range())?.replace('_', "-");
    // A call knows no abbreviations: such a name is a keyword of another version.
    if matches!(engine.registered().lookup(&flag, None), Lookup::Abbreviation(_) | Lookup::Ambiguous(_)) {
        return Some(());
    }
    composed.space();
    composed.put_for(&format!("--{flag}"), span(name));
    if given.kind() != "true" {
        value(text, names, given, composed);
    }
    Some(())
}

/// The words of a value.
fn value<'t>(text: &'t str, names: &Names<'t>, node: Node<'t>, composed: &mut Composed) {
    if let Some((word, place)) = parts(text, names, node, 0).as_deref().and_then(known) {
        composed.word(&word, place);
        return;
    }
    let resolved = match node.kind() {
        "identifier" => names.value(text, node).unwrap_or(node),
        _ => node,
    };
    match resolved.kind() {
        "dictionary" => match json(text, names, resolved, 0) {
            Some(json) => composed.word(&json.to_string(), span(resolved)),
            None => unknown(composed, node),
        },
        "list" | "tuple" => {
            for item in named_children(resolved) {
                match parts(text, names, item, 0).as_deref().and_then(known) {
                    Some((word, place)) => composed.word(&word, place),
                    None => unknown(composed, item),
                }
            }
        }
        _ => unknown(composed, node),
    }
}

fn unknown(composed: &mut Composed, node: Node<'_>) {
    composed.space();
    composed.unknown(span(node));
}

/// A constant value as JSON.
fn json<'t>(text: &'t str, names: &Names<'t>, node: Node<'t>, depth: usize) -> Option<Json> {
    if depth > DEPTH || !names.spend() {
        return None;
    }
    match node.kind() {
        "true" => Some(Json::Bool(true)),
        "false" => Some(Json::Bool(false)),
        "none" => Some(Json::Null),
        "integer" | "float" => serde_json::from_str(text.get(node.byte_range())?).ok(),
        "list" | "tuple" => named_children(node).into_iter().map(|item| json(text, names, item, depth + 1)).collect(),
        "dictionary" => {
            let mut object = Map::new();
            for pair in named_children(node) {
                let key = parts(text, names, pair.child_by_field_name("key")?, depth + 1)?;
                object.insert(known(&key)?.0, json(text, names, pair.child_by_field_name("value")?, depth + 1)?);
            }
            Some(Json::Object(object))
        }
        "identifier" => {
            let value = names.value(text, node)?;
            json(text, names, value, depth + 1)
        }
        _ => Some(Json::from(known(&parts(text, names, node, depth + 1)?)?.0)),
    }
}
