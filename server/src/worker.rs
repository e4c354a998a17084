//! The thread that owns the engine.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    thread::JoinHandle,
};

use engine::{
    Engine, EngineOptions, Event, Identity, Request, RequestId,
    backend::{Capacity, DeviceInfo},
    checkpoint::GenerationConfig,
    scheduler::Statistics,
    text::Text,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, unbounded_channel},
    oneshot, watch,
};

use super::{
    error::ApiError,
    latency::{Latencies, Listener},
    memory::Held,
    throughput::Throughput,
};

/// A handle on the engine's thread.
#[derive(Clone)]
pub struct Worker {
    commands: Sender<Command>,
    published: Arc<Mutex<Published>>,
    facts: Arc<Facts>,
    /// The thread holds the other end, so it is closed when the thread is gone, also by a panic.
    alive: watch::Receiver<()>,
}

/// What changes while the engine runs, as of the last step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    /// The engine's counters.
    pub statistics: Statistics,
    /// Tokens a second of late; 0 while idle.
    pub throughput: f64,
}

/// What does not change while the engine runs.
pub struct Facts {
    /// The options in effect.
    pub options: EngineOptions,
    /// What identifies the models.
    pub identity: Identity,
    /// What it runs on.
    pub device: DeviceInfo,
    /// What it has room for.
    pub capacity: Capacity,
    /// Most requests that run together.
    pub max_running_requests: usize,
    /// Tokenizer and chat template.
    pub text: Option<Text>,
    /// How the model wants to be sampled.
    pub generation: GenerationConfig,
}

/// A request that runs; dropping it cancels the request.
///
/// The engine never waits for a reader: what is not read waits here, at most the output that the request may have, and
/// no longer than `stream` has patience with a connection.
pub struct Running {
    /// Tokens as they come, the completion last. It ends without one when the engine fails.
    pub events: UnboundedReceiver<Event>,
    /// The memory that it is accounted for with.
    pub held: Option<Arc<Held>>,
}

enum Command {
    Submit(Vec<Request>, oneshot::Sender<Result<Vec<Running>, ApiError>>),
    CancelAll,
    Stop,
}

impl Worker {
    /// Starts the thread. At most `most_requests` run or wait at a time. The thread ends with the reason for which the
    /// engine failed, or with none.
    pub fn start(engine: Engine, most_requests: usize, latencies: Latencies) -> (Self, JoinHandle<Option<String>>) {
        let (commands, received) = channel();
        let facts = Facts {
            options: engine.options().clone(),
            identity: engine.identity().clone(),
            device: engine.device(),
            capacity: engine.capacity(),
            max_running_requests: engine.max_running_requests(),
            text: engine.text().cloned(),
            generation: engine.generation_config().clone(),
        };
        let (holder, alive) = watch::channel(());
        let published = Published { statistics: engine.statistics().clone(), throughput: 0.0 };
        let published = Arc::new(Mutex::new(published));
        let worker = Self { commands, published: published.clone(), facts: Arc::new(facts), alive };
        let thread = std::thread::spawn(move || {
            let _holder = holder;
            let throughput = Throughput::default();
            Loop { engine, most_requests, latencies, published, throughput, listeners: HashMap::new() }.run(&received)
        });
        (worker, thread)
    }

