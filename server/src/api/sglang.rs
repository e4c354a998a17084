//! Endpoints of SGLang's API.

pub mod control;
pub mod generate;
pub mod tokenize;
pub mod updates;
