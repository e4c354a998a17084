//! Who receives the events of running requests.

use std::{collections::HashMap, time::Instant};

use engine::{Event, Request, RequestId};
use tokio::sync::mpsc::UnboundedSender;

use super::{
    latency::{Delivery, Latencies, Listener},
    request_log::RequestLog,
};
use crate::http::error::ApiError;

/// The listeners of running requests, and what is recorded of the events that they receive.
pub struct Listeners {
    open: HashMap<RequestId, Listener>,
    latencies: Latencies,
    log: Option<RequestLog>,
    /// Whether requests are cancelled because the server ends.
    pub cut_off: bool,
}

impl Listeners {
    /// None yet.
    pub fn new(latencies: Latencies, log: Option<RequestLog>) -> Self {
        Self { open: HashMap::new(), latencies, log, cut_off: false }
    }

    /// Number of requests that have not ended.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&RequestId, &Listener)> {
        self.open.iter()
    }

    /// The log of requests.
    pub fn log(&mut self) -> Option<&mut RequestLog> {
        self.log.as_mut()
    }

    /// Whether requests are logged.
    pub fn logs(&self) -> bool {
        self.log.is_some()
    }

    /// Adds the listener of an accepted request, which is logged if it is given.
    pub fn add(
        &mut self,
        id: RequestId,
        events: UnboundedSender<Delivery>,
        name: Option<String>,
        arrived: Instant,
        logged: Option<Request>,
    ) {
        if let Some((log, request)) = self.log.as_mut().zip(logged) {
            log.begin(id, &request);
        }
        self.open.insert(id, Listener::new(events, name, arrived));
    }

    /// Records an event and sends it on. Never waits, since the device may be idle meanwhile.
    pub fn deliver(&mut self, event: Event) {
        let (id, last) = match &event {
            Event::Tokens { request, .. } => (*request, false),
            Event::Finished { request, .. } => (*request, true),
        };
        if let (Some(log), Event::Finished { completion, .. }) = (&mut self.log, &event) {
            log.end(id, completion);
        }
        if let Some(listener) = self.open.get_mut(&id) {
            self.latencies.observe(listener, &event);
            let failure = match &event {
                Event::Finished { completion, .. } => ApiError::from_end(&completion.finish_reason, self.cut_off),
                Event::Tokens { .. } => None,
            };
            listener.send(failure.map_or(Ok(event), Err));
        }
        if last {
            self.open.remove(&id);
        }
    }
}
