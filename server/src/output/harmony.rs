//! Responses in channels, as gpt-oss writes them (OpenAI's harmony format).
//!
//! A response is a series of messages: a header, `<|message|>`, a body, and a token that ends it.
//! The header names a channel (`<|channel|>analysis` for reasoning, `final` for the answer,
//! `commentary` for what is said before calls) and perhaps a recipient (`to=functions.NAME`), to
//! which the body is a call in JSON. The first header starts where the prompt ends, after
//! `<|start|>assistant`.

use super::tools::{CHANNEL, CallPiece, MESSAGE, ParsedCalls, ShownCall, ToolCall, beginning, is_object};

/// Starts a header.
const START: &str = "<|start|>";
/// What ends a body: the end of a message, of a call, of the response, or, if none was written, a
/// new header.
const ENDS: [&str; 5] = ["<|end|>", "<|call|>", "<|return|>", START, CHANNEL];
/// What a response in channels may start with.
const BEGINS: [&str; 4] = [CHANNEL, START, "assistant<|channel|>", "to=functions."];
/// Starts the names of functions among recipients.
const FUNCTIONS: &str = "functions.";

/// The current position in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HarmonyPlace {
    /// At the start: it may have no channels, as where a grammar gives its form.
    Start,
    Header,
    Reasoning,
    Content,
    Call,
}

/// A response while it is streamed.
#[derive(Clone, Debug)]
pub struct HarmonyStream {
    place: HarmonyPlace,
    /// Text that is not shown yet: a header, or what may still become the end of a body.
    held: String,
    /// The names of functions that may be called, and the maximum number of calls.
    functions: Vec<String>,
    most_calls: usize,
    /// Number of calls so far.
    calls: usize,
    /// The body of the current call so far.
    arguments: String,
    /// Whether a call has ended that is not complete.
    is_cut: bool,
}

impl HarmonyStream {
    /// For a response that may call up to `most_calls` of these functions.
    pub fn new(functions: Vec<String>, most_calls: usize) -> Self {
        let (held, arguments) = (String::new(), String::new());
        Self { place: HarmonyPlace::Start, held, functions, most_calls, calls: 0, arguments, is_cut: false }
    }

    /// Processes further text, and returns what can be shown: of the reasoning, and of what follows
    /// it.
    pub fn push(&mut self, text: &str) -> (String, ShownCall) {
        self.held.push_str(text);
        let (mut reasoning, mut shown) = (String::new(), ShownCall::default());
        while self.step(&mut reasoning, &mut shown) {}
        (reasoning, shown)
    }

    /// Returns the rest at the end. A header that was cut off is not shown.
    pub fn finish(&mut self) -> (String, ShownCall) {
        let (mut reasoning, mut shown) = (String::new(), ShownCall::default());
        let held = std::mem::take(&mut self.held);
        let place = if self.place == HarmonyPlace::Start { HarmonyPlace::Content } else { self.place };
        self.show(place, &held, &mut reasoning, &mut shown);
        if place == HarmonyPlace::Call {
            self.end_call(&mut shown);
        }
        (reasoning, shown)
    }

    /// Whether functions have been called, and all calls are complete. Valid after the end.
    pub fn has_complete_calls(&self) -> bool {
        self.calls > 0 && !self.is_cut
    }

    /// Moves on by one part of what is held; false if more text is needed.
    fn step(&mut self, reasoning: &mut String, shown: &mut ShownCall) -> bool {
        match self.place {
            HarmonyPlace::Start => {
                let begun = self.held.trim_start();
                let starts = BEGINS.iter().any(|begin| begun.starts_with(begin));
                if !starts && BEGINS.iter().any(|begin| begin.starts_with(begun)) {
                    return false;
                }
                self.place = if starts { HarmonyPlace::Header } else { HarmonyPlace::Content };
                true
            }
            HarmonyPlace::Header => {
                let Some((header, body)) = self.held.split_once(MESSAGE) else { return false };
                let (header, body) = (header.to_owned(), body.to_owned());
                self.held = body;
                self.begin(&header, shown);
                true
            }
            HarmonyPlace::Reasoning | HarmonyPlace::Content | HarmonyPlace::Call => {
                let end = ENDS.iter().filter_map(|end| Some((self.held.find(end)?, *end))).min();
                let Some((at, end)) = end else {
                    // The rest may be the start of a mark that the next token completes.
                    let kept = ENDS.iter().map(|end| beginning(&self.held, end)).max().unwrap_or_default();
                    let held = self.held.split_off(self.held.len() - kept);
                    let body = std::mem::replace(&mut self.held, held);
                    self.show(self.place, &body, reasoning, shown);
                    return false;
                };
                let body = self.held[..at].to_owned();
                // A header that starts here is part of what follows.
                let skipped = if end == CHANNEL { at } else { at + end.len() };
                self.held.drain(..skipped);
                self.show(self.place, &body, reasoning, shown);
                if self.place == HarmonyPlace::Call {
                    self.end_call(shown);
                }
                self.place = HarmonyPlace::Header;
                true
            }
        }
    }

