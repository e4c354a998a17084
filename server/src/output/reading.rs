//! Parses a chat response into reasoning, content and tool calls.

use engine::text::Text;

use super::{
    harmony::{self, HarmonyStream},
    reasoning::{self, ReasoningStream, Thinking},
    tools::{CallPiece, ParsedCalls, ShownCall, ToolCall, ToolFamily, ToolStream, Tools},
};
use crate::http::{error::ApiError, fields::Fields};

/// How the responses to a request are parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputReading {
    /// The tools that may be called.
    pub tools: Option<Tools>,
    /// How separated reasoning is returned.
    reasoning: Option<Reasoning>,
    /// Whether the model thinks from its first token on.
    thinks: bool,
    /// Whether the response is written in channels.
    in_channels: bool,
}

/// How reasoning that is separated from the content is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reasoning {
    /// Whether it is part of the response.
    shown: bool,
    /// Whether it is streamed as it grows, or sent once complete.
    grows: bool,
    /// Whether the model thinks from its first token on, regardless of how the prompt ends.
    from_start: bool,
}

/// A complete response.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputParts {
    /// `None` if it is not separated.
    pub reasoning: Option<String>,
    pub content: String,
    pub calls: Vec<ToolCall>,
    /// Whether a call is not complete.
    pub is_cut: bool,
}

/// The response of one choice while it is streamed.
#[derive(Clone, Debug)]
pub struct ResponseReader {
    /// For a response in channels; then the other two streams are unused.
    harmony: Option<HarmonyStream>,
    reasoning: Option<ReasoningStream>,
    /// Reasoning that is held until it is complete.
    waiting: String,
    tools: ToolStream,
}

/// The parts that can be sent now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputPiece {
    pub reasoning: String,
    pub content: String,
    pub calls: Vec<CallPiece>,
}

impl OutputPiece {
    /// Whether the parts of another piece are of the same kinds, or it has none.
    fn has_parts_of(&self, other: &Self) -> bool {
        let kinds = |piece: &Self| [piece.reasoning.is_empty(), piece.content.is_empty(), piece.calls.is_empty()];
        kinds(self) == kinds(other) || *other == Self::default()
    }

    /// Adds a piece that follows it.
    fn join(&mut self, next: Self) {
        self.reasoning.push_str(&next.reasoning);
        self.content.push_str(&next.content);
        for call in next.calls {
            match self.calls.last_mut().filter(|last| last.number == call.number && call.name.is_none()) {
                Some(last) => last.arguments.push_str(&call.arguments),
                None => self.calls.push(call),
            }
        }
    }
}

impl Reasoning {
    /// Reads `separate_reasoning`, `stream_reasoning` and vLLM's `include_reasoning`; `None` if the
    /// model does not think, or if reasoning stays in the content.
    ///
    /// # Errors
    /// When one has the wrong type.
    pub fn read(fields: &mut Fields, thinking: Thinking) -> Result<Option<Self>, ApiError> {
        let separate = fields.flag_or("separate_reasoning", true)?;
        let grows = fields.flag_or("stream_reasoning", true)?;
        let shown = fields.flag_or("include_reasoning", true)?;
        let from_start = thinking == Thinking::FromStart;
        Ok((separate && thinking != Thinking::Off).then_some(Self { shown, grows, from_start }))
    }
}

impl OutputReading {
    /// `thinks` says whether the prompt ends inside reasoning. An output that `has_form` follows it
    /// from its first token on, and so has no reasoning.
    pub fn new(tools: Option<Tools>, reasoning: Option<Reasoning>, thinks: bool, has_form: bool) -> Self {
        let from_start = reasoning.is_some_and(|reasoning| reasoning.from_start);
        let in_channels = tools.as_ref().is_some_and(|tools| tools.family == ToolFamily::Harmony);
        // A grammar constrains the output from its first token, so there is no reasoning before it.
        Self { tools, reasoning, thinks: (thinks || from_start) && !has_form, in_channels }
    }

    /// The same for a model that thinks like this: with [`Thinking::Harmony`], its responses are
    /// read as channels even if reasoning is not separated, and then reasoning is part of the
    /// content.
    #[must_use]
    pub fn with_thinking(self, thinking: Thinking) -> Self {
        Self { in_channels: self.in_channels || thinking == Thinking::Harmony, ..self }
    }

    /// The names of functions that may be called, and how many calls.
    fn callable(&self) -> (Vec<String>, usize) {
        let Some(tools) = &self.tools else { return (Vec::new(), 0) };
        (tools.functions.iter().map(|function| function.name.clone()).collect(), tools.most_calls())
    }

    /// Parses a complete response.
    pub fn whole(&self, answer: &str) -> OutputParts {
        if self.in_channels {
            let (functions, most_calls) = self.callable();
            let (thoughts, ParsedCalls { content, calls, is_cut }) = harmony::split(answer, functions, most_calls);
            return match self.reasoning {
                // Without separation the client gets everything that the model wrote.
                None => OutputParts { reasoning: None, content: thoughts + &content, calls, is_cut },
                Some(Reasoning { shown, .. }) => {
                    OutputParts { reasoning: shown.then_some(thoughts), content, calls, is_cut }
                }
            };
        }
        let (thoughts, rest) = match self.reasoning {
            None => (None, answer.to_owned()),
            Some(Reasoning { shown, .. }) => {
                let (thoughts, rest) = reasoning::split(answer, self.thinks);
                (shown.then_some(thoughts), rest)
            }
        };
        let ParsedCalls { content, calls, is_cut } = match &self.tools {
            Some(tools) => tools.parse(&rest),
            None => ParsedCalls { content: rest, calls: Vec::new(), is_cut: false },
        };
        OutputParts { reasoning: thoughts, content, calls, is_cut }
    }

