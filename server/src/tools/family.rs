//! How families of models write calls of functions, and how that is read.

use engine::text::Text;
use serde_json::{Map, Value};

use super::{super::grammar::with_white_space, Call, Function};

/// A way of writing calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes, Qwen, MiMo, and whoever is told so.
    Hermes,
    /// `{"name": …, "parameters": …}` and nothing else, perhaps after `<|python_tag|>`: Llama 3.
    Llama,
    /// `[TOOL_CALLS]` and a list of `{"name": …, "arguments": …}`, or in newer ones `NAME[ARGS]{…}`: Mistral.
    Mistral,
    /// `<tool_call>NAME` and `<arg_key>`, `<arg_value>` for each argument: GLM-4.5.
    Glm,
    /// `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME` and fenced JSON: DeepSeek-V3 and R1.
    DeepSeek,
}

const CALLS_BEGIN: &str = "<｜tool▁calls▁begin｜>";
const CALLS_END: &str = "<｜tool▁calls▁end｜>";
const CALL_BEGIN: &str = "<｜tool▁call▁begin｜>";
const CALL_END: &str = "<｜tool▁call▁end｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const PYTHON_TAG: &str = "<|python_tag|>";
const MISTRAL: &str = "[TOOL_CALLS]";

impl Family {
    /// That of a model, told by its chat template.
    pub fn of_template(source: &str) -> Self {
        let says = |word: &str| source.contains(word);
        if says("<arg_key>") {
            Self::Glm
        } else if says("tool▁call") {
            Self::DeepSeek
        } else if says(MISTRAL) {
            Self::Mistral
        } else if says("<tool_call>") {
            Self::Hermes
        } else if says("python_tag") || says("ipython") {
            Self::Llama
        } else {
            Self::Hermes
        }
    }

    /// What a call, or the first of several, begins with; an answer of Llama's is a call from its first character on.
    pub fn markers(self) -> &'static [&'static str] {
        match self {
            Self::Hermes | Self::Glm => &["<tool_call>"],
            Self::Llama => &[PYTHON_TAG, "{"],
            Self::Mistral => &[MISTRAL],
            Self::DeepSeek => &[CALLS_BEGIN],
        }
    }

    /// Whether a marker counts only at the start of an answer.
    pub fn begins_with_call(self) -> bool {
        self == Self::Llama
    }

    /// The id of a call. Mistral's templates take nine characters and no others.
    pub fn call_id(self, random: u64) -> String {
        if self == Self::Mistral { format!("{:09x}", random & 0xF_FFFF_FFFF) } else { format!("call_{random:016x}") }
    }

    /// An answer's content and the calls in it. Where calls cannot be read all of it is content.
    pub fn parse(self, answer: &str, functions: &[Function]) -> (String, Vec<Call>) {
        let known = |call: &Call| functions.iter().any(|function| function.name == call.name);
        let parsed = match self {
            Self::Hermes => hermes(answer),
            Self::Llama => llama(answer),
            Self::Mistral => mistral(answer),
            Self::Glm => glm(answer, functions),
            Self::DeepSeek => deep_seek(answer),
        };
        match parsed {
            Some((content, calls)) if !calls.is_empty() && calls.iter().all(known) => (content.trim().into(), calls),
            _ => (answer.to_owned(), Vec::new()),
        }
    }

    /// The grammar of one call of some functions, or of several, in llguidance's language.
    pub fn grammar(self, functions: &[&Function], several: bool, text: &Text) -> String {
        let literal = |marker: &str| match text.special_token(marker) {
            Some(id) => format!("<[{id}]>"),
            None => quoted(marker),
        };
        let mut rules = String::new();
        let mut names = Vec::new();
        for (at, function) in functions.iter().enumerate() {
            names.push(format!("call_{at}"));
            let name = &function.name;
            let body = match self {
                Self::Glm => glm_arguments(at, function, &mut rules),
                _ => {
                    let schema = with_white_space(function.parameters.clone());
                    rules.push_str(&format!("args_{at}: %json {schema}\n"));
                    format!("args_{at}")
                }
            };
            let call = match self {
                Self::Hermes => format!(
                    "{} {} {body} {} {}",
                    literal("<tool_call>"),
                    quoted(&format!("\n{{\"name\": \"{name}\", \"arguments\": ")),
                    quoted("}\n"),
                    literal("</tool_call>")
                ),
                Self::Llama => {
                    format!("{} {body} \"}}\"", quoted(&format!("{{\"name\": \"{name}\", \"parameters\": ")))
                }
                Self::Mistral => {
                    format!("{} {body} \"}}\"", quoted(&format!("{{\"name\": \"{name}\", \"arguments\": ")))
                }
                Self::Glm => format!(
                    "{} {} {body} {}",
                    literal("<tool_call>"),
                    quoted(&format!("{name}\n")),
                    literal("</tool_call>")
                ),
                Self::DeepSeek => format!(
                    "{} \"function\" {} {} {body} {} {}",
                    literal(CALL_BEGIN),
                    literal(SEPARATOR),
                    quoted(&format!("{name}\n```json\n")),
                    quoted("\n```"),
                    literal(CALL_END)
                ),
            };
            rules.push_str(&format!("call_{at}: {call}\n"));
        }
        let (first, between, last) = match self {
            Self::Hermes | Self::Glm | Self::Llama => {
                (String::new(), if self == Self::Llama { "\"; \"" } else { "\"\\n\"" }, String::new())
            }
            Self::Mistral => (format!("{} \"[\"", literal(MISTRAL)), "\", \"", "\"]\"".to_owned()),
            Self::DeepSeek => (literal(CALLS_BEGIN), "\"\\n\"", literal(CALLS_END)),
        };
        let further = if several { format!(" ({between} call)*") } else { String::new() };
        format!("start: {first} call{further} {last}\ncall: {}\n{rules}", names.join(" | "))
    }
}

