//! Responses as server-sent events: one for each round of the engine, `[DONE]` at the end.

use std::{convert::Infallible, time::Duration};

use axum::response::{IntoResponse, Response, Sse, sse::Event as SseEvent};
use engine::{Completion, Event, backend::ProducedToken};
use futures::{Stream, StreamExt, stream};
use serde_json::Value;
use tokio::sync::mpsc::Sender;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};

use crate::{
    http::error::ApiError,
    worker::{Delivery, RunningRequest},
};

/// If a client reads nothing for this long, its requests are cancelled.
pub const LONGEST_STALL: Duration = Duration::from_secs(120);
/// Number of events buffered for a connection. Further ones stay in the channel from the engine's
/// thread, which never waits.
pub const READY_EVENTS: usize = 8;

/// An API's format of events.
pub trait Chunks: Send + 'static {
    /// The chunk before the tokens of a choice. It is sent with the first token, because clients
    /// measure the time to first token by it.
    fn begin(&mut self, index: usize) -> Option<Value>;

    /// Chunks for tokens of a choice and the text that can be shown now.
    fn tokens(&mut self, index: usize, tokens: &[ProducedToken], text: &str) -> Vec<Value>;

    /// Chunks for the end of a choice.
    fn end(&mut self, index: usize, completion: &Completion) -> Vec<Value>;

    /// The chunk after all choices.
    fn last(&mut self, completions: &[Completion]) -> Option<Value>;
}

/// Streams the response. The requests are cancelled if the client disconnects.
pub fn respond(running: Vec<RunningRequest>, chunks: impl Chunks) -> Response {
    let (sender, events) = tokio::sync::mpsc::channel(READY_EVENTS);
    tokio::spawn(async move {
        // Dropping the requests cancels the ones that still run.
        tokio::select! {
            () = sender.closed() => {}
            _ = pump(running, chunks, &sender) => {}
        }
    });
    let events = ReceiverStream::new(events).map(|data| Ok::<_, Infallible>(SseEvent::default().data(data)));
    // No keep-alive comments: clients that read line by line mistake them for data.
    Sse::new(events).into_response()
}

/// The connection is closed or stalled.
pub struct Disconnected;

async fn pump(
    running: Vec<RunningRequest>,
    mut chunks: impl Chunks,
    sender: &Sender<String>,
) -> Result<(), Disconnected> {
    let mut completions: Vec<Option<Completion>> = vec![None; running.len()];
    let mut events = merge(running);
    let mut begun = vec![false; completions.len()];
    while let Some((index, event)) = events.next().await {
        // Not before the first event: a request that fails at once has only its error.
        if event.is_ok()
            && !std::mem::replace(&mut begun[index], true)
            && let Some(value) = chunks.begin(index)
        {
            send(sender, &value).await?;
        }
        let values = match event {
            Ok(Event::Tokens { tokens, text, .. }) => chunks.tokens(index, &tokens, &text),
            Ok(Event::Finished { completion, .. }) => {
                let values = chunks.end(index, &completion);
                completions[index] = Some(*completion);
                values
            }
            Err(error) => vec![error.body()],
        };
        for value in values {
            send(sender, &value).await?;
        }
    }
    let finished: Vec<Completion> = completions.iter().flatten().cloned().collect();
    // Usage of an answer that failed in part would be wrong.
    if finished.len() == completions.len()
        && let Some(value) = chunks.last(&finished)
    {
        send(sender, &value).await?;
    }
    send_text(sender, "[DONE]".into()).await
}

async fn send(sender: &Sender<String>, value: &Value) -> Result<(), Disconnected> {
    send_text(sender, value.to_string()).await
}

async fn send_text(sender: &Sender<String>, text: String) -> Result<(), Disconnected> {
    sender.send_timeout(text, LONGEST_STALL).await.map_err(|_| Disconnected)
}

/// The events of all choices as they arrive; each choice ends with its completion or with an error.
fn merge(running: Vec<RunningRequest>) -> impl Stream<Item = (usize, Delivery)> + Send + Unpin {
    let one = |(index, running): (usize, RunningRequest)| {
        let RunningRequest { events, held } = running;
        let failed = stream::once(std::future::ready(Err(ApiError::cut_off())));
        let events = UnboundedReceiverStream::new(events).chain(failed);
        // Nothing follows a completion; a stream that ends without one has failed.
        let events = events.scan(false, |done, event| {
            let last = matches!(event, Ok(Event::Finished { .. }) | Err(_));
            let over = std::mem::replace(done, *done || last);
            std::future::ready((!over).then_some(event))
        });
        events
            .map(move |event| {
                // Held until the last event has been consumed.
                let _held = &held;
                (index, event)
            })
            .boxed()
    };
    stream::select_all(running.into_iter().enumerate().map(one))
}

#[cfg(test)]
mod tests {
    use engine::RequestId;
    use serde_json::json;

    use super::*;

    struct Names;

    impl Chunks for Names {
        fn begin(&mut self, index: usize) -> Option<Value> {
            Some(json!(format!("begin {index}")))
        }

        fn tokens(&mut self, index: usize, tokens: &[ProducedToken], _: &str) -> Vec<Value> {
            vec![json!(format!("{} of {index}", tokens.len()))]
        }

        fn end(&mut self, index: usize, _: &Completion) -> Vec<Value> {
            vec![json!(format!("end {index}"))]
        }

        fn last(&mut self, _: &[Completion]) -> Option<Value> {
            None
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_before_the_first_token() {
        let (engine, events) = tokio::sync::mpsc::unbounded_channel();
        let (sender, mut sent) = tokio::sync::mpsc::channel(8);
        let running = vec![RunningRequest { events, held: None }];
        let pumping = tokio::spawn(async move { pump(running, Names, &sender).await.is_ok() });
        tokio::task::yield_now().await;
        assert!(sent.try_recv().is_err());
        let tokens = vec![ProducedToken { id: 1, logprobs: None }];
        engine.send(Ok(Event::Tokens { request: RequestId(1), tokens, text: "a".into() })).expect("it listens");
        assert_eq!(sent.recv().await.as_deref(), Some("\"begin 0\""));
        assert_eq!(sent.recv().await.as_deref(), Some("\"1 of 0\""));
        drop(engine);
        assert!(sent.recv().await.is_some_and(|error| error.contains("stopped before")));
        assert_eq!(sent.recv().await.as_deref(), Some("[DONE]"));
        assert!(pumping.await.expect("no panic"));
    }
}
