//! Grammars for output that must be tool calls.

use engine::text::Text;
use serde_json::{Map, Value};

use super::{
    super::grammar::normalized,
    Function,
    family::{CALL_BEGIN, CALL_END, CALLS_BEGIN, CALLS_END, Family, MISTRAL, SEPARATOR, is_text},
};

impl Family {
    /// The grammar of one or several calls of these functions, in llguidance's language.
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
                Self::Glm | Self::Tags => tagged_arguments(self, at, function, &literal, &mut rules),
                _ => {
                    let schema = normalized(function.parameters.clone());
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
                Self::Tags => format!(
                    "{} {} {body} {} {}",
                    literal("<tool_call>"),
                    quoted(&format!("\n<function={name}>\n")),
                    quoted("</function>\n"),
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
            Self::Hermes | Self::Glm | Self::Tags | Self::Llama => {
                (String::new(), if self == Self::Llama { "\"; \"" } else { "\"\\n\"" }, String::new())
            }
            Self::Mistral => (format!("{} \"[\"", literal(MISTRAL)), "\", \"", "\"]\"".to_owned()),
            Self::DeepSeek => (literal(CALLS_BEGIN), "\"\\n\"", literal(CALLS_END)),
        };
        let further = if several { format!(" ({between} call)*") } else { String::new() };
        format!("start: {first} call{further} {last}\ncall: {}\n{rules}", names.join(" | "))
    }
}

/// A string literal in llguidance's language, in JSON syntax.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Arguments in the schema's order, of which optional ones may be missing; strings verbatim, everything else as JSON.
fn tagged_arguments(
    family: Family,
    at: usize,
    function: &Function,
    literal: &dyn Fn(&str) -> String,
    rules: &mut String,
) -> String {
    let none = Map::new();
    let properties = function.parameters["properties"].as_object().unwrap_or(&none);
    let required = |name: &String| {
        function.parameters["required"].as_array().is_some_and(|list| list.iter().any(|one| one == name.as_str()))
    };
    let definitions = ["$defs", "definitions"].map(|name| (name, function.parameters.get(name)));
    let mut parts = Vec::new();
    for (number, (name, schema)) in properties.iter().enumerate() {
        let rule = format!("arg_{at}_{number}");
        let value = if is_text(schema) {
            "/[^<]*/".to_owned()
        } else {
            let mut schema = normalized(schema.clone());
            for (name, definitions) in definitions.iter().filter_map(|(name, some)| Some((name, (*some)?))) {
                schema[*name] = definitions.clone();
            }
            format!("%json {schema}")
        };
        rules.push_str(&format!("value_{at}_{number}: {value}\n"));
        let (open, close) = if family == Family::Glm {
            let key = [literal("<arg_key>"), quoted(name), literal("</arg_key>"), quoted("\n"), literal("<arg_value>")];
            (key.join(" "), format!("{} {}", literal("</arg_value>"), quoted("\n")))
        } else {
            (quoted(&format!("<parameter={name}>\n")), quoted("\n</parameter>\n"))
        };
        rules.push_str(&format!("{rule}: {open} value_{at}_{number} {close}\n"));
        parts.push(if required(name) { rule } else { format!("{rule}?") });
    }
    parts.join(" ")
}
