//! Reads prompts in the common file formats, and tokenises them.

use std::{fmt, path::Path};

use engine::{
    EngineError,
    text::{ChatMessage, TemplateVariables, Text},
};
use schemas::sweep::{self, UserTurn};
use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Unexpected, Visitor},
};
use serde_json::value::Value;

use super::{
    ModelText, Room,
    entry::{self, EntryError},
    file::{self, Bounded},
};
use crate::TunerError;

/// Prompts as tokens.
#[derive(Debug, Default, PartialEq)]
pub struct PromptList {
    /// In the order of the file.
    pub tokens: Vec<Vec<u32>>,
    /// Number of skipped entries: too long for `max_prompt_tokens`, or conversations without a user
    /// message.
    pub left_out: usize,
}

/// An entry of a prompt file. The first of these fields that is present decides; other fields are
/// ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct PromptEntry {
    /// EAGLE and FastChat: the user's turns; the first one is used.
    turns: Option<Vec<String>>,
    /// OpenAI: used up to the last user message.
    messages: Option<Vec<Message>>,
    /// OpenAI's batch files: contains the request.
    body: Option<Box<PromptEntry>>,
    /// ShareGPT: the first human turn is used.
    conversations: Option<Vec<ConversationTurn>>,
    /// Alpaca: a message of the user, with `input` below it.
    instruction: Option<String>,
    input: Option<String>,
    /// Questions with answers: a message of the user.
    question: Option<String>,
    /// Plain text; in data sets of slime, verl and TRL a list of messages, as under `messages`.
    prompt: Option<PromptField>,
    /// Plain text, under another name.
    text: Option<String>,
    /// Token ids, as in spectune's request log.
    prompt_ids: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Value,
}

/// What `prompt` contains.
enum PromptField {
    Plain(String),
    Messages(Vec<Message>),
    Tokens(Vec<u32>),
}

#[derive(Deserialize)]
struct ConversationTurn {
    #[serde(alias = "role")]
    from: String,
    #[serde(alias = "content")]
    value: String,
}

/// The prompt of an entry.
#[derive(Debug, PartialEq)]
pub enum Prompt {
    /// A conversation that ends with a user message.
    Conversation(Vec<ChatMessage>),
    /// Text to continue.
    Plain(String),
    /// Tokens to continue.
    Tokens(Vec<u32>),
    /// A conversation without a user message.
    Silence,
}

/// Tokenises prompts.
pub struct Encoder<'a> {
    text: &'a Text,
    /// Whether to use the chat template; `None` to use it for conversations, if the target has one.
    chat: Option<bool>,
}

/// Reads a JSON list of token-id lists.
pub fn token_ids(path: &Path, room: &Room) -> Result<PromptList, TunerError> {
    let malformed = |reason: String| TunerError::Malformed { path: path.to_owned(), reason };
    let lists: Bounded<Vec<u32>> = serde_json::from_str(&file::read(path)?).map_err(|error| {
        malformed(format!("expected a JSON list of token-id lists, such as [[1, 2, 3], [4, 5]]: {error}"))
    })?;
    let mut prompts = PromptList::default();
    for (at, tokens) in lists.0.into_iter().enumerate() {
        prompts.take(tokens, room).map_err(|reason| malformed(format!("list {}: {reason}", at + 1)))?;
        if prompts.tokens.len() == room.requests {
            break;
        }
    }
    Ok(prompts)
}

/// Reads a file of prompts in any of its [formats](super::formats), and tokenises as many as are
/// needed.
pub fn texts(
    path: &Path,
    workload: &sweep::Workload,
    model: &ModelText,
    room: &Room,
) -> Result<PromptList, TunerError> {
    let encoder = Encoder::from_workload(workload, model)?;
    let content = file::read(path)?;
    let entries = file::entries(path, &content).map_err(|wrong| wrong.in_file(path))?;
    let mut prompts = PromptList::default();
    for entry in &entries {
        let found =
            read(entry, workload.turn).map_err(|wrong| counted(wrong, &entries, workload.turn).in_file(path))?;
        for prompt in found {
            let wrong = |reason: String| entry.wrong(reason).in_file(path);
            match encoder.tokens(&prompt).map_err(|error| wrong(error.to_string()))? {
                Some(tokens) => prompts.take(tokens, room).map_err(wrong)?,
                None => prompts.left_out += 1,
            }
            if prompts.tokens.len() == room.requests {
                return Ok(prompts);
            }
        }
    }
    Ok(prompts)
}

