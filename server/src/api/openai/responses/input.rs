//! Converts a Responses request to messages and tools of the chat API.

use serde_json::{Value, json};

use crate::{
    api::messages,
    http::{error::ApiError, fields::Fields},
};

/// Reads `instructions` and `input` as chat messages.
///
/// # Errors
/// When one is missing or invalid.
pub fn messages(fields: &mut Fields) -> Result<(Option<String>, Vec<Value>), ApiError> {
    let instructions = fields.text("instructions")?;
    let mut messages = Vec::from_iter(instructions.iter().map(|text| json!({"role": "system", "content": text})));
    match fields.value("input") {
        None => return Err(fields.complain("input", "input is missing")),
        Some(Value::String(text)) => messages.push(json!({"role": "user", "content": text})),
        Some(Value::Array(items)) if !items.is_empty() => {
            for (at, item) in items.into_iter().enumerate() {
                add(&mut messages, &format!("input[{at}]"), item)?;
            }
        }
        Some(other) => return Err(fields.wrong("input", "a string or a list of items", &other)),
    }
    Ok((instructions, messages))
}

/// What a response can include, of which this server has log-probabilities only; the rest is
/// absent.
const INCLUDABLE: [&str; 8] = [
    LOGPROBS,
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
];
const LOGPROBS: &str = "message.output_text.logprobs";

/// Reads `include`: whether the response includes log-probabilities.
///
/// # Errors
/// When it is not a list of what a response can include.
pub fn includes_logprobs(fields: &mut Fields) -> Result<bool, ApiError> {
    const NAME: &str = "include";
    let list = match fields.value(NAME) {
        None => return Ok(false),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(fields.wrong(NAME, "a list of strings", &other)),
    };
    match list.iter().find(|one| one.as_str().is_none_or(|one| !INCLUDABLE.contains(&one))) {
        None => Ok(list.iter().any(|one| one == LOGPROBS)),
        Some(other) => Err(fields.complain(NAME, format!("{NAME}: {other} is none of {}", INCLUDABLE.join(", ")))),
    }
}

/// Reads `reasoning`: an effort that the template knows, or `none`, becomes the chat API's
/// `reasoning_effort`.
///
/// # Errors
/// When a part of it is not supported.
pub fn effort(fields: &mut Fields, template: &str) -> Result<Option<String>, ApiError> {
    let mut reasoning = fields.object("reasoning")?;
    let effort = reasoning.text("effort")?;
    match &effort {
        Some(effort) if effort == "none" || template.contains("reasoning_effort") => {
            fields.put("reasoning_effort", effort.as_str().into());
        }
        Some(effort) => reasoning.put("effort", effort.as_str().into()),
        None => {}
    }
    reasoning.finish()?;
    Ok(effort)
}

fn add(messages: &mut Vec<Value>, place: &str, item: Value) -> Result<(), ApiError> {
    let complain = |message: String| ApiError::parameter(place, message);
    let text_of = |name: &str| {
        let text = item.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        text.ok_or_else(|| complain(format!("{place} has no {name}")))
    };
    match item.get("type").and_then(Value::as_str).unwrap_or("message") {
        "message" => messages.push(message(place, item)?),
        "function_call" => {
            let mut call = json!({
                "id": text_of("call_id")?, "type": "function",
                "function": {"name": text_of("name")?, "arguments": text_of("arguments")?},
            });
            messages::read_arguments(&mut call);
            // Calls of one response are in one message, together with the text before them.
            match messages.last_mut().filter(|last| last["role"] == "assistant") {
                Some(last) => match last.get_mut("tool_calls").and_then(Value::as_array_mut) {
                    Some(calls) => calls.push(call),
                    None => last["tool_calls"] = json!([call]),
                },
                None => messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call]})),
            }
        }
        "function_call_output" => {
            let content = match item.get("output") {
                Some(Value::String(text)) => json!(text),
                Some(parts @ Value::Array(_)) => with_plain_parts(parts.clone()),
                _ => return Err(complain(format!("{place}.output: expected a string or a list of text parts"))),
            };
            let message = json!({"role": "tool", "tool_call_id": text_of("call_id")?, "content": content});
            messages.push(messages::message(place, message)?);
        }
        // Reasoning of earlier responses is not sent to the model again.
        "reasoning" => {}
        other => {
            let message = format!(
                "{place} is of type {other}; expected message, function_call, function_call_output or reasoning"
            );
            return Err(complain(message));
        }
    }
    Ok(())
}

