//! Parses a streamed response that may turn out to contain tool calls.

use super::{Tools, family::is_shown, partial::Partial};

/// The response of one choice so far.
#[derive(Clone, Debug, Default)]
pub struct ToolStream {
    whole: String,
    /// Number of its bytes that have been shown as content.
    shown: usize,
    /// Whether the remaining text starts with a marker, after white space.
    calls: bool,
    /// Bytes of each call's arguments that have been sent.
    sent: Vec<usize>,
    /// Whether all calls that have been sent are complete. Known at the end.
    complete: bool,
}

/// The parts of a response that can be sent now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownCall {
    /// Content.
    pub content: String,
    /// Pieces of calls, in order.
    pub calls: Vec<CallPiece>,
}

/// A piece of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPiece {
    /// Index of the call in the response.
    pub number: usize,
    /// The function's name, with the first piece.
    pub name: Option<String>,
    /// Further text of its arguments.
    pub arguments: String,
}

impl ToolStream {
    /// Processes further text, and returns what can be sent now.
    pub fn push(&mut self, text: &str, tools: &Tools) -> ShownCall {
        self.whole.push_str(text);
        let content = if self.calls { String::new() } else { self.further_content(tools) };
        let calls = if self.calls { self.further_calls(tools) } else { Vec::new() };
        ShownCall { content, calls }
    }

    /// Returns the rest at the end.
    pub fn finish(&mut self, tools: &Tools) -> ShownCall {
        let calls = if self.calls { self.further_calls(tools) } else { Vec::new() };
        let all = tools.family.calls(&self.whole[self.shown..], &tools.functions);
        self.complete = all.iter().take(self.sent.len()).all(Partial::is_good);
        // If no call was recognised, the text that looked like calls is content.
        let content = if self.sent.is_empty() { self.whole[self.shown..].to_owned() } else { String::new() };
        ShownCall { content, calls }
    }

    /// Whether calls have been sent, and all of them are complete. Valid after the end.
    pub fn has_complete_calls(&self) -> bool {
        !self.sent.is_empty() && self.complete
    }

    /// Content up to where a call starts or may start.
    fn further_content(&mut self, tools: &Tools) -> String {
        let (hidden, family) = (&self.whole[self.shown..], tools.family);
        let end = if family.begins_with_call() && self.shown > 0 {
            hidden.len()
        } else if family.begins_with_call() {
            let is_call = family.is_call(hidden, &tools.functions);
            self.calls = is_call == Some(true);
            if is_call == Some(false) { hidden.len() } else { 0 }
        } else {
            match family.markers().iter().filter_map(|marker| hidden.find(marker)).min() {
                Some(at) => {
                    self.calls = true;
                    at
                }
                None => {
                    hidden.len() - family.markers().iter().map(|marker| beginning(hidden, marker)).max().unwrap_or(0)
                }
            }
        };
        // White space before a call is not shown, so it is held back until it is known that none
        // follows.
        let content = hidden[..end].trim_end().to_owned();
        self.shown += content.len();
        content
    }

    /// New parts of calls. A call is sent once it is known to name an existing tool and to have an
    /// object as its arguments.
    fn further_calls(&mut self, tools: &Tools) -> Vec<CallPiece> {
        let mut pieces = Vec::new();
        let calls = tools.family.calls(&self.whole[self.shown..], &tools.functions);
        for (number, call) in calls.iter().enumerate().take(tools.most_calls()) {
            if !is_shown(call, &tools.functions) {
                break;
            }
            let name = (number == self.sent.len()).then(|| call.name.clone());
            if name.is_some() {
                self.sent.push(0);
            }
            let Some(sent) = self.sent.get_mut(number) else { break };
            let arguments = call.arguments.get(*sent..).unwrap_or_default().to_owned();
            if name.is_some() || !arguments.is_empty() {
                *sent += arguments.len();
                pieces.push(CallPiece { number, name, arguments });
            }
        }
        pieces
    }
}

