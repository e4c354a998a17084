//! Trials and what is stored of them: configurations, records, and the journal.

pub mod configuration;
mod exclusion;
pub mod journal;
pub mod record;
pub(crate) mod shard;
pub mod workload_folders;
