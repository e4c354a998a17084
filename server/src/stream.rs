//! Answers in server-sent events: one for each round of the engine, `[DONE]` at the end.

use std::{convert::Infallible, time::Duration};

use axum::response::{IntoResponse, Response, Sse, sse::Event as SseEvent};
use futures::{Stream, StreamExt, stream};
use serde_json::Value;
use tokio::sync::mpsc::Sender;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};

use super::{error::ApiError, worker::Running};
use engine::{Completion, Event, backend::ProducedToken};

/// A client that takes nothing for so long has its request ended and its answer dropped.
const LONGEST_STALL: Duration = Duration::from_secs(120);
/// Events that lie ready for a connection. What is behind them waits with the engine's thread, which is never held up.
const READY_EVENTS: usize = 8;

/// How an API writes its events.
pub trait Chunks: Send + 'static {
    /// What comes before all tokens.
    fn begin(&mut self) -> Vec<Value>;

    /// Tokens of a choice, and the text that can be shown now.
    fn tokens(&mut self, index: usize, tokens: &[ProducedToken], text: &str) -> Option<Value>;

    /// The end of a choice.
    fn end(&mut self, index: usize, completion: &Completion) -> Value;

    /// What comes after all choices.
    fn last(&mut self, completions: &[Completion]) -> Option<Value>;
}

/// Streams the answer. The requests end when the client goes away.
pub fn respond(running: Vec<Running>, chunks: impl Chunks) -> Response {
    let (sender, events) = tokio::sync::mpsc::channel(READY_EVENTS);
    tokio::spawn(async move {
        // Dropping the requests cancels those that still run.
        tokio::select! {
            () = sender.closed() => {}
            _ = pump(running, chunks, &sender) => {}
        }
    });
    let events = ReceiverStream::new(events).map(|data| Ok::<_, Infallible>(SseEvent::default().data(data)));
    // No comments to keep the connection alive: clients that read line by line take them for data.
    Sse::new(events).into_response()
}

/// The connection is gone or stalled.
struct Gone;

async fn pump(running: Vec<Running>, mut chunks: impl Chunks, sender: &Sender<String>) -> Result<(), Gone> {
    let mut completions: Vec<Option<Completion>> = vec![None; running.len()];
    let mut events = merge(running);
    for value in chunks.begin() {
        send(sender, &value).await?;
    }
    while let Some((index, event)) = events.next().await {
        let value = match event {
            Some(Event::Tokens { tokens, text, .. }) => chunks.tokens(index, &tokens, &text),
            Some(Event::Finished { completion, .. }) => match ApiError::of_end(&completion.finish_reason) {
                Some(error) => Some(error.body()),
                None => {
                    let value = chunks.end(index, &completion);
                    completions[index] = Some(*completion);
                    Some(value)
                }
            },
            None => Some(ApiError::cut_off().body()),
        };
        if let Some(value) = value {
            send(sender, &value).await?;
        }
    }
    let finished: Vec<Completion> = completions.iter().flatten().cloned().collect();
    if finished.len() == completions.len()
        && let Some(value) = chunks.last(&finished)
    {
        send(sender, &value).await?;
    }
    send_text(sender, "[DONE]".into()).await
}

async fn send(sender: &Sender<String>, value: &Value) -> Result<(), Gone> {
    send_text(sender, value.to_string()).await
}

async fn send_text(sender: &Sender<String>, text: String) -> Result<(), Gone> {
    sender.send_timeout(text, LONGEST_STALL).await.map_err(|_| Gone)
}

/// The events of all choices as they come, each choice ending with its completion, or with `None` if the engine fails.
fn merge(running: Vec<Running>) -> impl Stream<Item = (usize, Option<Event>)> + Send + Unpin {
    let one = |(index, running): (usize, Running)| {
        let events = UnboundedReceiverStream::new(running.events).map(Some).chain(stream::iter([None]));
        // After the completion nothing follows; a stream that ends without one has failed.
        let events = events.scan(false, |done, event| {
            let last = matches!(event, Some(Event::Finished { .. }) | None);
            let over = std::mem::replace(done, *done || last);
            std::future::ready((!over).then_some(event))
        });
        events.map(move |event| (index, event)).boxed()
    };
    stream::select_all(running.into_iter().enumerate().map(one))
}
