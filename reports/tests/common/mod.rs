//! What several tests of reports need.

pub mod synthetic;
