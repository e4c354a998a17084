//! Tools that the assistant may call: parses them from a request, and calls from the output.

mod family;
mod grammar;
mod legacy;
mod partial;
mod stream;

use engine::text::{ChatOptions, Text};
use serde_json::{Value, json};

pub use self::{
    family::{CHANNEL, MESSAGE, PARSERS, ParsedCalls, ToolFamily},
    legacy::convert_messages,
    partial::is_object,
    stream::{CallPiece, ShownCall, ToolStream, beginning},
};
use super::grammar::GrammarForm;
use crate::http::{error::ApiError, fields::Fields};

/// Maximum number of tools in a request.
const MOST_TOOLS: usize = 128;

/// The tools of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Tools {
    /// The functions that the assistant may call.
    pub functions: Vec<Function>,
    /// Whether it must call one.
    pub choice: ToolChoice,
    /// Whether one response may contain several calls.
    pub parallel: bool,
    /// The model's format of calls.
    pub family: ToolFamily,
    /// Whether calls are written in OpenAI's older format (`function_call`).
    pub legacy: bool,
    /// Whether the chat template passes tools to the model.
    in_template: bool,
}

/// A function that can be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// JSON schema of its arguments.
    pub parameters: Value,
    /// The function as the client wrote it.
    pub written: Value,
}

/// Which functions are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// At least one function must be called.
    Required,
    /// This function must be called.
    Named(String),
}

/// A call in a response.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The function's name.
    pub name: String,
    /// Its arguments as JSON.
    pub arguments: String,
}

impl Tools {
    /// Reads `tools`, `tool_choice` and `parallel_tool_calls`, or their older names; `None` if
    /// nothing can be called. `family` is the model's format of calls.
    ///
    /// # Errors
    /// When one is invalid.
    pub fn read(fields: &mut Fields, text: &Text, family: ToolFamily) -> Result<Option<Self>, ApiError> {
        let legacy = legacy::convert(fields)?;
        let mut functions = functions(fields)?;
        let parallel = fields.flag_or("parallel_tool_calls", true)?;
        let choice = match fields.value("tool_choice") {
            None => Some(ToolChoice::Auto),
            // Calls must come from the allowed ones, so the others are removed.
            Some(given) if given["type"] == "allowed_tools" => Some(allowed(fields, &given, &mut functions)?),
            Some(given) => choice(fields, &given, &functions)?,
        };
        let (Some(choice), false) = (choice, functions.is_empty()) else { return Ok(None) };
        let source = text.template_source().unwrap_or_default();
        // Templates that know tools describe them in the words that the model was trained on.
        let in_template = source.contains("tools");
        Ok(Some(Self { functions, choice, parallel, family, legacy, in_template }))
    }

    /// Passes the tools to the model: through its template, or in a system message if the template
    /// does not support tools.
    pub fn tell(&self, messages: &mut Vec<Value>, options: &mut ChatOptions) {
        if self.in_template {
            options.tools = self.functions.iter().map(|function| function.written.clone()).collect();
            return;
        }
        for message in messages.iter_mut() {
            write_calls(message);
        }
        let lines = self.functions.iter().map(|function| function.written["function"].to_string());
        let reported = format!(
            "These functions can be called, one JSON object a line:\n{}\n\nTo call one, answer with\n<tool_call>\n\
             {{\"name\": \"NAME\", \"arguments\": {{ARGUMENTS}}}}\n</tool_call>",
            lines.collect::<Vec<_>>().join("\n")
        );
        let is_system = |message: &Value| message["role"] == "system";
        match messages.first_mut().filter(|first| is_system(first)) {
            Some(first) => {
                let content = first["content"].as_str().unwrap_or_default();
                first["content"] = format!("{content}\n\n{reported}").into();
            }
            None => messages.insert(0, json!({"role": "system", "content": reported})),
        }
    }

