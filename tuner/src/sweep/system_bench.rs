//! Runs trials on a system, and appends each to the journal as soon as it is finished.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use external::failure::Remedy;

use schemas::{secrets::Secrets, sweep::Objective};

use super::SweepProgress;
use crate::{
    TunerError,
    preparation::Ready,
    runner::{TrialEnd, TrialOptions},
    strategy::{Experiment, SearchStop, StopReason, TrialRunner},
    system::{
        System,
        server::failure_of,
        time_limit::{Over, TimeLimit},
    },
    trials::{
        configuration::{Configuration, TrialLoad},
        journal::Journal,
        record::{CandidateRole, Fingerprint, Measurement, Outcome, Record, Trial},
    },
    workload::LoadedWorkload,
};

/// What the trials of a sweep have in common.
#[derive(Clone)]
pub struct SweepField {
    /// The experiment.
    pub experiment: Experiment,
    /// The requests.
    pub workload: Arc<LoadedWorkload>,
    /// Where and with what it runs.
    pub fingerprint: Fingerprint,
    /// The objective, whose limits define goodput.
    objective: Objective,
    /// The most records that the journal may have; `None` for no limit.
    trial_budget: Option<usize>,
    /// What no message may contain.
    secrets: Secrets,
}

/// Where a bench reports, and what ends it.
pub struct BenchControl<'a> {
    /// Told of each trial.
    pub progress: &'a mut dyn SweepProgress,
    /// Set when a trial that runs has to end.
    pub interrupted: &'a AtomicBool,
    /// No trial starts after it.
    pub limit: TimeLimit<'a>,
}

/// What was measured.
pub struct MeasuredTrials {
    /// All records.
    pub records: Vec<Record>,
    /// The number of trials that ran now, and of those that already existed.
    pub ran: usize,
    pub kept: usize,
    /// What the end of the time cut off.
    pub cut: Option<String>,
}

/// Runs trials on a system and records them in the journal.
pub struct SystemBench<'a> {
    field: SweepField,
    system: &'a mut dyn System,
    journal: Journal,
    records: Vec<Record>,
    /// The index of each trial's record, by its id.
    places: HashMap<String, usize>,
    /// Configurations and loads for which timing the parts of a round was done or attempted.
    timed_apart: HashSet<(Configuration, TrialLoad)>,
    /// Whether the device failed while timing parts. It is then not tried again: a restart each
    /// time would take too long.
    fails_apart: bool,
    control: BenchControl<'a>,
    /// What the end of the time cut off.
    cut: Option<String>,
    /// Number of records that already existed.
    kept: usize,
}

impl From<&Ready> for SweepField {
    fn from(ready: &Ready) -> Self {
        Self {
            experiment: ready.experiment.clone(),
            workload: ready.workload.clone(),
            fingerprint: ready.fingerprint.clone(),
            objective: ready.inputs.file.objective,
            trial_budget: ready.inputs.file.search.trials,
            secrets: ready.inputs.file.system.secrets(),
        }
    }
}

impl<'a> SystemBench<'a> {
    /// Continues after the existing records.
    pub fn new(
        field: SweepField,
        system: &'a mut dyn System,
        journal: Journal,
        records: Vec<Record>,
        control: BenchControl<'a>,
    ) -> Self {
        Self {
            field,
            system,
            journal,
            places: records.iter().enumerate().map(|(at, record)| (record.id.clone(), at)).collect(),
            timed_apart: records.iter().filter_map(timed_apart).collect(),
            fails_apart: false,
            kept: records.len(),
            records,
            control,
            cut: None,
        }
    }

    /// The experiment.
    pub fn experiment(&self) -> Experiment {
        self.field.experiment.clone()
    }

