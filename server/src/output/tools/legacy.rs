//! OpenAI's older fields for functions: `functions`, `function_call`, and messages of the role
//! `function`. They are converted to tools, and calls back to the older fields.

use serde_json::{Value, json};

use crate::http::{error::ApiError, fields::Fields};

/// Converts `functions` and `function_call` to `tools` and `tool_choice`. Returns whether they are
/// given.
///
/// # Errors
/// When they are invalid, or tools are given too.
pub fn convert(fields: &mut Fields) -> Result<bool, ApiError> {
    let (functions, choice) = (fields.value("functions"), fields.value("function_call"));
    let functions = match functions {
        None => Vec::new(),
        Some(Value::Array(functions)) => functions,
        Some(other) => return Err(fields.wrong("functions", "a list of functions", &other)),
    };
    let choice = match choice {
        None => None,
        Some(Value::String(word)) if ["auto", "none"].contains(&word.as_str()) => Some(json!(word)),
        Some(Value::Object(one)) if one.get("name").is_some_and(Value::is_string) => {
            Some(json!({"type": "function", "function": {"name": one["name"]}}))
        }
        Some(other) => return Err(fields.wrong("function_call", "auto, none or an object with a name", &other)),
    };
    if functions.is_empty() {
        return match choice {
            Some(Value::Object(_)) => {
                Err(fields.complain("function_call", "function_call names a function, but there are no functions"))
            }
            _ => Ok(false),
        };
    }
    if fields.value("tools").is_some_and(|tools| tools.as_array().is_none_or(|tools| !tools.is_empty())) {
        return Err(fields.complain("functions", "give tools or functions, not both"));
    }
    let tools = functions.into_iter().map(|function| json!({"type": "function", "function": function}));
    fields.put("tools", tools.collect());
    if let Some(choice) = choice {
        fields.put("tool_choice", choice);
    }
    // The older format has room for one call.
    fields.put("parallel_tool_calls", false.into());
    Ok(true)
}

/// Converts `function_call` of an assistant's message, and messages of the role `function`.
pub fn convert_messages(messages: &mut [Value]) {
    let mut number = 0;
    for message in messages.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(call) = message.remove("function_call").filter(Value::is_object) {
            number += 1;
            let call = json!({"id": id(number), "type": "function", "function": call});
            message.entry("tool_calls").or_insert_with(|| json!([call]));
        }
        if message.get("role").is_some_and(|role| role == "function") {
            message.insert("role".into(), "tool".into());
            message.entry("tool_call_id").or_insert_with(|| id(number).into());
        }
    }
}

/// Nine characters, which also Mistral's templates accept.
fn id(number: usize) -> String {
    format!("call{number:05}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_become_tools_and_wrong_ones_are_refused() {
        let convert = |body: Value| {
            let mut fields = Fields::parse(body.to_string().as_bytes()).expect("an object");
            let is_legacy = convert(&mut fields).ok()?;
            Some((is_legacy, fields.value("tools"), fields.value("tool_choice")))
        };
        let functions = json!([{"name": "f"}]);
        let tools = Some(json!([{"type": "function", "function": {"name": "f"}}]));
        let named = json!({"type": "function", "function": {"name": "f"}});
        let check = |body: Value, expected: Option<(bool, Option<Value>, Option<Value>)>| {
            assert_eq!(convert(body.clone()), expected, "{body}");
        };
        check(json!({"functions": functions}), Some((true, tools.clone(), None)));
        check(
            json!({"functions": functions, "function_call": "none"}),
            Some((true, tools.clone(), Some("none".into()))),
        );
        check(json!({"functions": functions, "function_call": {"name": "f"}}), Some((true, tools, Some(named))));
        check(json!({"functions": [], "function_call": "auto"}), Some((false, None, None)));
        for wrong in [json!({"functions": {}}), json!({"function_call": {"name": "f"}}), json!({"function_call": "x"})]
        {
            check(wrong, None);
        }
        check(json!({"functions": functions, "tools": functions}), None);
    }

    #[test]
    fn messages_of_functions_become_those_of_tools() {
        let mut messages = vec![
            json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}}),
            json!({"role": "function", "name": "f", "content": "7"}),
        ];
        convert_messages(&mut messages);
        let call = json!({"id": "call00001", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let expected = vec![
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "tool", "name": "f", "content": "7", "tool_call_id": "call00001"}),
        ];
        assert_eq!(messages, expected);
    }
}
