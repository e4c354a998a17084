//! The output of the Responses API: a list of items, and the events that stream them.

use std::sync::Arc;

use axum::response::sse::Event as SseEvent;
use engine::{Completion, Event, FinishReason, backend::ProducedToken, text::Text};
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use crate::{
    api::openai::chat,
    http::error::ApiError,
    output::{
        reading::{OutputPiece, OutputReading},
        stream::{Disconnected, LONGEST_STALL},
        tools::is_object,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    status: &'static str,
}

/// The items of a response so far, in the order in which the model wrote them. The last one may
/// grow.
#[derive(Default)]
struct ItemList(Vec<StreamedItem>);

/// A part of the output that belongs to one item.
struct ItemPart {
    kind: ItemKind,
    /// Name of the called function, with the first part of a call.
    name: Option<String>,
    text: String,
    logprobs: Vec<Value>,
}

/// Assigns log-probabilities of tokens to the message in which their text is.
#[derive(Default)]
struct Assigned {
    /// Those of tokens whose text is not known yet.
    waiting: Vec<Value>,
}

impl Assigned {
    /// The parts of the output in these pieces, after further tokens.
    fn parts(&mut self, tokens: &[ProducedToken], pieces: Vec<OutputPiece>, text: &Text) -> Vec<ItemPart> {
        self.waiting.extend(chat::logprob_entries(tokens, text));
        let mut parts = Vec::new();
        for OutputPiece { reasoning, content, calls } in pieces {
            let part = |kind, text| ItemPart { kind, name: None, text, logprobs: Vec::new() };
            if !reasoning.is_empty() {
                parts.push(part(ItemKind::Reasoning, reasoning));
            }
            if !content.is_empty() {
                parts.push(part(ItemKind::Message, content));
            }
            for call in calls {
                parts.push(ItemPart { name: call.name, ..part(ItemKind::Call(call.number), call.arguments) });
            }
        }
        if let Some(message) = parts.iter_mut().find(|part| part.kind == ItemKind::Message) {
            message.logprobs = std::mem::take(&mut self.waiting);
        } else if !parts.is_empty() {
            // Tokens of reasoning and calls have no place for theirs.
            self.waiting.clear();
        }
        parts
    }
}

/// Waits for a response.
///
/// # Errors
/// When the engine fails, or the server ends before it is finished.
pub async fn whole(mut running: RunningRequest, head: &ResponseHead) -> Result<Value, ApiError> {
    let (mut reader, mut assigned) = (head.reading.stream(), Assigned::default());
    let mut items = ItemList::default();
    loop {
        match running.events.recv().await.unwrap_or_else(|| Err(ApiError::cut_off()))? {
            Event::Tokens { tokens, text, .. } => {
                let pieces = reader.push_in_order(&text, &head.reading);
                items.take(assigned.parts(&tokens, pieces, &head.text), head);
            }
            Event::Finished { completion, .. } => {
                let last = reader.finish(&head.reading);
                items.take(assigned.parts(&[], vec![last], &head.text), head);
                if items.0.is_empty() {
                    // A response always has an item, even if empty.
                    items.begin(ItemKind::Message, None, head);
                }
                items.end(&completion, assigned.waiting);
                return Ok(head.with_items(&items, &completion));
            }
        }
    }
}

/// Why a response is incomplete, if it is.
fn cut(completion: &Completion) -> Option<&'static str> {
    match completion.finish_reason {
        FinishReason::Length => Some("max_output_tokens"),
        FinishReason::Cancelled => Some("aborted"),
        _ => None,
    }
}

impl ItemList {
    /// Adds parts to the items that they belong to.
    fn take(&mut self, parts: Vec<ItemPart>, head: &ResponseHead) {
        for ItemPart { kind, name, text, logprobs } in parts {
            if !self.grows(kind) {
                self.begin(kind, name, head);
            }
            if let Some(item) = self.0.last_mut() {
                item.text.push_str(&text);
                item.logprobs.extend(logprobs);
            }
        }
    }

    /// Whether a part of this kind belongs to the last item.
    fn grows(&self, kind: ItemKind) -> bool {
        self.0.last().is_some_and(|last| last.kind == kind)
    }

    /// Begins an item after the others.
    fn begin(&mut self, kind: ItemKind, name: Option<String>, head: &ResponseHead) -> &StreamedItem {
        if let Some(last) = self.0.last_mut() {
            last.end("completed");
        }
        let item = StreamedItem { index: self.0.len(), name: name.unwrap_or_default(), ..head.item(kind) };
        self.0.push(item);
        &self.0[self.0.len() - 1]
    }