    /// Number of tokens of an output that are reasoning, with the marks before it; 0 if it is not
    /// separated.
    pub fn count_reasoning(&self, tokens: &[u32], text: &Text) -> usize {
        let Some(reasoning) = self.reasoning else { return 0 };
        // As they come, whatever the client gets of them.
        let reasoning = Some(Reasoning { shown: true, grows: true, ..reasoning });
        let reading = Self { tools: None, reasoning, ..self.clone() };
        let (mut reader, mut bytes) = (reading.stream(), Vec::new());
        let (mut count, mut waiting) = (0, 0);
        for token in tokens {
            bytes.extend(text.token(*token).bytes);
            waiting += 1;
            // A character may consist of several tokens.
            let Ok(known) = std::str::from_utf8(&bytes) else { continue };
            let piece = reader.push(known, &reading);
            bytes.clear();
            if !piece.reasoning.is_empty() {
                count += waiting;
            }
            if piece != OutputPiece::default() {
                waiting = 0;
            }
        }
        let last = reader.finish(&reading);
        count + if last.reasoning.is_empty() { 0 } else { waiting }
    }

    /// Parses a response piece by piece.
    pub fn stream(&self) -> ResponseReader {
        ResponseReader {
            harmony: self.in_channels.then(|| {
                let (functions, most_calls) = self.callable();
                HarmonyStream::new(functions, most_calls)
            }),
            reasoning: self.reasoning.map(|_| ReasoningStream::new(self.thinks)),
            waiting: String::new(),
            tools: ToolStream::default(),
        }
    }
}

impl ResponseReader {
    /// Processes further text.
    pub fn push(&mut self, text: &str, reading: &OutputReading) -> OutputPiece {
        if let Some(stream) = &mut self.harmony {
            let (thoughts, shown) = stream.push(text);
            return self.piece(thoughts, shown, reading, false);
        }
        let (thoughts, rest) = match &mut self.reasoning {
            Some(stream) => stream.push(text),
            None => (String::new(), text.to_owned()),
        };
        let shown = match &reading.tools {
            Some(tools) => self.tools.push(&rest, tools),
            None => ShownCall { content: rest, calls: Vec::new() },
        };
        self.piece(thoughts, shown, reading, false)
    }

    /// Processes further text, and returns its parts in the order of the text: channels can follow
    /// each other within it.
    pub fn push_in_order(&mut self, text: &str, reading: &OutputReading) -> Vec<OutputPiece> {
        if self.harmony.is_none() {
            return vec![self.push(text, reading)];
        }
        let mut pieces: Vec<OutputPiece> = Vec::new();
        let mut character = [0; 4];
        // No character ends one part and belongs to another one.
        for one in text.chars() {
            let piece = self.push(one.encode_utf8(&mut character), reading);
            match pieces.last_mut().filter(|last| last.has_parts_of(&piece)) {
                Some(last) => last.join(piece),
                None => pieces.push(piece),
            }
        }
        pieces
    }

    /// Returns the rest at the end.
    pub fn finish(&mut self, reading: &OutputReading) -> OutputPiece {
        if let Some(stream) = &mut self.harmony {
            let (thoughts, shown) = stream.finish();
            return self.piece(thoughts, shown, reading, true);
        }
        let (thoughts, rest) = self.reasoning.as_mut().map(ReasoningStream::finish).unwrap_or_default();
        let mut shown = ShownCall { content: rest, calls: Vec::new() };
        if let Some(tools) = &reading.tools {
            shown = self.tools.push(&shown.content, tools);
            let last = self.tools.finish(tools);
            shown.content.push_str(&last.content);
            shown.calls.extend(last.calls);
        }
        self.piece(thoughts, shown, reading, true)
    }

    /// Whether functions have been called, and all calls are complete. Valid after the end.
    pub fn has_complete_calls(&self) -> bool {
        self.harmony.as_ref().map_or_else(|| self.tools.has_complete_calls(), HarmonyStream::has_complete_calls)
    }

    fn piece(&mut self, thoughts: String, shown: ShownCall, reading: &OutputReading, ends: bool) -> OutputPiece {
        let mut piece = OutputPiece { reasoning: thoughts, content: shown.content, calls: shown.calls };
        match reading.reasoning {
            None => piece.content = std::mem::take(&mut piece.reasoning) + &piece.content,
            Some(Reasoning { shown: false, .. }) => piece.reasoning.clear(),
            Some(Reasoning { grows: false, .. }) => {
                self.waiting.push_str(&piece.reasoning);
                let is_whole = ends || !piece.content.is_empty() || !piece.calls.is_empty();
                piece.reasoning = if is_whole { std::mem::take(&mut self.waiting) } else { String::new() };
            }
            _ => {}
        }
        piece
    }
}
