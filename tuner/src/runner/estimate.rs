//! Estimates how long a sweep will take.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use engine::{Engine, EngineError};
use schemas::{sweep::Objective, tree::TreeShape};

use crate::{
    runner::{self, TrialEnd, TrialOptions},
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{Measurement, Trial},
    },
    workload::LoadedWorkload,
};

/// New tokens of a request in a measured batch.
const PROBE_TOKENS: usize = 16;
/// Batches up to this size are always measured; larger ones only if a smaller one shows that they
/// are quick.
const FIRST_BATCH: usize = 8;
/// Longest expected time of a larger batch that is still measured.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time after which the measurement of a batch is abandoned.
const DEADLINE: Duration = Duration::from_secs(10);

/// The duration of a set of trials, extrapolated from short measured batches without speculation.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// All trials together, each without speculation and with the current settings of the engine;
    /// `None` if a load could not be measured.
    pub seconds: Option<f64>,
    /// The same with speculation, if it was measured.
    pub speculation: Option<SpeculationEstimate>,
    /// The measured batches that it is extrapolated from.
    pub basis: Vec<Basis>,
}

/// The cost of speculation in a short batch: that of the largest tree of the trials, which is
/// usually the slowest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeculationEstimate {
    /// The tree.
    pub shape: TreeShape,
    /// Time of the batch, prefill included, relative to no speculation.
    pub times: f64,
    /// Additional time of its first run, in seconds: capturing graphs and the like, once per
    /// configuration and load.
    pub first_run_s: f64,
    /// Number of configurations and loads.
    pub first_runs: usize,
}

/// A short batch without speculation.
#[derive(Clone, Debug, PartialEq)]
pub struct Basis {
    /// The load of the trials that it represents.
    pub load: TrialLoad,
    /// Requests that run together: the batch of a closed loop, or the maximum number of running
    /// requests of an open one.
    pub batch_size: usize,
    /// The smaller batch that was measured instead, if this one would have taken too long; requests
    /// are assumed to slow down in proportion.
    pub from_batch: Option<usize>,
    /// Tokens per second of one request after its first one; `None` if the batch could not run.
    pub tokens_per_s_per_user: Option<f64>,
    /// Duration of one trial under this load, in seconds.
    pub trial_seconds: Option<f64>,
    /// Number of such trials.
    pub trials: usize,
}

/// Timing of a short batch.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Prefill of the whole batch, in seconds.
    first_token_s: f64,
    tokens_per_s_per_user: f64,
}

impl Estimate {
    /// The shortest and the longest expected duration in seconds: the trials with the largest tree
    /// take as long as it does, or all trials take as long as those without speculation.
    pub fn range(&self) -> Option<(f64, f64)> {
        let seconds = self.seconds?;
        let Some(SpeculationEstimate { times, first_run_s, first_runs, .. }) = self.speculation else {
            return Some((seconds, seconds));
        };
        // Which trials speculate is open, so both ends assume that all do or none does.
        let ends = [seconds, seconds * times];
        let first = first_run_s * first_runs as f64;
        Some((ends[0].min(ends[1]), ends[0].max(ends[1]) + first))
    }

