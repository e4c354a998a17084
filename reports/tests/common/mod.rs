//! Helpers common to several tests of reports.

pub mod guide;
pub mod synthetic;