    /// Ends the last item. `logprobs` are those of the last tokens, which have no text.
    fn end(&mut self, completion: &Completion, logprobs: Vec<Value>) {
        if let Some(message) = self.0.iter_mut().rev().find(|item| item.kind == ItemKind::Message) {
            message.logprobs.extend(logprobs);
        }
        if let Some(last) = self.0.last_mut() {
            last.end(if cut(completion).is_some() { "incomplete" } else { "completed" });
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

    /// The response with all of its items.
    fn with_items(&self, items: &ItemList, completion: &Completion) -> Value {
        let cut = cut(completion);
        let status = if cut.is_some() { "incomplete" } else { "completed" };
        let thoughts = self.reading.count_reasoning(&completion.output_ids, &self.text);
        let usage = json!({
            "input_tokens": completion.prompt_tokens,
            "input_tokens_details": {"cached_tokens": completion.cached_tokens},
            "output_tokens": completion.output_ids.len(),
            "output_tokens_details": {"reasoning_tokens": thoughts},
            "total_tokens": completion.prompt_tokens + completion.output_ids.len(),
        });
        let items = items.0.iter().map(|item| item.written(item.status));
        let mut object = self.object(status, items.collect(), usage);
        if let Some(reason) = cut {
            object["incomplete_details"] = json!({"reason": reason});
        }
        object
    }

    fn item(&self, kind: ItemKind) -> StreamedItem {
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
        let (name, text, logprobs) = (String::new(), String::new(), Vec::new());
        StreamedItem { id, index: 0, kind, name, call_id, text, logprobs, status: "in_progress" }
    }
}

impl StreamedItem {
    /// Ends it with a status. A call is complete if its arguments are.
    fn end(&mut self, status: &'static str) {
        self.status = match self.kind {
            ItemKind::Call(_) if is_object(&self.text) => "completed",
            ItemKind::Call(_) => "incomplete",
            ItemKind::Message | ItemKind::Reasoning => status,
        };
    }

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
    items: ItemList,
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
    let mut growing = Growing { head: &head, sender, next: 0, items: ItemList::default() };
    let (mut reader, mut assigned) = (head.reading.stream(), Assigned::default());
    let begun = head.object("in_progress", json!([]), Value::Null);
    growing.send("response.created", json!({"response": begun.clone()})).await?;
    growing.send("response.in_progress", json!({"response": begun})).await?;
    loop {
        match running.events.recv().await.unwrap_or_else(|| Err(ApiError::cut_off())) {
            Ok(Event::Tokens { tokens, text, .. }) => {
                let pieces = reader.push_in_order(&text, &head.reading);
                growing.take(assigned.parts(&tokens, pieces, &head.text)).await?;
            }
            Ok(Event::Finished { completion, .. }) => {
                let last = reader.finish(&head.reading);
                growing.take(assigned.parts(&[], vec![last], &head.text)).await?;
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

    async fn take(&mut self, parts: Vec<ItemPart>) -> Result<(), Disconnected> {
        for part in parts {
            self.grow(part).await?;
        }
        Ok(())
    }

    /// Adds a part to its item. If another one is open it is closed, and this one is opened.
    async fn grow(&mut self, part: ItemPart) -> Result<(), Disconnected> {
        let kind = part.kind;
        if !self.items.grows(kind) {
            // Clients expect one open item at a time.
            self.close("completed").await?;
            let item = self.items.begin(kind, part.name.clone(), self.head);
            let added = json!({"output_index": item.index, "item": item.opened()});
            let opened = match kind {
                ItemKind::Message => Some(self::part("", &[])),
                ItemKind::Reasoning => Some(json!({"type": "reasoning_text", "text": ""})),
                ItemKind::Call(_) => None,
            };
            let opened = opened.map(|part| item.place(json!({"part": part})));
            self.send("response.output_item.added", added).await?;
            if let Some(opened) = opened {
                self.send("response.content_part.added", opened).await?;
            }
        }
        if part.text.is_empty() {
            return Ok(());
        }
        let (event, delta) = match kind {
            ItemKind::Reasoning => ("response.reasoning_text.delta", json!({"delta": part.text})),
            ItemKind::Message => ("response.output_text.delta", json!({"delta": part.text, "logprobs": part.logprobs})),
            ItemKind::Call(_) => ("response.function_call_arguments.delta", json!({"delta": part.text})),
        };
        self.items.take(vec![part], self.head);
        let delta = self.items.0.last().map(|item| item.place(delta)).unwrap_or_default();
        self.send(event, delta).await
    }

    /// Ends the last item, and reports it.
    async fn close(&mut self, status: &'static str) -> Result<(), Disconnected> {
        let Some(last) = self.items.0.last_mut() else { return Ok(()) };
        last.end(status);
        let item = &*last;
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
        let whole = json!({"output_index": item.index, "item": item.written(item.status)});
        self.send(event, done).await?;
        if let Some(closed) = closed {
            self.send("response.content_part.done", closed).await?;
        }
        self.send("response.output_item.done", whole).await
    }

    /// `logprobs` are those of the last tokens, which have no text.
    async fn finish(&mut self, completion: &Completion, logprobs: Vec<Value>) -> Result<(), Disconnected> {
        if self.items.0.is_empty() {
            // A response always has an item, even if empty.
            let (name, text, logprobs) = (None, String::new(), Vec::new());
            self.grow(ItemPart { kind: ItemKind::Message, name, text, logprobs }).await?;
        }
        self.items.end(completion, logprobs);
        let status = if cut(completion).is_some() { "incomplete" } else { "completed" };
        self.close(status).await?;
        let finished = self.head.with_items(&self.items, completion);
        self.send(&format!("response.{status}"), json!({"response": finished})).await
    }
}
