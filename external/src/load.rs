//! Puts a load on a server: a closed loop with a constant number of requests, or an open loop with given arrival times.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    ServerError,
    api::{Api, Generate, Generated},
};

/// How requests come.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// This many are kept running together.
    Closed(usize),
    /// Each at its time, counted from the start; ascending, one for each request.
    Open(Vec<Duration>),
}

/// A request that was served.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// Which of the requests.
    pub request: usize,
    /// When it was to be sent, counted from the start of the load: its arrival.
    pub arrival: Duration,
    /// How much later it was sent.
    pub late: Duration,
    /// What came of it, with times counted from when it was sent.
    pub generated: Generated,
}

/// What a load has seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// In the order in which they ended.
    pub served: Vec<Served>,
    /// From the start to the last token of the last request.
    pub elapsed: Duration,
}

/// Longest sleep at a time: this soon an interrupt is heard.
const NAP: Duration = Duration::from_millis(5);
/// Most requests of an open loop that are under way together; one thread each.
const MOST_UNDER_WAY: usize = 1 << 10;

/// Sends all requests and waits for their answers. The first failure ends the load: no further request is sent.
///
/// # Errors
/// When a request fails; when `interrupted` is set.
pub fn run(
    api: &Api,
    requests: &[Generate<'_>],
    arrivals: &Arrivals,
    interrupted: &AtomicBool,
) -> Result<Observed, ServerError> {
    let senders = match arrivals {
        Arrivals::Closed(batch) => *batch,
        Arrivals::Open(_) => MOST_UNDER_WAY,
    };
    let shared = Shared {
        api,
        requests,
        arrivals,
        interrupted,
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        start: Instant::now(),
        outcome: Mutex::new((Observed::default(), None)),
    };
    thread::scope(|scope| {
        for _ in 0..senders.clamp(1, requests.len().max(1)) {
            scope.spawn(|| shared.send());
        }
    });
    let (observed, error) = shared.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    match error {
        Some(error) => Err(error),
        None if interrupted.load(Ordering::Relaxed) => Err(ServerError::Interrupted),
        None => Ok(observed),
    }
}

struct Shared<'a> {
    api: &'a Api,
    requests: &'a [Generate<'a>],
    arrivals: &'a Arrivals,
    interrupted: &'a AtomicBool,
    /// The request that is sent next.
    next: AtomicUsize,
    failed: AtomicBool,
    start: Instant,
    outcome: Mutex<(Observed, Option<ServerError>)>,
}

impl Shared<'_> {
    /// Sends one request after the other.
    fn send(&self) {
        while !self.is_over() {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(request) = self.requests.get(at) else { return };
            let Some(arrival) = self.arrival(at) else { return };
            let late = self.start.elapsed().saturating_sub(arrival);
            let generated = self.api.generate(request);
            let elapsed = self.start.elapsed();
            let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match generated {
                Ok(generated) => {
                    outcome.0.elapsed = outcome.0.elapsed.max(elapsed);
                    outcome.0.served.push(Served { request: at, arrival, late, generated });
                }
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    // The first one is the news.
                    outcome.1.get_or_insert(error);
                }
            }
        }
    }

    /// When a request arrives, once that time has come; `None` where it never will.
    fn arrival(&self, at: usize) -> Option<Duration> {
        let Arrivals::Open(times) = self.arrivals else { return Some(self.start.elapsed()) };
        let arrival = times.get(at).copied()?;
        loop {
            let left = arrival.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                return Some(arrival);
            }
            if self.is_over() {
                return None;
            }
            thread::sleep(left.min(NAP));
        }
    }

    fn is_over(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }
}