    /// Begins the body after a header.
    fn begin(&mut self, header: &str, shown: &mut ShownCall) {
        let word = |after: &str| {
            let (_, rest) = header.split_once(after)?;
            let end = rest.find(|character: char| character.is_whitespace() || character == '<').unwrap_or(rest.len());
            Some(rest[..end].to_owned())
        };
        let function = word("to=").and_then(|recipient| Some(recipient.strip_prefix(FUNCTIONS)?.to_owned()));
        self.place = match function.filter(|name| self.functions.contains(name)) {
            Some(name) => {
                self.calls += 1;
                self.arguments.clear();
                if self.calls <= self.most_calls {
                    let number = self.calls - 1;
                    shown.calls.push(CallPiece { number, name: Some(name), arguments: String::new() });
                }
                HarmonyPlace::Call
            }
            None if word(CHANNEL).as_deref() == Some("analysis") => HarmonyPlace::Reasoning,
            None => HarmonyPlace::Content,
        };
    }

    /// Shows a part of a body.
    fn show(&mut self, place: HarmonyPlace, body: &str, reasoning: &mut String, shown: &mut ShownCall) {
        match place {
            HarmonyPlace::Start | HarmonyPlace::Header => {}
            HarmonyPlace::Reasoning => reasoning.push_str(body),
            HarmonyPlace::Content => shown.content.push_str(body),
            HarmonyPlace::Call if self.calls > self.most_calls || body.is_empty() => {}
            HarmonyPlace::Call => {
                self.arguments.push_str(body);
                let arguments = body.to_owned();
                shown.calls.push(CallPiece { number: self.calls - 1, name: None, arguments });
            }
        }
    }

    /// Ends a call: without a body it has no arguments.
    fn end_call(&mut self, shown: &mut ShownCall) {
        if self.calls > self.most_calls {
            return;
        }
        // The mark after a call that is complete may be missing, since it ends the response.
        self.is_cut |= !self.arguments.is_empty() && !is_object(&self.arguments);
        if self.arguments.is_empty() {
            // A call without a body has no arguments, which clients parse as JSON.
            shown.calls.push(CallPiece { number: self.calls - 1, name: None, arguments: "{}".into() });
        }
    }
}

