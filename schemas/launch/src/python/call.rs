//! Calls of engine classes: `sgl.Engine(…)`, `LLM(…)`.

use std::rc::Rc;

use schemas::{
    flags::{Arity, Lookup},
    keywords::Callee,
    text::Span,
};
use tree_sitter::Node;

use super::{
    super::{Engine, arguments::flag_names::FlagNames, compose::Composed},
    class::Class,
    dictionary::DictionaryPair,
    given::GivenArgument,
    lists::{ListNames, words, write},
    names::{PythonNames, is_package},
    nodes::{identifier, named_children},
    own_class::{Constructor, is_call_of_base},
    strings::{is_dict, json, known, parts, span},
};

/// The class of Ray Serve that describes a deployment: its `engine_kwargs` are arguments of vLLM,
/// unless it names another engine.
const OF_RAY: &str = "LLMConfig";

/// The class of what such a deployment loads.
const LOADING_OF_RAY: &str = "ModelLoadingConfig";

/// Keywords of engines' classes that are no flags: they give flags as an object, or functions.
const NO_FLAGS: [&str; 3] = ["custom_sigquit_handler", "engine_args", "server_args"];

/// The keyword of SGLang's `Runtime` that it does not pass on.
const OF_RUNTIME: &str = "launch_timeout";

/// The array with the keywords that branches give.
const BRANCHES: &str = "KEYWORDS";

/// Maximum number of nodes around a call that are searched for what handles its errors.
const MOST_AROUND: usize = 32;

/// The function of SGLang that starts a server with a model and a list of other arguments.
const STARTER_OF_SGLANG: &str = "popen_launch_server";

/// What a call of an engine's class starts.
pub struct Started<'t> {
    pub engine: Engine,
    /// The class's own name.
    name: &'t str,
    /// Arguments that the program has bound to the class.
    presets: Vec<Node<'t>>,
    /// Constructors of the program through which arguments go.
    constructors: Vec<Rc<Constructor<'t>>>,
    /// The class whose keywords it gives, if it is certainly the engine's own.
    pub callee: Option<Callee>,
    /// Whether the program goes on otherwise where the class refuses a keyword.
    pub is_tried: bool,
}

/// What a call starts, if it calls an engine's class: one of several where the program chooses the
/// class.
///
/// Other libraries have classes of the same names: a class of another module, or imported from one,
/// is not an engine's.
pub fn started<'t>(text: &'t str, names: &PythonNames<'t>, call: Node<'t>) -> Vec<Started<'t>> {
    let Some(function) = call.child_by_field_name("function") else { return Vec::new() };
    let written = text.get(function.byte_range()).unwrap_or_default();
    let (module, name) = written.rsplit_once('.').unwrap_or(("", written));
    if name == OF_RAY && text.contains("ray") && !text.contains("llm_engine") {
        let (presets, constructors) = Default::default();
        return vec![Started { engine: Engine::Vllm, name, presets, constructors, callee: None, is_tried: false }];
    }
    // Tests of the class itself start nothing.
    let is_dummy = || text.get(call.byte_range()).is_some_and(|call| call.contains("model_path=\"dummy\""));
    if name == "ServerArgs" && is_dummy() {
        return Vec::new();
    }
    let is_tried = is_tried(text, call);
    let with = |engine: Engine, name: &'t str, is_own: bool| {
        let callee = Callee::from_name(engine, name).filter(|_| is_own && !is_tried);
        Started { engine, name, presets: Vec::new(), constructors: Vec::new(), callee, is_tried }
    };
    let is_engines = module.is_empty() || module.contains("vllm") || module.contains("sgl");
    if is_engines
        && !names.is_foreign(name)
        && let Some(engine) = engine_of(text, module, name)
    {
        let is_own = if module.is_empty() { names.is_own(name) } else { is_package(module) };
        return vec![with(engine, name, is_own)];
    }
    let classes = match is_call_of_base(text, call) {
        true => Class::from_base(text, names, call).into_iter().collect(),
        false => Class::from_alias(text, names, function),
    };
    let own = classes.into_iter().filter(|class| is_package(class.module));
    let own = own.filter_map(|Class { module, name, presets, constructors }| {
        let started = with(engine_of(text, module, name)?, name, true);
        Some(Started { presets, constructors, ..started })
    });
    own.collect()
}

/// The engine that a class of a module starts, if it does.
fn engine_of(text: &str, module: &str, name: &str) -> Option<Engine> {
    let is_sglang = match name {
        "Engine" | "ServerArgs" => module.starts_with("sgl") || text.contains("sglang"),
        "Runtime" => is_package(module) && module.starts_with("sgl"),
        // A function of SGLang's tests and benchmarks.
        STARTER_OF_SGLANG => true,
        _ => false,
    };
    let is_vllm = matches!(name, "LLM" | "EngineArgs" | "AsyncEngineArgs") && text.contains("vllm");
    match () {
        () if is_sglang => Some(Engine::Sglang),
        () if is_vllm => Some(Engine::Vllm),
        () => None,
    }
}

