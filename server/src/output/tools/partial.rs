//! Incomplete tool calls: parses a prefix of JSON.

use serde_json::{Map, Value};

/// A call that may be incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The function's name.
    pub name: String,
    /// The arguments so far, as JSON.
    pub arguments: String,
    /// Whether the call is complete.
    pub complete: bool,
}

impl Partial {
    /// A complete call.
    pub fn whole(name: &str, arguments: String) -> Self {
        Self { name: name.to_owned(), arguments, complete: true }
    }

    /// Whether it is complete, and its arguments are an object.
    pub fn is_good(&self) -> bool {
        self.complete && is_object(&self.arguments)
    }
}

/// Parses `{"name": …, "arguments": …}`, or with `parameters`, and returns its length in bytes.
/// `None` until the name is complete, and if it is not such an object.
pub fn json_call(text: &str) -> Option<(Partial, usize)> {
    let mut at = after_space(text, 0);
    at = after(text, at, '{')?;
    let (mut name, mut arguments) = (None, None);
    let mut complete = false;
    while let Some((key, colon)) = string(text, after_space(text, at)) {
        let Some(value) = after(text, after_space(text, colon), ':').map(|at| after_space(text, at)) else { break };
        let (end, whole) = scan(text, value);
        match key.as_str() {
            "name" => name = Some(string(text, value)?.0),
            // Llama's templates call the arguments `parameters`.
            "arguments" | "parameters" => arguments = argument_text(&text[value..end], whole),
            _ => {}
        }
        at = after_space(text, end);
        if !whole {
            break;
        }
        match text[at..].chars().next() {
            Some(',') => at += 1,
            Some('}') => {
                at += 1;
                complete = true;
                break;
            }
            _ => break,
        }
    }
    // A whole object with a name alone is an answer in JSON, not a call.
    if complete && arguments.is_none() {
        return None;
    }
    Some((Partial { name: name?, arguments: arguments.unwrap_or_default(), complete }, at))
}

/// The first key of the object at the start of a text, once it is complete.
pub fn first_key(text: &str) -> Option<String> {
    let at = after(text, after_space(text, 0), '{')?;
    Some(string(text, after_space(text, at))?.0)
}

/// The object at the start of a text, and whether it is complete; empty if there is none.
pub fn object(text: &str) -> (&str, bool) {
    let text = text.trim_start();
    if !text.starts_with('{') {
        return ("", false);
    }
    let (end, whole) = scan(text, 0);
    (&text[..end], whole)
}

/// Whether a text is an object in JSON, as arguments have to be.
pub fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// The arguments that can be shown: an object as it grows, or, since some models write the object
/// as a string, that in a string once it is complete.
fn argument_text(text: &str, whole: bool) -> Option<String> {
    match text.chars().next() {
        Some('{') => Some(text.to_owned()),
        Some('"') if whole => serde_json::from_str(text).ok().filter(|inner: &String| is_object(inner)),
        _ => None,
    }
}

fn after_space(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start().len()
}

fn after(text: &str, at: usize, mark: char) -> Option<usize> {
    text[at..].starts_with(mark).then_some(at + mark.len_utf8())
}

/// The complete string at an offset, and its end.
fn string(text: &str, at: usize) -> Option<(String, usize)> {
    if !text[at..].starts_with('"') {
        return None;
    }
    let (end, whole) = scan(text, at);
    let value: Value = serde_json::from_str(&text[at..end]).ok().filter(|_| whole)?;
    Some((value.as_str()?.to_owned(), end))
}

/// The end of the value at an offset, found by matching brackets and quotes, and whether it is
/// complete.
fn scan(text: &str, at: usize) -> (usize, bool) {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (offset, character) in text[at..].char_indices() {
        let end = at + offset + character.len_utf8();
        if in_string {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => {
                    in_string = false;
                    if depth == 0 {
                        return (end, true);
                    }
                }
                _ => {}
            }
            continue;
        }
        match character {
            '"' => in_string = true,
            '{' | '[' => depth += 1,
            // A number or a word ends only with what follows it.
            '}' | ']' | ',' if depth == 0 => return (at + offset, offset > 0),
            '}' | ']' => {
                depth -= 1;
                if depth == 0 {
                    return (end, true);
                }
            }
            _ => {}
        }
    }
    (text.len(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_grow_with_their_text() {
        let text = r#" {"id": 7, "name": "f\"1", "arguments": {"a": "}\"", "b": [1, {}]}} rest"#;
        let (mut names, mut arguments) = (Vec::new(), String::new());
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let Some((call, _)) = json_call(&text[..end]) else { continue };
            names.push(call.name);
            assert!(call.arguments.starts_with(&arguments), "{arguments} {}", call.arguments);
            arguments = call.arguments;
            assert_eq!(call.complete, end >= text.len() - " rest".len(), "{end}");
        }
        assert!(names.iter().all(|name| name == "f\"1"));
        assert_eq!(arguments, r#"{"a": "}\"", "b": [1, {}]}"#);
        assert_eq!(json_call(text).map(|(_, end)| &text[end..]), Some(" rest"));
    }

    #[test]
    fn other_orders_and_forms_are_read_and_other_things_are_not() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let found = json_call(text).filter(|(call, _)| call.complete).map(|(call, _)| call);
            let found = found.as_ref().map(|call| (call.name.as_str(), call.arguments.as_str()));
            assert_eq!(found, expected, "{text}");
        };
        check(r#"{"parameters": {"x": 1}, "name": "f"}"#, Some(("f", r#"{"x": 1}"#)));
        check(r#"{"name": "f", "arguments": "{\"x\": 1}"}"#, Some(("f", r#"{"x": 1}"#)));
        check(r#"{"name": "f"}"#, None);
        for other in ["null", "[1]", "7", r#""x""#] {
            check(&format!(r#"{{"name": "f", "arguments": {other}}}"#), None);
        }
        check(r#"{"name": 1, "arguments": {}}"#, None);
        check(r#"{"answer": 4}"#, None);
        check("[]", None);
        check("", None);
        check("{\"ü\": \"", None);
    }
}
