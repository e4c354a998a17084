//! Configurations: files, flags, facts of models, findings and their output.
//!
//! The crates below it read launches (`launch`) and check them (`lint`).
//!
//! Everything here is pure: text and values in, values and diagnostics out. Nothing reads a file,
//! opens a socket or panics on any input. The caller does the I/O and passes the text in.
#![forbid(unsafe_code)]
// The list of flags is longer than the default.
#![recursion_limit = "256"]

pub mod adaptive;
pub mod algorithm;
pub mod chain_tables;
pub mod defaults;
pub mod diagnostic;
pub mod drafting;
pub mod engines;
pub mod export;
pub mod field_reference;
pub mod finding;
pub mod flags;
pub mod gpu;
pub mod json_schema;
pub mod keywords;
pub mod kind;
pub mod launch_file;
pub mod model;
pub mod paths;
pub mod problems;
pub mod quoting;
pub mod request_log;
pub mod secrets;
pub mod settings;
pub mod sweep;
pub mod text;
pub mod toml_file;
pub mod train;
pub mod training_record;
pub mod tree;
pub mod tuned;
pub mod variables;
pub mod version;
pub mod words;
