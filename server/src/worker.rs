//! The thread that owns the engine.

pub mod acceptance;
pub mod latency;
mod listeners;
pub mod request_log;
mod throughput;
pub mod weights;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use engine::{
    Engine, EngineError, EngineOptions, Identity, Request, RequestId,
    backend::{Capacity, DeviceInfo},
    checkpoint::GenerationConfig,
    scheduler::Statistics,
    text::Text,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, unbounded_channel},
    oneshot, watch,
};

pub use self::latency::Delivery;
use self::{
    acceptance::{AcceptLengths, LiveAcceptance},
    latency::{Latencies, Listener},
    listeners::Listeners,
    request_log::RequestLog,
    throughput::Throughput,
    weights::{LoadedWeights, Update},
};
use crate::http::{error::ApiError, memory::Permit};

/// Interval at which a paused engine checks whether clients have disconnected.
const PAUSE_CHECK: Duration = Duration::from_millis(50);

/// A handle to the engine's thread.
#[derive(Clone)]
pub struct Worker {
    commands: Sender<WorkerCommand>,
    published: Arc<Mutex<WorkerState>>,
    facts: Arc<WorkerFacts>,
    /// The thread holds the sender, so this closes when the thread ends, even by a panic.
    alive: watch::Receiver<()>,
}

/// State of the engine after the last step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerState {
    /// The engine's counters.
    pub statistics: Statistics,
    /// Recent tokens per second; 0 while idle.
    pub throughput: f64,
    /// How many tokens rounds yield.
    pub accept_lengths: AcceptLengths,
    /// The loaded weights.
    pub weights: Arc<LoadedWeights>,
}

/// Properties that do not change while the engine runs.
pub struct WorkerFacts {
    /// The options in effect, except for the folders of the weights.
    pub options: EngineOptions,
    /// Identity of the models at the start.
    pub identity: Identity,
    /// The device.
    pub device: DeviceInfo,
    /// Its capacity.
    pub capacity: Capacity,
    /// Maximum number of running requests.
    pub max_running_requests: usize,
    /// Tokenizer and chat template.
    pub text: Option<Text>,
    /// The model's generation_config.json.
    pub generation: GenerationConfig,
    /// Tokens that end an output, unless a request ignores them.
    pub end_tokens: Vec<u32>,
}

/// A running request; dropping it cancels the request.
///
/// The engine never waits for a reader: unread events wait here, at most the output of the request,
/// and no longer than `stream` tolerates a stalled connection.
pub struct RunningRequest {
    /// Tokens as they are generated, then the completion or an error. Ends without either if the
    /// engine fails.
    pub events: UnboundedReceiver<Delivery>,
    /// The memory reserved for it.
    pub held: Option<Arc<Permit>>,
}

/// A request and the name by which it can be aborted.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// The request.
    pub request: Request,
    /// The client's name for it.
    pub name: Option<String>,
}

/// Which requests to abort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AbortReply {
    /// All.
    All,
    /// Requests whose names start with this, as in SGLang: the choices of a request have names that
    /// start with its own.
    Named(String),
}

/// How generation pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Running and waiting requests end with their output so far.
    Abort,
    /// Running requests return to the queue, and prefill their tokens again when generation
    /// continues.
    Retract,
    /// Running requests keep their slots, and continue when generation does.
    InPlace,
}

enum WorkerCommand {
    Submit(Vec<Named>, Instant, oneshot::Sender<Result<Vec<RunningRequest>, ApiError>>),
    Abort(AbortReply),
    Flush(oneshot::Sender<Result<(), ApiError>>),
    Pause(Pause, oneshot::Sender<()>),
    Update(Update, oneshot::Sender<Result<(), ApiError>>),
    SetVersion(String, oneshot::Sender<()>),
    Continue(oneshot::Sender<()>),
    /// Cancels running requests because the server ends.
    CutOff,
    Stop,
}

