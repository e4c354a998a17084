//! What several tests of reports need.

pub mod guide;
pub mod synthetic;
