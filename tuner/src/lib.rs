//! Finds the fastest configuration: plans, trials, journal, selection.
#![forbid(unsafe_code)]

pub mod record;
pub mod selection;