/// The prompts of an entry, at least one.
fn read(entry: &entry::WorkloadEntry<'_>, turn: Option<UserTurn>) -> Result<Vec<Prompt>, EntryError> {
    let prompts = match entry.json.trim_start().starts_with('"') {
        true => vec![Prompt::Plain(entry.read::<String>()?)],
        false => entry.read::<PromptEntry>()?.prompts(turn).map_err(|reason| entry.wrong(reason))?,
    };
    if prompts.is_empty() {
        // Only for a hint, so it is enough to search the text for the keys.
        let trace =
            ["timestamp", "arrival_s", "input_length"].iter().any(|key| entry.json.contains(&format!("\"{key}\"")));
        return Err(entry.wrong(match trace {
            true => "times and lengths without a prompt: such a trace is given as workload.trace, not workload.prompts",
            false => {
                "no prompt in it: expected one of turns, messages, conversations, instruction, question, prompt, text, \
                 prompt_ids"
            }
        }));
    }
    Ok(prompts)
}

/// The error with the number of entries that have one, if there are several.
fn counted(wrong: EntryError, entries: &[entry::WorkloadEntry<'_>], turn: Option<UserTurn>) -> EntryError {
    let unusable = entries.iter().filter(|entry| read(entry, turn).is_err()).count();
    if unusable < 2 {
        return wrong;
    }
    let reason =
        format!("{} ({unusable} of {} entries cannot be used; this is the first)", wrong.reason, entries.len());
    EntryError { reason, ..wrong }
}

impl PromptList {
    /// Adds a prompt, unless it is to be skipped.
    fn take(&mut self, tokens: Vec<u32>, room: &Room) -> Result<(), String> {
        if room.leaves_out(tokens.len()) {
            self.left_out += 1;
            return Ok(());
        }
        room.check(&tokens, room.output_length)?;
        self.tokens.push(tokens);
        Ok(())
    }
}

impl PromptEntry {
    /// The prompts of the entry: several for each turn of a conversation; none if it has no field
    /// of a prompt.
    ///
    /// # Errors
    /// When it contains anything but text.
    pub fn prompts(self, turn: Option<UserTurn>) -> Result<Vec<Prompt>, String> {
        let user = |content: String| Prompt::Conversation(vec![ChatMessage { role: "user".into(), content }]);
        if let Some(turns) = self.turns {
            // The answers between the turns are not in the file.
            return Ok(vec![turns.into_iter().next().map_or(Prompt::Silence, user)]);
        }
        if let Some(messages) = self.messages {
            return up_to_the_user(messages, turn.unwrap_or(UserTurn::Last));
        }
        if let Some(body) = self.body {
            return body.prompts(turn);
        }
        if let Some(turns) = self.conversations {
            let messages = turns.into_iter().map(ConversationTurn::message);
            return match turn {
                Some(turn) => up_to_the_user(messages.collect(), turn),
                None => {
                    let human = messages.filter(|message| message.role == "user").take(1);
                    up_to_the_user(human.collect(), UserTurn::First)
                }
            };
        }
        if let Some(instruction) = self.instruction {
            // Alpaca's entries have an empty input where the instruction needs none.
            let input = self.input.filter(|input| !input.trim().is_empty());
            return Ok(vec![user(input.map_or(instruction.clone(), |input| format!("{instruction}\n\n{input}")))]);
        }
        if let Some(question) = self.question {
            return Ok(vec![user(question)]);
        }
        let plain = match self.prompt {
            Some(PromptField::Messages(messages)) => return up_to_the_user(messages, turn.unwrap_or(UserTurn::Last)),
            Some(PromptField::Tokens(tokens)) => return Ok(vec![Prompt::Tokens(tokens)]),
            Some(PromptField::Plain(text)) => Some(text),
            None => self.text,
        };
        let plain = plain.map(Prompt::Plain);
        Ok(plain.or(self.prompt_ids.map(Prompt::Tokens)).into_iter().collect())
    }
}

/// The conversation up to the chosen messages of the user.
fn up_to_the_user(messages: Vec<Message>, turn: UserTurn) -> Result<Vec<Prompt>, String> {
    let mut users = messages.iter().enumerate().filter(|(_, message)| message.role == "user").map(|(at, _)| at);
    let ends: Vec<usize> = match turn {
        UserTurn::First => users.take(1).collect(),
        UserTurn::Last => users.next_back().into_iter().collect(),
        UserTurn::Each => users.collect(),
    };
    let Some(last) = ends.last() else { return Ok(vec![Prompt::Silence]) };
    // What follows is not read, and may be other than text.
    let needed: Vec<ChatMessage> = messages.into_iter().take(last + 1).map(Message::chat).collect::<Result<_, _>>()?;
    Ok(ends.into_iter().map(|end| Prompt::Conversation(needed.iter().take(end + 1).cloned().collect())).collect())
}

impl<'de> Deserialize<'de> for PromptField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PromptFieldVisitor)
    }
}