    /// All records, and what else is known at the end; what the end of the time cut off is noted in
    /// the journal.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn end(self) -> Result<MeasuredTrials, TunerError> {
        let ran = self.records.len() - self.kept;
        if let Some(cut) = &self.cut {
            self.journal.cut(cut)?;
        }
        Ok(MeasuredTrials { records: self.records, ran, kept: self.kept, cut: self.cut })
    }

    fn may_go_on(&self) -> Result<(), StopReason> {
        // Before the budgets: a sweep that a user interrupted ends as interrupted, whatever else
        // has ended.
        if self.control.limit.over() == Some(Over::Interrupted) {
            return Err(StopReason::Interrupted);
        }
        if self.field.trial_budget.is_some_and(|trials| self.records.len() >= trials) {
            return Err(StopReason::TrialBudget);
        }
        self.control.limit.over().map_or(Ok(()), |_| Err(StopReason::TimeBudget))
    }

    /// Why a trial was given up: its time is used up, or the user requests a stop.
    fn given_up(&mut self, trial: &Trial, is_started: bool) -> SearchStop {
        if self.control.limit.over() != Some(Over::Time) {
            return SearchStop::Stop(StopReason::Interrupted);
        }
        let Trial { configuration, load, repeat } = trial;
        let what = if is_started { "" } else { "the start of the server of " };
        self.cut = Some(format!(
            "the time of {} was used up, which cut off {what}{configuration}, {load}, repeat {}",
            self.control.limit.words(),
            repeat + 1
        ));
        SearchStop::Stop(StopReason::TimeBudget)
    }

    fn run(&mut self, trial: &Trial) -> Result<Outcome, SearchStop> {
        let workload = self.field.workload.clone();
        let terms = TrialOptions {
            workload: &workload,
            objective: self.field.objective,
            simulate_accept_length: None,
            interrupted: self.control.interrupted,
        };
        let configured = self.system.configure(&trial.configuration);
        self.system.notes().iter().for_each(|note| self.control.progress.note(note));
        self.system.start_seconds().into_iter().for_each(|seconds| self.control.progress.server_started(seconds));
        let is_started = configured.is_ok();
        let ran = configured.and_then(|()| self.system.run(trial, &terms));
        match ran {
            Ok(TrialEnd::Measured(figures)) => Ok(Outcome::Measured(figures)),
            Ok(TrialEnd::Interrupted) => Err(self.given_up(trial, is_started)),
            // An interrupt ends requests with an error, which is no failure of the configuration.
            Err(_) if self.control.interrupted.load(Ordering::Relaxed) => Err(self.given_up(trial, is_started)),
            Err(error) => {
                let error = self.system.explain(error);
                // Before the failure is recorded: if the system cannot recover, it says nothing
                // about this configuration alone.
                self.system.recover(&error).map_err(|error| SearchStop::Failed(error.into()))?;
                let error = error.hiding(&self.field.secrets);
                if failure_of(&error).is_some_and(|failure| failure.class.remedy() == Remedy::StopTheSweep) {
                    return Err(SearchStop::Failed(error.into()));
                }
                Ok(Outcome::Failed { reason: error.to_string(), failure: failure_of(&error).cloned() })
            }
        }
    }

    /// Adds the parts of a round to a trial that did not measure them, once per configuration and
    /// load. If they are not available, the trial is valid without them.
    fn add_parts(&mut self, trial: &Trial, figures: &mut Measurement) {
        // Rounds in parts were timed already where the engine does that in every round.
        let unwanted = figures.verify_ms.is_some() || self.control.interrupted.load(Ordering::Relaxed);
        let of = (trial.configuration.clone(), trial.load);
        if unwanted || self.fails_apart || !self.timed_apart.insert(of) {
            return;
        }
        match self.system.time_parts(trial, figures) {
            Ok(parts) => figures.parts_apart = parts,
            Err(error) => {
                let Trial { configuration, load, .. } = trial;
                let words = format!("{configuration} at {load}: could not time the parts of a round: {error}");
                self.control.progress.note(&words);
                self.fails_apart = error.needs_restart();
                if let Err(error) = self.system.recover(&error) {
                    // The next trial tries to recover again, and fails if that is impossible.
                    self.control.progress.note(&error.to_string());
                }
            }
        }
    }

    fn role(&self, trial: &Trial) -> CandidateRole {
        let found = self.field.experiment.entrants.iter().find(|one| one.configuration == trial.configuration);
        // Only configurations measured to learn costs are not in the experiment.
        found.map_or(CandidateRole::Probe, |one| one.role)
    }
}

/// The configuration and load of a record that contains separately timed parts of a round.
fn timed_apart(record: &Record) -> Option<(Configuration, TrialLoad)> {
    record.measurement()?.parts_apart.map(|_| (record.trial.configuration.clone(), record.trial.load))
}

impl TrialRunner for SystemBench<'_> {
    fn measure(&mut self, trial: &Trial) -> Result<&Record, SearchStop> {
        let id = trial.id(&self.field.fingerprint);
        if let Some(at) = self.places.get(&id) {
            return Ok(&self.records[*at]);
        }
        if let Err(reason) = self.may_go_on() {
            if reason == StopReason::TimeBudget && self.cut.is_none() {
                let words = self.control.limit.words();
                self.cut = Some(format!("the time of {words} was used up before everything was measured"));
            }
            return Err(SearchStop::Stop(reason));
        }
        self.control.progress.started(trial);
        let mut outcome = self.run(trial)?;
        if let Outcome::Measured(figures) = &mut outcome {
            self.add_parts(trial, figures);
        }
        let record = Record {
            id: id.clone(),
            role: self.role(trial),
            trial: trial.clone(),
            fingerprint: self.field.fingerprint.clone(),
            origin: self.journal.origin().clone(),
            finished_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs(),
            outcome,
        };
        // Written before anyone hears of it, so that nothing is reported that a resumed sweep does
        // not know.
        self.journal.append(&record)?;
        self.control.progress.finished(&record);
        self.records.push(record);
        let at = self.records.len() - 1;
        self.places.insert(id, at);
        Ok(&self.records[at])
    }

    fn history(&self) -> &[Record] {
        &self.records
    }

    fn more(&mut self, trials: usize) {
        self.control.progress.more(trials);
    }
}
