//! Grammars for output that must be tool calls.

use engine::text::Text;
use serde_json::{Map, Value, json};

use super::{
    Function,
    family::{
        CALL_BEGIN, CALL_END, CALLS_BEGIN, CALLS_END, CHANNEL, CONSTRAIN, MESSAGE, MISTRAL, SEPARATOR, ToolFamily,
        is_text, text_choices,
    },
};
use crate::output::grammar::{CallGrammar, normalized};

impl ToolFamily {
    /// The grammar of one or several calls of these functions.
    pub fn grammar(self, functions: &[&Function], several: bool, text: &Text) -> CallGrammar {
        CallGrammar {
            text: self.grammar_text(functions, several, text),
            schemas: functions.iter().map(|function| function.parameters.clone()).collect(),
        }
    }

    fn grammar_text(self, functions: &[&Function], several: bool, text: &Text) -> String {
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
                Self::Llama => llama(at, function, &mut rules),
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
                Self::Llama => body,
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
                Self::Harmony => format!(
                    "{} {} {} \"json\" {} {body}",
                    literal(CHANNEL),
                    quoted(&format!("commentary to=functions.{name} ")),
                    literal(CONSTRAIN),
                    literal(MESSAGE)
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
            // A call ends the response.
            Self::Harmony => (String::new(), "", String::new()),
        };
        let further = if several && self != Self::Harmony { format!(" ({between} call)*") } else { String::new() };
        format!("start: {first} call{further} {last}\ncall: {}\n{rules}", names.join(" | "))
    }
}

/// A call of Llama as one value of JSON: its parts are then the same lexemes as those of any other
/// value, so that a response which may also be such a value can continue as either.
fn llama(at: usize, function: &Function, rules: &mut String) -> String {
    let mut parameters = function.parameters.clone();
    let definitions = ["$defs", "definitions"].map(|name| (name, take(&mut parameters, name)));
    let mut call = json!({
        "type": "object", "required": ["name", "parameters"], "additionalProperties": false,
        "properties": {"name": {"const": function.name}, "parameters": parameters},
    });
    // References are relative to the root.
    for (name, definitions) in definitions.into_iter().filter_map(|(name, some)| Some((name, some?))) {
        call[name] = definitions;
    }
    rules.push_str(&format!("args_{at}: %json {}\n", normalized(call)));
    format!("args_{at}")
}

fn take(schema: &mut Value, name: &str) -> Option<Value> {
    schema.as_object_mut()?.remove(name)
}

/// A string literal in llguidance's language, in JSON syntax.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Arguments in the schema's order, of which optional ones may be missing; strings verbatim,
/// everything else as JSON.
fn tagged_arguments(
    family: ToolFamily,
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
        let choices = text_choices(schema);
        let value = if let Some(choices) = choices {
            choices.into_iter().map(quoted).collect::<Vec<_>>().join(" | ")
        } else if is_text(schema) && family == ToolFamily::Tags {
            // With the mark after it: the line break before the mark could be one of the text too.
            "/[^<]*\\n<\\/parameter>\\n/".to_owned()
        } else if is_text(schema) {
            "/[^<]*/".to_owned()
        } else {
            let mut schema = normalized(schema.clone());
            for (name, definitions) in definitions.iter().filter_map(|(name, some)| Some((name, (*some)?))) {
                schema[*name] = definitions.clone();
            }
            format!("%json {schema}")
        };
        rules.push_str(&format!("value_{at}_{number}: {value}\n"));
        let (open, close) = if family == ToolFamily::Glm {
            let key = [literal("<arg_key>"), quoted(name), literal("</arg_key>"), quoted("\n"), literal("<arg_value>")];
            (key.join(" "), format!("{} {}", literal("</arg_value>"), quoted("\n")))
        } else {
            let close = if is_text(schema) { "\"\"".to_owned() } else { quoted("\n</parameter>\n") };
            (quoted(&format!("<parameter={name}>\n")), close)
        };
        rules.push_str(&format!("{rule}: {open} value_{at}_{number} {close}\n"));
        parts.push(if required(name) { rule } else { format!("{rule}?") });
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use engine::{Engine, EngineOptions};

    use super::*;
    use crate::output::grammar::{GrammarForm, Grammars};

    /// A call of the function `f` as each family writes it.
    const CALLS: [(ToolFamily, &str); 6] = [
        (ToolFamily::Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"a\"}}\n</tool_call>"),
        (ToolFamily::Llama, "{\"name\": \"f\", \"parameters\": {\"x\": \"a\"}}"),
        (ToolFamily::Mistral, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": \"a\"}}]"),
        (ToolFamily::Glm, "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>a</arg_value>\n</tool_call>"),
        (ToolFamily::Tags, "<tool_call>\n<function=f>\n<parameter=x>\na\n</parameter>\n</function>\n</tool_call>"),
        (
            ToolFamily::DeepSeek,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": \"a\"}\n```\
             <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
    ];

    #[test]
    fn an_output_is_calls_or_what_else_is_allowed() {
        let model_path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/target");
        let engine = Engine::load(EngineOptions { model_path, ..EngineOptions::default() }).expect("the demo model");
        let text = engine.text().expect("a tokenizer").clone();
        let end = text.end_token().expect("an end token");
        let grammars = Grammars::new(Some(text.clone()), text.vocab_size(), vec![end]);
        let parameters = json!({
            "type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": false,
        });
        let function = Function { name: "f".into(), parameters, written: Value::Null };
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["name"],
            "properties": {"name": {"type": "string"}, "ok": {"type": "boolean"}},
        });
        let list = json!({"type": "array", "items": {"type": "integer"}});
        for (family, call) in CALLS {
            let calls = || family.grammar(&[&function], true, &text);
            let check = |content: GrammarForm, output: &str, expected: bool| {
                let form = GrammarForm::CallsOr(calls(), Box::new(content));
                assert_eq!(grammars.accepts(&form, output), expected, "{family:?}: {output}");
            };
            let object = || GrammarForm::Schema(schema.clone());
            check(object(), call, true);
            check(object(), "{\"name\": \"Ann\", \"ok\": true}", true);
            check(object(), "{\"name\":\"f\"}", true);
            check(object(), "{\"ok\": 3}", false);
            check(object(), "So:", false);
            check(GrammarForm::Schema(list.clone()), "[1, 2]", true);
            check(GrammarForm::Schema(list.clone()), call, true);
            check(GrammarForm::Regex("[0-9]{3}".into()), "123", true);
            check(GrammarForm::Regex("[0-9]{3}".into()), call, true);
            check(GrammarForm::Lark("start: \"yes\" | \"no\"".into()), "no", true);
            assert!(grammars.accepts(&GrammarForm::Calls(calls()), call), "{family:?}");
            assert!(!grammars.accepts(&GrammarForm::Calls(calls()), "{\"ok\": true}"), "{family:?}");
        }
    }
}
