//! Prompt files: the formats that people have.

use std::{fs::File, io::Read, path::Path};

use engine::{
    Engine,
    text::{ChatMessage, Text},
};
use schemas::sweep;
use serde::Deserialize;
use serde_json::value::{RawValue, Value};

use super::Room;
use crate::TunerError;

/// Largest prompt file in bytes.
const LARGEST: u64 = 1 << 30;

/// Prompts as tokens.
#[derive(Debug, Default, PartialEq)]
pub struct Prompts {
    /// In the order of the file.
    pub tokens: Vec<Vec<u32>>,
    /// Entries that were passed over: too long for `max_prompt_tokens`, or a conversation in which no user speaks.
    pub left_out: usize,
}

/// An entry of a prompt file. The first of these fields that it has decides; what else it holds is not looked at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    /// EAGLE and FastChat: the user's turns; the first is taken.
    turns: Option<Vec<String>>,
    /// OpenAI: taken up to the last message of the user.
    messages: Option<Vec<Message>>,
    /// OpenAI's batch files keep the messages in here.
    body: Option<Body>,
    /// ShareGPT: the first human turn is taken.
    conversations: Option<Vec<Turn>>,
    /// Plain.
    prompt: Option<String>,
    /// Plain, another name.
    text: Option<String>,
}

#[derive(Deserialize)]
struct Body {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Value,
}

#[derive(Deserialize)]
struct Turn {
    from: String,
    value: String,
}

/// What an entry asks of the model.
#[derive(Debug, PartialEq)]
enum Prompt {
    /// Something that a user said, to be answered.
    Conversation(Vec<ChatMessage>),
    /// Something to go on with.
    Plain(String),
    /// A conversation in which no user speaks.
    Nothing,
}

/// Reads a JSON list of token-id lists.
pub fn token_ids(path: &Path, room: &Room) -> Result<Prompts, TunerError> {
    let malformed = |reason: String| TunerError::Malformed { path: path.to_owned(), reason };
    let lists: Vec<Vec<u32>> = serde_json::from_str(&read(path)?).map_err(|error| {
        malformed(format!("expected a JSON list of token-id lists, such as [[1, 2, 3], [4, 5]]: {error}"))
    })?;
    let mut prompts = Prompts::default();
    for (at, tokens) in lists.into_iter().enumerate() {
        prompts.take(tokens, room).map_err(|reason| malformed(format!("list {}: {reason}", at + 1)))?;
        if prompts.tokens.len() == room.requests {
            break;
        }
    }
    Ok(prompts)
}

/// Reads a file of prompts, one JSON object a line or all in one JSON list, and turns into tokens as many as are needed.
pub fn texts(path: &Path, workload: &sweep::Workload, engine: &Engine, room: &Room) -> Result<Prompts, TunerError> {
    let Some(text) = engine.text() else {
        return Err(TunerError::Configuration(
            "the target has no tokenizer.json: give token ids with workload.input_ids".into(),
        ));
    };
    if workload.chat == Some(true) && !text.has_chat_template() {
        return Err(TunerError::Configuration(
            "workload.chat is true, but the target has no chat template; set it to false".into(),
        ));
    }
    let content = read(path)?;
    let wrong = |line: usize, reason: String| TunerError::Prompt { path: path.to_owned(), line, reason };
    let mut prompts = Prompts::default();
    for (line, json) in entries(&content).map_err(|(line, reason)| wrong(line, reason))? {
        let entry = serde_json::from_str(json).map_err(|error| wrong(line, error.to_string()))?;
        let prompt = prompt(entry).map_err(|reason| wrong(line, reason))?;
        let tokens = match tokens(&prompt, workload.chat, text) {
            None => {
                prompts.left_out += 1;
                continue;
            }
            Some(tokens) => tokens.map_err(|error| wrong(line, error.to_string()))?,
        };
        prompts.take(tokens, room).map_err(|reason| wrong(line, reason))?;
        if prompts.tokens.len() == room.requests {
            break;
        }
    }
    Ok(prompts)
}

