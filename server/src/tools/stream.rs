//! An answer that may turn into calls while it is streamed.

use super::{Call, Tools};

/// The answer of one choice so far.
#[derive(Clone, Debug)]
pub struct ToolStream {
    whole: String,
    /// Bytes of it that have been shown as content.
    shown: usize,
    /// Whether what has not been shown waits for the end: it begins with a marker.
    waits: bool,
}

impl ToolStream {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { whole: String::new(), shown: 0, waits: false }
    }

    /// Takes further text and returns what of the content can be shown now.
    pub fn push(&mut self, text: &str, tools: &Tools) -> String {
        self.whole.push_str(text);
        if self.waits {
            return String::new();
        }
        let hidden = &self.whole[self.shown..];
        let family = tools.family;
        let end = if family.begins_with_call() && self.shown > 0 {
            hidden.len()
        } else if family.begins_with_call() {
            let begun = hidden.trim_start();
            let may_be = |marker: &&str| begun.starts_with(marker) || marker.starts_with(begun);
            if family.markers().iter().any(may_be) { 0 } else { hidden.len() }
        } else {
            match family.markers().iter().filter_map(|marker| hidden.find(marker)).min() {
                Some(at) => {
                    self.waits = true;
                    at
                }
                None => {
                    hidden.len() - family.markers().iter().map(|marker| beginning(hidden, marker)).max().unwrap_or(0)
                }
            }
        };
        let content = hidden[..end].to_owned();
        self.shown += end;
        content
    }

    /// The end: what of the content has not been shown, and the calls.
    pub fn finish(&self, tools: &Tools) -> (String, Vec<Call>) {
        let (content, calls) = tools.parse(&self.whole);
        if calls.is_empty() {
            return (self.whole[self.shown..].to_owned(), calls);
        }
        // The content is a part of what has been shown, or all of it.
        (content.get(self.shown..).unwrap_or_default().to_owned(), calls)
    }
}

/// Bytes at the end of a text with which a marker may begin.
fn beginning(text: &str, marker: &str) -> usize {
    let ends = marker.char_indices().map(|(at, _)| at).filter(|at| *at > 0 && text.ends_with(&marker[..*at]));
    ends.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        super::{Choice, Family, Function},
        *,
    };

    fn check(family: Family, pieces: &[&str], shown: &str, calls: usize) {
        let function = Function { name: "f".into(), parameters: json!({"type": "object"}), written: Value::Null };
        let tools =
            Tools { functions: vec![function], choice: Choice::Auto, parallel: true, family, in_template: true };
        let mut stream = ToolStream::new();
        let mut content: String = pieces.iter().map(|piece| stream.push(piece, &tools)).collect();
        let (rest, found) = stream.finish(&tools);
        content.push_str(&rest);
        assert_eq!((content.trim_end(), found.len()), (shown, calls), "{pieces:?}");
    }

    #[test]
    fn content_is_shown_and_calls_are_not() {
        let call = "{\"name\": \"f\", \"arguments\": {}}";
        check(Family::Hermes, &["Hel", "lo <tool", " call> < x"], "Hello <tool call> < x", 0);
        check(Family::Hermes, &["Hello ", "<tool", "_call>", call, "</tool_call>"], "Hello", 1);
        check(Family::Hermes, &["<tool_call>", "broken"], "<tool_call>broken", 0);
        check(Family::Llama, &["{\"name\": \"f\", ", "\"parameters\": {}}"], "", 1);
        check(Family::Llama, &["  ", "plain { text"], "  plain { text", 0);
        check(Family::Mistral, &["[TOOL", "_CALLS]", "[", call, "]"], "", 1);
    }
}
