//! The output of the Responses API: a list of items, and the events that stream them.

use std::{collections::BTreeMap, sync::Arc};

use axum::response::sse::Event as SseEvent;
use engine::{Completion, Event, FinishReason, backend::ProducedToken, text::Text};
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use crate::{
    api::openai::chat,
    http::error::ApiError,
    output::{
        reading::{OutputParts, OutputPiece, OutputReading},
        stream::{Disconnected, LONGEST_STALL},
    },
    state::State,
    worker::RunningRequest,
};

/// What all objects of a response have in common.
pub struct ResponseHead {
    /// The source of ids.
    pub state: Arc<State>,
    /// Id of the response.
    pub id: String,
    /// Time of the request.
    pub created: u64,
    /// How the output is parsed.
    pub reading: OutputReading,
    /// Fields of the request that the response repeats.
    pub repeated: Value,
    /// Decodes tokens of log-probabilities.
    pub text: Text,
}

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ItemKind {
    Reasoning,
    Message,
    /// The call with this index.
    Call(usize),
}

/// An item that is being streamed.
struct StreamedItem {
    id: String,
    /// Its index in the response.
    index: usize,
    kind: ItemKind,
    /// Name of the called function.
    name: String,
    call_id: String,
    text: String,
    /// Log-probabilities of a message's tokens, if requested.
    logprobs: Vec<Value>,
}

/// Assigns log-probabilities of tokens to the message in which their text is.
#[derive(Default)]
struct Assigned {
    /// Those of tokens whose text is not known yet.
    waiting: Vec<Value>,
}

impl Assigned {
    /// The log-probabilities of the content of a piece, after further tokens.
    fn take(&mut self, tokens: &[ProducedToken], piece: &OutputPiece, text: &Text) -> Vec<Value> {
        self.waiting.extend(chat::logprob_entries(tokens, text));
        if !piece.content.is_empty() {
            return std::mem::take(&mut self.waiting);
        }
        // Log-probabilities belong to the message; tokens of reasoning and calls have no place
        // there.
        if !piece.reasoning.is_empty() || !piece.calls.is_empty() {
            self.waiting.clear();
        }
        Vec::new()
    }
}

/// Waits for a response.
///
/// # Errors
/// When the engine fails, or the server ends before it is finished.
pub async fn whole(mut running: RunningRequest, head: &ResponseHead) -> Result<Value, ApiError> {
    let (mut reader, mut assigned, mut logprobs) = (head.reading.stream(), Assigned::default(), Vec::new());
    loop {
        match running.events.recv().await.unwrap_or_else(|| Err(ApiError::cut_off()))? {
            Event::Tokens { tokens, text, .. } => {
                logprobs.extend(assigned.take(&tokens, &reader.push(&text, &head.reading), &head.text));
            }
            Event::Finished { completion, .. } => {
                logprobs.extend(assigned.take(&[], &reader.finish(&head.reading), &head.text));
                // The token at the end has no text.
                logprobs.extend(assigned.waiting);
                return Ok(head.finished(&completion, logprobs));
            }
        }
    }
}

impl ResponseHead {
    fn object(&self, status: &str, output: Value, usage: Value) -> Value {
        let mut object = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "error": null,
            "incomplete_details": null, "model": self.state.model(), "output": output,
            "previous_response_id": null, "store": false, "usage": usage, "user": null,
        });
        if let (Some(object), Some(repeated)) = (object.as_object_mut(), self.repeated.as_object()) {
            object.extend(repeated.clone());
        }
        object
    }

    /// The complete response.
    fn finished(&self, completion: &Completion, logprobs: Vec<Value>) -> Value {
        let OutputParts { reasoning, content, calls, .. } = self.reading.whole(&completion.text);
        let mut items = Vec::new();
        if let Some(text) = reasoning.filter(|text| !text.is_empty()) {
            items.push(self.item(ItemKind::Reasoning, text));
        }
        if !content.is_empty() || calls.is_empty() {
            items.push(StreamedItem { logprobs, ..self.item(ItemKind::Message, content) });
        }
        for (number, call) in calls.into_iter().enumerate() {
            items.push(StreamedItem { name: call.name, ..self.item(ItemKind::Call(number), call.arguments) });
        }
        self.with_items(items.iter(), completion)
    }

    fn with_items<'a>(&self, items: impl Iterator<Item = &'a StreamedItem>, completion: &Completion) -> Value {
        let cut = match completion.finish_reason {
            FinishReason::Length => Some("max_output_tokens"),
            FinishReason::Cancelled => Some("aborted"),
            _ => None,
        };
        let status = if cut.is_some() { "incomplete" } else { "completed" };
        let usage = json!({
            "input_tokens": completion.prompt_tokens,
            "input_tokens_details": {"cached_tokens": completion.cached_tokens},
            "output_tokens": completion.output_ids.len(),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": completion.prompt_tokens + completion.output_ids.len(),
        });
        let mut object = self.object(status, items.map(|item| item.written(status)).collect(), usage);
        if let Some(reason) = cut {
            object["incomplete_details"] = json!({"reason": reason});
        }
        object
    }

    fn item(&self, kind: ItemKind, text: String) -> StreamedItem {
        let prefix = match kind {
            ItemKind::Reasoning => "rs_",
            ItemKind::Message => "msg_",
            ItemKind::Call(_) => "fc_",
        };
        let call_id = match (kind, &self.reading.tools) {
            (ItemKind::Call(_), Some(tools)) => tools.family.call_id(self.state.random_number()),
            _ => String::new(),
        };
        let id = self.state.new_id(prefix);
        StreamedItem { id, index: 0, kind, name: String::new(), call_id, text, logprobs: Vec::new() }
    }
}

