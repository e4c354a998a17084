//! Systems that the tuner can drive: spectune's engine in this process, or servers of other
//! engines.
//!
//! Strategies, journal, selection and reports see only this interface.

mod in_process;
pub mod server;
pub(crate) mod stop_command;
pub(crate) mod time_limit;

pub use self::in_process::InProcess;
pub use crate::error::system::SystemError;
use crate::{
    runner::{TrialEnd, TrialOptions},
    trials::{
        configuration::Configuration,
        record::{Measurement, PartsApart, Trial},
    },
};

/// An engine that can be configured and measured.
pub trait System {
    /// Checks whether it can run a configuration, as far as this is known before it is configured.
    ///
    /// # Errors
    /// When it cannot; with the reason.
    fn supports(&self, _configuration: &Configuration) -> Result<(), SystemError> {
        Ok(())
    }

    /// Configures it, so that a trial of the configuration can run.
    ///
    /// # Errors
    /// When it cannot run the configuration, or fails.
    fn configure(&mut self, configuration: &Configuration) -> Result<(), SystemError>;

    /// Runs a trial of the current configuration.
    ///
    /// # Errors
    /// When it has no room for the load, or fails.
    fn run(&mut self, trial: &Trial, terms: &TrialOptions<'_>) -> Result<TrialEnd, SystemError>;

    /// Times the parts of a trial's rounds, separately from the trial; `None` if the system does
    /// not report them.
    ///
    /// # Errors
    /// When it fails.
    fn time_parts(&mut self, trial: &Trial, figures: &Measurement) -> Result<Option<PartsApart>, SystemError>;

    /// Recovers from an error, so that the next trial can run.
    ///
    /// # Errors
    /// When that is not possible: the sweep cannot continue.
    fn recover(&mut self, error: &SystemError) -> Result<(), SystemError>;

    /// Replaces an error by its underlying cause, if known: for example a server that died.
    fn explain(&mut self, error: SystemError) -> SystemError {
        error
    }

    /// The cost of changing from one configuration to another.
    fn switch_cost(&self, from: &Configuration, to: &Configuration) -> SwitchCost;

    /// Messages for the user about its last start, each reported once: for example silent rewrites.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Durations in seconds of the starts of servers since the last call, failed ones included.
    fn start_seconds(&mut self) -> Vec<f64> {
        Vec::new()
    }

    /// Stops everything that it started.
    ///
    /// # Errors
    /// When something does not stop.
    fn stop(&mut self) -> Result<(), SystemError> {
        Ok(())
    }
}

/// The cost of a change of configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwitchCost {
    /// Nothing.
    None,
    /// Capturing CUDA graphs: a fraction of a second, no reload of weights.
    Graph,
    /// A restart of the engine or its server.
    Restart,
}
