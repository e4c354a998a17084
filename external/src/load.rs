//! Puts a load on a server: a closed loop with a constant number of requests, or an open loop with
//! given arrival times.

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

/// How requests arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadArrivals {
    /// This many requests are kept running.
    Closed(usize),
    /// Each at its own time after the start; ascending, one for each request.
    Open(Vec<Duration>),
}

/// A completed request.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// Its index among the requests.
    pub request: usize,
    /// When it should be sent, counted from the start of the load.
    pub arrival: Duration,
    /// Delay until it was sent.
    pub late: Duration,
    /// The result, with times counted from when it was sent.
    pub generated: Generated,
}

/// The observations of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// In the order of completion.
    pub served: Vec<Served>,
    /// Time from the start to the last token of the last request.
    pub elapsed: Duration,
}

/// Longest single sleep, which bounds the reaction time to an interrupt.
const NAP: Duration = Duration::from_millis(5);
/// Maximum number of concurrent requests of an open loop, with one thread each.
const MOST_UNDER_WAY: usize = 1 << 10;

/// Sends all requests and waits for their responses. After the first failure no further request is
/// sent; after an interrupt, running ones are given up at their next token.
///
/// # Errors
/// When a request fails; when `interrupted` is set.
pub fn run(
    api: &Api,
    requests: &[Generate<'_>],
    arrivals: &LoadArrivals,
    interrupted: &AtomicBool,
) -> Result<Observed, ServerError> {
    let senders = match arrivals {
        LoadArrivals::Closed(batch) => *batch,
        LoadArrivals::Open(_) => MOST_UNDER_WAY,
    };
    let shared = LoadState {
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

struct LoadState<'a> {
    api: &'a Api,
    requests: &'a [Generate<'a>],
    arrivals: &'a LoadArrivals,
    interrupted: &'a AtomicBool,
    /// Index of the next request.
    next: AtomicUsize,
    failed: AtomicBool,
    start: Instant,
    outcome: Mutex<(Observed, Option<ServerError>)>,
}

impl LoadState<'_> {
    /// Sends one request after another.
    fn send(&self) {
        while !self.is_over() {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(request) = self.requests.get(at) else { return };
            let Some(arrival) = self.arrival(at) else { return };
            let late = self.start.elapsed().saturating_sub(arrival);
            let generated = self.api.generate(request, self.interrupted);
            let elapsed = self.start.elapsed();
            let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match generated {
                Ok(generated) => {
                    outcome.0.elapsed = outcome.0.elapsed.max(elapsed);
                    outcome.0.served.push(Served { request: at, arrival, late, generated });
                }
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    // Only the first error is reported.
                    outcome.1.get_or_insert(error);
                }
            }
        }
    }

    /// Waits for a request's arrival, and returns its time; `None` if the load ends before.
    fn arrival(&self, at: usize) -> Option<Duration> {
        let LoadArrivals::Open(times) = self.arrivals else { return Some(self.start.elapsed()) };
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
