//! The formats in which model families write tool calls, and their parsers.

use serde_json::{Map, Value};

use super::{
    Function, ToolCall,
    partial::{self, Partial},
};
use crate::http::fields::integer;

/// A format of function calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFamily {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes, Qwen, MiMo, and any model with
    /// this parser selected.
    Hermes,
    /// `{"name": …, "parameters": …}` and nothing else, perhaps after `<|python_tag|>`: Llama 3.
    Llama,
    /// `[TOOL_CALLS]` and a list of `{"name": …, "arguments": …}`, or in newer models
    /// `NAME[ARGS]{…}`: Mistral.
    Mistral,
    /// `<tool_call><function=NAME>` and `<parameter=KEY>` for each argument: Qwen3-Coder, MiMo-V2.
    Tags,
    /// `<tool_call>NAME` and `<arg_key>`, `<arg_value>` for each argument: GLM-4.5.
    Glm,
    /// `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME` and fenced JSON: DeepSeek-V3 and R1.
    DeepSeek,
    /// Messages to recipients `functions.NAME`: gpt-oss. The module `harmony` reads them, as one of
    /// the channels of a response.
    Harmony,
}

/// The parts of a complete response.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedCalls {
    /// What is no call.
    pub content: String,
    /// The complete calls.
    pub calls: Vec<ToolCall>,
    /// Whether another call follows that is not complete. Of a streamed response a part of it has
    /// been sent.
    pub is_cut: bool,
}

/// Opens all calls of DeepSeek.
pub const CALLS_BEGIN: &str = "<｜tool▁calls▁begin｜>";
/// Closes all calls of DeepSeek.
pub const CALLS_END: &str = "<｜tool▁calls▁end｜>";
/// Opens one call of DeepSeek.
pub const CALL_BEGIN: &str = "<｜tool▁call▁begin｜>";
/// Closes one call of DeepSeek.
pub const CALL_END: &str = "<｜tool▁call▁end｜>";
/// Separates the kind from the name.
pub const SEPARATOR: &str = "<｜tool▁sep｜>";
/// Starts the name of a channel of gpt-oss.
pub const CHANNEL: &str = "<|channel|>";
/// Starts the body of a message of gpt-oss, after its header.
pub const MESSAGE: &str = "<|message|>";
/// Separates the format of a body from the rest of a header of gpt-oss.
pub const CONSTRAIN: &str = "<|constrain|>";
const PYTHON_TAG: &str = "<|python_tag|>";
/// Opens calls of Mistral.
pub const MISTRAL: &str = "[TOOL_CALLS]";

/// SGLang's and vLLM's names of parsers.
pub const PARSERS: [(&str, ToolFamily); 19] = [
    ("hermes", ToolFamily::Hermes),
    ("qwen", ToolFamily::Hermes),
    ("qwen25", ToolFamily::Hermes),
    ("mimo", ToolFamily::Tags),
    ("qwen3_coder", ToolFamily::Tags),
    ("llama3", ToolFamily::Llama),
    ("llama3_json", ToolFamily::Llama),
    ("llama4_json", ToolFamily::Llama),
    ("mistral", ToolFamily::Mistral),
    ("glm", ToolFamily::Glm),
    ("glm45", ToolFamily::Glm),
    ("glm47", ToolFamily::Glm),
    ("deepseekv3", ToolFamily::DeepSeek),
    ("deepseekv31", ToolFamily::DeepSeek),
    ("deepseek_v3", ToolFamily::DeepSeek),
    ("deepseek_v31", ToolFamily::DeepSeek),
    ("deepseek-v3", ToolFamily::DeepSeek),
    ("gpt-oss", ToolFamily::Harmony),
    ("openai", ToolFamily::Harmony),
];

impl ToolFamily {
    /// The format of a parser.
    pub fn from_parser(name: &str) -> Option<Self> {
        PARSERS.iter().find(|(known, _)| *known == name).map(|(_, family)| *family)
    }