/// Whether the program does something else where the class refuses a keyword.
fn is_tried(text: &str, call: Node<'_>) -> bool {
    let mut inner = call;
    for _ in 0..MOST_AROUND {
        let Some(outer) = inner.parent() else { return false };
        let is_body = outer.kind() == "try_statement" && outer.child_by_field_name("body") == Some(inner);
        let handlers = if is_body { named_children(outer) } else { Vec::new() };
        let of_handlers = handlers.into_iter().filter(|handler| handler.kind() == "except_clause");
        if of_handlers.into_iter().any(|handler| text.get(handler.byte_range()).is_some_and(handles_types)) {
            return true;
        }
        inner = outer;
    }
    false
}

fn handles_types(handler: &str) -> bool {
    handler.split(':').next().is_some_and(|caught| caught.contains("TypeError"))
}

/// A call as the command line that gives an engine the same arguments; `None` if it has none.
pub fn command<'t>(text: &'t str, names: &PythonNames<'t>, started: &Started<'t>, call: Node<'t>) -> Option<Composed> {
    let function = span(call.child_by_field_name("function")?);
    let arguments = call.child_by_field_name("arguments")?;
    if started.name == STARTER_OF_SGLANG {
        return server(text, names, function, arguments);
    }
    let is_vllm = started.engine == Engine::Vllm;
    let mut call = LaunchCall { text, names, started, composed: Composed::default(), branches: Composed::default() };
    call.composed.put_for(if is_vllm { "vllm serve" } else { "python3 -m sglang.launch_server" }, function);
    if started.name == OF_RAY {
        let given = named_children(arguments).into_iter().find_map(|one| value_of(text, one, "engine_kwargs"))?;
        let given = GivenArgument::from_dictionary(text, names, given)?;
        let keywords: usize = given.into_iter().map(|one| call.give(one)).sum();
        if let Some(model) = model_of_ray(text, names, arguments) {
            call.model(&model);
        }
        return (keywords > 0).then(|| call.finished());
    }
    let own = named_children(arguments);
    let is_replaced = |preset: &Node<'t>| {
        let name = preset.child_by_field_name("name").and_then(|name| text.get(name.byte_range()));
        name.is_some_and(|name| own.iter().any(|argument| value_of(text, *argument, name).is_some()))
    };
    let presets = started.presets.iter().filter(|preset| !is_replaced(preset)).copied();
    let mut given = GivenArgument::all(text, names, presets.chain(own.iter().copied()))?;
    for constructor in &started.constructors {
        given = constructor.passed(text, names, given, started.callee)?;
    }
    let mut model = given.iter().position(|one| matches!(one, GivenArgument::Positional(_))).filter(|_| is_vllm);
    let mut keywords = 0;
    for (place, argument) in given.into_iter().enumerate() {
        match argument {
            GivenArgument::Positional(node) if model.take_if(|model| *model == place).is_some() => {
                call.composed.space();
                call.composed.put_for("--model", function);
                value(text, names, node, &mut call.composed);
            }
            GivenArgument::Positional(_) => {}
            other => keywords += call.give(other),
        }
    }
    (keywords > 0).then(|| call.finished())
}

/// What Ray loads as the target: a source, or the identifier where there is none. `None` if
/// something else may give it.
fn model_of_ray<'t>(text: &'t str, names: &PythonNames<'t>, arguments: Node<'t>) -> Option<DictionaryPair<'t>> {
    let given = named_children(arguments).into_iter().find_map(|one| value_of(text, one, "model_loading_config"))?;
    let class = given.child_by_field_name("function").and_then(|function| text.get(function.byte_range()));
    let loading = match class.filter(|class| class.rsplit('.').next() == Some(LOADING_OF_RAY)) {
        Some(_) => {
            let own = named_children(given.child_by_field_name("arguments")?);
            GivenArgument::all(text, names, own.into_iter())?
        }
        None => GivenArgument::from_dictionary(text, names, given)?,
    };
    let pair = |one| match one {
        GivenArgument::Keyword(pair) => Some(pair),
        _ => None,
    };
    let mut pairs = loading.into_iter().map(pair).collect::<Option<Vec<DictionaryPair<'t>>>>()?;
    let source = pairs.iter().position(|pair| pair.name == "model_source" && pair.value.kind() != "none");
    let named = source.or_else(|| pairs.iter().position(|pair| pair.name == "model_id"))?;
    Some(pairs.swap_remove(named))
}

