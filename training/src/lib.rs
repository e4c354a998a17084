//! Adapts a draft head to prompts, so that more of its drafts are accepted.
//!
//! The data come from the engine: the target answers the prompts, and one pass over each text
//! computes the states that the draft reads. Only the texts are stored. Gradients come from candle.
//! A head is chosen by the replayed accept length of the tree that will run, on prompts that were
//! not trained on; a head that is not better is not written.
#![forbid(unsafe_code)]

pub mod batch;
pub mod bench;
mod checkpoint;
mod compute;
mod cost;
pub mod drift;
mod error;
mod evaluation;
pub mod folder;
pub mod head;
pub mod inputs;
mod math;
pub mod objective;
pub mod optimizer;
mod run;
mod scratch;
mod states;
pub mod statistics;
pub mod teacher;
mod texts;

pub use compute::{Compute, StepsOn};
pub use error::TrainingError;
pub use run::{Finished, RunOutcome, TrainProgress, TrainRequest, TrainWatch, run};
pub use texts::{AnswerProgress, LoadedPrompts, TrainingPrompt};