impl Worker {
    /// Starts the thread. At most `most_requests` run or wait at a time. The thread returns the
    /// reason if the engine failed.
    pub fn start(
        engine: Engine,
        most_requests: usize,
        latencies: Latencies,
        log: Option<RequestLog>,
    ) -> (Self, JoinHandle<Option<String>>) {
        let (commands, received) = channel();
        let facts = WorkerFacts {
            options: engine.options().clone(),
            identity: engine.identity().clone(),
            device: engine.device(),
            capacity: engine.capacity(),
            max_running_requests: engine.max_running_requests(),
            text: engine.text().cloned(),
            generation: engine.generation_config().clone(),
            end_tokens: engine.end_tokens().to_vec(),
        };
        let (holder, alive) = watch::channel(());
        let weights = Arc::new(LoadedWeights::from_engine(&engine));
        let published =
            WorkerState { statistics: engine.statistics().clone(), weights: weights.clone(), ..WorkerState::default() };
        let published = Arc::new(Mutex::new(published));
        let worker = Self { commands, published: published.clone(), facts: Arc::new(facts), alive };
        let thread = std::thread::spawn(move || {
            // Dropped with the thread, however it ends, which is how others see that it has.
            let _holder = holder;
            // The engine lives on one thread: steps are synchronous, and a GPU's context belongs to
            // a thread.
            let one = Loop {
                engine,
                most_requests,
                published,
                throughput: Throughput::default(),
                acceptance: LiveAcceptance::default(),
                listeners: Listeners::new(latencies, log),
                paused: false,
                updates: VecDeque::new(),
                weights,
            };
            one.run(&received)
        });
        (worker, thread)
    }

    /// Submits the requests of one body, all or none of them.
    ///
    /// # Errors
    /// When there are too many, one can never run, or the engine has failed or ended.
    pub async fn submit(&self, requests: Vec<Named>, arrived: Instant) -> Result<Vec<RunningRequest>, ApiError> {
        self.ask(|reply| WorkerCommand::Submit(requests, arrived, reply)).await?
    }

    /// Aborts requests: their clients receive the output so far.
    pub fn abort(&self, which: AbortReply) {
        // A thread that has ended has no requests.
        let _ = self.commands.send(WorkerCommand::Abort(which));
    }

    /// Flushes the prefix cache.
    ///
    /// # Errors
    /// When a request runs or waits, or the engine has failed or ended.
    pub async fn flush(&self) -> Result<(), ApiError> {
        self.ask(WorkerCommand::Flush).await?
    }

    /// Runs no step until generation continues.
    ///
    /// # Errors
    /// When the engine has failed or ended.
    pub async fn pause(&self, how: Pause) -> Result<(), ApiError> {
        self.ask(|reply| WorkerCommand::Pause(how, reply)).await
    }

    /// Continues after a pause.
    ///
    /// # Errors
    /// When the engine has failed or ended.
    pub async fn go_on(&self) -> Result<(), ApiError> {
        self.ask(WorkerCommand::Continue).await
    }

    /// Replaces the weights: at once while generation is paused, else when no request runs; until
    /// then no request leaves the queue.
    ///
    /// # Errors
    /// When they do not fit, in which case the old ones stay, or the engine has failed or ended.
    pub async fn update(&self, update: Update) -> Result<(), ApiError> {
        self.ask(|reply| WorkerCommand::Update(update, reply)).await?
    }

    /// Sets the version of the loaded weights.
    ///
    /// # Errors
    /// When the engine has failed or ended.
    pub async fn set_version(&self, version: String) -> Result<(), ApiError> {
        self.ask(|reply| WorkerCommand::SetVersion(version, reply)).await
    }

