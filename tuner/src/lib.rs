//! Finds the fastest configuration: plans, trials, journal, selection.
//!
//! A sweep file becomes a [`space`] of tree shapes and a [`workload`]; a [`strategy`] says which trial is next; the
//! [`runner`] measures it on the engine; the [`journal`] keeps it; [`selection`] says what was best and how sure that
//! is; [`outcome`] turns that into a tuned file. [`sweep::run`] is the whole way.
#![forbid(unsafe_code)]

pub mod configuration;
#[cfg(test)]
mod demo;
pub mod error;
pub mod estimate;
pub mod guide;
pub mod journal;
mod noise;
pub mod outcome;
pub mod record;
pub mod runner;
pub mod selection;
pub mod settings;
pub mod space;
mod statistics;
pub mod strategy;
pub mod sweep;
mod whole_file;
pub mod workload;

pub use error::TunerError;
