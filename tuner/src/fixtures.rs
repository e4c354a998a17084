//! Models and trials for tests.

pub mod demo;
pub mod synthetic;
