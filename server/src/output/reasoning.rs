//! Separates a model's reasoning from its answer (SGLang's `separate_reasoning`).
//!
//! Reasoning starts with `<think>`, written by the model or by its template, and ends with
//! `</think>`. Whether a model reasons is detected from its chat template.

use super::tools::{CHANNEL, MESSAGE, beginning};

const OPEN: &str = "<think>";
/// The mark at the end of reasoning.
pub const CLOSE: &str = "</think>";

/// The current position in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThinkingPlace {
    /// At the start: it may begin with the mark.
    Start,
    Reasoning,
    Content,
}

/// A response while it is streamed.
#[derive(Clone, Debug)]
pub struct ReasoningStream {
    place: ThinkingPlace,
    /// Text that may still become a mark.
    held: String,
}

/// Whether and where a model thinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// It does not think, or reasoning is not separated.
    Off,
    /// Between the marks.
    Marked,
    /// From its first token on, whether or not the prompt ends with the mark.
    FromStart,
    /// In a channel of its own (gpt-oss).
    Harmony,
}

/// SGLang's and vLLM's names of parsers, and `off`.
pub const PARSERS: [(&str, Thinking); 13] = [
    ("off", Thinking::Off),
    ("qwen3", Thinking::Marked),
    ("glm45", Thinking::Marked),
    ("mimo", Thinking::Marked),
    ("deepseek-v3", Thinking::Marked),
    ("deepseek_v3", Thinking::Marked),
    ("interns1", Thinking::Marked),
    ("deepseek-r1", Thinking::FromStart),
    ("deepseek_r1", Thinking::FromStart),
    ("qwen3-thinking", Thinking::FromStart),
    ("step3", Thinking::FromStart),
    ("gpt-oss", Thinking::Harmony),
    ("openai_gptoss", Thinking::Harmony),
];

impl Thinking {
    /// The thinking mode of a parser.
    pub fn from_parser(name: &str) -> Option<Self> {
        PARSERS.iter().find(|(known, _)| *known == name).map(|(_, thinking)| *thinking)
    }

    /// The thinking mode of a model, detected from its chat template.
    pub fn from_template(source: &str) -> Self {
        if [CHANNEL, MESSAGE].iter().all(|mark| source.contains(mark)) {
            Self::Harmony
        } else if source.contains(CLOSE) {
            Self::Marked
        } else {
            Self::Off
        }
    }
}

/// Whether a prompt ends inside reasoning.
pub fn begins_inside(prompt: &str) -> bool {
    // Templates write a newline after the mark.
    prompt.trim_end().ends_with(OPEN)
}

impl ReasoningStream {
    /// For a response that starts inside reasoning, or may start with the mark.
    pub fn new(inside: bool) -> Self {
        Self { place: if inside { ThinkingPlace::Reasoning } else { ThinkingPlace::Start }, held: String::new() }
    }

    /// Processes further text, and returns what can be shown: of the reasoning, and of what follows
    /// it.
    pub fn push(&mut self, text: &str) -> (String, String) {
        self.held.push_str(text);
        if self.place == ThinkingPlace::Start {
            let begun = self.held.trim_start();
            if let Some(rest) = begun.strip_prefix(OPEN) {
                self.held = rest.to_owned();
                self.place = ThinkingPlace::Reasoning;
            // Text that may become the mark is held back until it is decided.
            } else if !OPEN.starts_with(begun) {
                self.place = ThinkingPlace::Content;
            }
        }
        match self.place {
            ThinkingPlace::Start => (String::new(), String::new()),
            ThinkingPlace::Content => (String::new(), std::mem::take(&mut self.held)),
            ThinkingPlace::Reasoning => match self.held.split_once(CLOSE) {
                Some((reasoning, rest)) => {
                    let shown = (reasoning.to_owned(), rest.to_owned());
                    self.place = ThinkingPlace::Content;
                    self.held.clear();
                    shown
                }
                None => {
                    let held = self.held.split_off(self.held.len() - beginning(&self.held, CLOSE));
                    (std::mem::replace(&mut self.held, held), String::new())
                }
            },
        }
    }

    /// Returns the rest at the end: of the reasoning, and of what follows it.
    pub fn finish(&mut self) -> (String, String) {
        let held = std::mem::take(&mut self.held);
        if self.place == ThinkingPlace::Reasoning { (held, String::new()) } else { (String::new(), held) }
    }
}

/// Splits a complete response into its reasoning and the rest.
pub fn split(answer: &str, inside: bool) -> (String, String) {
    let mut stream = ReasoningStream::new(inside);
    let (mut reasoning, mut rest) = stream.push(answer);
    let (last_reasoning, last) = stream.finish();
    reasoning.push_str(&last_reasoning);
    rest.push_str(&last);
    (reasoning, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_distinguished_at_once_and_piece_by_piece() {
        let check = |answer: &str, inside: bool, reasoning: &str, content: &str| {
            assert_eq!(split(answer, inside), (reasoning.to_owned(), content.to_owned()), "{answer}");
            let mut stream = ReasoningStream::new(inside);
            let (mut found, mut rest) = (String::new(), String::new());
            let pieces = answer.chars().map(|character| stream.push(&character.to_string())).collect::<Vec<_>>();
            for (piece, further) in pieces.into_iter().chain([stream.finish()]) {
                found.push_str(&piece);
                rest.push_str(&further);
            }
            assert_eq!((found.as_str(), rest.as_str()), (reasoning, content), "{answer}");
        };
        check("<think>Well.</think>Yes.", false, "Well.", "Yes.");
        check("\n<think>\nWell < </thin</think>", false, "\nWell < </thin", "");
        check("Well.</think>Yes.</think>", true, "Well.", "Yes.</think>");
        check("Cut off", true, "Cut off", "");
        check("Yes, <think> is a word.", false, "", "Yes, <think> is a word.");
        check("<thin", false, "", "<thin");
        check("", false, "", "");
        check("", true, "", "");
    }

    #[test]
    fn prompts_and_templates_tell() {
        assert!(begins_inside("<|assistant|><think>\n") && !begins_inside("<think>\n\n</think>\n\n"));
        assert_eq!(Thinking::from_template("{{ '</think>' }}"), Thinking::Marked);
        assert_eq!(Thinking::from_template("{{ messages }}"), Thinking::Off);
        assert_eq!(Thinking::from_template("{{ '<|channel|>final<|message|>' }}"), Thinking::Harmony);
    }
}