/// Length of the longest suffix of a text that is a proper prefix of a marker.
pub fn beginning(text: &str, marker: &str) -> usize {
    let ends = marker.char_indices().map(|(at, _)| at).filter(|at| *at > 0 && text.ends_with(&marker[..*at]));
    ends.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        super::{Function, ToolChoice, ToolFamily},
        *,
    };

    fn tools(family: ToolFamily) -> Tools {
        let parameters = json!({"type": "object", "properties": {"x": {"type": "string"}}});
        let function = Function { name: "f".into(), parameters, written: Value::Null };
        Tools {
            functions: vec![function],
            choice: ToolChoice::Auto,
            parallel: true,
            family,
            legacy: false,
            in_template: true,
        }
    }

    /// Content, the arguments of each call, and the number of pieces of calls.
    fn streamed(family: ToolFamily, pieces: impl Iterator<Item = String>) -> (String, Vec<String>, usize) {
        let tools = tools(family);
        let mut stream = ToolStream::default();
        let mut shown: Vec<ShownCall> = pieces.map(|piece| stream.push(&piece, &tools)).collect();
        shown.push(stream.finish(&tools));
        let (mut content, mut calls, mut count) = (String::new(), Vec::new(), 0);
        for one in shown {
            content.push_str(&one.content);
            for piece in one.calls {
                count += 1;
                assert_eq!(piece.name.is_some(), piece.number == calls.len(), "a name comes first, and once");
                if let Some(name) = piece.name {
                    assert_eq!(name, "f");
                    calls.push(String::new());
                }
                calls[piece.number].push_str(&piece.arguments);
            }
        }
        (content, calls, count)
    }

    fn check(family: ToolFamily, answer: &str, content: &str, calls: &[&str]) {
        let whole = tools(family).parse(answer);
        let expected: Vec<String> = whole.calls.into_iter().map(|call| call.arguments).collect();
        assert_eq!(
            (whole.content.as_str(), expected),
            (content, calls.iter().map(ToString::to_string).collect()),
            "{answer}"
        );
        for size in [1, 2, 3, 7, answer.len()] {
            let characters: Vec<char> = answer.chars().collect();
            let (shown, found, _) = streamed(family, characters.chunks(size).map(|piece| piece.iter().collect()));
            assert_eq!((shown.as_str(), found), (content, calls.iter().map(ToString::to_string).collect()), "{answer}");
        }
    }

    #[test]
    fn a_stream_shows_what_an_answer_at_once_says() {
        let call = "{\"name\": \"f\", \"arguments\": {\"x\": \"<é>\"}}";
        let arguments = "{\"x\": \"<é>\"}";
        check(ToolFamily::Hermes, "Hello <tool call> < x", "Hello <tool call> < x", &[]);
        check(ToolFamily::Hermes, &format!("Hello \n<tool_call>\n{call}\n</tool_call>"), "Hello", &[arguments]);
        let two = format!("<tool_call>{call}</tool_call>\n<tool_call>{call}</tool_call>");
        check(ToolFamily::Hermes, &two, "", &[arguments, arguments]);
        check(ToolFamily::Hermes, "<tool_call>broken", "<tool_call>broken", &[]);
        for other in ["null", "[1]", "7", "\"x\""] {
            let answer = format!("So: <tool_call>{{\"name\": \"f\", \"arguments\": {other}}}</tool_call>");
            check(ToolFamily::Hermes, &answer, &answer, &[]);
        }
        check(
            ToolFamily::Hermes,
            &format!("<tool_call>{}</tool_call>", "{\"name\": \"f\"}"),
            "<tool_call>{\"name\": \"f\"}</tool_call>",
            &[],
        );
        let marked = call.replace("<é>", "</tool_call>");
        check(ToolFamily::Hermes, &format!("<tool_call>{marked}</tool_call>"), "", &["{\"x\": \"</tool_call>\"}"]);
        let unknown = call.replace("\"f\"", "\"h\"");
        let second = format!("<tool_call>{call}</tool_call><tool_call>{unknown}</tool_call>");
        check(ToolFamily::Hermes, &second, "", &[arguments]);
        let llama = call.replace("arguments", "parameters");
        check(ToolFamily::Llama, &llama, "", &[arguments]);
        check(ToolFamily::Llama, &format!("<|python_tag|>{llama}; {llama}"), "", &[arguments, arguments]);
        check(ToolFamily::Llama, "  plain { text", "  plain { text", &[]);
        for answer in ["{\"answer\": 4}", "{\"name\": \"Ann\", \"age\": 4}", "{\"parameters\": {}}", "{}", "{\"na"] {
            check(ToolFamily::Llama, answer, answer, &[]);
        }
        check(ToolFamily::Mistral, &format!("[TOOL_CALLS][{call}, {call}]"), "", &[arguments, arguments]);
        check(ToolFamily::Mistral, &format!("[TOOL_CALLS]f[ARGS]{arguments}"), "", &[arguments]);
        let glm = "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n</tool_call>";
        check(ToolFamily::Glm, &format!("So: {glm}{glm}"), "So:", &["{\"x\":\"1\"}", "{\"x\":\"1\"}"]);
        let tags = "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>";
        check(ToolFamily::Tags, tags, "", &["{\"x\":\"1\"}"]);
        let fenced = format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        );
        check(ToolFamily::DeepSeek, &fenced, "", &[arguments]);
    }

    #[test]
    fn calls_that_are_cut_are_not_complete_at_once_and_in_a_stream() {
        let call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"a\"}}</tool_call>";
        let two = call.repeat(2);
        for end in 0..=two.len() {
            let (tools, mut stream) = (tools(ToolFamily::Hermes), ToolStream::default());
            let mut shown = stream.push(&two[..end], &tools).calls;
            shown.extend(stream.finish(&tools).calls);
            let count = shown.iter().filter(|piece| piece.name.is_some()).count();
            let whole = tools.parse(&two[..end]);
            let is_complete = !whole.calls.is_empty() && !whole.is_cut;
            assert_eq!(stream.has_complete_calls(), is_complete, "{end}");
            assert_eq!(whole.calls.len() + usize::from(whole.is_cut), count, "{end}");
        }
        let broken = "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": }}</tool_call>";
        let (tools, mut stream) = (tools(ToolFamily::Hermes), ToolStream::default());
        stream.push(broken, &tools);
        stream.finish(&tools);
        assert!(!stream.has_complete_calls() && tools.parse(broken).is_cut);
    }

    #[test]
    fn an_object_that_is_no_call_is_sent_as_it_grows() {
        let tools = tools(ToolFamily::Llama);
        for (begun, sent) in [("{\"answer\"", true), ("{\"name\": \"Ann\"", true), ("{\"name\": \"f\"", false)] {
            let shown = ToolStream::default().push(begun, &tools);
            assert_eq!(shown.content == begun, sent, "{begun}");
        }
    }

    #[test]
    fn arguments_are_sent_as_they_grow() {
        let answer = "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"a long text\"}}</tool_call>";
        let (_, _, pieces) = streamed(ToolFamily::Hermes, answer.chars().map(String::from));
        assert!(pieces > 10, "{pieces}");
    }
}