    /// The format of a model, detected from its chat template.
    pub fn from_template(source: &str) -> Self {
        let says = |word: &str| source.contains(word);
        if says(CHANNEL) && says(MESSAGE) {
            Self::Harmony
        } else if says("<arg_key>") {
            Self::Glm
        } else if says("tool▁call") {
            Self::DeepSeek
        } else if says(MISTRAL) {
            Self::Mistral
        } else if says("<function=") {
            Self::Tags
        } else if says("<tool_call>") {
            Self::Hermes
        } else if says("python_tag") || says("ipython") {
            Self::Llama
        } else {
            Self::Hermes
        }
    }

    /// The markers with which a call, or the first of several, starts. With Llama the whole
    /// response is a call.
    pub fn markers(self) -> &'static [&'static str] {
        match self {
            Self::Hermes | Self::Glm | Self::Tags => &["<tool_call>"],
            Self::Llama => &[PYTHON_TAG, "{"],
            Self::Mistral => &[MISTRAL],
            Self::DeepSeek => &[CALLS_BEGIN],
            Self::Harmony => &[CHANNEL],
        }
    }

    /// Whether a marker counts only at the start of a response.
    pub fn begins_with_call(self) -> bool {
        self == Self::Llama
    }

    /// Whether a response that starts with this text starts with a call, for families whose calls
    /// start a response; `None` if that is not known yet.
    pub fn is_call(self, begun: &str, functions: &[Function]) -> Option<bool> {
        let begun = begun.trim_start();
        if begun.starts_with(PYTHON_TAG) {
            return Some(true);
        }
        if !begun.starts_with('{') {
            return (!PYTHON_TAG.starts_with(begun)).then_some(false);
        }
        if partial::first_key(begun)
            .is_some_and(|key| !["name", "parameters", "arguments", "type", "id"].contains(&key.as_str()))
        {
            return Some(false);
        }
        let (call, _) = partial::json_call(begun)?;
        Some(functions.iter().any(|function| function.name == call.name))
    }

    /// The id of a call. Mistral's templates accept only ids of nine characters.
    pub fn call_id(self, random: u64) -> String {
        if self == Self::Mistral { format!("{:09x}", random & 0xF_FFFF_FFFF) } else { format!("call_{random:016x}") }
    }

    /// The content of a response and its calls, at most `most`. If no call can be parsed,
    /// everything is content.
    pub fn parse(self, answer: &str, functions: &[Function], most: usize) -> ParsedCalls {
        let nothing = |is_cut| ParsedCalls { content: answer.to_owned(), calls: Vec::new(), is_cut };
        let Some(at) = self.begin(answer, functions) else { return nothing(false) };
        let mut found = self.calls(&answer[at..], functions).into_iter().take(most).peekable();
        let is_good = |call: &Partial| is_shown(call, functions) && call.is_good();
        let mut calls = Vec::new();
        while let Some(call) = found.next_if(is_good) {
            calls.push(ToolCall { name: call.name, arguments: call.arguments });
        }
        let is_cut = found.peek().is_some_and(|call| is_shown(call, functions));
        if calls.is_empty() {
            return nothing(is_cut);
        }
        ParsedCalls { content: answer[..at].trim_end().to_owned(), calls, is_cut }
    }

    /// Offset at which calls start in a response.
    fn begin(self, answer: &str, functions: &[Function]) -> Option<usize> {
        if self.begins_with_call() {
            return (self.is_call(answer, functions) == Some(true)).then_some(0);
        }
        self.markers().iter().filter_map(|marker| answer.find(marker)).min()
    }

    /// The calls in the text from the first marker on; the last one may be incomplete. Stops at the
    /// first that cannot be parsed.
    pub fn calls(self, text: &str, functions: &[Function]) -> Vec<Partial> {
        match self {
            Self::Hermes => hermes(text),
            Self::Llama => llama(text),
            Self::Mistral => mistral(text),
            Self::Glm => pieces(text, "<tool_call>", "</tool_call>", |piece, closed| glm(piece, closed, functions)),
            Self::Tags => pieces(text, "<tool_call>", "</tool_call>", |piece, closed| tags(piece, closed, functions)),
            Self::DeepSeek => pieces(text, CALL_BEGIN, CALL_END, |piece, _| deep_seek(piece)),
            // Not found by marks: see `harmony`.
            Self::Harmony => Vec::new(),
        }
    }
}