/// The command of a server of SGLang: `popen_launch_server(model, url, other_args=[…])`. `None` if
/// its arguments are assembled elsewhere.
fn server<'t>(text: &'t str, names: &PythonNames<'t>, function: Span, arguments: Node<'t>) -> Option<Composed> {
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

/// A call that becomes a command line.
struct LaunchCall<'t, 'n> {
    text: &'t str,
    names: &'n PythonNames<'t>,
    started: &'n Started<'t>,
    composed: Composed,
    /// The steps of the array with keywords that branches give.
    branches: Composed,
}

impl<'t> LaunchCall<'t, '_> {
    /// Adds an argument other than a positional one, and returns the number of keywords that it
    /// gives.
    fn give(&mut self, argument: GivenArgument<'t>) -> usize {
        match argument {
            GivenArgument::Keyword(pair) if pair.may_change => {
                self.flag_of_any_value((&pair.name, pair.place), pair.value);
            }
            GivenArgument::Keyword(pair) => self.flag((&pair.name, pair.place), pair.value),
            GivenArgument::Perhaps(pair) => self.flag_of_branch(&pair),
            GivenArgument::Others(node) | GivenArgument::Positional(node) => {
                unknown(&mut self.composed, node);
                return 0;
            }
        }
        1
    }

    /// The target. A source that is not text is not known.
    fn model(&mut self, pair: &DictionaryPair<'t>) {
        self.composed.space();
        self.composed.put_for("--model", pair.place);
        match parts(self.text, self.names, pair.value, 0).as_deref().and_then(known).filter(|_| !pair.may_change) {
            Some((word, place)) => self.composed.word(&word, place),
            None => unknown(&mut self.composed, pair.value),
        }
    }

    /// A keyword that a branch gives: a word of an array, to which a branch of a script adds it.
    fn flag_of_branch(&mut self, pair: &DictionaryPair<'t>) {
        let main = std::mem::take(&mut self.composed);
        self.composed.write(&format!("if maybe; then :\n{BRANCHES}+=("));
        self.flag((&pair.name, pair.place), pair.value);
        self.composed.write(" )\nfi\n");
        let branch = std::mem::replace(&mut self.composed, main);
        self.branches.append(&branch);
    }

    /// The whole command, after the steps of its array.
    fn finished(mut self) -> Composed {
        if self.branches.text.is_empty() {
            return self.composed;
        }
        let mut whole = Composed::default();
        whole.write(&format!("{BRANCHES}=()\n"));
        whole.append(&self.branches);
        self.composed.write(&format!(" \"${{{BRANCHES}[@]}}\"\n"));
        whole.append(&self.composed);
        whole
    }

    /// The flag of a keyword; `None` if the call gives it otherwise.
    fn spelling(&mut self, name: &str, given: Node<'t>) -> Option<String> {
        if self.started.name == "Runtime" && name == OF_RUNTIME {
            return None;
        }
        if NO_FLAGS.contains(&name) {
            unknown(&mut self.composed, given);
            return None;
        }
        let keyword = self.started.callee.and_then(|callee| callee.keyword(name, None));
        let flag = keyword.map_or_else(|| name.replace('_', "-"), |keyword| keyword.flag());
        // A call knows no abbreviations: of a class that is not certain, such a name is passed
        // over.
        let lookup = || self.started.engine.registered().lookup(&flag, None);
        let is_short =
            self.started.callee.is_none() && matches!(lookup(), Lookup::Abbreviation(_) | Lookup::Ambiguous(_));
        (!is_short).then(|| format!("--{flag}"))
    }

    /// A keyword whose value is not known.
    fn flag_of_any_value(&mut self, (name, place): (&str, Span), given: Node<'t>) {
        let Some(spelling) = self.spelling(name, given) else { return };
        if self.is_switch(&spelling) {
            return unknown(&mut self.composed, given);
        }
        self.composed.space();
        self.composed.put_for(&spelling, place);
        unknown(&mut self.composed, given);
    }

    /// A keyword with its place and value.
    fn flag(&mut self, (name, place): (&str, Span), given: Node<'t>) {
        let Some(spelling) = self.spelling(name, given) else { return };
        let (text, names) = (self.text, self.names);
        match names.value(text, given).filter(|_| given.kind() == "identifier").unwrap_or(given).kind() {
            "false" | "none" if self.is_known(name) => {}
            kind if self.is_switch(&spelling) && !matches!(kind, "true" | "false" | "none") => {
                unknown(&mut self.composed, given);
            }
            kind => {
                self.composed.space();
                self.composed.put_for(&spelling, place);
                if !matches!(kind, "true" | "false" | "none") {
                    value(text, names, given, &mut self.composed);
                }
            }
        }
    }

    /// Whether the class takes a keyword in some version, so that a value that is none, or not so,
    /// is that of one which is not given.
    fn is_known(&self, name: &str) -> bool {
        self.started.callee.is_none_or(|callee| callee.keyword(name, None).is_some())
    }

    fn is_switch(&self, spelling: &str) -> bool {
        let names = FlagNames {
            engine: self.started.engine,
            version: None,
            callee: self.started.callee,
            is_command_line: false,
            is_after_serve: false,
        };
        names.meaning(spelling).1 == Some(Arity::None)
    }
}

/// The words of a value.
fn value<'t>(text: &'t str, names: &PythonNames<'t>, node: Node<'t>, composed: &mut Composed) {
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
