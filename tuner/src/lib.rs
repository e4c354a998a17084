//! Finds the fastest configuration: plans, trials, journal, selection.
//!
//! A sweep file becomes a [`space`] of tree shapes and a [`workload`]. A [`strategy`] chooses the next trial, the
//! [`runner`] measures it on the engine, and the [`journal`] stores it. [`selection`] determines the best configuration
//! and the confidence in it, and [`outcome`] writes the tuned file. [`sweep::run`] does all of this. [`jobs`]
//! distributes a sweep over the machines of a scheduler, and [`merge`] merges their results. Predictions complement
//! measurements: [`latency`] fits the time of a round to a few dozen timed points, [`forecast`] simulates a workload
//! with it, and [`capture`] finds the batch sizes that are worth a graph; [`guidance`] combines them. [`running`] measures
//! servers that are already running, as they are, and [`diagnosis`] says from a server's log why it is slow.
#![forbid(unsafe_code)]

pub mod acceptance;
mod atomic_file;
pub mod capture;
pub mod configuration;
pub mod date;
#[cfg(test)]
mod demo;
pub mod diagnosis;
pub mod error;
pub mod estimate;
mod exclusion;
pub mod forecast;
pub mod from_launch;
pub mod guidance;
pub mod guide;
pub mod jobs;
pub mod journal;
pub mod latency;
pub mod machine;
mod mark;
pub mod merge;
mod nvidia_smi;
pub mod outcome;
pub mod record;
pub mod regression;
pub mod runner;
pub mod running;
pub mod selection;
pub mod settings;
mod shard;
pub mod space;
pub mod statistics;
mod stop_command;
pub mod strategy;
pub mod sweep;
#[cfg(test)]
mod synthetic;
pub mod system;
pub mod text_drafts;
mod time_limit;
pub mod traces;
pub mod workload;
pub mod workload_folders;

pub use error::TunerError;
