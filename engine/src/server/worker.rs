//! The thread that owns the engine.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    thread::JoinHandle,
};

use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    oneshot,
};

use crate::{
    Engine, EngineError, EngineOptions, Event, Identity, Request, RequestId,
    backend::{Capacity, DeviceInfo},
    checkpoint::GenerationConfig,
    scheduler::Statistics,
    text::Text,
};

/// A handle on the engine's thread.
#[derive(Clone)]
pub struct Worker {
    commands: Sender<Command>,
    statistics: Arc<Mutex<Statistics>>,
    facts: Arc<Facts>,
    alive: Weak<()>,
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
    /// Tokenizer and chat template.
    pub text: Option<Text>,
    /// How the model wants to be sampled.
    pub generation: GenerationConfig,
}

/// A request that runs; dropping it cancels the request.
///
/// Events are not bounded here: a request has at most as many as its context has tokens.
pub struct Running {
    /// Tokens as they come, the completion last. It ends without one when the engine fails.
    pub events: UnboundedReceiver<Event>,
}

enum Command {
    Submit(Request, oneshot::Sender<Result<Running, EngineError>>),
    CancelAll,
    Stop,
}

impl Worker {
    /// Starts the thread. It ends with the reason for which the engine failed, or with none.
    pub fn start(engine: Engine) -> (Self, JoinHandle<Option<String>>) {
        let (commands, received) = channel();
        let facts = Facts {
            options: engine.options().clone(),
            identity: engine.identity().clone(),
            device: engine.device(),
            capacity: engine.capacity(),
            text: engine.text().cloned(),
            generation: engine.generation_config().clone(),
        };
        let statistics = Arc::new(Mutex::new(engine.statistics().clone()));
        // The thread owns it, so it is gone when the thread is, also by a panic.
        let alive = Arc::new(());
        let worker =
            Self { commands, statistics: statistics.clone(), facts: Arc::new(facts), alive: Arc::downgrade(&alive) };
        let thread = std::thread::spawn(move || {
            let _alive = alive;
            work(engine, &received, &statistics)
        });
        (worker, thread)
    }

    /// Submits a request.
    ///
    /// # Errors
    /// When it can never run, or the engine has failed.
    pub async fn submit(&self, request: Request) -> Result<Running, EngineError> {
        let (reply, answer) = oneshot::channel();
        let gone = || EngineError::Device("the engine has stopped".into());
        self.commands.send(Command::Submit(request, reply)).map_err(|_| gone())?;
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
        self.alive.strong_count() > 0
    }

    /// Whether requests run or wait.
    pub fn is_busy(&self) -> bool {
        let now = self.statistics();
        now.running + now.waiting > 0
    }

    /// Counters as of the last step.
    pub fn statistics(&self) -> Statistics {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What does not change.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

fn work(mut engine: Engine, commands: &Receiver<Command>, statistics: &Mutex<Statistics>) -> Option<String> {
    let mut listeners: HashMap<RequestId, UnboundedSender<Event>> = HashMap::new();
    let publish =
        |engine: &Engine| *statistics.lock().unwrap_or_else(PoisonError::into_inner) = engine.statistics().clone();
    loop {
        // With nothing to do it waits for a command; else it takes those that are there.
        let mut next = if engine.is_idle() { commands.recv().ok() } else { None };
        if next.is_none() && engine.is_idle() {
            return None;
        }
        loop {
            match next.take().map_or_else(|| commands.try_recv(), Ok) {
                Ok(Command::Submit(request, reply)) => {
                    let submitted = engine.submit(request).map(|id| {
                        let (sender, events) = unbounded_channel();
                        listeners.insert(id, sender);
                        Running { events }
                    });
                    // Before the answer, so that whoever gets it sees the request counted.
                    publish(&engine);
                    // A client that has gone is noticed when its first event finds no reader.
                    let _ = reply.send(submitted);
                }
                Ok(Command::CancelAll) => listeners.keys().for_each(|id| engine.cancel(*id)),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => break,
            }
        }
        let gone = listeners.iter().filter(|(_, listener)| listener.is_closed()).map(|(id, _)| *id);
        gone.for_each(|id| engine.cancel(id));
        match engine.step() {
            Ok(events) => events.into_iter().for_each(|event| deliver(event, &mut listeners)),
            // Dropping the listeners tells every client.
            Err(error) => return Some(error.to_string()),
        }
        publish(&engine);
    }
}

fn deliver(event: Event, listeners: &mut HashMap<RequestId, UnboundedSender<Event>>) {
    let (id, last) = match &event {
        Event::Tokens { request, .. } => (*request, false),
        Event::Finished { request, .. } => (*request, true),
    };
    if let Some(listener) = listeners.get(&id) {
        // A reader that has gone is found before the next step.
        let _ = listener.send(event);
    }
    if last {
        listeners.remove(&id);
    }
}
