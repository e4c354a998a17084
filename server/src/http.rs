//! HTTP without any endpoint: limits on connections, memory and slow work, the fields of JSON
//! bodies, and errors.

pub mod connections;
pub mod error;
pub mod fields;
pub mod lanes;
pub mod memory;
pub mod neutral;