struct PromptFieldVisitor;

impl<'de> Visitor<'de> for PromptFieldVisitor {
    type Value = PromptField;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PromptField, E> {
        Ok(PromptField::Plain(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PromptField, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element::<Value>()? {
            elements.push(element);
        }
        let token = |element: &Value| element.as_u64().and_then(|token| u32::try_from(token).ok());
        if elements.iter().all(Value::is_object) {
            let messages = elements.into_iter().map(serde_json::from_value).collect::<Result<_, _>>();
            return messages.map(PromptField::Messages).map_err(A::Error::custom);
        }
        match elements.iter().map(token).collect() {
            Some(tokens) => Ok(PromptField::Tokens(tokens)),
            // A list of texts is several prompts, or one in parts.
            None => Err(A::Error::invalid_type(Unexpected::Seq, &self)),
        }
    }
}

impl ConversationTurn {
    /// The turn as a message, with the role's name in chat templates.
    fn message(self) -> Message {
        // Exports of this format name the same role differently.
        let role = match self.from.as_str() {
            "human" | "user" => "user".into(),
            "gpt" | "chatgpt" | "assistant" | "bing" | "bard" | "model" => "assistant".into(),
            _ => self.from,
        };
        Message { role, content: Value::String(self.value) }
    }
}

impl Message {
    fn chat(self) -> Result<ChatMessage, String> {
        let content = match self.content {
            Value::Null => String::new(),
            Value::String(text) => text,
            Value::Array(parts) => {
                let text = |part: &Value| Some(part.get("text")?.as_str()?.to_owned());
                let texts: Option<Vec<String>> = parts.iter().map(text).collect();
                texts.ok_or("a message has parts that are not text: this engine accepts text only")?.concat()
            }
            _ => return Err("a message's content is neither a text nor a list of text parts".into()),
        };
        Ok(ChatMessage { role: self.role, content })
    }
}

impl<'a> Encoder<'a> {
    /// The encoder with the target's tokenizer and template.
    ///
    /// # Errors
    /// When the target has no tokenizer, or no chat template although one is requested.
    pub fn from_workload(workload: &sweep::Workload, model: &'a ModelText) -> Result<Self, TunerError> {
        let Some(text) = &model.text else {
            return Err(TunerError::Configuration(
                "the target has no tokenizer.json: give token ids with workload.input_ids".into(),
            ));
        };
        if workload.chat == Some(true) && !text.has_chat_template() {
            return Err(TunerError::Configuration(
                "workload.chat is true, but the target has no chat template; set it to false".into(),
            ));
        }
        Ok(Self { text, chat: workload.chat })
    }

    /// The tokens of a prompt. The chat template is used if that is requested, and by default for
    /// conversations if the target has one. `None` for a conversation without a user message.
    ///
    /// # Errors
    /// When the template or the tokenizer fails on it.
    pub fn tokens(&self, prompt: &Prompt) -> Result<Option<Vec<u32>>, EngineError> {
        let plain = TemplateVariables::new();
        let tokens = match prompt {
            Prompt::Silence => return Ok(None),
            Prompt::Tokens(tokens) => return Ok(Some(tokens.clone())),
            Prompt::Conversation(messages) if self.chat.unwrap_or(self.text.has_chat_template()) => {
                self.text.encode_chat(messages, &plain)
            }
            // Nothing marks turns without a template, so the last message is continued as plain
            // text.
            Prompt::Conversation(messages) => self.text.encode(messages.last().map_or("", |message| &message.content)),
            Prompt::Plain(content) if self.chat == Some(true) => {
                self.text.encode_chat(&[ChatMessage { role: "user".into(), content: content.clone() }], &plain)
            }
            Prompt::Plain(content) => self.text.encode(content),
        };
        tokens.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn conversation(messages: &[(&str, &str)]) -> Option<Prompt> {
        let message = |(role, content): &(&str, &str)| ChatMessage { role: (*role).into(), content: (*content).into() };
        Some(Prompt::Conversation(messages.iter().map(message).collect()))
    }

    /// Parses one entry.
    fn check(json: &str, expected: Result<Option<Prompt>, &str>) {
        let entry = entry::WorkloadEntry { line: 1, json: json.into() };
        let prompts = |entry: PromptEntry| entry.prompts(None);
        let found = entry.read::<PromptEntry>().map_err(|wrong| wrong.reason).and_then(prompts);
        let found = found.map(|prompts| prompts.into_iter().next());
        match expected {
            Ok(expected) => assert_eq!(found, Ok(expected), "{json}"),
            Err(expected) => {
                let reason = found.expect_err(json);
                assert!(reason.contains(expected), "{json}: {reason}");
            }
        }
    }

    #[test]
    fn a_request_log_has_token_ids() {
        let log = r#"{"format": 1, "prompt_ids": [5, 6], "output_ids": [7]}"#;
        check(log, Ok(Some(Prompt::Tokens(vec![5, 6]))));
    }

    #[test]
    fn eagle_and_fastchat_ask_the_first_turn() {
        check(r#"{"question_id": 81, "category": "x", "turns": ["a", "b"]}"#, Ok(conversation(&[("user", "a")])));
        check(r#"{"turns": [], "reference": ["r"]}"#, Ok(Some(Prompt::Silence)));
        check(r#"{"turns": "a"}"#, Err("column 13: expected a list in brackets, such as [1, 2], found the text \"a\""));
    }

    #[test]
    fn sharegpt_asks_what_the_first_human_says() {
        check(
            r#"{"id": "x", "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}]}"#,
            Ok(conversation(&[("user", "q")])),
        );
        check(
            r#"{"conversations": [{"from": "gpt", "value": "g"}, {"from": "user", "value": "q", "weight": 1}]}"#,
            Ok(conversation(&[("user", "q")])),
        );
        check(r#"{"conversations": []}"#, Ok(Some(Prompt::Silence)));
        check(r#"{"conversations": [{"from": "human"}]}"#, Err("the key `value` is missing"));
    }

    #[test]
    fn openai_asks_up_to_the_last_message_of_the_user() {
        let messages = r#"[{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]"#;
        check(&format!(r#"{{"messages": {messages}}}"#), Ok(conversation(&[("system", "s"), ("user", "q")])));
        check(
            &format!(
                r#"{{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {{"model": "m", "messages": {messages}}}}}"#
            ),
            Ok(conversation(&[("system", "s"), ("user", "q")])),
        );
        check(
            r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "text", "text": "!"}]}]}"#,
            Ok(conversation(&[("user", "q!")])),
        );
        check(r#"{"custom_id": "2", "body": {"prompt": "p"}}"#, Ok(Some(Prompt::Plain("p".into()))));
        check(r#"{"custom_id": "3", "body": {"model": "m"}}"#, Ok(None));
        check(r#"{"messages": [{"role": "assistant"}]}"#, Ok(Some(Prompt::Silence)));
        check(r#"{"messages": [{"role": "user", "content": 3}]}"#, Err("neither a text nor"));
        check(r#"{"messages": [{"content": "q"}]}"#, Err("the key `role` is missing"));
        let image = r#"{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}"#;
        check(image, Err("parts that are not text"));
    }

    /// The form of slime, verl and TRL.
    #[test]
    fn a_prompt_may_be_a_list_of_messages() {
        let requested =
            r#"{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}], "label": "34"}"#;
        check(requested, Ok(conversation(&[("system", "s"), ("user", "q")])));
        check(r#"{"prompt": []}"#, Ok(Some(Prompt::Silence)));
        check(r#"{"prompt": [{"content": "q"}]}"#, Err("the key `role` is missing"));
        check(r#"{"prompt": [{"role": "user", "content": "q"}, "p"]}"#, Err("expected a text in quotes, found a list"));
    }

    #[test]
    fn plain_prompts_have_two_names() {
        check(r#"{"prompt": "p"}"#, Ok(Some(Prompt::Plain("p".into()))));
        check(r#"{"prompt": null, "text": "t"}"#, Ok(Some(Prompt::Plain("t".into()))));
        check(r#"{"question_id": 81}"#, Ok(None));
        check(r#"{"prompt": ["p"]}"#, Err("expected a text in quotes, found a list"));
        check(r#"{"prompt": 3}"#, Err("expected a text in quotes, found 3"));
        check(r#"{"prompt": [5, 6]}"#, Ok(Some(Prompt::Tokens(vec![5, 6]))));
        check(r#"{"prompt": [5, -6]}"#, Err("expected a text in quotes, found a list"));
        check(r#""p""#, Err("expected an object in braces, found the text \"p\""));
    }

    #[test]
    fn alpaca_and_questions_are_messages_of_the_user() {
        check(
            r#"{"instruction": "Add.", "input": "1 2", "output": "3"}"#,
            Ok(conversation(&[("user", "Add.\n\n1 2")])),
        );
        check(r#"{"instruction": "Add.", "input": ""}"#, Ok(conversation(&[("user", "Add.")])));
        check(r#"{"question": "q", "answer": "a"}"#, Ok(conversation(&[("user", "q")])));
        check(r#"{"input": "1 2"}"#, Ok(None));
    }

    #[test]
    fn each_turn_of_a_conversation_is_a_prompt_with_what_came_before_it() {
        let shares = r#"{"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a"},
            {"from": "gpt", "value": "b"}, {"from": "human", "value": "c"}, {"from": "gpt", "value": "d"}]}"#;
        let messages = shares.replace("conversations", "messages").replace("from", "role").replace("value", "content");
        let messages = messages.replace("human", "user").replace("gpt", "assistant");
        let short = [("system", "s"), ("user", "a")];
        let long = [("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c")];
        for json in [shares, &messages] {
            for (turn, expected) in [
                (UserTurn::First, vec![&short[..]]),
                (UserTurn::Last, vec![&long[..]]),
                (UserTurn::Each, vec![&short[..], &long[..]]),
            ] {
                let entry = entry::WorkloadEntry { line: 1, json: json.into() };
                let expected: Vec<Prompt> = expected.into_iter().filter_map(conversation).collect();
                assert_eq!(read(&entry, Some(turn)), Ok(expected), "{json} {turn:?}");
            }
        }
        let silent = entry::WorkloadEntry { line: 1, json: r#"{"conversations": []}"#.into() };
        assert_eq!(read(&silent, Some(UserTurn::Each)), Ok(vec![Prompt::Silence]));
    }

    proptest! {
        #[test]
        fn no_file_panics(content in "[\\[\\]{}\",:a-c0-9\n\u{feff}ä ]{0,60}") {
            for entry in file::entries(Path::new("p.jsonl"), &content).unwrap_or_default() {
                let _ = read(&entry, Some(UserTurn::Each));
            }
        }
    }
}