/// Whether a call is part of a streamed response as soon as this much of it is known.
pub fn is_shown(call: &Partial, functions: &[Function]) -> bool {
    call.arguments.starts_with('{') && functions.iter().any(|function| function.name == call.name)
}

/// Calls as objects between marks, which may also occur in strings of the objects.
fn hermes(text: &str) -> Vec<Partial> {
    const CLOSE: &str = "</tool_call>";
    let (mut calls, mut rest) = (Vec::new(), text);
    while let Some((_, after)) = rest.split_once("<tool_call>") {
        let whole = partial::json_call(after).filter(|(call, _)| call.complete);
        // Of an object that has no end, what is before the mark.
        let before = || partial::json_call(after.split_once(CLOSE).map_or(after, |(before, _)| before));
        let Some((call, end)) = whole.or_else(before) else { break };
        calls.push(call);
        rest = &after[end..];
    }
    calls
}

/// The result of parsing each piece between two marks; the last piece may be incomplete.
fn pieces(text: &str, open: &str, close: &str, read: impl Fn(&str, bool) -> Option<Partial>) -> Vec<Partial> {
    let one = |piece: &str| match piece.split_once(close) {
        Some((piece, _)) => read(piece, true),
        None => read(piece, false),
    };
    text.split(open).skip(1).map_while(one).collect()
}

fn llama(text: &str) -> Vec<Partial> {
    let text = text.trim_start();
    let mut rest = text.strip_prefix(PYTHON_TAG).unwrap_or(text);
    let mut calls = Vec::new();
    while let Some((call, end)) = partial::json_call(rest) {
        calls.push(call);
        rest = rest[end..].trim_start().trim_start_matches(';');
    }
    calls
}

fn mistral(text: &str) -> Vec<Partial> {
    let Some((_, after)) = text.split_once(MISTRAL) else { return Vec::new() };
    if let Some(mut rest) = after.trim_start().strip_prefix('[') {
        let mut calls = Vec::new();
        while let Some((call, end)) = partial::json_call(rest) {
            calls.push(call);
            rest = rest[end..].trim_start().trim_start_matches(',');
        }
        return calls;
    }
    // Newer models write the marker before each call.
    let one = |piece: &str| {
        let (name, arguments) = piece.split_once("[ARGS]").or_else(|| piece.find('{').map(|at| piece.split_at(at)))?;
        let (arguments, complete) = partial::object(arguments);
        let name = name.split("[CALL_ID]").next().unwrap_or_default().trim().to_owned();
        Some(Partial { name, arguments: arguments.to_owned(), complete })
    };
    after.split(MISTRAL).map_while(one).collect()
}

/// Whether an argument of this schema is any text, which is written verbatim instead of as JSON.
pub fn is_text(schema: &Value) -> bool {
    schema["type"] == "string" && schema.get("enum").is_none() && schema.get("const").is_none()
}

/// The texts one of which an argument has to be; they are written verbatim too.
pub fn text_choices(schema: &Value) -> Option<Vec<&str>> {
    let choices = match (schema.get("const"), schema.get("enum")) {
        (Some(one), _) => std::slice::from_ref(one),
        (None, Some(list)) => list.as_array()?,
        (None, None) => return None,
    };
    let choices: Option<Vec<&str>> = choices.iter().map(Value::as_str).collect();
    choices.filter(|choices| !choices.is_empty())
}

/// The value of an argument whose strings are written without quotes.
fn argument(function: &Function, key: &str, written: &str) -> Value {
    let text = Value::from(written);
    let schema = &function.parameters["properties"][key];
    let fits = |value: &Value| allows(&function.parameters, schema, value, 0);
    if is_text(schema) || text_choices(schema).is_some() && fits(&text) {
        return text;
    }
    match serde_json::from_str(written.trim()) {
        Ok(parsed) if fits(&parsed) || !fits(&text) => parsed,
        _ => text,
    }
}

