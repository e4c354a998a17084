//! Calls of engine classes: `sgl.Engine(…)`, `LLM(…)`.

use schemas::{
    flags::{Arity, Lookup},
    text::Span,
};
use tree_sitter::Node;

use super::{
    super::{Engine, arguments::split::meaning, compose::Composed},
    dictionary::DictionaryPairs,
    lists::{ListNames, words, write},
    names::Names,
    nodes::{identifier, named_children},
    strings::{is_dict, json, known, parts, span},
};

/// The class of Ray Serve that describes a deployment: its `engine_kwargs` are arguments of vLLM,
/// unless it names another engine.
const OF_RAY: &str = "LLMConfig";

/// Keywords of engines' classes that are no flags: they give flags as an object, or functions.
const NO_FLAGS: [&str; 3] = ["custom_sigquit_handler", "engine_args", "server_args"];

/// The function of SGLang that starts a server with a model and a list of other arguments.
const STARTER_OF_SGLANG: &str = "popen_launch_server";

/// The engine that a call starts, if it calls an engine's class.
///
/// Other libraries have classes of the same names: a class of another module, or imported from one,
/// is not an engine's.
pub fn engine(text: &str, names: &Names<'_>, call: Node<'_>) -> Option<Engine> {
    let function = text.get(call.child_by_field_name("function")?.byte_range())?;
    let name = function.rsplit('.').next()?;
    let module = function.rsplit_once('.').map_or("", |(module, _)| module);
    let is_of_ray = name == OF_RAY && text.contains("ray") && !text.contains("llm_engine");
    if is_of_ray {
        return Some(Engine::Vllm);
    }
    if names.is_foreign(name) || !(module.is_empty() || module.contains("vllm") || module.contains("sgl")) {
        return None;
    }
    let is_sglang = matches!(name, "Engine" | "ServerArgs") && !function.contains("create_engine");
    let is_vllm = matches!(name, "LLM" | "EngineArgs" | "AsyncEngineArgs");
    match () {
        // A function of SGLang's tests and benchmarks.
        () if name == STARTER_OF_SGLANG => Some(Engine::Sglang),
        () if is_sglang && (function.starts_with("sgl") || text.contains("sglang")) => Some(Engine::Sglang),
        () if is_vllm && text.contains("vllm") => Some(Engine::Vllm),
        () => None,
    }
}

/// A call as the command line that gives an engine the same arguments; `None` if it has none.
pub fn command<'t>(text: &'t str, names: &Names<'t>, engine: Engine, call: Node<'t>) -> Option<Composed> {
    let name = call.child_by_field_name("function")?;
    let function = span(name);
    let arguments = call.child_by_field_name("arguments")?;
    let last = text.get(name.byte_range())?.rsplit('.').next();
    if last == Some(STARTER_OF_SGLANG) {
        return server(text, names, function, arguments);
    }
    let mut composed = Composed::default();
    if last == Some(OF_RAY) {
        composed.put_for("vllm serve", function);
        let given = named_children(arguments).into_iter().find_map(|one| value_of(text, one, "engine_kwargs"))?;
        return (splat_of(text, names, engine, given, &mut composed)? > 0).then_some(composed);
    }
    composed.put_for(if engine == Engine::Vllm { "vllm serve" } else { "python3 -m sglang.launch_server" }, function);
    let (mut keywords, mut is_first) = (0, true);
    for argument in named_children(arguments) {
        match argument.kind() {
            "keyword_argument" => {
                keywords += 1;
                keyword(text, names, engine, argument, &mut composed)?;
            }
            "dictionary_splat" => keywords += splat(text, names, engine, argument, &mut composed)?,
            "list_splat" => unknown(&mut composed, argument),
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

/// The command of a server of SGLang: `popen_launch_server(model, url, other_args=[…])`. `None` if
/// its arguments are assembled elsewhere.
fn server<'t>(text: &'t str, names: &Names<'t>, function: Span, arguments: Node<'t>) -> Option<Composed> {
    let arguments = named_children(arguments);
    let keyword = |name: &str| arguments.iter().find_map(|one| value_of(text, *one, name));
    let positional = arguments.first().filter(|first| first.kind() != "keyword_argument").copied();
    let others = keyword("other_args")?;
    let words = words(text, names, &ListNames::new(), others, 0)?;
    let mut composed = Composed::default();
    composed.put_for("python3 -m sglang.launch_server", function);
    composed.space();
    composed.put_for("--model-path", function);
    match positional.or_else(|| keyword("model")) {
        Some(model) => value(text, names, model, &mut composed),
        None => composed.unknown(function),
    }
    write(&mut composed, &words, false);
    Some(composed)
}

/// The value of a keyword argument of this name.
fn value_of<'t>(text: &str, argument: Node<'t>, name: &str) -> Option<Node<'t>> {
    let is_it =
        argument.kind() == "keyword_argument" && identifier(text, argument.child_by_field_name("name")) == Some(name);
    argument.child_by_field_name("value").filter(|_| is_it)
}