/// A string of llguidance's language, which writes them as JSON does.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// `{"name": …, "arguments": …}`, or with `parameters`.
fn call_of(value: &Value) -> Option<Call> {
    let arguments = value.get("arguments").or_else(|| value.get("parameters"))?;
    let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), ToOwned::to_owned);
    Some(Call { name: value.get("name")?.as_str()?.to_owned(), arguments })
}

/// Pieces of an answer between two marks, and what stands before the first; the last may lack its end.
fn between<'a>(answer: &'a str, open: &str, close: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let (content, rest) = answer.split_once(open)?;
    let pieces = rest.split(open).map(|piece| piece.split_once(close).map_or(piece, |(piece, _)| piece));
    Some((content, pieces.collect()))
}

fn hermes(answer: &str) -> Option<(&str, Vec<Call>)> {
    let (content, pieces) = between(answer, "<tool_call>", "</tool_call>")?;
    let call = |piece: &&str| call_of(&serde_json::from_str(piece.trim()).ok()?);
    Some((content, pieces.iter().map(call).collect::<Option<_>>()?))
}

fn llama(answer: &str) -> Option<(&str, Vec<Call>)> {
    let answer = answer.trim();
    let mut rest = answer.strip_prefix(PYTHON_TAG).unwrap_or(answer);
    let mut calls = Vec::new();
    while !rest.trim().is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        calls.push(call_of(&values.next()?.ok()?)?);
        rest = rest[values.byte_offset()..].trim_start().trim_start_matches(';');
    }
    Some(("", calls))
}

fn mistral(answer: &str) -> Option<(&str, Vec<Call>)> {
    let (content, rest) = answer.split_once(MISTRAL)?;
    if let Ok(Value::Array(list)) = serde_json::from_str(rest.trim()) {
        return Some((content, list.iter().map(call_of).collect::<Option<_>>()?));
    }
    // Newer ones write a mark for each call.
    let call = |piece: &str| {
        let (name, arguments) = piece.split_once("[ARGS]").or_else(|| piece.find('{').map(|at| piece.split_at(at)))?;
        let arguments: Map<String, Value> = serde_json::from_str(arguments.trim()).ok()?;
        let name = name.split("[CALL_ID]").next().unwrap_or_default().trim().to_owned();
        Some(Call { name, arguments: Value::Object(arguments).to_string() })
    };
    Some((content, rest.split(MISTRAL).map(call).collect::<Option<_>>()?))
}

fn glm<'a>(answer: &'a str, functions: &[Function]) -> Option<(&'a str, Vec<Call>)> {
    let (content, pieces) = between(answer, "<tool_call>", "</tool_call>")?;
    let call = |piece: &&str| {
        let (name, mut rest) = piece.split_at(piece.find("<arg_key>").unwrap_or(piece.len()));
        let name = name.trim();
        let function = functions.iter().find(|function| function.name == name)?;
        let mut arguments = Map::new();
        while let Some((_, argument)) = rest.split_once("<arg_key>") {
            let (key, behind) = argument.split_once("</arg_key>")?;
            let (_, value) = behind.split_once("<arg_value>")?;
            let (value, behind) = value.split_once("</arg_value>")?;
            let is_text = function.parameters["properties"][key.trim()]["type"] == "string";
            let parsed = if is_text { None } else { serde_json::from_str(value.trim()).ok() };
            arguments.insert(key.trim().to_owned(), parsed.unwrap_or_else(|| value.into()));
            rest = behind;
        }
        Some(Call { name: name.to_owned(), arguments: Value::Object(arguments).to_string() })
    };
    Some((content, pieces.iter().map(call).collect::<Option<_>>()?))
}