/// Splits a complete response into reasoning, content and calls.
pub fn split(answer: &str, functions: Vec<String>, most_calls: usize) -> (String, ParsedCalls) {
    let mut stream = HarmonyStream::new(functions, most_calls);
    let (mut reasoning, mut shown) = stream.push(answer);
    let (last_reasoning, last) = stream.finish();
    reasoning.push_str(&last_reasoning);
    shown.content.push_str(&last.content);
    shown.calls.extend(last.calls);
    let mut calls: Vec<ToolCall> = Vec::new();
    for CallPiece { number, name, arguments } in shown.calls {
        if let Some(name) = name {
            calls.push(ToolCall { name, arguments: String::new() });
        }
        if let Some(call) = calls.get_mut(number) {
            call.arguments.push_str(&arguments);
        }
    }
    (reasoning, ParsedCalls { content: shown.content, calls, is_cut: stream.is_cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &str, most_calls: usize, reasoning: &str, content: &str, calls: &[(&str, &str)]) {
        let functions = || vec!["weather".to_owned(), "time".to_owned()];
        let own = |calls: &[ToolCall]| -> Vec<(String, String)> {
            calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect()
        };
        let expected: Vec<(String, String)> =
            calls.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned())).collect();
        let (found, ParsedCalls { content: rest, calls: called, is_cut }) = split(answer, functions(), most_calls);
        assert_eq!((found.as_str(), rest.as_str(), own(&called)), (reasoning, content, expected.clone()), "{answer}");
        let characters: Vec<char> = answer.chars().collect();
        for size in [1, 2, 3, 7, 40] {
            let mut stream = HarmonyStream::new(functions(), most_calls);
            let pieces = characters.chunks(size).map(|piece| stream.push(&piece.iter().collect::<String>()));
            let mut pieces: Vec<_> = pieces.collect();
            pieces.push(stream.finish());
            let (mut thoughts, mut text, mut called) = (String::new(), String::new(), Vec::<(String, String)>::new());
            for (further, shown) in pieces {
                thoughts.push_str(&further);
                text.push_str(&shown.content);
                for piece in shown.calls {
                    assert_eq!(piece.name.is_some(), piece.number == called.len(), "a name comes first, and once");
                    called.extend(piece.name.map(|name| (name, String::new())));
                    called[piece.number].1.push_str(&piece.arguments);
                }
            }
            assert_eq!((thoughts.as_str(), text.as_str(), called), (reasoning, content, expected.clone()), "{answer}");
            assert_eq!(stream.has_complete_calls(), !calls.is_empty() && !is_cut);
            assert_eq!(is_cut, calls.iter().any(|(_, arguments)| !is_object(arguments)), "{answer}");
        }
    }

    #[test]
    fn channels_are_distinguished_at_once_and_piece_by_piece() {
        let thought = "<|channel|>analysis<|message|>Hm, 1 < 2 <|en.<|end|>";
        let answer = format!("{thought}<|start|>assistant<|channel|>final<|message|>Yes.<|return|>");
        check(&answer, 9, "Hm, 1 < 2 <|en.", "Yes.", &[]);
        check("<|channel|>final<|message|>Yes.", 9, "", "Yes.", &[]);
        check("<|channel|>analysis<|message|>Cut o", 9, "Cut o", "", &[]);
        check(&format!("{thought}<|start|>assistant<|chan"), 9, "Hm, 1 < 2 <|en.", "", &[]);
        // Without an end, a new channel ends a message.
        check("<|channel|>analysis<|message|>A<|channel|>final<|message|>B", 9, "A", "B", &[]);
        // Two thoughts, as around a call.
        check(&format!("{thought}<|start|>assistant{thought}"), 9, "Hm, 1 < 2 <|en.Hm, 1 < 2 <|en.", "", &[]);
        // A response whose form a grammar gives has no channels.
        check("{\"a\": \"<|end\"}", 9, "", "{\"a\": \"<|end\"}", &[]);
        check("assist", 9, "", "assist", &[]);
        check("", 9, "", "", &[]);
    }

    #[test]
    fn calls_are_messages_to_functions() {
        let paris = "{\"city\": \"Paris <|x|>\"}";
        let by_channel =
            format!("<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{paris}<|call|>");
        check(&by_channel, 9, "", "", &[("weather", paris)]);
        let thought = "<|channel|>analysis<|message|>Ask.<|end|><|start|>assistant";
        check(&format!("{thought}{by_channel}"), 9, "Ask.", "", &[("weather", paris)]);
        let by_role = format!("{thought} to=functions.time<|channel|>commentary json<|message|>{{}}<|call|>");
        check(&by_role, 9, "Ask.", "", &[("time", "{}")]);
        check(" to=functions.time<|channel|>commentary json<|message|>", 9, "", "", &[("time", "{}")]);
        // A call that was cut.
        check(
            " to=functions.time<|channel|>commentary json<|message|>{\"x\": \"a",
            9,
            "",
            "",
            &[("time", "{\"x\": \"a")],
        );
        // What is said before calls is content; only as many calls as are allowed count.
        let said = "<|channel|>commentary<|message|>I'll look.<|end|><|start|>assistant";
        let two = format!("{said}{by_channel}<|start|>assistant{by_channel}");
        check(&two, 9, "", "I'll look.", &[("weather", paris), ("weather", paris)]);
        check(&two, 1, "", "I'll look.", &[("weather", paris)]);
        // A function that was not offered is not called.
        check("<|channel|>commentary to=functions.other<|message|>{}<|call|>", 9, "", "{}", &[]);
    }

    #[test]
    fn arguments_are_sent_as_they_grow() {
        let mut stream = HarmonyStream::new(vec!["f".into()], 1);
        let answer = "<|channel|>commentary to=functions.f<|message|>{\"x\": \"a long text\"}<|call|>";
        let pieces: usize = answer.chars().map(|one| stream.push(&one.to_string()).1.calls.len()).sum();
        assert!(pieces > 10, "{pieces}");
    }
}
