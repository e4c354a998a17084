//! How long a sweep will take, and from what that is known.

use std::sync::atomic::AtomicBool;

use engine::{Engine, EngineError};
use schemas::tree::TreeShape;

use crate::{
    configuration::{Configuration, Load},
    record::{Measurement, Trial},
    runner::{self, Ended},
    workload::Workload,
};

/// New tokens of a request that is measured for the estimate.
const PROBE_TOKENS: usize = 16;

/// The time of some trials, extrapolated from short measured batches without speculation.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// All trials together, each as long as it would be without speculation; `None` where a batch size could not be
    /// measured.
    pub seconds: Option<f64>,
    /// What it rests on.
    pub basis: Vec<Basis>,
}

/// A short batch without speculation, measured just now.
#[derive(Clone, Debug, PartialEq)]
pub struct Basis {
    /// Requests that ran together.
    pub batch_size: usize,
    /// Tokens a second of one request after its first one; `None` where the batch could not run.
    pub tokens_per_s_per_user: Option<f64>,
    /// One trial at this batch size.
    pub trial_seconds: Option<f64>,
    /// How many such trials there are.
    pub trials: usize,
}

impl Estimate {
    /// Measures a short batch at each batch size of the trials.
    ///
    /// # Errors
    /// When the device fails. A batch that cannot run leaves its part of the estimate open: its trials will say why.
    pub fn measure(engine: &mut Engine, workload: &Workload, trials: &[Trial]) -> Result<Self, EngineError> {
        let mut sizes: Vec<usize> = trials.iter().filter_map(|trial| trial.load.batch_size()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut basis = Vec::new();
        for batch_size in sizes {
            let count = trials.iter().filter(|trial| trial.load == Load::BatchSize(batch_size)).count();
            let probe = match probe(engine, workload, batch_size) {
                Ok(probe) => probe,
                Err(error @ EngineError::Device(_)) => return Err(error),
                Err(_) => None,
            };
            basis.push(Basis {
                batch_size,
                tokens_per_s_per_user: probe.as_ref().map(|figures| figures.tokens_per_s_per_user),
                trial_seconds: probe.map(|figures| trial_seconds(&figures, workload, batch_size)),
                trials: count,
            });
        }
        let seconds = basis.iter().map(|one| Some(one.trial_seconds? * one.trials as f64)).sum();
        Ok(Self { seconds, basis })
    }
}

/// One batch of the workload's first requests, a few tokens each.
fn probe(engine: &mut Engine, workload: &Workload, batch_size: usize) -> Result<Option<Box<Measurement>>, EngineError> {
    let mut short = workload.clone();
    short.requests.truncate(batch_size);
    for request in &mut short.requests {
        // At least two, since the first one is the prompt's.
        let tokens = request.stop.max_new_tokens.unwrap_or(PROBE_TOKENS).clamp(2, PROBE_TOKENS);
        request.stop.max_new_tokens = Some(tokens);
    }
    let configuration = Configuration::of(TreeShape::OFF);
    let trial = Trial { configuration, load: Load::BatchSize(batch_size), repeat: 0 };
    match runner::run(engine, &trial, &short, &AtomicBool::new(false))? {
        Ended::Measured(figures) => Ok(Some(figures)),
        Ended::Interrupted => Ok(None),
    }
}

/// Full batches one after another: the prompts of each, then its tokens at the measured rate.
fn trial_seconds(probe: &Measurement, workload: &Workload, batch_size: usize) -> f64 {
    let wave =
        |tokens: f64| probe.time_to_first_token_ms.max / 1e3 + (tokens - 1.0).max(0.0) / probe.tokens_per_s_per_user;
    let tokens = workload.requests.iter().map(|request| request.stop.max_new_tokens.unwrap_or_default() as f64);
    let mean = tokens.sum::<f64>() / workload.requests.len().max(1) as f64;
    let waves = workload.requests.len().max(batch_size).div_ceil(batch_size.max(1));
    let warm_up = if workload.warm_up_tokens > 0 { wave(workload.warm_up_tokens as f64) } else { 0.0 };
    waves as f64 * wave(mean) + warm_up
}
