//! The formats in which model families write tool calls, and their parsers.

use serde_json::{Map, Value};

use super::{
    Function, ToolCall,
    partial::{self, Partial},
};

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

    /// The content of a response and its calls. If calls cannot be parsed, everything is content.
    pub fn parse(self, answer: &str, functions: &[Function]) -> (String, Vec<ToolCall>) {
        let nothing = || (answer.to_owned(), Vec::new());
        let Some(at) = self.begin(answer, functions) else { return nothing() };
        let mut calls = self.calls(&answer[at..], functions);
        // A truncated response has the calls that are complete.
        if calls.len() > 1 {
            calls.pop_if(|last| !last.complete);
        }
        let is_known = |call: &Partial| functions.iter().any(|function| function.name == call.name);
        let is_json = |call: &Partial| serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
        let good = |call: &Partial| call.complete && is_known(call) && is_json(call);
        if calls.is_empty() || !calls.iter().all(good) {
            return nothing();
        }
        let calls = calls.into_iter().map(|call| ToolCall { name: call.name, arguments: call.arguments });
        (answer[..at].trim_end().to_owned(), calls.collect())
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
            Self::Hermes => pieces(text, "<tool_call>", "</tool_call>", |piece, _| Some(partial::json_call(piece)?.0)),
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

/// Whether an argument of this schema is written verbatim instead of as JSON.
pub fn is_text(schema: &Value) -> bool {
    schema["type"] == "string" && schema.get("enum").is_none()
}

/// The value of an argument whose strings are written without quotes.
fn argument(function: &Function, key: &str, written: &str) -> Value {
    let is_text = function.parameters["properties"][key]["type"] == "string";
    let parsed = if is_text { None } else { serde_json::from_str(written.trim()).ok() };
    parsed.unwrap_or_else(|| written.into())
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