impl Prompts {
    /// Takes a prompt in, unless it is to be left out.
    fn take(&mut self, tokens: Vec<u32>, room: &Room) -> Result<(), String> {
        if room.max_prompt_tokens.is_some_and(|most| tokens.len() > most) {
            self.left_out += 1;
            return Ok(());
        }
        room.check(&tokens)?;
        self.tokens.push(tokens);
        Ok(())
    }
}

/// The entries of a file, each with the line (from one) on which it begins.
fn entries(content: &str) -> Result<Vec<(usize, &str)>, (usize, String)> {
    let content = content.trim_start_matches('\u{feff}');
    if !content.trim_start().starts_with('[') {
        let lines = content.lines().enumerate().map(|(at, line)| (at + 1, line));
        return Ok(lines.filter(|(_, line)| !line.trim().is_empty()).collect());
    }
    let list: Vec<&RawValue> =
        serde_json::from_str(content).map_err(|error| (error.line(), format!("in the list of prompts: {error}")))?;
    let (mut line, mut at) = (1, 0);
    let place = |entry: &RawValue| {
        // The entries are slices of the content, in its order.
        let start = (entry.get().as_ptr() as usize).saturating_sub(content.as_ptr() as usize);
        line += content.get(at..start).map_or(0, |between| between.matches('\n').count());
        at = start;
        line
    };
    let lines: Vec<usize> = list.iter().copied().map(place).collect();
    Ok(lines.into_iter().zip(list.into_iter().map(RawValue::get)).collect())
}

fn prompt(entry: Entry) -> Result<Prompt, String> {
    let user = |content: String| Prompt::Conversation(vec![ChatMessage { role: "user".into(), content }]);
    if let Some(turns) = entry.turns {
        return Ok(turns.into_iter().next().map_or(Prompt::Nothing, user));
    }
    if let Some(messages) = entry.messages.or(entry.body.map(|body| body.messages)) {
        let Some(last) = messages.iter().rposition(|message| message.role == "user") else {
            return Ok(Prompt::Nothing);
        };
        let upto = messages.into_iter().take(last + 1);
        let messages: Result<Vec<ChatMessage>, String> = upto.map(Message::chat).collect();
        return messages.map(Prompt::Conversation);
    }
    if let Some(turns) = entry.conversations {
        let human = turns.into_iter().find(|turn| turn.from == "human" || turn.from == "user");
        return Ok(human.map_or(Prompt::Nothing, |turn| user(turn.value)));
    }
    let plain = entry.prompt.or(entry.text).map(Prompt::Plain);
    plain.ok_or_else(|| "no prompt in it: expected one of turns, messages, conversations, prompt, text".into())
}

impl Message {
    fn chat(self) -> Result<ChatMessage, String> {
        let content = match self.content {
            Value::Null => String::new(),
            Value::String(text) => text,
            Value::Array(parts) => {
                let text = |part: &Value| Some(part.get("text")?.as_str()?.to_owned());
                let texts: Option<Vec<String>> = parts.iter().map(text).collect();
                texts.ok_or("a message has parts that are no text: this engine takes text only")?.concat()
            }
            _ => return Err("a message's content is neither a text nor a list of text parts".into()),
        };
        Ok(ChatMessage { role: self.role, content })
    }
}

/// The tokens of a prompt, in the chat template where that is asked for or, unless it is forbidden, fitting.
fn tokens(prompt: &Prompt, chat: Option<bool>, text: &Text) -> Option<Result<Vec<u32>, engine::EngineError>> {
    match prompt {
        Prompt::Nothing => None,
        Prompt::Conversation(messages) => Some(if chat.unwrap_or(text.has_chat_template()) {
            text.encode_chat(messages)
        } else {
            text.encode(messages.last().map_or("", |message| &message.content))
        }),
        Prompt::Plain(content) => Some(if chat == Some(true) {
            text.encode_chat(&[ChatMessage { role: "user".into(), content: content.clone() }])
        } else {
            text.encode(content)
        }),
    }
}