fn message(place: &str, item: Value) -> Result<Value, ApiError> {
    let Value::Object(mut item) = item else {
        return Err(ApiError::parameter(place, format!("{place} is not an object with role and content")));
    };
    for name in ["type", "id", "status"] {
        item.remove(name);
    }
    if let Some(content) = item.remove("content") {
        item.insert("content".into(), with_plain_parts(content));
    }
    if item.get("role").and_then(Value::as_str) == Some("developer") {
        item.insert("role".into(), "system".into());
    }
    messages::message(place, Value::Object(item))
}

/// Renames text parts to their name in the older API.
fn with_plain_parts(mut content: Value) -> Value {
    for part in content.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if matches!(part.get("type").and_then(Value::as_str), Some("input_text" | "output_text")) {
            part.insert("type".into(), "text".into());
        }
    }
    content
}

/// Converts `tools` and `tool_choice` to the older API, where functions are nested objects. Returns
/// both as the client wrote them, to be repeated in the response.
pub fn nest_tools(fields: &mut Fields) -> (Value, Value) {
    let (tools, choice) = (fields.value("tools"), fields.value("tool_choice"));
    let nested = |tool: &Value| match tool.as_object() {
        Some(tool) if tool.contains_key("name") && !tool.contains_key("function") => {
            let mut function = tool.clone();
            let kind = function.remove("type");
            json!({"type": kind, "function": function})
        }
        _ => tool.clone(),
    };
    if let Some(tools) = &tools {
        let written = match tools.as_array() {
            Some(list) => list.iter().map(nested).collect(),
            None => tools.clone(),
        };
        fields.put("tools", written);
    }
    if let Some(choice) = &choice {
        fields.put("tool_choice", nested(choice));
    }
    (tools.unwrap_or_else(|| json!([])), choice.unwrap_or_else(|| "auto".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: Value) -> Result<Vec<Value>, ApiError> {
        let body = json!({"input": input}).to_string();
        messages(&mut Fields::parse(body.as_bytes()).expect("an object")).map(|(_, messages)| messages)
    }

    #[test]
    fn items_become_messages() {
        let check = |input: Value, expected: Value| {
            let expected = expected.as_array().cloned().expect("a list");
            assert_eq!(read(input.clone()).expect("messages"), expected, "{input}");
        };
        check(json!("hi"), json!([{"role": "user", "content": "hi"}]));
        let call =
            |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}", "id": "x"});
        let input = json!([
            {"role": "developer", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
            call("1"), call("2"),
            {"type": "function_call_output", "call_id": "1", "output": "c"},
        ]);
        let calls = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": {}}});
        let expected = json!([
            {"role": "system", "content": "a"},
            {"role": "assistant", "content": "b", "tool_calls": [calls("1"), calls("2")]},
            {"role": "tool", "tool_call_id": "1", "content": "c"},
        ]);
        check(input, expected);
        for wrong in [json!(7), json!([]), json!([{"type": "item_reference"}]), json!([{"type": "function_call"}])] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn earlier_calls_reach_the_template_as_over_the_chat_api() {
        let written = "{\"city\": \"Paris\", \"days\": 2}";
        let responses = json!([
            {"role": "user", "content": "x"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": written},
            {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        ]);
        let call = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": written}});
        let chat = json!({"messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        ]});
        let mut chat = Fields::parse(chat.to_string().as_bytes()).expect("an object");
        assert_eq!(read(responses).expect("messages"), messages::read(&mut chat).expect("messages"));
    }
}
