//! Configurations: launches, models, resolution, rules and diagnostics.
//!
//! Everything here is pure: text and values in, values and diagnostics out. Nothing reads a file, opens a socket or
//! panics on any input. The caller does the I/O and passes the text in.
#![forbid(unsafe_code)]

pub mod adaptive;
pub mod chain_tables;
pub mod container;
pub mod diagnostic;
pub mod export;
pub mod field_reference;
pub mod finding;
pub mod flags;
pub mod gpu;
pub mod json_schema;
pub mod kind;
pub mod launch;
pub mod model;
pub mod paths;
pub mod problems;
pub mod report;
pub mod request_log;
pub mod resolve;
pub mod rules;
pub mod secrets;
pub mod settings;
pub mod suppression;
pub mod sweep;
pub mod text;
pub mod toml_file;
pub mod train;
pub mod training_record;
pub mod tree;
pub mod tuned;
pub mod version;
pub mod words;
