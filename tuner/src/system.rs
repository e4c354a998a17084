//! What the tuner drives: our own engine in process, or a server of another engine.
//!
//! Strategies, journal, selection and reports know no more of a system than this.

mod in_process;
pub mod server;

use engine::EngineError;
use external::ServerError;

pub use self::in_process::InProcess;
use crate::{
    configuration::Configuration,
    record::{Measurement, PartsApart, Trial},
    runner::{Ended, Terms},
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
    fn run(&mut self, trial: &Trial, terms: &Terms<'_>) -> Result<Ended, SystemError>;

    /// Times the parts of a trial's rounds apart from it; `None` where the system does not tell them.
    ///
    /// # Errors
    /// When it fails at that.
    fn time_parts(&mut self, trial: &Trial, figures: &Measurement) -> Result<Option<PartsApart>, SystemError>;

    /// Makes it fit for the next trial after an error.
    ///
    /// # Errors
    /// When that is not possible: the sweep cannot go on.
    fn recover(&mut self, error: &SystemError) -> Result<(), SystemError>;

    /// The reason for an error, where more can be told of it than the error says: a server that has died, for example.
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

/// Why a system could not do something.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// Our engine failed.
    // Not transparent: who looks for an engine's error along the sources is to find it.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// A server failed.
    #[error("{0}")]
    Server(#[from] ServerError),
    /// The configuration is not one that the system can run.
    #[error("{0}")]
    Unsupported(String),
}

impl SystemError {
    /// Whether the device or the server is not to be trusted any more.
    pub fn needs_restart(&self) -> bool {
        matches!(self, Self::Engine(EngineError::Device(_)) | Self::Server(_))
    }
}