fn read(path: &Path) -> Result<String, TunerError> {
    let read = |source| TunerError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let size = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text)).map_err(read)?;
    if size as u64 > LARGEST {
        let reason = format!("larger than {} MiB, the limit for prompt files", LARGEST >> 20);
        return Err(TunerError::Malformed { path: path.to_owned(), reason });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn conversation(messages: &[(&str, &str)]) -> Prompt {
        let message = |(role, content): &(&str, &str)| ChatMessage { role: (*role).into(), content: (*content).into() };
        Prompt::Conversation(messages.iter().map(message).collect())
    }

    /// Reads one entry.
    fn check(json: &str, expected: Result<Prompt, &str>) {
        let found = prompt(serde_json::from_str(json).expect("JSON"));
        match expected {
            Ok(expected) => assert_eq!(found, Ok(expected), "{json}"),
            Err(expected) => assert!(found.is_err_and(|reason| reason.contains(expected)), "{json}"),
        }
    }

    #[test]
    fn the_formats_that_people_have() {
        check(r#"{"question_id": 81, "category": "x", "turns": ["a", "b"]}"#, Ok(conversation(&[("user", "a")])));
        check(
            r#"{"id": "x", "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}]}"#,
            Ok(conversation(&[("user", "q")])),
        );
        check(
            r#"{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}"#,
            Ok(conversation(&[("system", "s"), ("user", "q")])),
        );
        check(
            r#"{"custom_id": "1", "body": {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "text", "text": "!"}]}]}}"#,
            Ok(conversation(&[("user", "q!")])),
        );
        check(r#"{"prompt": "p"}"#, Ok(Prompt::Plain("p".into())));
        check(r#"{"prompt": null, "text": "t"}"#, Ok(Prompt::Plain("t".into())));
        check(r#"{"conversations": []}"#, Ok(Prompt::Nothing));
        check(r#"{"turns": []}"#, Ok(Prompt::Nothing));
        check(r#"{"messages": [{"role": "assistant"}]}"#, Ok(Prompt::Nothing));
        check(r#"{"question_id": 81}"#, Err("no prompt in it"));
        check(r#"{"messages": [{"role": "user", "content": 3}]}"#, Err("neither a text nor"));
        let image = r#"{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}"#;
        check(image, Err("parts that are no text"));
    }

    #[test]
    fn lines_and_lists_are_told_apart_and_keep_their_places() {
        let places = |content: &str| {
            entries(content).map(|entries| entries.into_iter().map(|(line, json)| (line, json.to_owned())).collect())
        };
        let expected = |entries: &[(usize, &str)]| {
            Ok(entries.iter().map(|(line, json)| (*line, (*json).to_owned())).collect::<Vec<_>>())
        };
        assert_eq!(places("{\"a\":1}\r\n\n{\"b\":2}"), expected(&[(1, "{\"a\":1}\r"), (3, "{\"b\":2}")].map(trimmed)));
        assert_eq!(
            places("\u{feff}[\n  {\"a\":\n 1}, {\"b\":2},\n\n{}]\n"),
            expected(&[(2, "{\"a\":\n 1}"), (3, "{\"b\":2}"), (5, "{}")])
        );
        assert_eq!(places(""), expected(&[]));
        assert_eq!(entries("[\n{},\n{").map_err(|(line, _)| line), Err(3));
    }

    fn trimmed((line, json): (usize, &'static str)) -> (usize, &'static str) {
        (line, json.trim_end())
    }

    proptest! {
        #[test]
        fn no_file_panics(content in "[\\[\\]{}\",:a-c0-9\n\u{feff}ä ]{0,60}") {
            for (_, json) in entries(&content).unwrap_or_default() {
                let _ = serde_json::from_str::<Entry>(json).map(prompt);
            }
        }
    }
}