/// Whether a schema allows a value, as far as its type and its choices say.
fn allows(root: &Value, schema: &Value, value: &Value, depth: usize) -> bool {
    /// Maximum number of schemas in each other, since they may refer to themselves.
    const DEEPEST: usize = 16;
    let Some(fields) = schema.as_object().filter(|_| depth < DEEPEST) else { return *schema != Value::Bool(false) };
    let inner = |schema: &Value| allows(root, schema, value, depth + 1);
    let is_type = |name: &Value| match name.as_str() {
        Some("string") => value.is_string(),
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => integer(value).is_some(),
        Some("number") => value.is_number(),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        _ => true,
    };
    fields.iter().all(|(key, given)| match (key.as_str(), given) {
        ("type", Value::Array(names)) => names.iter().any(is_type),
        ("type", name) => is_type(name),
        ("const", one) => one == value,
        ("enum", Value::Array(list)) => list.contains(value),
        ("anyOf" | "oneOf", Value::Array(list)) => list.iter().any(inner),
        ("allOf", Value::Array(list)) => list.iter().all(inner),
        ("$ref", Value::String(path)) => path.strip_prefix('#').and_then(|path| root.pointer(path)).is_none_or(inner),
        _ => true,
    })
}

fn glm(piece: &str, closed: bool, functions: &[Function]) -> Option<Partial> {
    let (name, mut rest) = piece.split_at(piece.find("<arg_key>").unwrap_or(piece.len()));
    let name = name.trim();
    let function = functions.iter().find(|function| function.name == name).filter(|_| closed)?;
    let mut arguments = Map::new();
    while let Some((_, argument)) = rest.split_once("<arg_key>") {
        let (key, after) = argument.split_once("</arg_key>")?;
        let (_, value) = after.split_once("<arg_value>")?;
        let (value, after) = value.split_once("</arg_value>")?;
        arguments.insert(key.trim().to_owned(), self::argument(function, key.trim(), value));
        rest = after;
    }
    Some(Partial::whole(name, Value::Object(arguments).to_string()))
}

fn tags(piece: &str, closed: bool, functions: &[Function]) -> Option<Partial> {
    let (_, call) = piece.split_once("<function=").filter(|_| closed)?;
    let (name, body) = call.split_once('>')?;
    let function = functions.iter().find(|function| function.name == name.trim())?;
    let body = body.split("</function>").next().unwrap_or_default();
    let mut arguments = Map::new();
    for parameter in body.split("<parameter=").skip(1) {
        let (key, value) = parameter.split_once('>')?;
        let value = value.split_once("</parameter>").map_or(value, |(value, _)| value);
        // One line break on either side belongs to the format.
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.trim().to_owned(), argument(function, key.trim(), value));
    }
    Some(Partial::whole(name.trim(), Value::Object(arguments).to_string()))
}