    /// Submits requests, all or none of them.
    ///
    /// # Errors
    /// When there are too many, one can never run, or the engine has failed or ended.
    pub async fn submit(&self, requests: Vec<Request>) -> Result<Vec<Running>, ApiError> {
        let (reply, answer) = oneshot::channel();
        let gone = || ApiError::failed("the engine has stopped");
        self.commands.send(Command::Submit(requests, reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Ends all requests.
    pub fn cancel_all(&self) {
        // A thread that has ended has none.
        let _ = self.commands.send(Command::CancelAll);
    }

    /// Ends the thread.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }

    /// Whether the thread still runs.
    pub fn is_alive(&self) -> bool {
        self.alive.has_changed().is_ok()
    }

    /// Waits until the thread is gone.
    pub async fn gone(&self) {
        // Nothing is ever sent: it changes by closing only.
        let _ = self.alive.clone().changed().await;
    }

    /// Whether requests run or wait.
    pub fn is_busy(&self) -> bool {
        let now = self.published().statistics;
        now.running + now.waiting > 0
    }

    /// What it said last.
    pub fn published(&self) -> Published {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What does not change.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

/// What the thread works with.
struct Loop {
    engine: Engine,
    most_requests: usize,
    latencies: Latencies,
    published: Arc<Mutex<Published>>,
    throughput: Throughput,
    listeners: HashMap<RequestId, Listener>,
}

impl Loop {
    fn run(mut self, commands: &Receiver<Command>) -> Option<String> {
        loop {
            // With nothing to do it waits for a command; else it takes those that are there.
            let mut next = if self.engine.is_idle() { Some(commands.recv().ok()?) } else { None };
            loop {
                match next.take().map_or_else(|| commands.try_recv(), Ok) {
                    Ok(Command::Submit(requests, reply)) => {
                        let submitted = self.submit(requests);
                        // Before the answer, so that whoever gets it sees the requests counted.
                        self.publish();
                        // A client that has gone is noticed before the next step.
                        let _ = reply.send(submitted);
                    }
                    Ok(Command::CancelAll) => self.listeners.keys().for_each(|id| self.engine.cancel(*id)),
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return None,
                    Err(TryRecvError::Empty) => break,
                }
            }
            let gone = self.listeners.iter().filter(|(_, listener)| listener.is_gone()).map(|(id, _)| *id);
            gone.for_each(|id| self.engine.cancel(id));
            match self.engine.step_each() {
                Ok(events) => events.into_iter().for_each(|event| self.deliver(event)),
                // Dropping the listeners tells every client.
                Err(error) => return Some(error.to_string()),
            }
            self.publish();
        }
    }

    fn submit(&mut self, requests: Vec<Request>) -> Result<Vec<Running>, ApiError> {
        let most = self.most_requests;
        if requests.len() > most {
            let count = requests.len();
            return Err(ApiError::invalid(format!("{count} choices at a time, at most {most} are taken")));
        }
        if self.listeners.len() + requests.len() > most {
            return Err(ApiError::busy(most));
        }
        let mut ids = Vec::new();
        for request in requests {
            match self.engine.submit(request) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    // Their ends find no listener.
                    ids.into_iter().for_each(|id| self.engine.cancel(id));
                    return Err(error.into());
                }
            }
        }
        let listen = |id| {
            let (sender, events) = unbounded_channel();
            self.listeners.insert(id, Listener::new(sender));
            Running { events, held: None }
        };
        Ok(ids.into_iter().map(listen).collect())
    }

    fn deliver(&mut self, event: Event) {
        let (id, last) = match &event {
            Event::Tokens { request, .. } => (*request, false),
            Event::Finished { request, .. } => (*request, true),
        };
        if let Some(listener) = self.listeners.get_mut(&id) {
            self.latencies.observe(listener, &event);
            listener.send(event);
        }
        if last {
            self.listeners.remove(&id);
        }
    }

    fn publish(&mut self) {
        let statistics = self.engine.statistics().clone();
        let throughput = self.throughput.update(statistics.generated_tokens, self.engine.is_idle());
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Published { statistics, throughput };
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use axum::{http::StatusCode, response::IntoResponse};

    use super::*;
    use engine::{SamplingParams, StopConditions};

    #[test]
    fn more_than_the_queue_holds_is_refused_and_all_or_none_is_taken() {
        let model_path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/target");
        let options = EngineOptions { model_path, context_length: Some(64), ..EngineOptions::default() };
        let mut one = Loop {
            engine: Engine::load(options).expect("the demo model loads"),
            most_requests: 2,
            latencies: Latencies::default(),
            published: Arc::default(),
            throughput: Throughput::default(),
            listeners: HashMap::new(),
        };
        let request = |token: u32| Request {
            input_ids: vec![token],
            sampling: SamplingParams::default(),
            stop: StopConditions { max_new_tokens: Some(1), ..StopConditions::default() },
        };
        let mut check = |tokens: &[u32], expected: Result<(), StatusCode>| {
            let submitted = one.submit(tokens.iter().map(|token| request(*token)).collect());
            let found = submitted.map_err(|error| error.into_response().status());
            assert_eq!(found.as_ref().map(|_| ()).map_err(|status| *status), expected, "{tokens:?}");
            found.ok()
        };
        check(&[1, 1, 1], Err(StatusCode::BAD_REQUEST));
        check(&[1, u32::MAX], Err(StatusCode::BAD_REQUEST));
        let kept = check(&[1], Ok(()));
        check(&[1, 1], Err(StatusCode::TOO_MANY_REQUESTS));
        let further = check(&[1], Ok(()));
        check(&[1], Err(StatusCode::TOO_MANY_REQUESTS));
        drop((kept, further));
        assert_eq!(one.listeners.len(), 2, "the refused ones left nothing behind");
    }
}
