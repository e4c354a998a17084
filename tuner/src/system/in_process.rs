//! spectune's own engine in this process: a new shape needs graph captures, new settings a restart.

use std::collections::BTreeMap;

use engine::EngineError;

use super::{SwitchCost, System, SystemError};
use crate::{
    prediction::acceptance,
    preparation::Ready,
    runner::{self, TrialEnd, TrialOptions},
    space::settings,
    trials::{
        configuration::{Configuration, Knobs},
        record::{Measurement, PartsApart, Trial},
    },
};

/// spectune's own engine in this process.
pub struct InProcess<'a> {
    ready: &'a mut Ready,
    /// Current settings of the engine.
    knobs: Knobs,
    /// Drafts that could not be loaded, with the reason: they are not tried again.
    unloadable: BTreeMap<String, String>,
}

impl<'a> InProcess<'a> {
    /// The engine of a sweep, with the sweep file's settings.
    pub fn new(ready: &'a mut Ready) -> Self {
        Self { ready, knobs: Knobs::default(), unloadable: BTreeMap::new() }
    }
}

impl System for InProcess<'_> {
    /// Restarts the engine if the configuration needs other settings or another draft.
    fn configure(&mut self, configuration: &Configuration) -> Result<(), SystemError> {
        let Configuration { knobs, draft, .. } = configuration;
        if configuration.runs_with(&self.knobs, &self.ready.draft) {
            return Ok(());
        }
        if let Some(reason) = self.unloadable.get(draft) {
            return Err(SystemError::Unsupported(reason.clone()));
        }
        let before = self.ready.draft.clone();
        self.ready.choose_draft(draft);
        let options = settings::options_with(&self.ready.options, knobs);
        match self.ready.restart(options) {
            Ok(()) => {
                self.knobs = knobs.clone();
                Ok(())
            }
            Err(error) => {
                if self.ready.draft != before && knobs.are_default() {
                    // A draft that fails with the sweep's own settings fails in each trial; loading
                    // it takes long.
                    self.unloadable.insert(draft.clone(), error.to_string());
                }
                self.ready.choose_draft(&before);
                // Back to what has run before, since the next trial may need it.
                self.ready.restart(self.ready.options.clone())?;
                self.knobs = Knobs::default();
                Err(error.into())
            }
        }
    }

    fn run(&mut self, trial: &Trial, terms: &TrialOptions<'_>) -> Result<TrialEnd, SystemError> {
        let imported = self.ready.imported.as_ref();
        let accept_length = imported.map(|table| acceptance::length_of(table, &trial.configuration)).transpose()?;
        let (engine, workload) = self.ready.parts()?;
        let terms = TrialOptions { workload, simulate_accept_length: accept_length, ..*terms };
        Ok(runner::run(engine, trial, &terms)?)
    }

    fn time_parts(&mut self, trial: &Trial, figures: &Measurement) -> Result<Option<PartsApart>, SystemError> {
        let (engine, workload) = self.ready.parts()?;
        Ok(runner::parts::time(engine, trial, workload, figures)?)
    }

    /// Restarts the engine after a failure of the device, which cannot be trusted any more.
    fn recover(&mut self, error: &SystemError) -> Result<(), SystemError> {
        // After an error of the device nothing of it can be trusted.
        if !matches!(error, SystemError::Engine(EngineError::Device(_))) && self.ready.is_idle() {
            return Ok(());
        }
        Ok(self.ready.restart(settings::options_with(&self.ready.options, &self.knobs))?)
    }

    fn switch_cost(&self, from: &Configuration, to: &Configuration) -> SwitchCost {
        match () {
            () if from == to => SwitchCost::None,
            () if to.runs_with(&from.knobs, &from.draft) => SwitchCost::Graph,
            () => SwitchCost::Restart,
        }
    }
}