impl StreamedItem {
    fn written(&self, status: &str) -> Value {
        let Self { id, name, call_id, text, logprobs, .. } = self;
        match self.kind {
            ItemKind::Reasoning => json!({
                "type": "reasoning", "id": id, "status": status, "summary": [],
                "content": [{"type": "reasoning_text", "text": text}],
            }),
            ItemKind::Message => json!({
                "type": "message", "id": id, "status": status, "role": "assistant", "content": [part(text, logprobs)],
            }),
            ItemKind::Call(_) => json!({
                "type": "function_call", "id": id, "status": status, "call_id": call_id, "name": name, "arguments": text,
            }),
        }
    }

    /// The item as it is announced, still empty.
    fn opened(&self) -> Value {
        let mut value = self.written("in_progress");
        for name in ["content", "arguments"] {
            if let Some(field) = value.get_mut(name) {
                *field = if field.is_array() { json!([]) } else { "".into() };
            }
        }
        value
    }

    /// Adds the item's index to a value.
    fn place(&self, mut value: Value) -> Value {
        value["item_id"] = self.id.clone().into();
        value["output_index"] = self.index.into();
        if !matches!(self.kind, ItemKind::Call(_)) {
            value["content_index"] = 0.into();
        }
        value
    }
}

fn part(text: &str, logprobs: &[Value]) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
}

/// A response that is being streamed.
struct Growing<'a> {
    head: &'a ResponseHead,
    sender: &'a Sender<SseEvent>,
    next: u64,
    items: BTreeMap<ItemKind, StreamedItem>,
    /// The item that is being streamed.
    open: Option<ItemKind>,
}

/// Streams a response. Dropping the request cancels it.
///
/// # Errors
/// When the client has disconnected.
pub async fn pump(
    mut running: RunningRequest,
    head: ResponseHead,
    sender: &Sender<SseEvent>,
) -> Result<(), Disconnected> {
    let mut growing = Growing { head: &head, sender, next: 0, items: BTreeMap::new(), open: None };
    let (mut reader, mut assigned) = (head.reading.stream(), Assigned::default());
    let begun = head.object("in_progress", json!([]), Value::Null);
    growing.send("response.created", json!({"response": begun.clone()})).await?;
    growing.send("response.in_progress", json!({"response": begun})).await?;
    loop {
        match running.events.recv().await.unwrap_or_else(|| Err(ApiError::cut_off())) {
            Ok(Event::Tokens { tokens, text, .. }) => {
                let piece = reader.push(&text, &head.reading);
                let logprobs = assigned.take(&tokens, &piece, &head.text);
                growing.take(piece, logprobs).await?;
            }
            Ok(Event::Finished { completion, .. }) => {
                let piece = reader.finish(&head.reading);
                let logprobs = assigned.take(&[], &piece, &head.text);
                growing.take(piece, logprobs).await?;
                return growing.finish(&completion, assigned.waiting).await;
            }
            Err(error) => {
                let mut failed = head.object("failed", json!([]), Value::Null);
                failed["error"] = json!({"code": "server_error", "message": error.message()});
                return growing.send("response.failed", json!({"response": failed})).await;
            }
        }
    }
}