    /// Cancels all requests because the server ends.
    pub fn cut_off(&self) {
        // A thread that has ended has no requests.
        let _ = self.commands.send(WorkerCommand::CutOff);
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> WorkerCommand) -> Result<T, ApiError> {
        let (reply, answer) = oneshot::channel();
        let gone = || ApiError::failed("the engine has stopped");
        self.commands.send(command(reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }

    /// Ends the thread.
    pub fn stop(&self) {
        let _ = self.commands.send(WorkerCommand::Stop);
    }

    /// Whether the thread is running.
    pub fn is_alive(&self) -> bool {
        self.alive.has_changed().is_ok()
    }

    /// Waits until the thread has ended.
    pub async fn gone(&self) {
        // Nothing is ever sent: it changes only by closing.
        let _ = self.alive.clone().changed().await;
    }

    /// Whether any request runs or waits.
    pub fn is_busy(&self) -> bool {
        let now = self.published().statistics;
        now.running + now.waiting > 0
    }

    /// The last published state.
    pub fn published(&self) -> WorkerState {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The properties that do not change.
    pub fn facts(&self) -> &WorkerFacts {
        &self.facts
    }
}

/// State of the engine's thread.
struct Loop {
    engine: Engine,
    most_requests: usize,
    published: Arc<Mutex<WorkerState>>,
    throughput: Throughput,
    acceptance: LiveAcceptance,
    listeners: Listeners,
    /// Whether generation is paused.
    paused: bool,
    /// Weight updates that wait for running requests to end.
    updates: VecDeque<(Update, oneshot::Sender<Result<(), ApiError>>)>,
    weights: Arc<LoadedWeights>,
}

impl Loop {
    fn run(mut self, commands: &Receiver<WorkerCommand>) -> Option<String> {
        loop {
            // Then all that have arrived: requests of one moment run in the same rounds.
            let mut next = self.wait(commands).ok()?;
            loop {
                match next.take().map_or_else(|| commands.try_recv(), Ok) {
                    Ok(WorkerCommand::Stop) | Err(TryRecvError::Disconnected) => return None,
                    // Dropping the listeners notifies every client.
                    Ok(command) => {
                        if let Err(error) = self.obey(command) {
                            return Some(error.to_string());
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                }
            }
            // Clients that left are found here, not when they leave: only this thread may cancel.
            let gone = self.listeners.iter().filter(|(_, listener)| listener.is_gone()).map(|(id, _)| *id);
            gone.for_each(|id| self.engine.cancel(id));
            let Self { engine, listeners, paused, .. } = &mut self;
            let mut deliver = |event| listeners.deliver(event);
            let stepped = if *paused { engine.settle(&mut deliver) } else { engine.step_each(&mut deliver) };
            if let Err(error) = stepped.and_then(|()| self.update_weights()) {
                return Some(error.to_string());
            }
            self.publish();
        }
    }

    /// Waits for a command while there is nothing to do. During a pause it returns periodically
    /// without one, because clients may disconnect.
    fn wait(&self, commands: &Receiver<WorkerCommand>) -> Result<Option<WorkerCommand>, RecvTimeoutError> {
        // An idle engine waits for commands without using the processor.
        if self.engine.is_idle() {
            return commands.recv().map(Some).map_err(|_| RecvTimeoutError::Disconnected);
        }
        if !self.paused {
            return Ok(None);
        }
        match commands.recv_timeout(PAUSE_CHECK) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            received => received.map(Some),
        }
    }

    /// # Errors
    /// When the device fails.
    fn obey(&mut self, command: WorkerCommand) -> Result<(), EngineError> {
        // Replies can fail: the caller may have left.
        match command {
            WorkerCommand::Submit(requests, arrived, reply) => {
                let submitted = self.submit(requests, arrived);
                // Before the reply, so that its receiver sees the requests counted.
                self.publish();
                let _ = reply.send(submitted);
            }
            WorkerCommand::Abort(which) => self.abort(&which),
            WorkerCommand::Flush(reply) => {
                let flushed = self.engine.flush_cache().map_err(|error| ApiError::invalid(error.to_string()));
                self.publish();
                if flushed.is_ok() {
                    self.start_acceptance_over();
                }
                let _ = reply.send(flushed);
            }
            WorkerCommand::Pause(how, reply) => {
                if how == Pause::Abort {
                    self.abort(&AbortReply::All);
                }
                let mut deliver = |event| self.listeners.deliver(event);
                match how {
                    Pause::Retract => self.engine.retract(&mut deliver)?,
                    Pause::Abort | Pause::InPlace => self.engine.settle(&mut deliver)?,
                }
                self.paused = true;
                self.publish();
                let _ = reply.send(());
            }
            WorkerCommand::Update(update, reply) => {
                if update.abort_all {
                    self.abort(&AbortReply::All);
                    self.engine.settle(&mut |event| self.listeners.deliver(event))?;
                }
                // Requests that run finish first, unless generation is paused; queued ones start
                // with the new weights.
                self.engine.hold_queue(true);
                self.updates.push_back((update, reply));
                self.update_weights()?;
            }
            WorkerCommand::SetVersion(version, reply) => {
                self.weights = Arc::new(LoadedWeights { version, ..(*self.weights).clone() });
                self.publish();
                let _ = reply.send(());
            }
            WorkerCommand::Continue(reply) => {
                self.paused = false;
                let _ = reply.send(());
            }
            WorkerCommand::CutOff => {
                self.listeners.cut_off = true;
                self.paused = false;
                self.abort(&AbortReply::All);
            }
            // The loop has already ended.
            WorkerCommand::Stop => {}
        }
        Ok(())
    }

    /// Loads waiting updates, unless requests are running and not paused.
    ///
    /// # Errors
    /// When the device fails.
    fn update_weights(&mut self) -> Result<(), EngineError> {
        while self.paused || self.engine.nothing_runs() {
            let Some((update, reply)) = self.updates.pop_front() else { break };
            let updated = self.engine.update_weights(&update.folders, update.flush);
            if let Err(error @ EngineError::Device(_)) = updated {
                // The device may hold a mixture of weights now, so the engine ends; its caller
                // should know why.
                let _ = reply.send(Err(ApiError::failed(error.to_string())));
                return Err(error);
            }
            if updated.is_ok() {
                self.weights = Arc::new(LoadedWeights::after(&self.weights, &self.engine, update.version));
                if let Some(log) = self.listeners.log() {
                    log.weights_changed(&self.engine);
                }
            }
            self.publish();
            if updated.is_ok() && update.flush {
                self.start_acceptance_over();
            }
            let _ = reply.send(updated.map_err(|error| ApiError::invalid(error.to_string())));
        }
        self.engine.hold_queue(!self.updates.is_empty());
        Ok(())
    }

    fn abort(&mut self, which: &AbortReply) {
        let is_meant = |listener: &Listener| match which {
            AbortReply::All => true,
            AbortReply::Named(name) => listener.name().is_some_and(|own| own.starts_with(name)),
        };
        let meant = self.listeners.iter().filter(|(_, listener)| is_meant(listener)).map(|(id, _)| *id);
        meant.for_each(|id| self.engine.cancel(id));
    }

    fn submit(&mut self, requests: Vec<Named>, arrived: Instant) -> Result<Vec<RunningRequest>, ApiError> {
        let most = self.most_requests;
        if requests.len() > most {
            let count = requests.len();
            return Err(ApiError::invalid(format!("{count} choices per request; the maximum is {most}")));
        }
        if self.listeners.len() + requests.len() > most {
            return Err(ApiError::busy(most));
        }
        let mut ids = Vec::new();
        for Named { request, name } in requests {
            // The engine takes the request, and resolves its limits; the log has it as it was sent.
            let logged = self.listeners.logs().then(|| request.clone());
            match self.engine.submit(request) {
                Ok(id) => ids.push((id, name, logged)),
                Err(error) => {
                    // Their completions have no listener.
                    ids.into_iter().for_each(|(id, ..)| self.engine.cancel(id));
                    return Err(error.into());
                }
            }
        }
        let listen = |(id, name, logged): (RequestId, _, Option<Request>)| {
            let (sender, events) = unbounded_channel();
            self.listeners.add(id, sender, name, arrived, logged);
            RunningRequest { events, held: None }
        };
        Ok(ids.into_iter().map(listen).collect())
    }

    /// Accept lengths count from now on, except that of the lifetime.
    fn start_acceptance_over(&mut self) {
        self.acceptance.flush();
        self.publish();
    }

    fn publish(&mut self) {
        let statistics = self.engine.statistics().clone();
        let throughput = self.throughput.update(statistics.generated_tokens, self.engine.is_idle());
        let accept_lengths = self.acceptance.update(&statistics);
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) =
            WorkerState { statistics, throughput, accept_lengths, weights: self.weights.clone() };
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
            published: Arc::default(),
            throughput: Throughput::default(),
            acceptance: LiveAcceptance::default(),
            listeners: Listeners::new(Latencies::default(), None),
            paused: false,
            updates: VecDeque::new(),
            weights: Arc::default(),
        };
        let request = |token: u32| Request {
            input_ids: vec![token],
            sampling: SamplingParams::default(),
            stop: StopConditions { max_new_tokens: Some(1), ..StopConditions::default() },
        };
        let mut check = |tokens: &[u32], expected: Result<(), StatusCode>| {
            let named = |token: &u32| Named { request: request(*token), name: None };
            let submitted = one.submit(tokens.iter().map(named).collect(), Instant::now());
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
