//! Runs one trial on the engine: a closed loop with a constant batch, or an open loop with given
//! arrival times.

mod drive;
pub mod estimate;
pub(crate) mod full_loop;
pub(crate) mod measurement;
pub mod parts;
pub mod steady;
#[cfg(test)]
mod tests;

use std::{sync::atomic::AtomicBool, time::Duration};

use engine::{Engine, EngineError, Request, ShapePolicy, Simulated};
use schemas::sweep::Objective;

use self::drive::drive;
pub(crate) use self::drive::{CompletedRequest, Observations, RequestSource};
use crate::{
    host::machine::Watch,
    trials::{
        configuration::{Configuration, TableRow},
        record::{Measurement, Trial},
    },
    workload::LoadedWorkload,
};

/// Inputs and limits of a trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialOptions<'a> {
    /// The requests.
    pub workload: &'a LoadedWorkload,
    /// The objective, whose limits define goodput.
    pub objective: Objective,
    /// Simulated accept length, in tokens per round: the imported value of the trial's shape;
    /// `None` for the engine's setting.
    pub simulate_accept_length: Option<f32>,
    /// Set by another thread when the user requests a stop.
    pub interrupted: &'a AtomicBool,
}

/// How a trial ended.
#[derive(Debug)]
pub enum TrialEnd {
    /// With figures.
    Measured(Box<Measurement>),
    /// The user stopped it: its figures are discarded.
    Interrupted,
}

/// Runs a trial. The warm-up before it is not counted. An open loop ends when all its requests are
/// served, however long that takes after the last arrival: if the engine cannot keep up, the
/// latencies show it.
///
/// # Errors
/// When the engine cannot run the shape, has no room for the batch of a closed loop, or fails; or
/// when the trial needs recorded arrival times and the workload has none. The engine is left idle,
/// unless the device failed.
pub fn run(engine: &mut Engine, trial: &Trial, terms: &TrialOptions<'_>) -> Result<TrialEnd, EngineError> {
    engine.set_policy(policy(&trial.configuration))?;
    // The engine outlives the trial; the next one must find it as it was.
    let before = engine.options().simulated.clone();
    let Some(length) = terms.simulate_accept_length else { return serve(engine, trial, terms) };
    engine.simulate_acceptance(Some(Simulated::Length(length)))?;
    let ended = serve(engine, trial, terms);
    let reset = engine.simulate_acceptance(before);
    // If the trial failed, its error is the one to report.
    let ended = ended?;
    reset.map(|()| ended)
}

/// The tree for each batch and context.
fn policy(configuration: &Configuration) -> ShapePolicy {
    let row = |row: &TableRow| (row.max_running_batch, row.max_context.unwrap_or(usize::MAX), row.shape);
    let rows = configuration.table.iter().map(row).collect();
    ShapePolicy::by_context(rows).unwrap_or_else(|| ShapePolicy::fixed(configuration.shape))
}

fn serve(engine: &mut Engine, trial: &Trial, terms: &TrialOptions<'_>) -> Result<TrialEnd, EngineError> {
    let TrialOptions { workload, objective, interrupted, .. } = terms;
    let (requests, source) = requested(workload, trial)?;
    if workload.warm_up_tokens > 0 {
        let batch = trial.load.batch_size().unwrap_or_else(|| engine.max_running_requests());
        let short = |request: &Request| shortened(request, workload.warm_up_tokens);
        let warm_up: Vec<Request> = requests.iter().take(batch).map(short).collect();
        let source = match &source {
            RequestSource::Closed(batch_size) => RequestSource::Closed(*batch_size),
            // The warm-up does not wait for arrivals.
            RequestSource::Open(_) => RequestSource::Open(vec![Duration::ZERO; warm_up.len()]),
        };
        if drive(engine, &warm_up, &source, interrupted)?.is_none() {
            return Ok(TrialEnd::Interrupted);
        }
    }
    // The warm-up and earlier trials had the prompts of this one.
    engine.forget_texts();
    // After the warm-up, whose captures and compilations are not the trial's.
    let watch = Watch::begin(engine.gpu_state());
    let Some(seen) = drive(engine, &requests, &source, interrupted)? else { return Ok(TrialEnd::Interrupted) };
    let machine = watch.end(engine.gpu_state());
    let simulated = engine.options().simulated.is_some();
    let figures = measurement::from_observations(&seen, objective, simulated)?.of(&trial.configuration);
    Ok(TrialEnd::Measured(Box::new(Measurement { machine: Some(machine), ..figures })))
}

/// The requests of a trial and their arrivals.
pub(crate) fn requested(
    workload: &LoadedWorkload,
    trial: &Trial,
) -> Result<(Vec<Request>, RequestSource), EngineError> {
    let load = trial.load;
    if let Some(batch_size) = load.batch_size() {
        let sent = workload.sent_under(load).into_iter().map(|at| workload.requests[at].clone());
        return Ok((sent.collect(), RequestSource::Closed(batch_size)));
    }
    let arrivals = workload.arrivals(load, trial.repeat).ok_or_else(|| {
        EngineError::Configuration("the workload has no recorded arrival times: only workload.trace has".into())
    })?;
    Ok((workload.requests.clone(), RequestSource::Open(arrivals)))
}

pub(crate) fn shortened(request: &Request, tokens: usize) -> Request {
    let mut request = request.clone();
    request.stop.max_new_tokens = request.stop.max_new_tokens.map(|most| most.min(tokens));
    request
}