    /// Measures a short batch for each load of the trials, and one for all open loops, which differ
    /// only in their arrivals. A batch that would take long is extrapolated from a smaller one, so
    /// that the estimate takes only seconds.
    ///
    /// # Errors
    /// When the device fails. If a batch cannot run, its part of the estimate is `None`; its trials
    /// will report the reason.
    pub fn measure(
        engine: &mut Engine,
        workload: &LoadedWorkload,
        trials: &[Trial],
        loaded: &str,
    ) -> Result<Self, EngineError> {
        let mut loads: Vec<TrialLoad> = trials.iter().map(|trial| trial.load).collect();
        loads.sort_unstable();
        loads.dedup();
        let most = engine.max_running_requests().min(workload.requests.len());
        let is_open = |load: &TrialLoad| load.batch_size().is_none();
        let mut prober = Prober { engine, workload, measured: None };
        let open = if loads.iter().any(is_open) { prober.pace(most, true)? } else { (None, None) };
        let mut basis = Vec::new();
        for load in loads {
            let batch_size = load.batch_size().unwrap_or(most);
            // Another bucket of contexts has another pace.
            let own = workload.for_load(load);
            let mut bucket = Prober { engine: &mut *prober.engine, workload: &own, measured: None };
            let (pace, from_batch) = match load.contexts() {
                _ if is_open(&load) => open,
                None => prober.pace(batch_size, false)?,
                Some(_) => bucket.pace(batch_size, false)?,
            };
            basis.push(Basis {
                load,
                batch_size,
                from_batch,
                tokens_per_s_per_user: pace.map(|pace| pace.tokens_per_s_per_user),
                trial_seconds: pace.map(|pace| trial_seconds(pace, &own, batch_size, workload.arrivals(load, 0))),
                trials: trials.iter().filter(|trial| trial.load == load).count(),
            });
        }
        let seconds = basis.iter().map(|one| Some(one.trial_seconds? * one.trials as f64)).sum();
        // Another draft would have to be loaded.
        let of_loaded = |trial: &&Trial| trial.configuration.draft.is_empty() || trial.configuration.draft == loaded;
        let drafted: Vec<Trial> = trials.iter().filter(of_loaded).cloned().collect();
        let speculation = prober.speculation(&drafted)?;
        Ok(Self { seconds, speculation, basis })
    }
}

/// Measures short batches, as long as they are expected to be quick.
struct Prober<'a> {
    engine: &'a mut Engine,
    workload: &'a LoadedWorkload,
    /// The largest batch that was measured.
    measured: Option<(usize, Pace)>,
}

