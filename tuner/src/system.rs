//! Systems that the tuner can drive: spectune's engine in this process, or servers of other engines.
//!
//! Strategies, journal, selection and reports see only this interface.

pub(crate) mod error;
mod in_process;
pub mod server;

pub use self::{error::SystemError, in_process::InProcess};
use crate::{
    configuration::Configuration,
    record::{Measurement, PartsApart, Trial},
    runner::{Ended, TrialOptions},
};

/// An engine that can be set up and measured.
pub trait System {
    /// Whether it can run a configuration, as far as it is known before it is set up for it.
    ///
    /// # Errors
    /// When it cannot, with the reason.
    fn supports(&self, _configuration: &Configuration) -> Result<(), SystemError> {
        Ok(())
    }

    /// Sets it up for a configuration, so that a trial of it can run.
    ///
    /// # Errors
    /// When it cannot run the configuration, or fails.
    fn configure(&mut self, configuration: &Configuration) -> Result<(), SystemError>;

    /// Runs a trial of the configuration that it is set up for.
    ///
    /// # Errors
    /// When it has no room for the load, or fails.
    fn run(&mut self, trial: &Trial, terms: &TrialOptions<'_>) -> Result<Ended, SystemError>;

    /// Times the parts of a trial's rounds separately from it; `None` if the system does not report them.
    ///
    /// # Errors
    /// When it fails at that.
    fn time_parts(&mut self, trial: &Trial, figures: &Measurement) -> Result<Option<PartsApart>, SystemError>;

    /// Makes it fit for the next trial after an error.
    ///
    /// # Errors
    /// When that is not possible: the sweep cannot continue.
    fn recover(&mut self, error: &SystemError) -> Result<(), SystemError>;

    /// The underlying reason for an error, if known: a server that has died, for example.
    fn explain(&mut self, error: SystemError) -> SystemError {
        error
    }

    /// What it costs to go from one configuration to another.
    fn switch_cost(&self, from: &Configuration, to: &Configuration) -> SwitchCost;

    /// What the user should know of its last start, once: silent rewrites, for example.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Stops whatever it has running.
    ///
    /// # Errors
    /// When something does not end.
    fn stop(&mut self) -> Result<(), SystemError> {
        Ok(())
    }
}

/// What a change of configuration costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwitchCost {
    /// Nothing.
    None,
    /// CUDA graphs: a fraction of a second, no reload of weights.
    Graph,
    /// A start of the engine or its server.
    Restart,
}