/// The keywords of `**settings`, and their number; an unknown word unless it is a dictionary that
/// nothing changes.
fn splat<'t>(
    text: &'t str,
    names: &Names<'t>,
    engine: Engine,
    splat: Node<'t>,
    composed: &mut Composed,
) -> Option<usize> {
    splat_of(text, names, engine, splat.named_child(0)?, composed)
}

/// The keywords of a dictionary, or of the name of one.
fn splat_of<'t>(
    text: &'t str,
    names: &Names<'t>,
    engine: Engine,
    own: Node<'t>,
    composed: &mut Composed,
) -> Option<usize> {
    let is_named = own.kind() == "identifier";
    let given = if is_named { names.value(text, own) } else { Some(own) };
    let name = text.get(own.byte_range()).unwrap_or_default();
    let updates = if is_named { names.updates(text, name, own.start_byte()) } else { Some(Vec::new()) };
    let mut pairs = DictionaryPairs::default();
    match given.filter(|given| given.kind() == "dictionary" || is_dict(text, *given)).zip(updates) {
        Some((given, updates)) => {
            pairs.add_all(text, names, given)?;
            updates.into_iter().try_for_each(|update| pairs.change(text, names, update, own))?;
        }
        None => pairs.others.push(own),
    }
    pairs.others.iter().for_each(|other| unknown(composed, *other));
    pairs.known.iter().for_each(|(name, place, given)| flag(text, names, engine, (name, *place), *given, composed));
    Some(pairs.known.len())
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
    flag(text, names, engine, (text.get(name.byte_range())?, span(name)), given, composed);
    Some(())
}

/// The flag of a keyword, with its place.
fn flag<'t>(
    text: &'t str,
    names: &Names<'t>,
    engine: Engine,
    (name, place): (&str, Span),
    given: Node<'t>,
    composed: &mut Composed,
) {
    let flag = name.replace('_', "-");
    // A call knows no abbreviations: such a name is a keyword of another version.
    let is_short = matches!(engine.registered().lookup(&flag, None), Lookup::Abbreviation(_) | Lookup::Ambiguous(_));
    if is_short {
        return;
    }
    if NO_FLAGS.contains(&name) {
        return unknown(composed, given);
    }
    let spelling = format!("--{flag}");
    let is_switch = meaning(&spelling, engine, None).1 == Some(Arity::None);
    match names.value(text, given).filter(|_| given.kind() == "identifier").unwrap_or(given).kind() {
        "false" | "none" => {}
        kind if is_switch && kind != "true" => unknown(composed, given),
        kind => {
            composed.space();
            composed.put_for(&spelling, place);
            if kind != "true" {
                value(text, names, given, composed);
            }
        }
    }
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
        "dictionary" | "call" if resolved.kind() == "dictionary" || is_dict(text, resolved) => {
            match json(text, names, resolved, 0) {
                Some(json) => composed.word(&json.to_string(), span(resolved)),
                None => unknown(composed, node),
            }
        }
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
