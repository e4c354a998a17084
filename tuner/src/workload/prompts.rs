//! Prompt files: the formats that people have.

use std::{fs::File, io::Read, path::Path};

use engine::{Engine, text::ChatMessage};
use serde::Deserialize;

use crate::TunerError;

/// Largest prompt file in bytes.
const LARGEST: u64 = 1 << 30;

/// A line of a JSONL prompt file. The first of these fields that it has decides.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    /// EAGLE and FastChat: the user's turns; the first is taken.
    turns: Vec<String>,
    /// OpenAI.
    messages: Vec<Message>,
    /// ShareGPT: the first human turn is taken.
    conversations: Vec<Turn>,
    /// Plain.
    prompt: Option<String>,
    /// Plain, another name.
    text: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: String,
}

#[derive(Deserialize)]
struct Turn {
    from: String,
    value: String,
}

/// Reads a JSON list of token-id lists.
pub fn token_ids(path: &Path) -> Result<Vec<Vec<u32>>, TunerError> {
    let text = read(path)?;
    serde_json::from_str(&text).map_err(|error| TunerError::Malformed {
        path: path.to_owned(),
        reason: format!("expected a JSON list of token-id lists, such as [[1, 2, 3], [4, 5]]: {error}"),
    })
}

/// Reads a JSONL file of prompts and turns them into tokens.
pub fn texts(path: &Path, chat: bool, engine: &Engine) -> Result<Vec<Vec<u32>>, TunerError> {
    let Some(text) = engine.text() else {
        return Err(TunerError::Configuration(
            "the target has no tokenizer.json: give token ids with workload.input_ids".into(),
        ));
    };
    let mut prompts = Vec::new();
    for (at, line) in read(path)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |reason: String| TunerError::Prompt { path: path.to_owned(), line: at + 1, reason };
        let parsed: Line = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        let messages = messages(parsed).ok_or_else(|| {
            wrong("no prompt in it: expected one of turns, messages, conversations, prompt, text".into())
        })?;
        let tokens = if chat {
            text.encode_chat(&messages)
        } else {
            text.encode(messages.last().map_or("", |message| &message.content))
        };
        let tokens = tokens.map_err(|error| wrong(error.to_string()))?;
        if tokens.is_empty() {
            return Err(wrong("the prompt is empty".into()));
        }
        prompts.push(tokens);
    }
    Ok(prompts)
}

/// The conversation of a line, up to where the model speaks.
fn messages(line: Line) -> Option<Vec<ChatMessage>> {
    let user = |content: String| vec![ChatMessage { role: "user".into(), content }];
    if let Some(turn) = line.turns.into_iter().next() {
        return Some(user(turn));
    }
    if !line.messages.is_empty() {
        let last = line.messages.iter().rposition(|message| message.role == "user")?;
        let upto = line.messages.into_iter().take(last + 1);
        return Some(upto.map(|Message { role, content }| ChatMessage { role, content }).collect());
    }
    let human = line.conversations.into_iter().find(|turn| turn.from == "human" || turn.from == "user");
    human.map(|turn| turn.value).or(line.prompt).or(line.text).map(user)
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
    use super::*;

    fn check(line: &str, expected: Option<&[(&str, &str)]>) {
        let found = messages(serde_json::from_str(line).expect("JSON"));
        let expected = expected.map(|messages| {
            let message =
                |(role, content): &(&str, &str)| ChatMessage { role: (*role).into(), content: (*content).into() };
            messages.iter().map(message).collect::<Vec<_>>()
        });
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn the_formats_that_people_have() {
        check(r#"{"question_id": 81, "category": "writing", "turns": ["a", "b"]}"#, Some(&[("user", "a")]));
        check(
            r#"{"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}]}"#,
            Some(&[("user", "q")]),
        );
        check(
            r#"{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}"#,
            Some(&[("system", "s"), ("user", "q")]),
        );
        check(r#"{"prompt": "p"}"#, Some(&[("user", "p")]));
        check(r#"{"question_id": 81}"#, None);
    }
}
