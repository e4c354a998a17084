//! The linter: rules over launches, suppression comments, and the report in which findings get
//! their severity.
//!
//! Everything here is pure, as in `schemas`: text and facts in, findings out. The caller does the
//! I/O. Only the command line uses this crate, so a change of a rule rebuilds nothing else.
#![forbid(unsafe_code)]

pub mod exported;
pub mod published_models;
pub mod report;
pub mod rules;
pub mod suppression;