/// Required arguments in their order, others where the model likes; texts as they are, all else as JSON.
fn glm_arguments(at: usize, function: &Function, rules: &mut String) -> String {
    let none = Map::new();
    let properties = function.parameters["properties"].as_object().unwrap_or(&none);
    let required = |name: &String| {
        function.parameters["required"].as_array().is_some_and(|list| list.iter().any(|one| one == name.as_str()))
    };
    let definitions = ["$defs", "definitions"].map(|name| (name, function.parameters.get(name)));
    let mut parts = Vec::new();
    for (number, (name, schema)) in properties.iter().enumerate() {
        let rule = format!("arg_{at}_{number}");
        let value = if schema["type"] == "string" && schema.get("enum").is_none() {
            "/[^<]*/".to_owned()
        } else {
            let mut schema = with_white_space(schema.clone());
            for (name, definitions) in definitions.iter().filter_map(|(name, some)| Some((name, (*some)?))) {
                schema[*name] = definitions.clone();
            }
            format!("%json {schema}")
        };
        rules.push_str(&format!("value_{at}_{number}: {value}\n"));
        let key = quoted(&format!("<arg_key>{name}</arg_key>\n<arg_value>"));
        rules.push_str(&format!("{rule}: {key} value_{at}_{number} {}\n", quoted("</arg_value>\n")));
        parts.push(if required(name) { rule } else { format!("{rule}?") });
    }
    parts.join(" ")
}

fn deep_seek(answer: &str) -> Option<(&str, Vec<Call>)> {
    let (content, rest) = answer.split_once(CALLS_BEGIN)?;
    let (_, pieces) = between(rest, CALL_BEGIN, CALL_END)?;
    let call = |piece: &&str| {
        let (kind, behind) = piece.split_once(SEPARATOR)?;
        // V3 and R1 name the kind first and fence the arguments; V3.1 has the name there and no fence.
        let (name, arguments) = match behind.split_once("```json") {
            Some((name, fenced)) => (name, fenced.split("```").next().unwrap_or_default()),
            None => (kind, behind),
        };
        let arguments: Map<String, Value> = serde_json::from_str(arguments.trim()).ok()?;
        Some(Call { name: name.trim().to_owned(), arguments: Value::Object(arguments).to_string() })
    };
    Some((content, pieces.iter().map(call).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn functions() -> Vec<Function> {
        let parameters =
            json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
        let one = |name: &str| Function { name: name.into(), parameters: parameters.clone(), written: Value::Null };
        vec![one("weather"), one("time")]
    }

    fn check(family: Family, answer: &str, content: &str, expected: &[(&str, Value)]) {
        let (found, calls) = family.parse(answer, &functions());
        let calls: Vec<(String, Value)> = calls
            .into_iter()
            .map(|call| (call.name, serde_json::from_str(&call.arguments).expect("arguments are JSON")))
            .collect();
        let expected: Vec<(String, Value)> =
            expected.iter().map(|(name, arguments)| ((*name).to_owned(), arguments.clone())).collect();
        assert_eq!((found.as_str(), calls), (content, expected), "{answer}");
    }

    #[test]
    fn calls_are_read_as_each_family_writes_them() {
        let (paris, two) = (json!({"city": "Paris"}), json!({"city": "Paris", "days": 2}));
        check(
            Family::Hermes,
            "Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n\
             <tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>",
            "Let me look.",
            &[("weather", paris.clone()), ("time", json!({}))],
        );
        check(
            Family::Llama,
            "<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\": \"Paris\"}}; {\"name\": \"time\", \"parameters\": {}}",
            "",
            &[("weather", paris.clone()), ("time", json!({}))],
        );
        check(
            Family::Mistral,
            "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}]",
            "",
            &[("weather", paris.clone())],
        );
        check(Family::Mistral, "[TOOL_CALLS]weather[ARGS]{\"city\": \"Paris\"}", "", &[("weather", paris.clone())]);
        check(
            Family::Glm,
            "Hm.<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n\
             <arg_value>2</arg_value>\n</tool_call>",
            "Hm.",
            &[("weather", two)],
        );
        check(
            Family::DeepSeek,
            "Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Paris\"}\n```\
             <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "Yes.",
            &[("weather", paris.clone())],
        );
        check(
            Family::DeepSeek,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Paris\"}<｜tool▁call▁end｜>",
            "",
            &[("weather", paris)],
        );
    }

    #[test]
    fn what_is_no_call_is_content() {
        for family in [Family::Hermes, Family::Llama, Family::Mistral, Family::Glm, Family::DeepSeek] {
            for answer in ["", "Hello {\"name\": 1}", "{\"name\": \"unknown\", \"parameters\": {}}"] {
                check(family, answer, answer, &[]);
            }
            for marker in family.markers() {
                check(family, &format!("{marker}{{"), &format!("{marker}{{"), &[]);
            }
        }
    }

    #[test]
    fn templates_tell_their_family() {
        let check = |source: &str, expected: Family| assert_eq!(Family::of_template(source), expected, "{source}");
        check("<tool_call>{{ name }}<arg_key>", Family::Glm);
        check("<｜tool▁calls▁begin｜>", Family::DeepSeek);
        check("[TOOL_CALLS]", Family::Mistral);
        check("<tool_call>", Family::Hermes);
        check("<|python_tag|>", Family::Llama);
        check("{{ messages }}", Family::Hermes);
    }
}