impl Growing<'_> {
    async fn send(&mut self, kind: &str, mut value: Value) -> Result<(), Disconnected> {
        value["type"] = kind.into();
        value["sequence_number"] = self.next.into();
        self.next += 1;
        let event = SseEvent::default().event(kind).data(value.to_string());
        self.sender.send_timeout(event, LONGEST_STALL).await.map_err(|_| Disconnected)
    }

    async fn take(&mut self, piece: OutputPiece, logprobs: Vec<Value>) -> Result<(), Disconnected> {
        if !piece.reasoning.is_empty() {
            self.grow(ItemKind::Reasoning, None, &piece.reasoning, Vec::new()).await?;
        }
        if !piece.content.is_empty() {
            self.grow(ItemKind::Message, None, &piece.content, logprobs).await?;
        }
        for call in piece.calls {
            self.grow(ItemKind::Call(call.number), call.name, &call.arguments, Vec::new()).await?;
        }
        Ok(())
    }

    /// Adds text to an item. If another one is open it is closed, and this one is opened.
    async fn grow(
        &mut self,
        kind: ItemKind,
        name: Option<String>,
        text: &str,
        logprobs: Vec<Value>,
    ) -> Result<(), Disconnected> {
        if self.open != Some(kind) {
            // Clients expect one open item at a time.
            self.close("completed").await?;
            let index = self.items.len();
            let item = StreamedItem { index, name: name.unwrap_or_default(), ..self.head.item(kind, String::new()) };
            let added = json!({"output_index": index, "item": item.opened()});
            let opened = match kind {
                ItemKind::Message => Some(part("", &[])),
                ItemKind::Reasoning => Some(json!({"type": "reasoning_text", "text": ""})),
                ItemKind::Call(_) => None,
            };
            let opened = opened.map(|part| item.place(json!({"part": part})));
            self.items.insert(kind, item);
            self.open = Some(kind);
            self.send("response.output_item.added", added).await?;
            if let Some(opened) = opened {
                self.send("response.content_part.added", opened).await?;
            }
        }
        let Some(item) = self.items.get_mut(&kind).filter(|_| !text.is_empty()) else { return Ok(()) };
        item.text.push_str(text);
        let (event, delta) = match kind {
            ItemKind::Reasoning => ("response.reasoning_text.delta", json!({"delta": text})),
            ItemKind::Message => ("response.output_text.delta", json!({"delta": text, "logprobs": logprobs})),
            ItemKind::Call(_) => ("response.function_call_arguments.delta", json!({"delta": text})),
        };
        item.logprobs.extend(logprobs);
        let delta = item.place(delta);
        self.send(event, delta).await
    }

    async fn close(&mut self, status: &str) -> Result<(), Disconnected> {
        let Some(item) = self.open.take().and_then(|kind| self.items.get(&kind)) else { return Ok(()) };
        let StreamedItem { text, name, logprobs, .. } = item;
        let (event, done) = match item.kind {
            ItemKind::Reasoning => ("response.reasoning_text.done", json!({"text": text})),
            ItemKind::Message => ("response.output_text.done", json!({"text": text, "logprobs": logprobs})),
            ItemKind::Call(_) => ("response.function_call_arguments.done", json!({"arguments": text, "name": name})),
        };
        let done = item.place(done);
        let closed = match item.kind {
            ItemKind::Message => Some(part(text, logprobs)),
            ItemKind::Reasoning => Some(json!({"type": "reasoning_text", "text": text})),
            ItemKind::Call(_) => None,
        };
        let closed = closed.map(|part| item.place(json!({"part": part})));
        let whole = json!({"output_index": item.index, "item": item.written(status)});
        self.send(event, done).await?;
        if let Some(closed) = closed {
            self.send("response.content_part.done", closed).await?;
        }
        self.send("response.output_item.done", whole).await
    }

    /// `logprobs` are those of the last tokens, which have no text.
    async fn finish(&mut self, completion: &Completion, logprobs: Vec<Value>) -> Result<(), Disconnected> {
        if self.items.is_empty() {
            // A response always has a message, even if empty.
            self.grow(ItemKind::Message, None, "", Vec::new()).await?;
        }
        if let Some(message) = self.items.get_mut(&ItemKind::Message) {
            message.logprobs.extend(logprobs);
        }
        let mut items: Vec<&StreamedItem> = self.items.values().collect();
        items.sort_by_key(|item| item.index);
        let finished = self.head.with_items(items.into_iter(), completion);
        let status = finished["status"].as_str().unwrap_or_default().to_owned();
        self.close(&status).await?;
        self.send(&format!("response.{status}"), json!({"response": finished})).await
    }
}