    /// The form of a response with tools, and the parameter that specifies it: calls if one is
    /// required, and if the model decides, calls or what `content` specifies. `None` if nothing
    /// restricts the response.
    pub fn form(
        &self,
        content: Option<(&'static str, GrammarForm)>,
        text: &Text,
    ) -> Option<(&'static str, GrammarForm)> {
        let allowed: Vec<&Function> = match &self.choice {
            ToolChoice::Named(name) => self.functions.iter().filter(|function| function.name == *name).collect(),
            ToolChoice::Auto | ToolChoice::Required => self.functions.iter().collect(),
        };
        let several = self.parallel && !matches!(self.choice, ToolChoice::Named(_));
        let calls = || self.family.grammar(&allowed, several, text);
        match (&self.choice, content) {
            (ToolChoice::Auto, None) => None,
            (ToolChoice::Auto, Some((name, content))) => Some((name, GrammarForm::CallsOr(calls(), Box::new(content)))),
            (ToolChoice::Required | ToolChoice::Named(_), _) => Some(("tool_choice", GrammarForm::Calls(calls()))),
        }
    }

    /// Parses a complete response into its content and calls.
    pub fn parse(&self, answer: &str) -> ParsedCalls {
        self.family.parse(answer, &self.functions, self.most_calls())
    }

    /// Maximum number of calls in a response.
    pub fn most_calls(&self) -> usize {
        if self.parallel { usize::MAX } else { 1 }
    }

    /// Calls in OpenAI's format, with random ids.
    pub fn written(&self, calls: &[ToolCall], random: &dyn Fn() -> u64) -> Value {
        if let (true, Some(call)) = (self.legacy, calls.first()) {
            return json!({"name": call.name, "arguments": call.arguments});
        }
        let one = |call: &ToolCall| {
            json!({
                "id": self.family.call_id(random()), "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        };
        calls.iter().map(one).collect()
    }

    /// The field of a message that contains calls, and OpenAI's finish reason for a response with
    /// calls.
    pub fn field(&self) -> (&'static str, &'static str) {
        if self.legacy { ("function_call", "function_call") } else { ("tool_calls", "tool_calls") }
    }

    /// A piece of a call in OpenAI's streaming format: the first one contains name and id.
    pub fn written_piece(&self, piece: &CallPiece, random: &dyn Fn() -> u64) -> Value {
        if self.legacy {
            let mut value = json!({"arguments": piece.arguments});
            if let Some(name) = &piece.name {
                value["name"] = name.as_str().into();
            }
            return value;
        }
        let mut value = json!({"index": piece.number, "function": {"arguments": piece.arguments}});
        if let Some(name) = &piece.name {
            value["id"] = self.family.call_id(random()).into();
            value["type"] = "function".into();
            value["function"]["name"] = name.as_str().into();
        }
        json!([value])
    }
}

fn functions(fields: &mut Fields) -> Result<Vec<Function>, ApiError> {
    let list = match fields.value("tools") {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(fields.wrong("tools", "a list of tools", &other)),
    };
    if list.len() > MOST_TOOLS {
        return Err(fields.complain("tools", format!("{} tools; the maximum is {MOST_TOOLS}", list.len())));
    }
    list.into_iter().enumerate().map(|(at, tool)| function(at, tool)).collect()
}

fn function(at: usize, tool: Value) -> Result<Function, ApiError> {
    let place = format!("tools[{at}]");
    let complain = |message: &str| ApiError::parameter(&place, format!("{place} {message}"));
    if tool.get("type").and_then(Value::as_str) != Some("function") {
        return Err(complain("is not a tool of type function, the only type that this server supports"));
    }
    let name = tool.pointer("/function/name").and_then(Value::as_str).filter(|name| is_name(name));
    let name = name.ok_or_else(|| complain("has no function.name of letters, digits, _ and -"))?.to_owned();
    let mut parameters = match tool.pointer("/function/parameters") {
        None | Some(Value::Null) => json!({"properties": {}}),
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(_) => return Err(complain("has function.parameters that are not a JSON schema")),
    };
    // Arguments are an object, also where the schema does not say so.
    match &parameters["type"] {
        Value::Null => parameters["type"] = "object".into(),
        Value::String(kind) if kind == "object" => {}
        Value::Array(kinds) if kinds.iter().any(|kind| kind == "object") => parameters["type"] = "object".into(),
        other => {
            let other = other.to_string();
            return Err(complain(&format!("has function.parameters of the type {other}, but arguments are an object")));
        }
    }
    Ok(Function { name, parameters, written: tool })
}

fn is_name(name: &str) -> bool {
    let fits = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
    !name.is_empty() && name.len() <= 128 && name.chars().all(fits)
}

fn choice(fields: &Fields, given: &Value, functions: &[Function]) -> Result<Option<ToolChoice>, ApiError> {
    const NAME: &str = "tool_choice";
    let complain = |message: String| Err(fields.complain(NAME, message));
    if let Some(word) = given.as_str() {
        return match word {
            "none" => Ok(None),
            "auto" => Ok(Some(ToolChoice::Auto)),
            "required" if functions.is_empty() => complain("tool_choice is required, but there are no tools".into()),
            "required" => Ok(Some(ToolChoice::Required)),
            other => complain(format!("tool_choice is '{other}', expected auto, none, required or a function")),
        };
    }
    let Some(name) = given.pointer("/function/name").and_then(Value::as_str) else {
        return Err(fields.wrong(NAME, "auto, none, required, allowed_tools or a function with its name", given));
    };
    if functions.iter().any(|function| function.name == name) {
        return Ok(Some(ToolChoice::Named(name.to_owned())));
    }
    complain(format!("tool_choice is the function '{name}', which is not among the tools"))
}

/// Reads a choice of the type `allowed_tools`, and removes the functions that it does not list. The
/// list is in the choice itself (Responses), or in an object in it (chat).
fn allowed(fields: &Fields, given: &Value, functions: &mut Vec<Function>) -> Result<ToolChoice, ApiError> {
    const NAME: &str = "tool_choice";
    let inner = given.get("allowed_tools").unwrap_or(given);
    let name = |tool: &Value| {
        let name = tool.pointer("/function/name").or_else(|| tool.get("name"));
        name.and_then(Value::as_str).map(ToOwned::to_owned)
    };
    let names = inner.get("tools").and_then(Value::as_array).filter(|list| !list.is_empty());
    let names: Option<Vec<String>> = names.and_then(|list| list.iter().map(name).collect());
    let names = names.ok_or_else(|| fields.complain(NAME, "tool_choice.tools: expected a list of functions"))?;
    if let Some(unknown) = names.iter().find(|name| functions.iter().all(|function| function.name != **name)) {
        return Err(fields.complain(NAME, format!("tool_choice allows '{unknown}', which is not among the tools")));
    }
    functions.retain(|function| names.contains(&function.name));
    match inner.get("mode").and_then(Value::as_str) {
        Some("auto") => Ok(ToolChoice::Auto),
        Some("required") => Ok(ToolChoice::Required),
        _ => Err(fields.complain(NAME, "tool_choice.mode: expected auto or required")),
    }
}

/// Writes the calls of an earlier response into its content, for templates that do not support
/// calls.
fn write_calls(message: &mut Value) {
    let Some(calls) = message.get("tool_calls").and_then(Value::as_array) else { return };
    let written = calls.iter().filter_map(|call| {
        let function = call.get("function")?;
        let call = json!({"name": function.get("name")?, "arguments": function.get("arguments")?});
        Some(format!("<tool_call>\n{call}\n</tool_call>"))
    });
    let content = message["content"].as_str().unwrap_or_default().to_owned();
    let parts: Vec<String> = std::iter::once(content).filter(|text| !text.is_empty()).chain(written).collect();
    message["content"] = parts.join("\n").into();
}
