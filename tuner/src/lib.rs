//! Finds the fastest configuration: plans, trials, journal, selection.
//!
//! Each room uses only those above it in this list:
//!
//! | room | contents |
//! |---|---|
//! | [`files`], [`host`], [`statistics`] | files written atomically; the machine that measures; intervals |
//! | [`trials`] | what was measured: configurations, records, the journal |
//! | [`space`], [`workload`] | a sweep file's configurations, and the requests of its trials |
//! | [`runner`] | measures a trial on an engine |
//! | [`prediction`], [`forecast`] | acceptance and round times without trials, and workloads simulated with them |
//! | [`policies`] | policies measured on an engine, as `forecast` simulates them |
//! | [`results`] | the best configuration, how sure that is, and the tuned file |
//! | [`strategy`] | which trial is next |
//! | `preparation` | loads models and workload, and defines the experiment |
//! | [`guidance`], [`system`] | the predictions of a guided search; the engines that trials run on |
//! | [`sweep`] | the whole: from a sweep file to a ranking, also in parts on several machines |
//!
//! Next to sweeps, [`running`] measures servers that are already running, as they are,
//! [`regression`] compares a run with earlier ones, [`from_launch`] turns a launch into a sweep,
//! and [`diagnosis`] says from a server's log why it is slow.
#![forbid(unsafe_code)]

pub mod diagnosis;
pub mod error;
pub mod files;
#[cfg(test)]
mod fixtures;
pub mod forecast;
pub mod from_launch;
pub mod guidance;
pub mod host;
pub mod policies;
pub mod prediction;
mod preparation;
pub mod regression;
pub mod results;
pub mod runner;
pub mod running;
pub mod space;
pub mod statistics;
pub mod strategy;
pub mod sweep;
pub mod system;
pub mod trials;
pub mod workload;

pub use error::TunerError;