fn deep_seek(piece: &str) -> Option<Partial> {
    let (kind, after) = piece.split_once(SEPARATOR)?;
    // V3 and R1 write the kind first and fence the arguments; V3.1 writes the name in its place and
    // no fence.
    let (name, arguments) = match after.split_once("```json") {
        Some((name, fenced)) => (name, fenced),
        None if after.trim_start().starts_with('{') => (kind, after),
        None => return None,
    };
    let (arguments, complete) = partial::object(arguments);
    Some(Partial { name: name.trim().to_owned(), arguments: arguments.to_owned(), complete })
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

    fn check(family: ToolFamily, answer: &str, content: &str, expected: &[(&str, Value)]) {
        let ParsedCalls { content: found, calls, .. } = family.parse(answer, &functions(), usize::MAX);
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
            ToolFamily::Hermes,
            "Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n\
             <tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>",
            "Let me look.",
            &[("weather", paris.clone()), ("time", json!({}))],
        );
        check(
            ToolFamily::Llama,
            "<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\": \"Paris\"}}; {\"name\": \"time\", \"parameters\": {}}",
            "",
            &[("weather", paris.clone()), ("time", json!({}))],
        );
        check(
            ToolFamily::Mistral,
            "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}]",
            "",
            &[("weather", paris.clone())],
        );
        check(ToolFamily::Mistral, "[TOOL_CALLS]weather[ARGS]{\"city\": \"Paris\"}", "", &[("weather", paris.clone())]);
        check(
            ToolFamily::Glm,
            "Hm.<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n\
             <arg_value>2</arg_value>\n</tool_call>",
            "Hm.",
            &[("weather", two)],
        );
        check(
            ToolFamily::Tags,
            "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n\
             </function>\n</tool_call>",
            "",
            &[("weather", json!({"city": "Paris", "days": 2}))],
        );
        check(
            ToolFamily::DeepSeek,
            "Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Paris\"}\n```\
             <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "Yes.",
            &[("weather", paris.clone())],
        );
        check(
            ToolFamily::DeepSeek,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Paris\"}<｜tool▁call▁end｜>",
            "",
            &[("weather", paris)],
        );
        for text in ["</tool_call>", "<tool_call>", "</tool_call>{"] {
            let call = json!({"name": "weather", "arguments": {"city": text}});
            let two = format!("<tool_call>{call}</tool_call><tool_call>{call}</tool_call>");
            let expected = ("weather", json!({"city": text}));
            check(ToolFamily::Hermes, &two, "", &[expected.clone(), expected]);
        }
    }

    #[test]
    fn arguments_have_types_that_their_schema_allows() {
        let parameters = json!({
            "type": "object",
            "properties": {
                "unit": {"type": "string", "enum": ["C", "7"]}, "size": {"enum": [1, "1"]}, "one": {"const": "null"},
                "zip": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "flag": {"type": ["string", "null"]},
                "kind": {"$ref": "#/$defs/kind"}, "tree": {"$ref": "#/$defs/tree"}, "any": {},
                "count": {"type": "integer"},
            },
            "$defs": {"kind": {"type": "string"}, "tree": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "number"}]}},
        });
        let function = Function { name: "f".into(), parameters, written: Value::Null };
        for (key, written, expected) in [
            ("unit", "C", json!("C")),
            ("unit", "7", json!("7")),
            ("unit", "\"C\"", json!("C")),
            ("size", "1", json!(1)),
            ("one", "null", json!("null")),
            ("zip", "90210", json!("90210")),
            ("zip", "\"90210\"", json!("90210")),
            ("zip", "null", Value::Null),
            ("flag", "true", json!("true")),
            ("kind", "7", json!("7")),
            ("kind", "\"7\"", json!("7")),
            ("tree", "7", json!(7)),
            ("any", "7", json!(7)),
            ("any", "x", json!("x")),
            ("count", "7", json!(7)),
            ("count", "true", json!(true)),
            ("other", "[1]", json!([1])),
        ] {
            assert_eq!(argument(&function, key, written), expected, "{key}: {written}");
        }
    }

    #[test]
    fn what_is_no_call_is_content() {
        let families = [
            ToolFamily::Hermes,
            ToolFamily::Llama,
            ToolFamily::Mistral,
            ToolFamily::Glm,
            ToolFamily::Tags,
            ToolFamily::DeepSeek,
        ];
        for family in families {
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
        let check =
            |source: &str, expected: ToolFamily| assert_eq!(ToolFamily::from_template(source), expected, "{source}");
        check("<tool_call>{{ name }}<arg_key>", ToolFamily::Glm);
        check("<｜tool▁calls▁begin｜>", ToolFamily::DeepSeek);
        check("[TOOL_CALLS]", ToolFamily::Mistral);
        check("<tool_call><function=", ToolFamily::Tags);
        check("<tool_call>", ToolFamily::Hermes);
        check("<|python_tag|>", ToolFamily::Llama);
        check("<|channel|>final<|message|>", ToolFamily::Harmony);
        check("{{ messages }}", ToolFamily::Hermes);
    }
}
