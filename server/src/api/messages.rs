//! Messages of a conversation, in the form that chat templates expect.

use serde_json::{Map, Value};

use crate::http::{error::ApiError, fields::Fields};

/// The roles of OpenAI's API. Templates may have further ones.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// Reads `messages`.
///
/// # Errors
/// When they are missing or one is invalid.
pub fn read(fields: &mut Fields) -> Result<Vec<Value>, ApiError> {
    match fields.value("messages") {
        None => Err(fields.complain("messages", "messages is missing")),
        Some(Value::Array(list)) if !list.is_empty() => list
            .into_iter()
            .enumerate()
            .map(|(at, message)| self::message(&format!("messages[{at}]"), message))
            .collect(),
        Some(other) => Err(fields.wrong("messages", "a list of at least one message", &other)),
    }
}

/// Refuses roles that neither the API nor the chat template knows. `name` is the parameter that
/// contains the messages.
///
/// # Errors
/// When there is one.
pub fn check_roles(messages: &[Value], name: &str, template: &str) -> Result<(), ApiError> {
    let is_known = |role: &str| {
        ROLES.contains(&role) || ['\'', '"'].iter().any(|quote| template.contains(&format!("{quote}{role}{quote}")))
    };
    let roles = messages.iter().enumerate().filter_map(|(at, message)| Some((at, message.get("role")?.as_str()?)));
    match roles.into_iter().find(|(_, role)| !is_known(role)) {
        None => Ok(()),
        Some((at, role)) => {
            let message = format!("the role '{role}' does not exist, expected one of {}", ROLES.join(", "));
            Err(ApiError::parameter(&format!("{name}[{at}].role"), message))
        }
    }
}

/// A message in the form of the chat template: text in one piece, arguments of tool calls as
/// objects. Other fields are passed to the template.
///
/// # Errors
/// When it is not a message.
pub fn message(place: &str, value: Value) -> Result<Value, ApiError> {
    let complain = |field: &str, message: String| ApiError::parameter(&format!("{place}.{field}"), message);
    let Value::Object(mut message) = value else {
        return Err(ApiError::parameter(place, format!("{place} is not an object with role and content")));
    };
    let role = message.get("role").and_then(Value::as_str).map(ToOwned::to_owned);
    let role = role.ok_or_else(|| complain("role", format!("{place} has no role")))?;
    let content = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => text_of(parts).ok_or_else(|| {
            complain(
                "content",
                format!("{place}.content has a part that is not text, but this server supports only text"),
            )
        })?,
        // An assistant's message may consist of tool calls only.
        None | Some(Value::Null) if role == "assistant" => String::new(),
        None | Some(Value::Null) => return Err(complain("content", format!("{place} has no content"))),
        Some(_) => {
            return Err(complain("content", format!("{place}.content: expected a string or a list of text parts")));
        }
    };
    // Templates check whether a key exists; clients write null for what they leave out.
    message.retain(|_, value| !value.is_null());
    message.insert("content".into(), content.into());
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        read_arguments(call);
    }
    Ok(Value::Object(message))
}

/// Passes the reasoning of earlier answers on under the name that gpt-oss's template reads
/// (`thinking`).
pub fn tell_thoughts(messages: &mut [Value]) {
    for message in messages.iter_mut().filter(|message| message["role"] == "assistant") {
        let Some(message) = message.as_object_mut().filter(|message| !message.contains_key("thinking")) else {
            continue;
        };
        let thoughts = ["reasoning_content", "reasoning"].iter().find_map(|name| message.get(*name)?.as_str());
        if let Some(thoughts) = thoughts.map(ToOwned::to_owned) {
            message.insert("thinking".into(), thoughts.into());
        }
    }
}

/// Converts arguments of a tool call from OpenAI's JSON in a string to the object that templates
/// expect.
pub fn read_arguments(call: &mut Value) {
    let Some(arguments) = call.pointer_mut("/function/arguments") else { return };
    // Templates expect an object here; OpenAI's API has its text.
    let object = arguments.as_str().and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    if let Some(object) = object {
        *arguments = Value::Object(object);
    }
}

fn text_of(parts: &[Value]) -> Option<String> {
    let text = |part: &Map<String, Value>| {
        // An assistant's refusal is text too.
        let name = part.get("type")?.as_str().filter(|kind| ["text", "refusal"].contains(kind))?;
        part.get(name)?.as_str().map(ToOwned::to_owned)
    };
    parts.iter().map(|part| text(part.as_object()?)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_of_tool_calls_reach_the_template_as_objects() {
        let check = |arguments: Value, expected: Value| {
            let call = |arguments| json!({"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]});
            let mut expected = call(expected);
            expected["content"] = "".into();
            assert_eq!(message("messages[0]", call(arguments)).ok(), Some(expected));
        };
        check(json!("{\"city\": \"Paris\"}"), json!({"city": "Paris"}));
        check(json!({"city": "Paris"}), json!({"city": "Paris"}));
        check(json!("[1]"), json!("[1]"));
        check(json!("Paris"), json!("Paris"));
    }

    #[test]
    fn earlier_thoughts_have_the_name_that_the_template_reads() {
        let mut messages = [
            json!({"role": "user", "content": "a", "reasoning_content": "b"}),
            json!({"role": "assistant", "content": "", "reasoning_content": "Hm."}),
            json!({"role": "assistant", "content": "", "thinking": "x", "reasoning": "y"}),
        ];
        tell_thoughts(&mut messages);
        let thoughts: Vec<&Value> = messages.iter().map(|message| &message["thinking"]).collect();
        assert_eq!(thoughts, [&Value::Null, &json!("Hm."), &json!("x")]);
    }

    #[test]
    fn refusals_are_text_and_other_parts_are_refused() {
        let check = |part: Value, expected: Option<&str>| {
            let found = message("messages[0]", json!({"role": "assistant", "content": [part]})).ok();
            assert_eq!(found.as_ref().map(|message| message["content"].as_str()), expected.map(Some), "{part}");
        };
        check(json!({"type": "text", "text": "a"}), Some("a"));
        check(json!({"type": "refusal", "refusal": "No."}), Some("No."));
        check(json!({"type": "refusal", "text": "No."}), None);
        check(json!({"type": "image_url", "image_url": {"url": "x"}}), None);
    }

    #[test]
    fn roles_are_those_of_the_api_and_of_the_template() {
        let check = |role: &str, template: &str, expected: bool| {
            let messages = [json!({"role": role, "content": "a"})];
            assert_eq!(check_roles(&messages, "messages", template).is_ok(), expected, "{role}");
        };
        for role in ROLES {
            check(role, "", true);
        }
        check("wizard", "{{ message.role }}", false);
        check("ipython", "{% if message.role == 'ipython' %}", true);
        check("ipython", "{% if message.role == \"ipython\" %}", true);
    }
}
