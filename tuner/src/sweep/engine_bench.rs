//! Trials on the engine, each kept in the journal as soon as it is finished.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::Ordering,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use engine::EngineError;

use super::{Progress, SweepRequest, prepare::Ready};
use crate::{
    acceptance,
    configuration::{Configuration, Knobs, Load},
    journal::Journal,
    record::{Measurement, Outcome, Record, Role, Trial},
    runner::{self, Ended, Terms},
    settings,
    strategy::{Bench, Halt, Race, StopReason},
};

/// The engine with the journal.
pub struct EngineBench<'a> {
    request: &'a SweepRequest<'a>,
    ready: &'a mut Ready,
    journal: Journal,
    records: Vec<Record>,
    /// Where a trial stands in the records, by its id.
    places: HashMap<String, usize>,
    /// Of what the parts of a round are timed beside the trials, or could not be.
    timed_apart: HashSet<(Configuration, Load)>,
    /// Whether the device has failed at that, so that it is not tried again: a restart for each would take too long.
    fails_apart: bool,
    progress: &'a mut dyn Progress,
    /// How the engine is set up now.
    knobs: Knobs,
    begin: Instant,
    /// Records that were there from before.
    kept: usize,
}

impl<'a> EngineBench<'a> {
    /// Goes on behind the records that are there.
    pub fn new(
        request: &'a SweepRequest<'a>,
        ready: &'a mut Ready,
        journal: Journal,
        records: Vec<Record>,
        progress: &'a mut dyn Progress,
    ) -> Self {
        Self {
            request,
            ready,
            journal,
            places: records.iter().enumerate().map(|(at, record)| (record.id.clone(), at)).collect(),
            timed_apart: records.iter().filter_map(timed_apart).collect(),
            fails_apart: false,
            kept: records.len(),
            records,
            progress,
            knobs: Knobs::default(),
            begin: Instant::now(),
        }
    }

    /// What races.
    pub fn race(&self) -> Race {
        self.ready.race.clone()
    }

    /// All records, how many ran now, and how many were there from before.
    pub fn end(self) -> (Vec<Record>, usize, usize) {
        let ran = self.records.len() - self.kept;
        (self.records, ran, self.kept)
    }

    fn may_go_on(&self) -> Result<(), Halt> {
        let search = &self.request.file.search;
        if self.request.interrupted.load(Ordering::Relaxed) {
            return Err(Halt::Stop(StopReason::Interrupted));
        }
        if search.trials.is_some_and(|trials| self.records.len() >= trials) {
            return Err(Halt::Stop(StopReason::TrialBudget));
        }
        if search.seconds.is_some_and(|seconds| self.begin.elapsed().as_secs_f64() >= seconds) {
            return Err(Halt::Stop(StopReason::TimeBudget));
        }
        Ok(())
    }

    /// Restarts the engine where the trial needs other settings than it has. Settings that do not work fail the trial.
    fn set(&mut self, knobs: &Knobs) -> Result<(), EngineError> {
        if self.knobs == *knobs {
            return Ok(());
        }
        let options = settings::options_with(&self.ready.options, knobs);
        match self.ready.restart(options) {
            Ok(()) => {
                self.knobs = knobs.clone();
                Ok(())
            }
            Err(error) => {
                self.ready.restart(self.ready.options.clone())?;
                self.knobs = Knobs::default();
                Err(error)
            }
        }
    }

    fn run(&mut self, trial: &Trial) -> Result<Outcome, Halt> {
        let ran = match self.set(&trial.configuration.knobs) {
            Ok(()) => self.run_on_engine(trial),
            Err(error) => Err(error),
        };
        match ran {
            Ok(Ended::Measured(figures)) => Ok(Outcome::Measured(figures)),
            Ok(Ended::Interrupted) => Err(Halt::Stop(StopReason::Interrupted)),
            Err(error) => {
                self.recover(&error).map_err(|error| Halt::Failed(error.into()))?;
                Ok(Outcome::Failed { reason: error.to_string() })
            }
        }
    }

    /// A device that failed is not to be trusted: starts afresh.
    fn recover(&mut self, error: &EngineError) -> Result<(), EngineError> {
        if !matches!(error, EngineError::Device(_)) && self.ready.is_idle() {
            return Ok(());
        }
        self.ready.restart(settings::options_with(&self.ready.options, &self.knobs))
    }

    /// Adds the parts of a round to a trial that did not measure them, once for each configuration and load. They are left
    /// out where they cannot be had: the trial stands without them.
    fn add_parts(&mut self, trial: &Trial, figures: &mut Measurement) {
        let unwanted = figures.verify_ms.is_some() || self.request.interrupted.load(Ordering::Relaxed);
        let of = (trial.configuration.clone(), trial.load);
        if unwanted || self.fails_apart || !self.timed_apart.insert(of) {
            return;
        }
        let ready = self.ready.parts();
        match ready.and_then(|(engine, workload)| runner::parts::time(engine, trial, workload, figures)) {
            Ok(parts) => figures.parts_apart = parts,
            Err(error) => {
                let Trial { configuration, load, .. } = trial;
                let words = format!("{configuration} at {load}: the parts of a round could not be timed: {error}");
                self.progress.note(&words);
                self.fails_apart = matches!(error, EngineError::Device(_));
                if let Err(error) = self.recover(&error) {
                    // The next trial tries again, and fails if it must.
                    self.progress.note(&error.to_string());
                }
            }
        }
    }

    fn run_on_engine(&mut self, trial: &Trial) -> Result<Ended, EngineError> {
        let imported = self.ready.imported.as_ref();
        let accept_length = imported.map(|table| acceptance::length_of(table, &trial.configuration)).transpose()?;
        let interrupted = self.request.interrupted;
        let objective = self.request.file.objective;
        let (engine, workload) = self.ready.parts()?;
        let terms = Terms { workload, objective, simulate_accept_length: accept_length, interrupted };
        runner::run(engine, trial, &terms)
    }

    fn role(&self, trial: &Trial) -> Role {
        let found = self.ready.race.entrants.iter().find(|one| one.configuration == trial.configuration);
        found.map_or(Role::Candidate, |one| one.role)
    }
}

/// What a record holds the parts of a round of that were timed beside it.
fn timed_apart(record: &Record) -> Option<(Configuration, Load)> {
    record.measurement()?.parts_apart.map(|_| (record.trial.configuration.clone(), record.trial.load))
}

impl Bench for EngineBench<'_> {
    fn measure(&mut self, trial: &Trial) -> Result<&Record, Halt> {
        let id = trial.id(&self.ready.fingerprint);
        if let Some(at) = self.places.get(&id) {
            return Ok(&self.records[*at]);
        }
        self.may_go_on()?;
        self.progress.started(trial);
        let mut outcome = self.run(trial)?;
        if let Outcome::Measured(figures) = &mut outcome {
            self.add_parts(trial, figures);
        }
        let record = Record {
            id: id.clone(),
            role: self.role(trial),
            trial: trial.clone(),
            fingerprint: self.ready.fingerprint.clone(),
            origin: self.journal.origin().clone(),
            finished_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs(),
            outcome,
        };
        self.journal.append(&record)?;
        self.progress.finished(&record);
        self.records.push(record);
        let at = self.records.len() - 1;
        self.places.insert(id, at);
        Ok(&self.records[at])
    }

    fn history(&self) -> &[Record] {
        &self.records
    }
}
