//! Runs a target with its draft: checkpoints, models, trees, KV cache, scheduler, backends.
//!
//! The path of a request: [`Engine::submit`] checks and queues it; [`Engine::step`] admits requests
//! whose pages fit, prefills prompts and runs one round for the whole batch on the
//! [`Backend`](backend::Backend); the output of a round is returned as [`Event`]s. One thread owns
//! an engine; other threads talk to it over channels (crate `server`). [`Engine::time_rounds`]
//! times rounds without a workload.
#![forbid(unsafe_code)]

mod adjust;
pub mod backend;
pub mod bench;
pub mod checkpoint;
mod description;
mod drafts;
pub mod engine;
pub mod error;
mod families;
mod fingerprint;
pub mod identity;
pub mod load;
mod memory;
pub mod model_files;
pub mod new_token_ratio;
pub mod options;
mod pages;
pub mod played;
mod quantization;
mod random;
pub mod replay;
pub mod request;
mod sampling;
pub mod scheduler;
pub mod selftest;
pub mod spec;
pub mod text;
mod text_drafts;
mod token;
mod tree;
mod verify_plan;
#[cfg(test)]
mod warnings;
mod weights;

/// The engine's name and version in fingerprints: results of different versions are not compared.
pub const NAME_AND_VERSION: &str = concat!("spectune ", env!("CARGO_PKG_VERSION"));

pub use adjust::{Adjustments, Constraint, Follow, Grammar, forbid_unless_alone};
pub use engine::{Engine, TextStates, timing};
pub use error::EngineError;
pub use fingerprint::Fingerprint;
pub use identity::Identity;
pub use model_files::ModelFiles;
pub use options::{DeviceChoice, EngineOptions, ShapePolicy};
pub use played::{PlayedAcceptance, PlayedText, PlayedTree, Simulated};
pub use replay::{
    KeepStates, KnownText, PositionTrace, ReplayProgress, ReplayText, ShapeAcceptance, TextAcceptance, TextHistory,
    replay_texts,
};
pub use request::{
    Completion, Event, FinishReason, OutputText, PromptLogprobs, Request, RequestId, SamplingParams, StopConditions,
};
pub use tree::likeliest;
pub use weights::WeightFolders;