impl Prober<'_> {
    /// The pace of a batch of this many requests, and the smaller batch that was measured instead,
    /// if any; `None` if it cannot run.
    fn pace(&mut self, batch_size: usize, open: bool) -> Result<(Option<Pace>, Option<usize>), EngineError> {
        let small = batch_size.min(FIRST_BATCH);
        // A small batch first: it shows whether the large one would take too long to probe.
        if batch_size > small && self.measured.is_none_or(|(batch, _)| batch < small) {
            self.measure(small, open)?;
        }
        let quick = |(batch, pace): (usize, Pace)| {
            pace.seconds(PROBE_TOKENS as f64) * batch_size as f64 / batch as f64 <= PATIENCE.as_secs_f64()
        };
        if batch_size == small || self.measured.is_some_and(quick) {
            return Ok((self.measure(batch_size, open)?, None));
        }
        let slower = |(batch, pace): (usize, Pace)| {
            let times = batch_size as f64 / batch as f64;
            let pace = Pace {
                first_token_s: pace.first_token_s * times,
                tokens_per_s_per_user: pace.tokens_per_s_per_user / times,
            };
            (Some(pace), Some(batch))
        };
        Ok(self.measured.map_or((None, None), slower))
    }

    /// Measures the largest tree of the trials in the smallest and in a larger batch, since trees
    /// cost more where the device is busy. The slower one counts, relative to no speculation;
    /// `None` if none can run, or not in time.
    fn speculation(&mut self, trials: &[Trial]) -> Result<Option<SpeculationEstimate>, EngineError> {
        let sizes = || trials.iter().filter_map(|trial| trial.load.batch_size()).map(|size| size.min(FIRST_BATCH));
        let (smallest, largest) = (sizes().min().unwrap_or(1), sizes().max().unwrap_or(1));
        let mut found = self.speculation_at(smallest, trials)?;
        if largest > smallest {
            let other = self.speculation_at(largest, trials)?;
            let first_run_s = [&found, &other].into_iter().flatten().map(|one| one.first_run_s).fold(0.0, f64::max);
            // The slower one, since speculation pays less the larger the batch is.
            let slower = [found, other].into_iter().flatten().max_by(|a, b| a.times.total_cmp(&b.times));
            found = slower.map(|one| SpeculationEstimate { first_run_s, ..one });
        }
        Ok(found)
    }

    /// Measures the largest tree of the trials in a batch; `None` if it cannot run, or not in time.
    fn speculation_at(
        &mut self,
        batch_size: usize,
        trials: &[Trial],
    ) -> Result<Option<SpeculationEstimate>, EngineError> {
        let shapes = trials.iter().map(|trial| trial.configuration.shape).filter(|shape| !shape.is_off());
        // The largest tree is the slowest per round, which makes the estimate a cautious one.
        let Some(shape) = shapes.max_by_key(|shape| (shape.num_draft_tokens, shape.num_steps)) else { return Ok(None) };
        let mut timed = |shape: TreeShape| -> Result<Option<f64>, EngineError> {
            let begin = Instant::now();
            let figures = self.run(shape, batch_size, false)?;
            Ok(figures.map(|_| begin.elapsed().as_secs_f64()))
        };
        // The second run of each is warm.
        let (_, plain) = (timed(TreeShape::OFF)?, timed(TreeShape::OFF)?);
        let (first, warm) = (timed(shape)?, timed(shape)?);
        let mut runs: Vec<(&Configuration, TrialLoad)> =
            trials.iter().map(|one| (&one.configuration, one.load)).collect();
        runs.sort_unstable();
        runs.dedup();
        let found = plain.zip(first.zip(warm)).map(|(plain, (first, warm))| SpeculationEstimate {
            shape,
            times: warm / plain.max(f64::MIN_POSITIVE),
            first_run_s: (first - warm).max(0.0),
            first_runs: runs.len(),
        });
        Ok(found)
    }

    /// Measures a batch without speculation; `None` if it cannot run, or not in time.
    fn measure(&mut self, batch_size: usize, open: bool) -> Result<Option<Pace>, EngineError> {
        let pace = self.run(TreeShape::OFF, batch_size, open)?.map(|figures| Pace::from_figures(&figures));
        if let Some(pace) = pace.filter(|_| self.measured.is_none_or(|(batch, _)| batch < batch_size)) {
            self.measured = Some((batch_size, pace));
        }
        Ok(pace)
    }

    /// Runs a batch of the workload's first requests, a few tokens each; `None` if it cannot run,
    /// or not in time.
    fn run(&mut self, shape: TreeShape, batch_size: usize, open: bool) -> Result<Option<Measurement>, EngineError> {
        let mut short = self.workload.clone();
        short.requests.truncate(batch_size);
        // In an open loop all requests arrive at once, and wait if there is no room.
        short.recorded = vec![Duration::ZERO; short.requests.len()];
        for request in &mut short.requests {
            // At least two, since the first one comes from the prefill.
            let tokens = request.stop.max_new_tokens.unwrap_or(PROBE_TOKENS).clamp(2, PROBE_TOKENS);
            request.stop.max_new_tokens = Some(tokens);
        }
        let load = if open { TrialLoad::Recorded } else { TrialLoad::BatchSize(batch_size) };
        let trial = Trial { configuration: Configuration::from_shape(shape), load, repeat: 0 };
        let interrupted = AtomicBool::new(false);
        let terms = TrialOptions {
            workload: &short,
            objective: Objective::default(),
            simulate_accept_length: None,
            interrupted: &interrupted,
        };
        let done = AtomicBool::new(false);
        // A thread stops the probe at the deadline: the engine is busy and cannot watch the clock.
        let ended = thread::scope(|scope| {
            scope.spawn(|| {
                let begin = Instant::now();
                while !done.load(Ordering::Relaxed) && begin.elapsed() < DEADLINE {
                    thread::sleep(Duration::from_millis(5));
                }
                interrupted.store(true, Ordering::Relaxed);
            });
            let ended = runner::run(self.engine, &trial, &terms);
            done.store(true, Ordering::Relaxed);
            ended
        });
        match ended {
            Ok(TrialEnd::Measured(figures)) => Ok(Some(*figures)),
            Ok(TrialEnd::Interrupted) => Ok(None),
            // Everything else is left to the sweep's own trials, which report it with the
            // configuration.
            Err(error @ EngineError::Device(_)) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

impl Pace {
    fn from_figures(figures: &Measurement) -> Self {
        Self {
            first_token_s: figures.time_to_first_token_ms.max / 1e3,
            tokens_per_s_per_user: figures.tokens_per_s_per_user,
        }
    }

    /// Time of a batch whose requests generate this many tokens.
    fn seconds(self, tokens: f64) -> f64 {
        self.first_token_s + (tokens - 1.0).max(0.0) / self.tokens_per_s_per_user
    }
}

/// Full batches one after another: the prefill of each, then its tokens at the measured rate. In an
/// open loop, the last request cannot be served before it arrives.
fn trial_seconds(pace: Pace, workload: &LoadedWorkload, batch_size: usize, arrivals: Option<Vec<Duration>>) -> f64 {
    let tokens = workload.requests.iter().map(|request| request.stop.max_new_tokens.unwrap_or_default() as f64);
    let mean = tokens.sum::<f64>() / workload.requests.len().max(1) as f64;
    // As if batches ran one after the other, which overestimates a little.
    let batches = workload.requests.len().max(batch_size).div_ceil(batch_size.max(1));
    let served = batches as f64 * pace.seconds(mean);
    let come = arrivals.and_then(|arrivals| arrivals.last().copied()).map(|last| last.as_secs_f64());
    let warm_up = if workload.warm_up_tokens > 0 { pace.seconds(workload.warm_up_tokens as f64) } else { 0.0 };
    served.max(come.map_or(0.0, |last| last + pace.seconds(mean))) + warm_up
}

#[cfg(test)]
mod tests {
    use engine::{Request, SamplingParams, StopConditions};

    use super::*;
    use crate::trials::configuration::Real;

    fn workload(requests: usize, warm_up_tokens: usize) -> LoadedWorkload {
        let request = Request {
            input_ids: vec![1, 2],
            sampling: SamplingParams::default(),
            stop: StopConditions { max_new_tokens: Some(101), ..StopConditions::default() },
        };
        LoadedWorkload {
            requests: vec![request; requests],
            recorded: Vec::new(),
            seed: 0,
            warm_up_tokens,
            hash: String::new(),
            left_out: 0,
            prompts: 1,
        }
    }

    #[test]
    fn a_trial_takes_as_long_as_its_batches_or_its_arrivals() {
        // Half a second of prefill, then a hundred tokens in two seconds.
        let pace = Pace { first_token_s: 0.5, tokens_per_s_per_user: 50.0 };
        let check = |requests, warm_up, batch_size, last: Option<u64>, expected: f64| {
            let arrivals = last.map(|last| vec![Duration::ZERO, Duration::from_secs(last)]);
            assert_eq!(trial_seconds(pace, &workload(requests, warm_up), batch_size, arrivals), expected);
        };
        check(8, 0, 8, None, 2.5);
        check(9, 0, 8, None, 5.0);
        check(1, 0, 8, None, 2.5);
        check(8, 26, 8, None, 2.5 + 1.0);
        check(16, 0, 8, Some(1), 5.0);
        check(16, 0, 8, Some(60), 62.5);
    }

    #[test]
    fn speculation_widens_the_estimate_to_a_range() {
        let with = |times| Estimate {
            seconds: Some(100.0),
            speculation: Some(SpeculationEstimate {
                shape: TreeShape::chain(3),
                times,
                first_run_s: 0.5,
                first_runs: 20,
            }),
            basis: Vec::new(),
        };
        assert_eq!(with(2.0).range(), Some((100.0, 210.0)));
        assert_eq!(with(0.5).range(), Some((50.0, 110.0)));
        assert_eq!(Estimate { speculation: None, ..with(1.0) }.range(), Some((100.0, 100.0)));
        assert_eq!(Estimate { seconds: None, ..with(1.0) }.range(), None);
    }

    #[test]
    fn a_slower_rate_comes_later() {
        let workload = workload(20, 0);
        let last = |rate| {
            workload.arrivals(TrialLoad::RequestRate(Real(rate)), 0).and_then(|arrivals| arrivals.last().copied())
        };
        assert!(last(1.0) > last(2.0));
        assert_eq!(
            (workload.arrivals(TrialLoad::Recorded, 0), workload.arrivals(TrialLoad::BatchSize(4), 0)),
            (None, None)
        );
    }
}
